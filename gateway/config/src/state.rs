//! The answer of a gateway to `GET /state`: all that the operator wants to know of it, in one document.
//!
//! The gateway writes it from its memory: unlike `/metrics`, it does not wait for a disk. The operator reads it once per look. People and
//! Prometheus read the same from `/metrics`, `/readyz` and `/drainz`.
//!
//! ```text
//! {"version": 1,
//!  "pod": {"namespace": "tracing", "name": "shop-gateway-0", "uid": "3f0d…"},
//!  "readiness": {"ready": false, "reasons": ["partition spans/4 stands still: no message is fetched from it"]},
//!  "sample": {"messages": 1000, …, "topics": [{"name": "spans", "partitions": [{"partition": 4, "position": 21, …}]}]},
//!  "remaining": {"blocks": 0, "bytes": 0, "uncommitted": 0, "damaged": false, "draining": false, "control": 9091}}
//! ```
//!
//! How it changes: a reader ignores fields that it does not know. A new version may add fields and leave fields out; each has a default, which
//! its comment states. `version` and `remaining` with `blocks`, `damaged` and `draining` have none: an answer without them is not a state,
//! because nothing must seem to be finished only because it is not said. [`STATE_VERSION`] rises when a field changes its meaning.
//!
//! Counters count from the start of the process. Numbers that are not known are left out, and are never written as 0.

use crate::Remaining;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The path at which a gateway answers with its state.
pub const STATE_PATH: &str = "/state";

/// The version of the format. A reader refuses other ones.
pub const STATE_VERSION: u32 = 1;

/// Largest state that is read, in bytes: 10,000 partitions of 300 bytes, which is one with an open transaction and all numbers at their
/// longest; and names of topics, reasons, and the rest. A usual one has 64 partitions and 6 KiB.
pub const STATE_BYTES_MAX: usize = 4 << 20;

/// Characters of the text of a failed insert, and of its server and its table. Chosen: ClickHouse names code and cause at the beginning, and the
/// table at the end, behind the names of columns; the message of a condition has room for it.
pub const INSERT_ERROR_CHARS_MAX: usize = 300;

/// Characters of the reason for which no broker is reached. Chosen, as for an insert, with room for the name of a host twice.
pub const UNCONNECTED_CHARS_MAX: usize = 300;

/// Characters that an error keeps of each text that it got. Chosen: a place and a cause fit, in one line of a log.
const ERROR_CHARS_MAX: usize = 200;

/// The state of a gateway.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayState {
    /// [`STATE_VERSION`] of the gateway.
    pub version: u32,
    /// The pod that answers. Default: not known.
    #[serde(default)]
    pub pod: PodIdentity,
    /// Whether it is ready. Default: not ready, for no reason that it says.
    #[serde(default)]
    pub readiness: Readiness,
    /// What it has counted and measured. Default: nothing is known.
    #[serde(default)]
    pub sample: GatewaySample,
    /// What it must finish before it can be removed, as `/drainz` answers it.
    pub remaining: Remaining,
}

/// The pod that a gateway runs in. The pod's IP may belong to another pod when a request arrives.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodIdentity {
    /// Its namespace. Default: the gateway does not know it, as outside of Kubernetes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name. Default: the gateway does not know it, as outside of Kubernetes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its UID, only for a caller that has named it ([`crate::pod_uid`]): a caller that knows the UID may send commands. Default: the caller named
    /// none, or the gateway does not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// Whether a gateway takes part in its consumer group, as `/readyz` answers it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readiness {
    /// Whether it is ready. Default: `false`.
    #[serde(default)]
    pub ready: bool,
    /// Why it is not ready, for people; the same text as long as the cause is the same. At most 9. Default: none.
    #[serde(default)]
    pub reasons: Vec<String>,
}

