//! A server with an acceptor that a test answers for.

use http::HeaderName;
use sluice_otlp_server::{
    Accepted, Acceptor, ByteBudget, ConnectionEnd, Counters, Notice, NoticeKind, Outcome, Protocol, Refusal,
    Request, Server, ServerConfig, Unanswered,
};
use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::timeout,
};

/// How long a test waits for what must happen. Nothing takes this long.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Waits for what must happen.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("it happens")
}

/// What the acceptor says.
pub type Reply = Result<Accepted, Refusal>;

/// A request that waits for its answer.
pub struct Arrival {
    pub request: Request,
    pub reply: oneshot::Sender<Reply>,
}

/// Hands requests to the test, and answers what it says.
struct Scripted(mpsc::Sender<Arrival>);

impl Acceptor for Scripted {
    async fn accept(&self, request: Request) -> Reply {
        let (reply, answer) = oneshot::channel();
        self.0.send(Arrival { request, reply }).await.expect("the test is there");
        answer.await.unwrap_or_else(|_| Err(Refusal::Malformed("the test does not answer".to_owned())))
    }
}

pub struct World {
    pub grpc: SocketAddr,
    pub http: SocketAddr,
    pub arrivals: mpsc::Receiver<Arrival>,
    pub notices: mpsc::Receiver<Notice>,
    pub counters: Arc<Counters>,
    pub budget: ByteBudget,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Result<(), Unanswered>>,
}

/// The config of a server of a test, before the test changes it: 8 MiB, and all notices.
fn config(notices: mpsc::Sender<Notice>) -> ServerConfig {
    let taker = Arc::new(move |notice| drop(notices.try_send(notice)));
    let mut config = ServerConfig::new(ByteBudget::new(8 << 20), taker);
    config.grpc = Some((Ipv4Addr::LOCALHOST, 0).into());
    config.http = Some((Ipv4Addr::LOCALHOST, 0).into());
    config.tenant_header = Some(HeaderName::from_static("x-tenant"));
    config.limits.notice_interval = Duration::ZERO;
    config
}

impl World {
    pub async fn start(change: impl FnOnce(&mut ServerConfig)) -> Self {
        let (taker, notices) = mpsc::channel(1_024);
        let (sender, arrivals) = mpsc::channel(1_024);
        let mut config = config(taker);
        change(&mut config);
        let (counters, budget) = (config.counters.clone(), config.budget.clone());
        let server = Server::bind(config, Scripted(sender)).await.unwrap();
        let (grpc, http) = (server.grpc_address().unwrap(), server.http_address().unwrap());
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(server.serve(async { drop(stopped.await) }));
        Self { grpc, http, arrivals, notices, counters, budget, stop, serving }
    }

    /// Answers everything so from now on, and counts it.
    pub fn answering(&mut self, reply: impl Fn(&Request) -> Reply + Send + 'static) {
        let (_, none) = mpsc::channel(1);
        let mut arrivals = std::mem::replace(&mut self.arrivals, none);
        tokio::spawn(async move {
            while let Some(arrival) = arrivals.recv().await {
                let said = reply(&arrival.request);
                drop(arrival.request);
                drop(arrival.reply.send(said));
            }
        });
    }

    pub async fn accepting(change: impl FnOnce(&mut ServerConfig)) -> Self {
        let mut world = Self::start(change).await;
        world.answering(|_| Ok(Accepted::default()));
        world
    }

    pub async fn arrival(&mut self) -> Arrival {
        soon(self.arrivals.recv()).await.unwrap()
    }

    /// The next notice of a kind.
    pub async fn notice(&mut self, kind: NoticeKind) -> Notice {
        soon(async {
            loop {
                let notice = self.notices.recv().await.unwrap();
                if notice.kind == kind {
                    return notice;
                }
            }
        })
        .await
    }

    pub fn count(&self, outcome: Outcome) -> u64 {
        Protocol::ALL.iter().map(|protocol| self.counters.requests(*protocol, outcome)).sum()
    }

    /// Waits until connections have ended so.
    pub async fn ended(&self, end: ConnectionEnd, count: u64) {
        until(|| self.counters.connection_ends(end) >= count).await;
    }

    /// Begins the shutdown.
    pub fn stop(self) -> Stopping {
        self.stop.send(()).unwrap();
        Stopping(self.serving)
    }
}

/// A server that ends.
pub struct Stopping(JoinHandle<Result<(), Unanswered>>);

impl Stopping {
    pub async fn ended(self) -> Result<(), Unanswered> {
        soon(self.0).await.unwrap()
    }
}

/// Waits until something holds that has no event of its own.
pub async fn until(holds: impl Fn() -> bool) {
    soon(async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
