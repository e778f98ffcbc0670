//! What the operator says about the queue volumes.

#![allow(clippy::doc_markdown, reason = "the comments on fields are descriptions, which are plain text")]

use super::DrainState;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
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
    /// Volumes that are smaller still, or that are to be replaced: they are larger, or of another storage class.
    pub pending: u32,
    /// Volumes without a gateway that were found empty and are kept.
    pub drained: u32,
    /// Volumes without a gateway that may hold blocks.
    pub orphaned: u32,
    /// The gateway that gets a new volume now; not set while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacing: Option<ReplacementStatus>,
    /// Since when the volumes hold only copies of what Kafka has: all of them were empty then, gateways commit after the insert, topics and
    /// brokers are the same, and Kafka has deleted nothing unread since. Not set while that is not known. queue.onZoneLoss Recreate needs
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_since: Option<Time>,
}

/// A gateway that gets a new volume.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplacementStatus {
    /// Draining: it gives up its partitions, inserts what it holds, and is recreated with a new volume. Resuming: the operator asks it to read again.
    /// Waiting: it was not empty in time, and the operator tries again later.
    pub state: DrainState,
    /// Its number.
    pub gateway: u32,
    /// Since when.
    pub since: Time,
    /// What it still holds, or why it stays.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}