/// What a gateway has counted and measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewaySample {
    /// Threads that walk and encode, 1 to 64. Default 0: not known.
    pub workers: u32,
    /// Seconds that all workers together spent walking, encoding and compressing, at least 0. Default: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_seconds: Option<f64>,
    /// Seconds that all workers together waited for messages, at least 0. Default: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_seconds: Option<f64>,
    /// Messages read. Default: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<u64>,
    /// Bytes of these messages, decompressed. Default: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_bytes: Option<u64>,
    /// Messages among these without a span. Default 0.
    pub messages_without_spans: u64,
    /// Messages that could not be read, by reason (`malformed`). Reasons are of a-z and _, at most 32 bytes, at most 16. Default: none.
    pub messages_rejected: BTreeMap<String, u64>,
    /// When a message was last rejected, in seconds since 1970; 0 before the first. Default: counts of messages are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_rejected_at: Option<u64>,
    /// Messages that Kafka's retention deleted before they were read. Default: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages_lost: Option<u64>,
    /// Dead letters that Kafka refuses. Default 0.
    pub dead_letters_refused: u64,
    /// OTLP requests that the gateway refused because it had no memory or thread, no room on its volume, or too slow a disk. A request that
    /// its client sends again counts again. Default 0.
    pub requests_refused: u64,
    /// Rows that ClickHouse has acknowledged. Default 0.
    pub rows_inserted: u64,
    /// Rows that ClickHouse refuses and that are in the dead-letter topic. Default 0.
    pub rows_refused: u64,
    /// Rows that were read and are not settled: in blocks, on their way to ClickHouse, on the queue volume. Default 0.
    pub rows_in_flight: u64,
    /// Blocks that ClickHouse has acknowledged. Default: inserts are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks_inserted: Option<u64>,
    /// Tries to insert a block that failed for a reason that does not lie in its rows. Default 0.
    pub insert_failures: u64,
    /// Tries that failed for the rows of the block, which is sent on in parts. Default 0.
    pub insert_failures_of_rows: u64,
    /// The last failure among `insert_failures`, which may be over. Default: none, or not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insert_error: Option<InsertErrorState>,
    /// Why the table cannot be used, while the gateway waits for it before it reads. Later, `insert_error` says so. It is a reason of the
    /// conditions `SchemaReady` and `SinkReachable`, such as `DatabaseMissing` or `AuthFailed`. Default: it can be used, or it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table_error: Option<String>,
    /// Whether `table_error` is `TableMissing`: operators before that field read this one, and gateways before it say only this. Default: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table_missing: Option<bool>,
    /// Whether sealed blocks have waited for ClickHouse for 2 s, in memory or on the queue volume. Default: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sink_behind: Option<bool>,
    /// What waits on the queue volume; nothing without one. Default: not known, as before the volume is opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueState>,
    /// The parts of the table, of the shard that is worst. Default: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table_parts: Option<TablePartsState>,
    /// What is promised of rows. Default: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery: Option<DeliveryState>,
    /// What services have sent. Default: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub services: Option<ServiceVolumes>,
    /// Bytes of the resident set, as the kernel counts it. Default: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<u64>,
    /// Bytes of the pool for blocks that no block uses. They stay resident once they were used. Default: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool_free_bytes: Option<u64>,
    /// The memory limit of the config, in bytes. Default: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes: Option<u64>,
    /// Why no broker is reached, while none is. Default: one is, or it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unconnected: Option<UnconnectedState>,
    /// That messages wait in Kafka and are not fetched. Default: all are fetched, or it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unfetched: Option<UnfetchedState>,
    /// That OTLP requests are refused because the queue volume has no room. Default: none was refused for that within a minute, or it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_full: Option<VolumeFullState>,
    /// Partitions that it owns. `topics` may list fewer, because Kafka has not told of all of them yet. Default: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partitions_owned: Option<u64>,
    /// Topics with partitions that it owns. Default: none is known.
    pub topics: Vec<TopicState>,
}

