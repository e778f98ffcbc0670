//! Ready gateways that do not answer the operator.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// Entries in a status at most: as many gateways as a pipeline can have.
pub const SILENT_GATEWAYS_MAX: usize = 1_000;

/// A ready gateway that has not answered the operator for a minute.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SilentGateway {
    /// The pod.
    #[schemars(length(max = 253))]
    pub pod: String,
    /// Where the operator asks it. A pod that was made anew has another address.
    #[schemars(length(max = 64))]
    pub address: String,
}
