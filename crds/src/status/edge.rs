//! What the operator says about the edge.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// The edge's pods.
#[derive(KubeSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EdgeStatus {
    /// Pods wanted: edge.replicas, or what the HorizontalPodAutoscaler has set.
    pub replicas: u32,
    /// Pods that are ready, which accept spans.
    pub ready_replicas: u32,
}
