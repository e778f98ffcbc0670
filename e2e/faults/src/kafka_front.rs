//! A front for one broker, under a scenario's control.
//!
//! ```text
//! gateway -> front: requests frame by frame -> broker
//! gateway <- front: answers, matched to their requests <- broker
//! ```
//!
//! Job: let a scenario hold, drop or break a frame ([`Gate`]), or all of them at once ([`Way`]). The broker advertises this front as the
//! address of its second listener. Owner: tasks of the runtime in which it was started; they end when it is dropped. Limits: a frame is
//! held as a whole, at most [`FRAME_BYTES_MAX`]; a held frame stops the frames behind it on its connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::front::{Door, Told, Way, opened};
use super::gate::Gate;
use super::kafka_wire::{METADATA, Request, correlation_of_answer, set_session_timeout, without_cluster};

/// The largest frame: more than the 128 MiB that the broker accepts.
const FRAME_BYTES_MAX: usize = 160 << 20;

/// Session timeout of every member, milliseconds, whatever it asks for: twice its heartbeats, and no less than brokers allow. The gateway
/// asks for 45 s, too long for a round.
pub const SESSION_MS: i32 = 6_000;

/// The direction of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leg {
    /// To the broker, which has not seen it yet.
    Asked,
    /// Back, after the broker has carried out the request.
    Answered,
}

/// A request, or the answer to it.
#[derive(Clone, Debug)]
pub struct Passage {
    pub leg: Leg,
    pub request: Request,
    /// Number of the broker, from 1 on.
    pub broker: u32,
}

/// What happens to a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    #[default]
    Pass,
    /// It is dropped; its connection stays.
    Drop,
    Reset,
    /// It is forwarded; the answer to a `Metadata` request loses the cluster's id.
    Unnamed,
}

struct Shared {
    broker: u32,
    upstream: String,
    gate: Arc<Gate<Passage, Verdict>>,
}

pub struct KafkaFront(Door);

impl KafkaFront {
    /// Listens on a free port of this machine, in front of the broker at `upstream` (`host:port`).
    pub async fn start(
        broker: u32,
        upstream: &str,
        gate: &Arc<Gate<Passage, Verdict>>,
    ) -> Result<KafkaFront> {
        let shared = Arc::new(Shared { broker, upstream: upstream.to_owned(), gate: Arc::clone(gate) });
        let serve = move |client: TcpStream, way: Told| {
            let shared = Arc::clone(&shared);
            async move { drop(relay(client, &way, &shared).await) }
        };
        Door::open("127.0.0.1", "a broker's front", serve).await.map(KafkaFront)
    }

    /// `host:port` where it listens.
    pub fn address(&self) -> String {
        self.0.address().to_string()
    }

    /// Sets the behaviour of all connections from now on.
    pub fn go(&self, way: Way) {
        self.0.go(way);
    }
}

/// Unanswered requests of one connection, by correlation id.
type Asked = Mutex<HashMap<i32, Request>>;

async fn relay(client: TcpStream, way: &Told, shared: &Shared) -> Result<()> {
    let broker = TcpStream::connect(&shared.upstream).await.context("reach the broker")?;
    client.set_nodelay(true).and(broker.set_nodelay(true)).context("prepare a connection")?;
    let (client_in, client_out) = client.into_split();
    let (broker_in, broker_out) = broker.into_split();
    let asked = Asked::default();
    tokio::select! {
        over = requests(client_in, broker_out, way, shared, &asked) => over,
        over = answers(broker_in, client_out, way, shared, &asked) => over,
    }
}

async fn requests(
    mut client: OwnedReadHalf,
    mut broker: OwnedWriteHalf,
    way: &Told,
    shared: &Shared,
    asked: &Asked,
) -> Result<()> {
    loop {
        let mut frame = read_frame(&mut client).await?;
        opened(way).await?;
        set_session_timeout(&mut frame, SESSION_MS);
        if let Some(request) = Request::read(&frame) {
            let passage = Passage { leg: Leg::Asked, request: request.clone(), broker: shared.broker };
            match shared.gate.pass(passage).await {
                Verdict::Pass | Verdict::Unnamed => {}
                Verdict::Drop => continue,
                Verdict::Reset => return Ok(()),
            }
            asked.lock().unwrap_or_else(PoisonError::into_inner).insert(request.correlation, request);
        }
        write_frame(&mut broker, &frame).await?;
    }
}

