//! What the operator remembers of a pipeline that was suspended.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// A pipeline that is suspended, or on its way back.
#[derive(KubeSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SuspensionStatus {
    /// Gateways there were before; as many come back where nothing else says how many.
    pub replicas: u32,
}
