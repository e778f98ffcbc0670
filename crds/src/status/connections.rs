//! What the status keeps of the connections of a pipeline.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// Where the gateways have their brokers and servers from.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionsStatus {
    /// The TraceConnection of the brokers; not set where the pipeline names them itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub kafka: Option<String>,

    /// The TraceConnection of the ClickHouse servers; not set where the pipeline names them itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub clickhouse: Option<String>,

    /// Names of the shards, in their order, wherever they stand; not set where they have none. A shard keeps its name. A shard that has lost its
    /// name, or had none, keeps one of its endpoints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 63)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub shards: Vec<String>,
}
