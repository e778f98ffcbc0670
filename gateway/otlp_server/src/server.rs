//! The server: its sockets, from bound to closed.

use crate::{
    config::{CredentialFiles, ServerConfig, TlsFiles},
    connection,
    counters::{ConnectionEnd, Protocol},
    exchange::Desk,
    files::{Live, Watched},
    listener::listen,
    notices::{NoticeKind, Notices},
    request::Acceptor,
    tls::Tls,
};
use std::{
    convert::Infallible, fmt, future::Future, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
    time::timeout,
};

/// How long to wait when a connection cannot be accepted, most likely because there are no file descriptors left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

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
    /// Certificate, key, authorities, tokens or users cannot be used.
    #[error("using the {what} from {}: {reason}", file.display())]
    Unusable {
        /// What is in it.
        what: &'static str,
        /// Which.
        file: PathBuf,
        /// Why.
        reason: String,
    },
    /// The runtime ends while files are read.
    #[error("the process ends, and files of the OTLP server are not read any more")]
    Ending,
}

/// Requests and connections had not ended at [`crate::Limits::shutdown_timeout`]; their clients see broken connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{requests} requests on {connections} connections had no answer when the server ended; their clients send them again"
)]
pub struct Unanswered {
    /// Requests without an answer.
    pub requests: u64,
    /// Connections that were open then.
    pub connections: usize,
}

/// A server whose sockets are bound. Clients can connect; they are answered once it serves.
pub struct Server<A> {
    config: ServerConfig,
    acceptor: A,
    grpc: Option<TcpListener>,
    http: Option<TcpListener>,
    tls: Option<Watched<TlsFiles>>,
    credentials: Option<Watched<CredentialFiles>>,
    notices: Arc<Notices>,
}

impl<A> fmt::Debug for Server<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("config", &self.config)
            .field("grpc", &self.grpc)
            .field("http", &self.http)
            .finish_non_exhaustive()
    }
}

impl Error {
    /// Whether the config, or a file that it names, is at fault.
    pub fn is_of_config(&self) -> bool {
        match self {
            Self::NoAddress | Self::Read { .. } | Self::Unusable { .. } => true,
            Self::Listen { .. } | Self::Ending => false,
        }
    }
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
        let notices = Arc::new(Notices::new(config.notices.clone(), config.limits.notice_interval));
        let tls = match &config.tls {
            Some(files) => Some(Watched::load(files.clone()).await?),
            None => None,
        };
        let credentials = match &config.credentials {
            Some(files) => Some(Watched::load(files.clone()).await?),
            None => None,
        };
        let grpc = bind(config.grpc, &notices).await?;
        let http = bind(config.http, &notices).await?;
        Ok(Self { config, acceptor, grpc, http, tls, credentials, notices })
    }

    /// Where gRPC is served, with the port that the kernel chose if the config says 0; `None` if it is not.
    pub fn grpc_address(&self) -> Option<SocketAddr> {
        address(self.grpc.as_ref())
    }

    /// The same for HTTP.
    pub fn http_address(&self) -> Option<SocketAddr> {
        address(self.http.as_ref())
    }

    /// Serves until `shutdown` is ready. Then it takes the connections that wait at the sockets and closes these, tells every connection
    /// that no more requests are taken (GOAWAY, or `Connection: close`), and waits until the requests that it has are answered, at most
    /// [`crate::Limits::shutdown_timeout`]. A connection of HTTP/1.1 without a request waits a second for one before it is closed.
    ///
    /// # Errors
    /// [`Unanswered`] if that was not enough.
    pub async fn serve(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), Unanswered> {
        let ports = (self.grpc_address(), self.http_address());
        let Self { config, acceptor, grpc, http, mut tls, mut credentials, notices } = self;
        let limits = config.limits;
        let desk = Arc::new(Desk {
            acceptor,
            budget: config.budget,
            counters: config.counters.clone(),
            notices: notices.clone(),
            credentials: credentials.as_ref().map(Watched::live),
            tenant_header: config.tenant_header,
            requests: Arc::new(Semaphore::new(limits.requests_max)),
            wide_windows: Semaphore::new(limits.wide_windows_max),
            decompressions: Arc::new(Semaphore::new(limits.decompressions_max.max(1))),
            grpc_port: ports.0.map(|address| address.port()),
            http_port: ports.1.map(|address| address.port()),
            limits,
        });
        let mut connections = Connections::new(desk.clone(), tls.as_ref().map(Watched::live));
        let reading = reload(&desk, (&mut tls, &mut credentials));
        tokio::pin!(shutdown, reading);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                stream = accept(grpc.as_ref(), &notices) => connections.take(Protocol::Grpc, stream),
                stream = accept(http.as_ref(), &notices) => connections.take(Protocol::Http, stream),
                () = connections.ended() => {}
                never = &mut reading => match never {},
            }
        }
        // Clients whose connections the kernel has accepted may have sent a request.
        connections.take_waiting(Protocol::Grpc, grpc);
        connections.take_waiting(Protocol::Http, http);
        // From here on, clients that connect go elsewhere.
        connections.end().await
    }
}

