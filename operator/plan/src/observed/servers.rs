//! The ClickHouse servers that gateways were last given, as their config has them.

use k8s_openapi::api::core::v1::ConfigMap;
use sluice_gateway_config::parse;

/// Servers by shard: rows on their way to one must not go to another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServersSeen {
    /// Replicas of a single shard; empty where there are shards.
    pub endpoints: Vec<String>,
    /// Replicas of each shard.
    pub shards: Vec<Vec<String>>,
}

impl ServersSeen {
    /// Those of a gateway's config; `None` for one that cannot be read.
    pub fn of(config: &ConfigMap) -> Option<Self> {
        let text = config.data.as_ref()?.values().next()?;
        let parse::Servers { endpoints, shards } = parse::servers(text).ok()?;
        Some(Self { endpoints, shards })
    }
}
