//! What the status keeps of the connections of a pipeline.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// The TraceConnections that the gateways have their brokers and servers from.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionsStatus {
    /// That of the brokers; not set where the pipeline names them itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub kafka: Option<String>,

    /// That of the ClickHouse servers; not set where the pipeline names them itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub clickhouse: Option<String>,

    /// Names of its shards, in their order; not set where they have none. A shard keeps its name, or one of its endpoints, whatever becomes of
    /// the reference.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 63)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub shards: Vec<String>,
}
