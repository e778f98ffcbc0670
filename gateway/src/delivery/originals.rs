//! The messages of refused rows, read again from Kafka for their dead letters.
//!
//! Place in the flow: a shipment asks for one after another. Owner: the thread `originals` has one client for all of them: each needs
//! connections, their handshakes, and threads, which is more than the message is. [`Originals`] is cheap to clone and does not block.
//!
//! Limits: one message at a time; a client that reads nothing is let go after [`IDLE_WAIT`], and so is one that has failed.

use crate::ground::async_sender::AsyncSender;
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use sluice_gateway_config::Kafka;
use sluice_kafka::{OwnedMessage, Patience, ReadError, TopicReader};
use sluice_ranges::PartitionId;
use std::{thread, time::Duration};
use tokio::sync::oneshot;

/// Messages that are waited for. Chosen: one block goes in parts at a time; one whose generation is over may still be at it.
const REQUESTS_MAX: usize = 1;

/// How long a client is kept that reads nothing. Chosen: while rows are refused, blocks with some of them follow each other in seconds.
const IDLE_WAIT: Duration = Duration::from_secs(30);

/// How long each question to Kafka about a message may take: as long as any other.
const PATIENCE: Patience = Patience { answer: Duration::from_secs(10), message: Duration::from_secs(10) };

type Fetched = Result<Option<OwnedMessage>, ReadError>;

/// A client: reads the message of a partition at an offset.
type Client = Box<dyn FnMut(&PartitionId, i64) -> Fetched>;

struct Request {
    id: PartitionId,
    offset: i64,
    answer: oneshot::Sender<Fetched>,
}

/// The thread, as others see it.
#[derive(Clone)]
pub struct Originals(AsyncSender<Request>);

impl Originals {
    /// Starts the thread. Nothing is asked yet.
    pub fn start(kafka: &Kafka) -> std::io::Result<Self> {
        let kafka = kafka.clone();
        let open = move || {
            let reader = TopicReader::new(&kafka, "originals", PATIENCE)?;
            Ok(Box::new(move |id: &PartitionId, offset| reader.message(id, offset)) as Client)
        };
        Self::start_with(open, IDLE_WAIT)
    }

    fn start_with(
        open: impl Fn() -> Result<Client, ReadError> + Send + 'static,
        idle_wait: Duration,
    ) -> std::io::Result<Self> {
        let (requests, requests_in) = bounded(REQUESTS_MAX);
        let work = move || run(&requests_in, open, idle_wait);
        thread::Builder::new().name("originals".to_owned()).spawn(work)?;
        Ok(Self(AsyncSender::new(requests)))
    }

    /// The message at an offset; none when Kafka does not have it any more.
    pub async fn fetch(&self, id: PartitionId, offset: i64) -> Fetched {
        let (answer, fetched) = oneshot::channel();
        let is_asked = self.0.send(Request { id, offset, answer }).await.is_ok();
        match fetched.await {
            Ok(fetched) if is_asked => fetched,
            // The thread has panicked, and the process ends.
            _ => std::future::pending().await,
        }
    }
}

fn run(requests: &Receiver<Request>, open: impl Fn() -> Result<Client, ReadError>, idle_wait: Duration) {
    let mut client = None;
    loop {
        match requests.recv_timeout(idle_wait) {
            Ok(Request { id, offset, answer }) => {
                let fetched = fetch(&mut client, &open, (&id, offset));
                if answer.send(fetched).is_err() {
                    // The generation is over: another owner asks.
                }
            }
            Err(RecvTimeoutError::Timeout) => client = None,
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn fetch(
    client: &mut Option<Client>,
    open: impl Fn() -> Result<Client, ReadError>,
    (id, offset): (&PartitionId, i64),
) -> Fetched {
    let mut read = match client.take() {
        Some(read) => read,
        None => open()?,
    };
    let fetched = read(id, offset);
    // After an error the next one has the secrets and addresses of then.
    *client = Some(read).filter(|_| fetched.is_ok());
    fetched
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    fn id() -> PartitionId {
        PartitionId { topic: "spans".into(), partition: 0 }
    }

    /// Clients that have no message, and fail at negative offsets; how many were opened, and a channel that says when one has gone.
    fn counted(idle_wait: Duration) -> (Originals, Arc<AtomicUsize>, Receiver<()>) {
        let opened = Arc::new(AtomicUsize::new(0));
        let (gone, gone_in) = bounded::<()>(9);
        let counts = opened.clone();
        let open = move || {
            counts.fetch_add(1, Ordering::Relaxed);
            let goes = Goes(gone.clone());
            Ok(Box::new(move |_: &PartitionId, offset: i64| {
                let _alive = &goes;
                let topic = "away".to_owned();
                if offset < 0 { Err(ReadError::Missing { topic, partition: None }) } else { Ok(None) }
            }) as Client)
        };
        (Originals::start_with(open, idle_wait).unwrap(), opened, gone_in)
    }

    struct Goes(crossbeam_channel::Sender<()>);

    impl Drop for Goes {
        fn drop(&mut self) {
            self.0.try_send(()).unwrap();
        }
    }

    #[tokio::test]
    async fn messages_are_read_by_one_client_until_it_fails() {
        let (originals, opened, _gone) = counted(Duration::from_hours(1));
        for offset in [0, 7, 3] {
            assert!(originals.fetch(id(), offset).await.unwrap().is_none());
        }
        assert_eq!(opened.load(Ordering::Relaxed), 1);
        assert!(originals.fetch(id(), -1).await.is_err());
        assert!(originals.fetch(id(), 9).await.is_ok());
        assert_eq!(opened.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn a_client_that_reads_nothing_is_let_go() {
        let (originals, opened, gone) = counted(Duration::from_millis(1));
        for count in 1..=2 {
            assert!(originals.fetch(id(), 0).await.is_ok());
            assert_eq!(gone.recv_timeout(Duration::from_secs(10)), Ok(()));
            assert_eq!(opened.load(Ordering::Relaxed), count);
        }
    }
}