async fn answers(
    mut broker: OwnedReadHalf,
    mut client: OwnedWriteHalf,
    way: &Told,
    shared: &Shared,
    asked: &Asked,
) -> Result<()> {
    loop {
        let mut frame = read_frame(&mut broker).await?;
        opened(way).await?;
        let correlation = correlation_of_answer(&frame).unwrap_or_default();
        let request = asked.lock().unwrap_or_else(PoisonError::into_inner).remove(&correlation);
        if let Some(request) = request {
            let (api, version) = (request.api, request.version);
            let passage = Passage { leg: Leg::Answered, request, broker: shared.broker };
            match shared.gate.pass(passage).await {
                Verdict::Unnamed if api == METADATA => frame = without_cluster(&frame, version),
                Verdict::Pass | Verdict::Unnamed => {}
                Verdict::Drop => continue,
                Verdict::Reset => return Ok(()),
            }
        }
        write_frame(&mut client, &frame).await?;
    }
}

async fn read_frame(from: &mut OwnedReadHalf) -> Result<Vec<u8>> {
    let length = from.read_u32().await.context("read a frame's length")?;
    let length = usize::try_from(length).context("hold a frame")?;
    anyhow::ensure!(length <= FRAME_BYTES_MAX, "a frame of {length} bytes");
    let mut frame = vec![0; length];
    from.read_exact(&mut frame).await.context("read a frame")?;
    Ok(frame)
}

async fn write_frame(to: &mut OwnedWriteHalf, frame: &[u8]) -> Result<()> {
    let length = u32::try_from(frame.len()).context("write a frame's length")?;
    // One write: otherwise the length alone would be a packet, and wait for the next one.
    let whole = [&length.to_be_bytes()[..], frame].concat();
    to.write_all(&whole).await.context("write a frame")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::net::TcpListener;

    use super::*;
    use crate::kafka_wire::{HEARTBEAT, OFFSET_COMMIT};

    const PATIENCE: Duration = Duration::from_secs(5);

    /// A broker that answers every request with its correlation id only.
    async fn broker() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.into_split();
                    while let Ok(frame) = read_frame(&mut from).await {
                        write_frame(&mut to, &frame[4..8]).await.unwrap();
                    }
                });
            }
        });
        address
    }

    struct Client(OwnedReadHalf, OwnedWriteHalf);

    impl Client {
        async fn connect(front: &KafkaFront) -> Client {
            let (from, to) = TcpStream::connect(front.address()).await.unwrap().into_split();
            Client(from, to)
        }

        async fn ask(&mut self, api: i16, correlation: i32) {
            let frame = [
                &api.to_be_bytes()[..],
                &0_i16.to_be_bytes(),
                &correlation.to_be_bytes(),
                &(-1_i16).to_be_bytes(),
            ];
            write_frame(&mut self.1, &frame.concat()).await.unwrap();
        }

        async fn answer(&mut self) -> Option<i32> {
            let frame = read_frame(&mut self.0).await.ok()?;
            correlation_of_answer(&frame)
        }
    }

    async fn front(gate: &Arc<Gate<Passage, Verdict>>) -> KafkaFront {
        KafkaFront::start(1, &broker().await, gate).await.unwrap()
    }

    #[tokio::test]
    async fn an_answer_is_caught_by_its_request_and_can_be_swallowed() {
        let gate = Arc::default();
        let front = front(&gate).await;
        let mut client = Client::connect(&front).await;
        let is_commit = |passage: &Passage| passage.request.api == OFFSET_COMMIT;
        let trap = gate.trap("answer", move |passage| is_commit(passage) && passage.leg == Leg::Answered);
        client.ask(HEARTBEAT, 1).await;
        assert_eq!(client.answer().await, Some(1));
        client.ask(OFFSET_COMMIT, 2).await;
        let caught = trap.caught(PATIENCE).await.unwrap();
        assert_eq!(caught.passage.request.correlation, 2);
        caught.decide(Verdict::Drop);
        client.ask(HEARTBEAT, 3).await;
        assert_eq!(client.answer().await, Some(3));
    }

    #[tokio::test]
    async fn a_reset_ends_the_connection_and_no_other() {
        let gate = Arc::default();
        let front = front(&gate).await;
        let (mut first, mut second) = (Client::connect(&front).await, Client::connect(&front).await);
        let trap = gate.trap("request", |passage| passage.leg == Leg::Asked);
        first.ask(OFFSET_COMMIT, 1).await;
        trap.caught(PATIENCE).await.unwrap().decide(Verdict::Reset);
        assert_eq!(first.answer().await, None);
        second.ask(HEARTBEAT, 2).await;
        assert_eq!(second.answer().await, Some(2));
    }

    #[tokio::test]
    async fn nothing_passes_a_blackhole_until_it_ends() {
        let gate = Arc::default();
        let front = front(&gate).await;
        let mut client = Client::connect(&front).await;
        front.go(Way::Blackhole);
        client.ask(HEARTBEAT, 1).await;
        assert!(tokio::time::timeout(Duration::from_millis(50), client.answer()).await.is_err());
        front.go(Way::Open);
        assert_eq!(client.answer().await, Some(1));
        front.go(Way::Refused);
        assert_eq!(client.answer().await, None);
    }
}
