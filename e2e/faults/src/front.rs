//! The port of a front, whose connections all go one [`Way`].
//!
//! Job: the part that the fronts of brokers and of ClickHouse share. Owner: tasks of the runtime in which it was opened; they end when it is
//! dropped. Limits: connections always end with a reset, by a scenario or because the server has ended.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// How all connections of a front go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// Everything passes.
    #[default]
    Open,
    /// No bytes pass, and no connection ends.
    Blackhole,
    /// Connections are closed, and new ones at once.
    Refused,
}

/// The way of all connections, for one of them to follow.
pub type Told = watch::Receiver<Way>;

/// Waits until everything passes.
pub async fn opened(way: &Told) -> Result<()> {
    way.clone().wait_for(|way| *way == Way::Open).await.map(drop).context("the front has ended")
}

/// A port of this machine.
pub struct Door {
    address: SocketAddr,
    way: watch::Sender<Way>,
    accepting: JoinHandle<()>,
}

impl Door {
    /// Listens on a free port of this address of the machine. Each connection is what `serve` makes of it, until the way is
    /// [`Way::Refused`]. `what` names the front in an error.
    pub async fn open<F: Future<Output = ()> + Send + 'static>(
        host: &str,
        what: &str,
        serve: impl Fn(TcpStream, Told) -> F + Send + 'static,
    ) -> Result<Door> {
        let listener = TcpListener::bind((host, 0)).await.with_context(|| format!("listen for {what}"))?;
        let address = listener.local_addr().with_context(|| format!("ask for the port of {what}"))?;
        let (way, told) = watch::channel(Way::Open);
        Ok(Door { address, way, accepting: tokio::spawn(accept(listener, told, serve)) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// All connections go this way from now on.
    pub fn go(&self, way: Way) {
        self.way.send_replace(way);
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept<F: Future<Output = ()> + Send + 'static>(
    listener: TcpListener,
    told: Told,
    serve: impl Fn(TcpStream, Told) -> F,
) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        while connections.try_join_next().is_some() {}
        if stream.set_zero_linger().is_err() {
            continue;
        }
        let (serving, mut way) = (serve(stream, told.clone()), told.clone());
        connections.spawn(async move {
            // The client has to notice a broken connection.
            tokio::select! {
                () = serving => {}
                _ = way.wait_for(|way| *way == Way::Refused) => {}
            }
        });
    }
}
