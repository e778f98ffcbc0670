//! What the operator says about the queue volumes.

#![allow(clippy::doc_markdown, reason = "the comments on fields are descriptions, which are plain text")]

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// How many queue volumes there are and how far they are.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumesStatus {
    /// Size that the spec asks for.
    #[schemars(length(max = 16))]
    pub desired: String,
    /// Volumes of this size or larger.
    pub resized: u32,
    /// Volumes that are smaller still.
    pub pending: u32,
    /// Volumes without a gateway that were found empty and are kept.
    pub drained: u32,
    /// Volumes without a gateway that may hold blocks.
    pub orphaned: u32,
}
