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
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::gate::Gate;
use super::kafka_wire::{METADATA, Request, correlation_of_answer, set_session_timeout, without_cluster};

/// The largest frame: more than the 128 MiB that the broker accepts.
const FRAME_BYTES_MAX: usize = 160 << 20;

/// Session timeout of every member, milliseconds, whatever it asks for: twice its heartbeats, and no less than brokers allow. The gateway
/// asks for 45 s, too long for a round.
pub const SESSION_MS: i32 = 6_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// Frames pass.
    #[default]
    Open,
    /// No bytes pass, and no connection ends.
    Blackhole,
    /// Connections are closed, and new ones at once.
    Refused,
}

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
    way: watch::Receiver<Way>,
}

pub struct KafkaFront {
    address: SocketAddr,
    way: watch::Sender<Way>,
    shared: Option<Shared>,
    listener: Option<TcpListener>,
    accepting: Option<JoinHandle<()>>,
}

impl KafkaFront {
    /// Listens on a free port of this machine, so that the broker can advertise it. It does not accept connections yet.
    pub async fn bind(broker: u32, gate: &Arc<Gate<Passage, Verdict>>) -> Result<KafkaFront> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listen for a broker's front")?;
        let address = listener.local_addr().context("ask for the port of a broker's front")?;
        let (way, way_in) = watch::channel(Way::Open);
        let shared = Shared { broker, upstream: String::new(), gate: Arc::clone(gate), way: way_in };
        Ok(KafkaFront { address, way, shared: Some(shared), listener: Some(listener), accepting: None })
    }

    /// Begins to accept, for the broker at `upstream` (`host:port`).
    pub fn serve(&mut self, upstream: &str) {
        if let (Some(listener), Some(shared)) = (self.listener.take(), self.shared.take()) {
            let shared = Arc::new(Shared { upstream: upstream.to_owned(), ..shared });
            self.accepting = Some(tokio::spawn(accept(listener, shared)));
        }
    }

    /// `host:port` where it listens.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Sets the behaviour of all connections from now on.
    pub fn go(&self, way: Way) {
        self.way.send_replace(way);
    }
}

impl Drop for KafkaFront {
    fn drop(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            accepting.abort();
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        while connections.try_join_next().is_some() {}
        let shared = Arc::clone(&shared);
        // The client has to notice a broken connection.
        connections.spawn(async move { relay(stream, &shared).await.ok() });
    }
}

/// Unanswered requests of one connection, by correlation id.
type Asked = Mutex<HashMap<i32, Request>>;

async fn relay(client: TcpStream, shared: &Shared) -> Result<()> {
    let mut way = shared.way.clone();
    let broker = TcpStream::connect(&shared.upstream).await.context("reach the broker")?;
    client.set_nodelay(true).and(broker.set_nodelay(true)).context("prepare a connection")?;
    // Connections always end with a reset, by a verdict or because the broker has ended.
    client.set_zero_linger().context("prepare a connection")?;
    let (client_in, client_out) = client.into_split();
    let (broker_in, broker_out) = broker.into_split();
    let asked = Asked::default();
    tokio::select! {
        over = requests(client_in, broker_out, shared, &asked) => over,
        over = answers(broker_in, client_out, shared, &asked) => over,
        refused = way.wait_for(|way| *way == Way::Refused) => refused.map(drop).context("the front has ended"),
    }
}

async fn requests(
    mut client: OwnedReadHalf,
    mut broker: OwnedWriteHalf,
    shared: &Shared,
    asked: &Asked,
) -> Result<()> {
    loop {
        let mut frame = read_frame(&mut client).await?;
        shared.open().await?;
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
    shared: &Shared,
    asked: &Asked,
) -> Result<()> {
    loop {
        let mut frame = read_frame(&mut broker).await?;
        shared.open().await?;
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

impl Shared {
    /// Waits until frames pass.
    async fn open(&self) -> Result<()> {
        let mut way = self.way.clone();
        way.wait_for(|way| *way == Way::Open).await.map(drop).context("the front has ended")
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
            let (from, to) = TcpStream::connect(front.address).await.unwrap().into_split();
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
        let mut front = KafkaFront::bind(1, gate).await.unwrap();
        front.serve(&broker().await);
        front
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
