//! The OTLP server: its config, its limits and what it logs.
//!
//! The server's permits are the part `requests` of the budget. A permit goes with its request to the thread that works on it, and is held until the
//! answer. If the client has gone but a thread still has the body, it is held until the thread is done.

use anyhow::Context as _;
use http::HeaderName;
use sluice_gateway_config::{
    ByteSize, Duration as ConfigDuration, EdgeListen, OtlpAddresses, edge_budget::SERVER_BYTES,
};
use sluice_otlp_server::{
    ByteBudget, Counters, CredentialFiles, Limits, Notice, NoticeKind, ServerConfig, TlsFiles,
};
use std::{path::PathBuf, sync::Arc, time::Duration};

/// When a client should come again if nothing but room is missing. Chosen: a queue of memory drains in less.
pub const BUSY_AFTER: Duration = Duration::from_secs(1);

/// How long a request waits for memory, each time that it needs some. Chosen: while requests are stored, all that have memory are done in
/// less time, so a large one gets its turn, too. It is also a small part of the time that a client waits.
pub const PERMIT_WAIT: Duration = Duration::from_secs(1);

/// When a client should come again if requests cannot be stored. Chosen: brokers restart in seconds, and a volume gets room in seconds.
pub const NOT_STORED_AFTER: Duration = Duration::from_secs(5);

/// Connections of both ports. Chosen: with the three below and 16 wide windows, what they hold at most is within [`SERVER_BYTES`].
const CONNECTIONS_MAX: usize = 178;

/// Requests between their headers and their answer. Chosen: the same.
pub const REQUESTS_MAX: usize = 384;

/// Requests of one connection at the same time. Chosen: the same; a Collector's exporter sends 10.
const STREAMS_MAX: u32 = 32;

/// Bytes of a request's headers. Chosen: what most servers take.
const HEADER_BYTES_MAX: u32 = 16 << 10;

/// What a config says of the server.
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    pub listen: &'a EdgeListen,
    pub addresses: OtlpAddresses,
    /// The header that has a tenant's name.
    pub tenant_header: Option<&'a str>,
    pub request_bytes_max: ByteSize,
    pub decompressed_bytes_max: ByteSize,
    pub connection_age_max: ConfigDuration,
    /// Threads that work on requests.
    pub workers: u32,
    /// How long requests under way are waited for at the end.
    pub deadline: ConfigDuration,
}

/// The config of the server.
///
/// # Errors
/// If the header's name is none.
pub fn server_config(
    terms: Terms<'_>,
    budget: ByteBudget,
    counters: Arc<Counters>,
) -> anyhow::Result<ServerConfig> {
    let listen = terms.listen;
    let tls = listen.tls.as_ref().map(|tls| TlsFiles {
        certificate: PathBuf::from(&tls.certificate_file),
        key: PathBuf::from(&tls.key_file),
        client_ca: tls.client_ca_file.as_ref().map(PathBuf::from),
    });
    let credentials = listen.authentication.as_ref().map(|files| CredentialFiles {
        bearer_tokens: files.bearer_tokens_file.iter().map(PathBuf::from).collect(),
        basic_users: files.basic_users_file.iter().map(PathBuf::from).collect(),
    });
    let header = terms.tenant_header.map(HeaderName::try_from).transpose();
    Ok(ServerConfig {
        grpc: terms.addresses.grpc,
        http: terms.addresses.http,
        tls,
        credentials,
        tenant_header: header.context("tenants.header is not the name of a header")?,
        limits: limits(terms),
        counters,
        ..ServerConfig::new(budget, Arc::new(|notice| log(&notice)))
    })
}

fn limits(terms: Terms<'_>) -> Limits {
    let narrow = |size: ByteSize| u32::try_from(size.get()).unwrap_or(u32::MAX);
    let limits = Limits {
        body_bytes_max: narrow(terms.request_bytes_max),
        decompressed_bytes_max: narrow(terms.decompressed_bytes_max),
        decompressions_max: terms.workers as usize,
        requests_max: REQUESTS_MAX,
        connections_max: CONNECTIONS_MAX,
        concurrent_streams_max: STREAMS_MAX,
        header_bytes_max: HEADER_BYTES_MAX,
        connection_age_max: terms.connection_age_max.to_std(),
        shutdown_timeout: terms.deadline.to_std(),
        permit_wait: PERMIT_WAIT,
        retry_after: BUSY_AFTER,
        ..Limits::default()
    };
    assert!(limits.outside_budget_bytes_max() <= SERVER_BYTES, "connections fit their part of the budget");
    limits
}

/// An address for the log; `off` without one.
pub fn shown(address: Option<std::net::SocketAddr>) -> String {
    address.map_or_else(|| "off".to_owned(), |address| address.to_string())
}

/// Writes a notice to the log. The server bounds how many there are.
fn log(notice: &Notice) {
    let Notice { kind, words, count } = notice;
    let what = kind.label();
    match kind {
        NoticeKind::Request(_) | NoticeKind::Connection(_) => {
            tracing::warn!(what, count, "OTLP clients get errors: {words}");
        }
        NoticeKind::Accept | NoticeKind::FilesFailed => {
            tracing::warn!(what, count, "OTLP server: {words}");
        }
        NoticeKind::FilesReloaded | NoticeKind::Ipv4Only => {
            tracing::info!(what, count, "OTLP server: {words}");
        }
    }
}
