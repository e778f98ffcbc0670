//! Reads the messages of refused rows again, from Kafka or from a log of this process, for their dead letters.
//!
//! Place in the flow: shipments ask for one message at a time. Owner: the thread `originals` has one client for all of them, because the
//! connections, handshakes and threads of a client cost more than a message. [`Originals`] is cheap to clone and does not block.
//!
//! Limits: one message at a time. The client is closed after [`IDLE_WAIT`] without a request, and after an error.

use crate::{ground::async_sender::AsyncSender, source::keeper::Keeper};
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use sluice_gateway_config::Kafka;
use sluice_kafka::{OwnedMessage, Patience, ReadError, TopicReader};
use sluice_ranges::PartitionId;
use std::{sync::Arc, thread, time::Duration};
use tokio::sync::oneshot;

/// Waiting requests. Chosen: one block is sent in parts at a time; one whose generation is over may still be waiting.
const REQUESTS_MAX: usize = 1;

/// How long an idle client is kept. Chosen: while rows are refused, blocks with refused rows follow each other within seconds.
const IDLE_WAIT: Duration = Duration::from_secs(30);

/// How long each request to Kafka may take, the same as for all others.
const PATIENCE: Patience = Patience { answer: Duration::from_secs(10), message: Duration::from_secs(10) };

type Fetched = Result<Option<OwnedMessage>, ReadError>;

/// A client: reads the message of a partition at an offset.
type Client = Box<dyn FnMut(&PartitionId, i64) -> Fetched>;

struct Request {
    id: PartitionId,
    offset: i64,
    answer: oneshot::Sender<Fetched>,
}

/// The handle of the thread.
#[derive(Clone)]
pub struct Originals(AsyncSender<Request>);

impl Originals {
    /// Starts the thread; it connects on the first request.
    pub fn start(kafka: &Kafka) -> std::io::Result<Self> {
        let kafka = kafka.clone();
        let open = move || {
            let reader = TopicReader::new(&kafka, "originals", PATIENCE)?;
            Ok(Box::new(move |id: &PartitionId, offset| reader.message(id, offset)) as Client)
        };
        Self::start_with(open, IDLE_WAIT)
    }

    /// Starts the thread for logs of this process.
    pub fn of_logs(keeper: Arc<Keeper>) -> std::io::Result<Self> {
        let open = move || {
            let keeper = keeper.clone();
            let read = move |id: &PartitionId, offset| {
                // The message is not said to be gone: if the disk does not give it, it is read again; after another failure the process ends.
                let failed = |fatal: sluice_spool::Fatal| ReadError::Volume(fatal.to_string());
                keeper.message(id, offset).map_err(failed)
            };
            Ok(Box::new(read) as Client)
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

    /// The message at an offset; `None` if Kafka, or the log, no longer has it.
    pub async fn fetch(&self, id: PartitionId, offset: i64) -> Fetched {
        let (answer, fetched) = oneshot::channel();
        let is_asked = self.0.send(Request { id, offset, answer }).await.is_ok();
        match fetched.await {
            Ok(fetched) if is_asked => fetched,
            // The thread has panicked, so the process ends.
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
                    // The generation is over: another owner reads the message.
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
    // After an error, the next client reads the secrets and addresses again.
    *client = Some(read).filter(|_| fetched.is_ok());
    fetched
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn id() -> PartitionId {
        PartitionId { topic: "spans".into(), partition: 0 }
    }

    /// Clients without messages that fail at negative offsets; the number of opened ones, and a channel that reports each closed one.
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