/// The partitions of one topic that a gateway owns.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicState {
    /// Its name in Kafka, 1 to 249 characters.
    pub name: String,
    /// Its partitions, in the order of their numbers. Default: none is known.
    #[serde(default)]
    pub partitions: Vec<PartitionState>,
}

/// One partition that a gateway owns.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PartitionState {
    /// Its number in the topic, from 0.
    pub partition: u32,
    /// The offset that is read next. Default: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// The last committed offset. Default: none, or not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed_offset: Option<u64>,
    /// Messages between the committed offset and the end. Default: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_messages: Option<u64>,
    /// Why it has stood still for longer than allowed, as a word (`no_fetch`). Default: it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub still: Option<String>,
    /// The open transaction that it cannot be read past. Default: none is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_transaction: Option<OpenTransactionState>,
}

/// What waits in a partition behind an open transaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenTransactionState {
    /// Where the first open transaction begins: the last stable offset.
    pub first_offset: u64,
    /// Messages from there to the end.
    pub messages: u64,
    /// Seconds since the gateway last saw the last stable offset move.
    pub seconds: u64,
}

/// How an insert failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InsertErrorState {
    /// What the gateway does next, as a word (`retry`, `halt`): that of the label in `/metrics`.
    pub class: String,
    /// The exception code of ClickHouse. Default: there was no answer, or none of ClickHouse.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u32>,
    /// The text of the answer or of the connection, for people, [cut in the middle](cut_in_the_middle) to [`INSERT_ERROR_CHARS_MAX`] characters.
    /// Texts that may quote rows are left out. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The server that was asked. Default: none, or not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The full name of the table, quoted. Default: none, or not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
}

/// The text, if it has at most this many characters. Of a longer one, the beginning and the end.
pub fn cut_in_the_middle(text: &str, chars_max: usize) -> String {
    const GAP: &str = " ... ";
    let count = text.chars().count();
    if count <= chars_max {
        return text.to_owned();
    }
    let kept = chars_max.saturating_sub(GAP.len());
    let end = kept / 2;
    let begin = text.chars().take(kept - end);
    begin.chain(GAP.chars()).chain(text.chars().skip(count - end)).collect()
}

/// That no broker is reached by the address that it announces, whether or not the addresses of the config are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnconnectedState {
    /// How the first connection failed, with its address, for people, at most [`UNCONNECTED_CHARS_MAX`] characters.
    pub reason: String,
    /// Seconds since then. Default 0.
    #[serde(default)]
    pub seconds: u64,
}

/// That messages wait in partitions of the gateway, and that Kafka gives it none of these messages although it has room.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UnfetchedState {
    /// Why. Default: not known.
    pub cause: UnfetchedCause,
    /// The topic. Default: all of them, as when the group is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// How many partitions of it. Default 0: not known, as when the group is refused.
    pub partitions: u64,
    /// The last error, for people, at most [`UNCONNECTED_CHARS_MAX`] characters. Default: there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Seconds since the first of them was due. Default 0.
    pub seconds: u64,
}

/// Why messages are not fetched, the gravest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum UnfetchedCause {
    /// The user lacks the right to read in the group.
    GroupRefused,
    /// The user lacks the right to read the topic.
    TopicRefused,
    /// Kafka does not know the topic, or has fewer partitions.
    TopicUnknown,
    /// No broker leads the partition.
    NoLeader,
    /// Something else, or what a newer gateway says.
    #[default]
    #[serde(other)]
    Other,
}

/// That the logs on a queue volume have no room for requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeFullState {
    /// Seconds from the first request that was refused for that to the last one, without a minute between two of them.
    pub seconds: u64,
    /// The most bytes that all logs may have. Default 0: not known.
    #[serde(default)]
    pub bytes_max: u64,
    /// What the last of these requests found no more of. Default: bytes.
    #[serde(default)]
    pub limit: VolumeLimit,
}

/// What the logs on a queue volume have no more of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum VolumeLimit {
    /// Bytes: `bytesMax` is reached.
    #[default]
    Bytes,
    /// Segments: each log that takes requests has the most files that it may have.
    Segments,
    /// Room in the volume's file system.
    Device,
}