/// The tasks of connections.
struct Connections<A> {
    desk: Arc<Desk<A>>,
    tls: Option<Live<Tls>>,
    tasks: JoinSet<()>,
    closing: watch::Sender<bool>,
}

impl<A: Acceptor> Connections<A> {
    fn new(desk: Arc<Desk<A>>, tls: Option<Live<Tls>>) -> Self {
        Self { desk, tls, tasks: JoinSet::new(), closing: watch::Sender::new(false) }
    }

    /// Serves a connection, or closes it if there are too many.
    fn take(&mut self, protocol: Protocol, stream: TcpStream) {
        // A task that panicked has ended its connection, and the panic hook has reported it.
        while self.tasks.try_join_next().is_some() {}
        let max = self.desk.limits.connections_max;
        if self.tasks.len() >= max {
            let full = ConnectionEnd::Full;
            self.desk.counters.refuse_connection(full);
            self.desk.notices.tell(NoticeKind::Connection(full), || {
                format!(
                    "there are {max} connections, and another one is closed: add pods, or raise the limit"
                )
            });
            return;
        }
        let (desk, tls, closing) = (self.desk.clone(), self.tls.clone(), self.closing.subscribe());
        self.tasks.spawn(connection::serve(desk, protocol, (stream, tls), closing));
    }

    /// Takes the connections that wait at a socket, and closes it.
    fn take_waiting(&mut self, protocol: Protocol, listener: Option<TcpListener>) {
        // The socket itself is asked: the runtime may not know yet of those that came last.
        let Some(Ok(listener)) = listener.map(TcpListener::into_std) else { return };
        for _ in 0..self.desk.limits.connections_max {
            let Ok((stream, _)) = listener.accept() else { return };
            if let Ok(stream) = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream)) {
                self.take(protocol, stream);
            }
        }
    }

    /// Waits until a connection has ended, for ever if there is none.
    async fn ended(&mut self) {
        if self.tasks.join_next().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// Tells all connections, and waits for them.
    async fn end(mut self) -> Result<(), Unanswered> {
        self.closing.send_replace(true);
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if timeout(self.desk.limits.shutdown_timeout, all).await.is_ok() {
            return Ok(());
        }
        let requests = self.desk.counters.requests_in_flight();
        let unanswered = Unanswered { requests, connections: self.tasks.len() };
        self.tasks.shutdown().await;
        if unanswered.requests == 0 { Ok(()) } else { Err(unanswered) }
    }
}

/// The next connection of a listener; none ever if there is no listener.
async fn accept(listener: Option<&TcpListener>, notices: &Notices) -> TcpStream {
    let Some(listener) = listener else { return std::future::pending().await };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                notices.tell(NoticeKind::Accept, || format!("cannot accept a connection: {error}"));
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

type WatchedFiles<'a> = (&'a mut Option<Watched<TlsFiles>>, &'a mut Option<Watched<CredentialFiles>>);

/// Reads the files again and again.
async fn reload<A>(desk: &Desk<A>, (tls, credentials): WatchedFiles<'_>) -> Infallible {
    if tls.is_none() && credentials.is_none() {
        std::future::pending::<()>().await;
    }
    loop {
        tokio::time::sleep(desk.limits.reload_interval).await;
        if let Some(tls) = tls {
            tls.refresh(&desk.counters, &desk.notices).await;
        }
        if let Some(credentials) = credentials {
            credentials.refresh(&desk.counters, &desk.notices).await;
        }
    }
}

async fn bind(address: Option<SocketAddr>, notices: &Notices) -> Result<Option<TcpListener>, Error> {
    let Some(address) = address else { return Ok(None) };
    let ipv4_only = |error| notices.tell(NoticeKind::Ipv4Only, || format!("{address}: {error}"));
    let bound = listen(address, ipv4_only).await;
    bound.map(Some).map_err(|source| Error::Listen { address, source })
}

fn address(listener: Option<&TcpListener>) -> Option<SocketAddr> {
    listener.and_then(|listener| listener.local_addr().ok())
}
