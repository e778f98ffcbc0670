//! The config of a server.

use crate::{ByteBudget, Counters, Limits, NoticeTaker};
use http::HeaderName;
use std::{fmt, net::SocketAddr, path::PathBuf, sync::Arc};

/// Bytes of a tenant's name in its header. More is answered as malformed. Chosen: more than any that is in use.
pub const TENANT_BYTES_MAX: usize = 256;

/// Bytes of the words of an answer, after which they are cut. Chosen: in headers of gRPC they may take four times as much, and clients
/// accept 8 KiB of those.
pub const WORDS_BYTES_MAX: usize = 1_024;

/// The certificate of a server. All files are PEM, and are read again when they change. Connections that are open keep theirs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate and its chain.
    pub certificate: PathBuf,
    /// The key, not encrypted.
    pub key: PathBuf,
    /// One of these authorities must have signed the client's certificate. `None`: clients need none.
    pub client_ca: Option<PathBuf>,
}

/// How clients prove who they are in the header `Authorization`: any token or user of any file passes. Each file is read again when it
/// changes, whatever the others are. Lines end with LF or CR LF; empty ones are ignored. A file with a line that is neither is refused with
/// the number of the line. With no other line in any file, no client passes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CredentialFiles {
    /// Files with bearer tokens, one a line, of visible ASCII without spaces.
    pub bearer_tokens: Vec<PathBuf>,
    /// Files with users, one a line, each `user:password`; the password ends with the line.
    pub basic_users: Vec<PathBuf>,
}

/// The config of a server.
#[derive(Clone)]
pub struct ServerConfig {
    /// Where gRPC is served, mostly port 4317; `None`: not at all. `[::]` and `0.0.0.0` mean all addresses of IPv6 and IPv4, or only of
    /// IPv4 if the kernel has no IPv6. Port 0 is any that is free.
    pub grpc: Option<SocketAddr>,
    /// The same for HTTP, mostly port 4318.
    pub http: Option<SocketAddr>,
    /// TLS on both; `None`: plain text.
    pub tls: Option<TlsFiles>,
    /// How clients prove who they are; `None`: they need not.
    pub credentials: Option<CredentialFiles>,
    /// The header, or metadata key of gRPC, that has the tenant's name.
    pub tenant_header: Option<HeaderName>,
    /// What a request, a connection and the server may have.
    pub limits: Limits,
    /// Memory for bodies. It should have room for the largest request as received and decompressed, and for the window of zstd; one that has
    /// no room in all of it is too large.
    pub budget: ByteBudget,
    /// Where the server counts.
    pub counters: Arc<Counters>,
    /// Takes notices for the log.
    pub notices: NoticeTaker,
}

impl ServerConfig {
    /// A server on no port yet, with the default limits.
    pub fn new(budget: ByteBudget, notices: NoticeTaker) -> Self {
        Self {
            grpc: None,
            http: None,
            tls: None,
            credentials: None,
            tenant_header: None,
            limits: Limits::default(),
            budget,
            counters: Arc::default(),
            notices,
        }
    }
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConfig")
            .field("grpc", &self.grpc)
            .field("http", &self.http)
            .field("tls", &self.tls)
            .field("credentials", &self.credentials)
            .field("tenant_header", &self.tenant_header)
            .field("limits", &self.limits)
            .field("budget", &self.budget)
            .finish_non_exhaustive()
    }
}