/// What waits on a queue volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueState {
    /// Blocks that are not inserted.
    pub blocks: u64,
    /// Bytes of the files, which stay for a while after their blocks are inserted.
    pub bytes: u64,
}

/// How many parts the table has, and their limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TablePartsState {
    /// Active parts of the partition that has most.
    pub parts: u64,
    /// Parts of a partition from which on ClickHouse delays INSERTs.
    pub delay_from: u64,
    /// Parts of a partition from which on ClickHouse refuses INSERTs.
    pub refuse_from: u64,
    /// Whether merges are so far behind that the gateway makes larger blocks. Default: `false`.
    #[serde(default)]
    pub merges_behind: bool,
}

/// What is promised of rows. All values are words of a-z and _, at most 64 bytes: those of the labels in `/metrics`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryState {
    /// `exactly_once_effect` or `at_least_once`.
    pub guarantee: String,
    /// Why it is not `exactly_once_effect` (`window_off`). Default: no reason, or not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What acknowledged rows survive: `process`, `fsync`, `quorum` or `unknown`. Default: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<String>,
}

/// What services have sent, as the gateway has counted it since its start. The largest and all others are all spans that it has read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceVolumes {
    /// The services with the most bytes, at most 50, the largest first. Default: none.
    #[serde(default)]
    pub largest: Vec<ServiceVolume>,
    /// All others. Default: none.
    #[serde(default)]
    pub other: OtherServices,
}

/// What one service has sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceVolume {
    /// `ServiceName` of its rows, at most 128 bytes; empty for spans without one.
    pub name: String,
    /// Default 0.
    #[serde(default)]
    pub spans: u64,
    /// Bytes of its rows, before compression. Default 0.
    #[serde(default)]
    pub row_bytes: u64,
}

/// What all other services have sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OtherServices {
    /// Default 0.
    pub spans: u64,
    /// Bytes of their rows, before compression. Default 0.
    pub row_bytes: u64,
}

/// Why an answer is no state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// It is not JSON, was cut off, or a field has another type.
    #[error("cannot be read at {at}: {why}")]
    Unreadable { at: String, why: String },
    /// It is in another format.
    #[error("is in format {found}, and only format {STATE_VERSION} is known")]
    Version { found: u32 },
}

impl GatewayState {
    /// Reads an answer. The caller bounds it by [`STATE_BYTES_MAX`].
    ///
    /// # Errors
    /// If it is not a state of [`STATE_VERSION`].
    pub fn read(answer: &[u8]) -> Result<Self, StateError> {
        /// What every format has: the rest of another one may have any shape.
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let Versioned { version } = read(answer)?;
        if version != STATE_VERSION {
            return Err(StateError::Version { found: version });
        }
        let state: Self = read(answer)?;
        // `/drainz` of early gateways leaves these out, and is read with the same type.
        let said = [("damaged", state.remaining.damaged), ("draining", state.remaining.draining)];
        match said.into_iter().find(|(_, value)| value.is_none()) {
            Some((field, _)) => Err(unreadable("remaining", &format!("missing field `{field}`"))),
            None => Ok(state),
        }
    }
}

fn read<'a, T: Deserialize<'a>>(answer: &'a [u8]) -> Result<T, StateError> {
    let mut json = serde_json::Deserializer::from_slice(answer);
    let read = serde_path_to_error::deserialize(&mut json)
        .map_err(|error| unreadable(&error.path().to_string(), &error.inner().to_string()))?;
    json.end().map_err(|error| unreadable(".", &error.to_string()))?;
    Ok(read)
}

/// Both texts may quote the answer.
fn unreadable(at: &str, why: &str) -> StateError {
    let cut = |text: &str| text.chars().take(ERROR_CHARS_MAX).collect();
    StateError::Unreadable { at: cut(at), why: cut(why) }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
