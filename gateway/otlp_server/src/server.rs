//! The server: its sockets, from bound to closed.

use crate::{Acceptor, ServerConfig, listener::listen, notices::{NoticeKind, Notices}};
use std::{future::Future, net::SocketAddr, path::PathBuf};
use tokio::net::TcpListener;

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neither port is configured.
    #[error("a server needs an address for gRPC or for HTTP, and has neither")]
    NoAddress,
    /// A socket could not be bound.
    #[error("cannot listen on {address} for OTLP: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// A file does not exist, cannot be read, or is larger than 1 MiB.
    #[error("reading the {what} from {}: {reason}", file.display())]
    Read {
        /// What is in it.
        what: &'static str,
        /// Which.
        file: PathBuf,
        /// Why.
        reason: String,
    },
    /// Certificate, key or authorities cannot be used.
    #[error("using the {what} from {}: {reason}", file.display())]
    Unusable {
        /// What is in it.
        what: &'static str,
        /// Which.
        file: PathBuf,
        /// Why.
        reason: String,
    },
}

/// Requests and connections had not ended at [`crate::Limits::shutdown_timeout`]; their clients see broken connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{requests} requests on {connections} connections had no answer when the server ended; their clients send them again")]
pub struct Unanswered {
    /// Requests without an answer.
    pub requests: u64,
    /// Connections that were cut.
    pub connections: usize,
}

/// A server whose sockets are bound. Clients can connect; they are answered once it serves.
#[derive(Debug)]
pub struct Server<A> {
    config: ServerConfig,
    acceptor: A,
    grpc: Option<TcpListener>,
    http: Option<TcpListener>,
    notices: Notices,
}

impl<A: Acceptor> Server<A> {
    /// Reads the files, and binds the addresses.
    ///
    /// # Errors
    /// [`Error`], which names the address or the file.
    pub async fn bind(config: ServerConfig, acceptor: A) -> Result<Self, Error> {
        if config.grpc.is_none() && config.http.is_none() {
            return Err(Error::NoAddress);
        }
        let notices = Notices::new(config.notices.clone(), config.limits.notice_interval);
        let grpc = bind(config.grpc, &notices).await?;
        let http = bind(config.http, &notices).await?;
        Ok(Self { config, acceptor, grpc, http, notices })
    }

    /// Where gRPC is served, with the port that the kernel chose if the config says 0; `None` if it is not.
    pub fn grpc_address(&self) -> Option<SocketAddr> {
        self.grpc.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// The same for HTTP.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Serves until `shutdown` is ready. Then it closes the sockets, tells every connection that no more requests are taken (GOAWAY, or
    /// `Connection: close`), and waits until the requests that it has are answered, at most [`crate::Limits::shutdown_timeout`].
    ///
    /// # Errors
    /// [`Unanswered`] if that was not enough.
    pub async fn serve(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), Unanswered> {
        shutdown.await;
        Ok(())
    }
}

async fn bind(address: Option<SocketAddr>, notices: &Notices) -> Result<Option<TcpListener>, Error> {
    let Some(address) = address else { return Ok(None) };
    let ipv4_only = |error| notices.tell(NoticeKind::Ipv4Only, || format!("{address}: {error}"));
    let bound = listen(address, ipv4_only).await;
    bound.map(Some).map_err(|source| Error::Listen { address, source })
}
