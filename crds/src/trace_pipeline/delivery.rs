//! When an offset is committed, and what is done with what cannot be delivered.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When an offset is committed, and what is done with what cannot be delivered.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delivery {
    /// When an offset is committed. AfterInsert (the default): every row below it is in ClickHouse or dead-lettered, so that
    /// Kafka is the durable copy and consumer lag tells the truth. AfterEnqueue: rows that have waited for 5 s go to the
    /// queue volume, and count once they are synced to it, so that Kafka may forget them sooner; the volume is then the only copy
    /// until they are inserted.
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
    /// The topic that they are put into, each with its topic, partition, offset and the reason. Not set (the default), each topic of the
    /// source has its own, <topic>.dead-letter. Set, it is one for all of them; it is no topic of the source, which would read its
    /// dead letters again. It must exist, unless the brokers make topics by themselves. Letters in another one stay there when it is changed:
    /// list or replay them before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 249))]
    #[x_kube(validation = Rule::new("self.matches('^[a-zA-Z0-9._-]+$') && self != '.' && self != '..'")
        .message("topic of deadLetter is the name of a topic: a-z, A-Z, 0-9, '.', '_' and '-'"))]
    pub topic: Option<String>,

    /// What happens to one that has nowhere to go. Stop (the default): its partition stops in front of it, alone, and says
    /// so. Skip: it is counted and passed over.
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
