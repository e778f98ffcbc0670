//! The OTLP server in front of the edge.
//!
//! A permit goes with its request to the task or thread that splits it, and back to the task that waits for Kafka.

use crate::{
    edge::acceptor::{Edge, Taken, Untaken},
    intake::serving::{self, Terms},
};
use anyhow::Context as _;
use sluice_gateway_config::{CheckedEdgeConfig, EdgeConfig, OtlpAddresses};
use sluice_otlp_server::{Accepted, Acceptor, ByteBudget, Counters, Refusal, Request, Server, ServerConfig};
use std::sync::Arc;

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
    let EdgeConfig { listen, tenants, limits, workers, shutdown, .. } = checked.config();
    let terms = Terms {
        listen,
        addresses: OtlpAddresses { grpc: checked.grpc(), http: checked.http() },
        tenant_header: tenants.as_ref().map(|tenants| tenants.header.as_str()),
        request_bytes_max: limits.request_bytes_max,
        decompressed_bytes_max: limits.decompressed_bytes_max,
        connection_age_max: limits.connection_age_max,
        workers: *workers,
        deadline: shutdown.deadline,
    };
    serving::server_config(terms, budget, counters)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::{ending::ANSWER_TIMEOUT, serving::PERMIT_WAIT};
    use sluice_gateway_config::parse;
    use std::path::PathBuf;

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
        let longest = config.limits.body_read_timeout + 2 * PERMIT_WAIT + ANSWER_TIMEOUT;
        assert!(config.limits.connection_grace > longest);
    }
}
