//! The OTLP server in front of the edge: its config, its limits and what it logs.
//!
//! The server's permits are the part `requests` of the budget. A permit goes with its request to the thread that splits it, and back to the
//! task that waits for Kafka: so it is held until the answer, and longer where the client has gone but a thread still has the body.

use crate::edge::acceptor::{BUSY_AFTER, Edge, PERMIT_WAIT, Taken, Untaken};
use anyhow::Context as _;
use http::HeaderName;
use sluice_gateway_config::{ByteSize, CheckedEdgeConfig, EdgeConfig, edge_budget::SERVER_BYTES};
use sluice_otlp_server::{
    Accepted, Acceptor, ByteBudget, Counters, CredentialFiles, Limits, Notice, NoticeKind, Refusal, Request,
    Server, ServerConfig, TlsFiles,
};
use std::{path::PathBuf, sync::Arc};

/// Connections of both ports. Chosen: with the three below, what they hold at most is within [`SERVER_BYTES`].
const CONNECTIONS_MAX: usize = 200;

/// Requests between their headers and their answer. Chosen: the same.
const REQUESTS_MAX: usize = 384;

/// Requests of one connection at the same time. Chosen: the same; a Collector's exporter sends 10.
const STREAMS_MAX: u32 = 32;

/// Bytes of a request's headers. Chosen: what most servers take.
const HEADER_BYTES_MAX: u32 = 16 << 10;

/// Takes requests from the server.
pub struct Front(pub Arc<Edge>);

impl Acceptor for Front {
    async fn accept(&self, request: Request) -> Result<Accepted, Refusal> {
        match self.0.take(request).await {
            Ok(Taken { rejected_spans, message }) => Ok(Accepted { rejected_spans, message }),
            Err(Untaken::Malformed(words)) => Err(Refusal::Malformed(words)),
            Err(Untaken::TooLarge(words)) => Err(Refusal::TooLarge(words)),
            Err(Untaken::TenantLimit(over)) => {
                Err(Refusal::TenantLimit { after: over.after, words: over.to_string() })
            }
            Err(Untaken::Retry { after, why: words }) => Err(Refusal::Retry { after, words }),
        }
    }
}

/// Binds the server's addresses.
///
/// # Errors
/// If an address or a file cannot be used.
pub async fn bind(
    checked: &CheckedEdgeConfig,
    edge: Arc<Edge>,
    budget: ByteBudget,
    counters: Arc<Counters>,
) -> anyhow::Result<Server<Front>> {
    let config = server_config(checked, budget, counters)?;
    Server::bind(config, Front(edge)).await.context("cannot start the OTLP server")
}

fn server_config(
    checked: &CheckedEdgeConfig,
    budget: ByteBudget,
    counters: Arc<Counters>,
) -> anyhow::Result<ServerConfig> {
    let EdgeConfig { listen, tenants, .. } = checked.config();
    let tls = listen.tls.as_ref().map(|tls| TlsFiles {
        certificate: PathBuf::from(&tls.certificate_file),
        key: PathBuf::from(&tls.key_file),
        client_ca: tls.client_ca_file.as_ref().map(PathBuf::from),
    });
    let credentials = listen.authentication.as_ref().map(|files| CredentialFiles {
        bearer_tokens: files.bearer_tokens_file.iter().map(PathBuf::from).collect(),
        basic_users: files.basic_users_file.iter().map(PathBuf::from).collect(),
    });
    let header = tenants.as_ref().map(|tenants| HeaderName::try_from(&tenants.header)).transpose();
    Ok(ServerConfig {
        grpc: checked.grpc(),
        http: checked.http(),
        tls,
        credentials,
        tenant_header: header.context("tenants.header is not the name of a header")?,
        limits: limits(checked.config()),
        counters,
        ..ServerConfig::new(budget, Arc::new(|notice| log(&notice)))
    })
}

fn limits(config: &EdgeConfig) -> Limits {
    let narrow = |size: ByteSize| u32::try_from(size.get()).unwrap_or(u32::MAX);
    let limits = Limits {
        body_bytes_max: narrow(config.limits.request_bytes_max),
        decompressed_bytes_max: narrow(config.limits.decompressed_bytes_max),
        decompressions_max: config.workers as usize,
        requests_max: REQUESTS_MAX,
        connections_max: CONNECTIONS_MAX,
        concurrent_streams_max: STREAMS_MAX,
        header_bytes_max: HEADER_BYTES_MAX,
        connection_age_max: config.limits.connection_age_max.to_std(),
        shutdown_timeout: config.shutdown.deadline.to_std(),
        permit_wait: PERMIT_WAIT,
        retry_after: BUSY_AFTER,
        ..Limits::default()
    };
    assert!(limits.outside_budget_bytes_max() <= SERVER_BYTES, "connections fit their part of the budget");
    limits
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

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_gateway_config::parse;

    const CONFIG: &str = "{contractVersion: 1, pipeline: {namespace: n, name: p}, workers: 2, memory: {limit: 192MiB}, \
                          listen: {grpc: '127.0.0.1:0', tls: {certificateFile: c, keyFile: k, clientCaFile: a}, \
                          authentication: {bearerTokensFile: t}}, tenants: {header: x-tenant, spansPerSecond: 1}, \
                          limits: {requestBytesMax: 2MiB, decompressedBytesMax: 8MiB, connectionAgeMax: 5m}, \
                          shutdown: {deadline: 20s}, kafka: {bootstrapServers: ['k:9092'], topic: t}}";

    #[test]
    fn the_server_is_what_the_config_says() {
        let checked = parse::edge_from_yaml(CONFIG).unwrap().check().unwrap();
        let config = server_config(&checked, ByteBudget::new(1), Arc::default()).unwrap();
        assert_eq!((config.grpc.is_some(), config.http), (true, None));
        assert_eq!(config.tenant_header.unwrap(), "x-tenant");
        assert_eq!(config.tls.unwrap().client_ca, Some(PathBuf::from("a")));
        let credentials = config.credentials.unwrap();
        assert_eq!((credentials.bearer_tokens, credentials.basic_users), (vec![PathBuf::from("t")], vec![]));
        assert_eq!((config.limits.body_bytes_max, config.limits.decompressed_bytes_max), (2 << 20, 8 << 20));
        assert_eq!(config.limits.shutdown_timeout.as_secs(), 20);
        assert_eq!(config.limits.connection_age_max.as_secs(), 300);
        // What a request of an old connection may take.
        let longest = config.limits.body_read_timeout + 2 * PERMIT_WAIT + crate::edge::ending::ANSWER_TIMEOUT;
        assert!(config.limits.connection_grace > longest);
    }
}
