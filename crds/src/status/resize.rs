//! Memory that gateways got in place, after an OOM kill.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Entries in a status at most, so that the object stays small.
pub const MEMORY_RESIZES_MAX: usize = 64;

/// Memory that one gateway is given in place, after the kernel killed it.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryResize {
    /// The pod.
    #[schemars(length(max = 253))]
    pub pod: String,
    /// Which of the pods that have had this name.
    #[schemars(length(max = 64))]
    pub uid: String,
    /// Memory, requested and limit, in whole Mi.
    #[schemars(length(max = 32))]
    pub memory: String,
    /// How often its container had ended by then: each end leads to at most one resize.
    pub ends: u32,
    /// Asked: the resize is about to be requested. InProgress: the API server accepted it. Done: the node has applied it. Deferred: the
    /// node has no free memory now, and tries again. Infeasible: the node never can. Refused: the API server refused it. AtBound: the pod
    /// has the most that resizes give.
    pub state: MemoryResizeState,
    /// What the API server or the node says.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// How far a gateway's memory is.
#[derive(JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryResizeState {
    /// The resize is about to be requested.
    Asked,
    /// The API server accepted it.
    InProgress,
    /// The node has applied it.
    Done,
    /// The node has no room now, and tries again.
    Deferred,
    /// The node never can.
    Infeasible,
    /// The API server refused it.
    Refused,
    /// The pod has the most that resizes give.
    AtBound,
}
