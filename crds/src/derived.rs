//! What the operator works out for a pipeline, for people to check.

#![allow(clippy::doc_markdown, reason = "the comments on fields are descriptions, which are plain text")]

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// What follows from the spec and the number of partitions.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Derived {
    /// Partitions that one gateway has at the most; with source.otlp, logs on its volume.
    pub partitions_per_gateway: u32,
    /// Partitions that one gateway reads at the same time, and the others take turns; with source.otlp, logs.
    pub partitions_active_per_gateway: u32,
    /// Worker threads of one gateway.
    pub workers: u32,
    /// Memory of one gateway, request and limit, in whole Mi.
    #[schemars(length(max = 16))]
    pub memory: String,
    /// The part of it that compressed blocks may take, in whole Mi.
    #[schemars(length(max = 16))]
    pub memory_for_blocks: String,
    /// Bytes that blocks may take on its queue volume, in whole Mi: queue.maxBytes, or all of the volume but what the file system needs;
    /// not set while queue.mode is Disabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub queue: Option<String>,
    /// Inserts at the same time from one gateway, to all shards together.
    pub insert_concurrency: u32,
    /// Blocks whose tokens the table should remember: its setting non_replicated_deduplication_window, or
    /// replicated_deduplication_window.
    pub deduplication_window: u64,
    /// In words, what the ClickHouse servers should be set to, as far as it follows from this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub advice: Option<String>,
}
