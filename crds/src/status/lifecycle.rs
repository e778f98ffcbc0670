//! What the status keeps of a suspended pipeline.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// A pipeline that is suspended, or on its way back.
#[derive(KubeSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SuspensionStatus {
    /// Number of gateways before; as many come back unless the spec sets another number.
    pub replicas: u32,

    /// Whether Kafka had committed offsets of the consumer group since then: if it has none when the gateways come back, it has deleted
    /// them.
    #[serde(default, skip_serializing_if = "is_not")]
    pub has_committed: bool,

    /// Whether each gateway had confirmed that it holds nothing when it was removed. Otherwise its queue volume may hold blocks, and shards
    /// cannot be moved before the pipeline has resumed.
    #[serde(default, skip_serializing_if = "is_not")]
    pub is_empty: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_not(value: &bool) -> bool {
    !*value
}
