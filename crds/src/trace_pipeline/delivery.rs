//! When an offset is committed, and what is done with what cannot be delivered.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When an offset is committed, and what is done with what cannot be delivered.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delivery {
    /// When an offset is committed. AfterInsert (the default): every row below it is in ClickHouse or dead-lettered, so Kafka is the
    /// durable copy and consumer lag is exact. AfterEnqueue: a block of rows that has waited for 5 s goes to the queue volume and counts once it is
    /// synced to it, so Kafka may delete them sooner; the volume is then the only copy until they are inserted. With source.otlp only AfterInsert:
    /// the volume always has the only copy.
    #[serde(default)]
    pub commit: Commit,

    /// Messages that cannot be read.
    #[serde(default)]
    pub dead_letter: DeadLetter,
}

/// When an offset is committed.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Commit {
    /// Every row below it is in ClickHouse or dead-lettered.
    #[default]
    AfterInsert,
    /// Rows on the queue volume count too.
    AfterEnqueue,
}

/// Messages that cannot be read.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    /// The topic that they are written to, each with its topic, partition, offset and the reason. When it is not set, each
    /// topic of the source has its own, <topic>.dead-letter. When it is set, all of them share it; it must not be a topic of the source,
    /// which would read its dead letters again. A gateway creates a topic that is missing for its first letter, with as many partitions as
    /// its source, 8 at most, and the source's replication factor. After a change, the letters stay in the former topic: list or replay them
    /// before. With source.otlp it cannot be set: letters are on the queue volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 249))]
    #[x_kube(validation = Rule::new("self.matches('^[a-zA-Z0-9._-]+$') && self != '.' && self != '..'")
        .message("topic of deadLetter is the name of a topic: a-z, A-Z, 0-9, '.', '_' and '-', such as otlp_spans.dead-letter"))]
    pub topic: Option<String>,

    /// What happens to a message whose dead-letter topic does not exist. Stop (the default): its partition stops in front of it and reports
    /// that; other partitions are read. Skip: it is counted and skipped. With source.otlp, the same holds when letters take deadLetterBytesMax.
    #[serde(default)]
    pub on_missing: OnMissing,
}

/// What happens to a message that cannot be read and has nowhere to go.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnMissing {
    /// Its partition stops.
    #[default]
    Stop,
    /// It is counted and passed over.
    Skip,
}
