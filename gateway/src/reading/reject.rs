//! What happens to a message that cannot be read.
//!
//! The whole message is rejected and goes to the dead-letter topic. If Kafka refuses the letter, `delivery.deadLetter.onMissing` decides.
//! `Stop` stops the partition before that message until someone acts; other partitions continue. `Skip` counts the message and continues.
//! A message without a value, or with an empty one, is not rejected: it has no spans.

use crate::{
    reading::framing::{self, FrameError},
    rows::{
        attributes::RowLimit,
        raw_limit::{BLOCK_RAW_BYTES_MAX, MESSAGE_RAW_BYTES_MIN, RAW_BYTES_PER_MESSAGE_BYTE},
    },
};
use sluice_clickhouse::settings::BLOCK_ROWS_MAX;
use sluice_gateway_config::{ByteSize, Format, Sizing, budget};
use sluice_kafka::{
    BatchRemedy, Message, QueueProblem,
    dead_letter::{Delivered, Refused},
};
use sluice_ranges::{Digest, OffsetRange, PartitionId};

/// Why a message was rejected.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// It is not OTLP.
    #[error("it is not an OTLP trace message: {0}")]
    Malformed(sluice_otlp::Malformed),
    /// It is in a frame that is not known, or broken.
    #[error("{0}")]
    Framing(FrameError),
    /// It is not OTLP/JSON.
    #[error("it is not an OTLP trace message in JSON: {0}")]
    MalformedJson(sluice_otlp_json::Malformed),
    /// It is in JSON and longer than the budget allows. Only message sets of Kafka before 0.11 can have such a message: a record batch that
    /// contains one is larger than the limit, and stops its partition.
    #[error(
        "it is longer than source.kafka.recordBatchBytesMax, which limits the memory in which a worker rewrites JSON"
    )]
    MessageTooLong,
    /// One of its spans is too large for a row.
    #[error("one of its spans {0}")]
    RowTooLarge(RowLimit),
    /// Its rows are too large for its size, or for one block.
    #[error(
        "its rows are too large or too many: the limit is {} MiB plus {RAW_BYTES_PER_MESSAGE_BYTE} bytes per byte of the message, at \
         most {} MiB ({} MiB compressed) and {BLOCK_ROWS_MAX} rows; send fewer spans per message, or fewer resource attributes",
        MESSAGE_RAW_BYTES_MIN >> 20, BLOCK_RAW_BYTES_MAX >> 20, budget::BLOCK_BYTES_MAX >> 20
    )]
    MessageTooLarge,
}

impl Reason {
    /// The reason as a metric label.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Malformed(malformed) => match malformed.reason() {
                sluice_otlp::Reason::NotTraces | sluice_otlp::Reason::Superseded => "not_traces",
                _ => "malformed",
            },
            Self::MalformedJson(malformed) => match malformed.reason() {
                sluice_otlp_json::Reason::NotTraces | sluice_otlp_json::Reason::Superseded => "not_traces",
                _ => "malformed",
            },
            Self::Framing(_) => "framing",
            Self::MessageTooLong => "message_too_long",
            Self::RowTooLarge(_) => "row_too_large",
            Self::MessageTooLarge => "message_too_large",
        }
    }

    /// Where in the message the error is, in bytes from the start of its payload, behind a frame; `None` if all of it could be read.
    pub fn position(&self) -> Option<u64> {
        match self {
            Self::Malformed(malformed) => Some(malformed.position() as u64),
            Self::MalformedJson(malformed) => Some(malformed.position() as u64),
            Self::Framing(_) => Some(0),
            Self::MessageTooLong | Self::RowTooLarge(_) | Self::MessageTooLarge => None,
        }
    }

    /// The format to set if the message is in the other one.
    fn advice(&self, value: &[u8]) -> Option<&'static str> {
        match self {
            Self::Malformed(_) | Self::Framing(_) if begins_like_json(framing::behind_header(value)) => {
                Some("it looks like JSON; set source.kafka.format: OtlpJson to read it")
            }
            Self::MalformedJson(_) if is_protobuf(value) => {
                Some("it is OTLP in protobuf; set source.kafka.format: OtlpProto to read it")
            }
            _ => None,
        }
    }
}

/// Whether this is OTLP in protobuf, with or without a frame.
fn is_protobuf(value: &[u8]) -> bool {
    framing::payload(value, Format::OtlpProto).is_ok_and(|payload| sluice_otlp::validate(payload).is_ok())
}

/// Whether this may be a JSON object: a brace, and the quote of its first name or another brace. In protobuf the brace would start a group,
/// which OTLP does not have.
fn begins_like_json(value: &[u8]) -> bool {
    let value = value.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(value);
    let Some(inside) = value.trim_ascii_start().strip_prefix(b"{") else { return false };
    matches!(inside.trim_ascii_start().first(), Some(b'"' | b'}'))
}

/// Why a record batch stops its partition. `onMissing: Skip` does not apply, because it is unknown which messages would be skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadBatch {
    /// Its size, decompressed if it is compressed, is more than the budget allows.
    #[error(
        "the next record batch has {bytes} bytes (decompressed, if it is compressed), more than source.kafka.recordBatchBytesMax"
    )]
    TooLarge { bytes: u64 },
    /// It does not decompress, or it is too large and does not contain its size.
    #[error(
        "the next record batch does not decompress within source.kafka.recordBatchBytesMax, or is broken"
    )]
    Broken,
    /// Its checksum is wrong, or its kind is unknown.
    #[error("the next record batch is of an unknown kind, or its checksum is wrong")]
    Foreign,
}

impl BadBatch {
    /// For a problem of a partition's queue; `None` if it does not concern a batch.
    pub fn of(problem: QueueProblem) -> Option<Self> {
        match problem {
            QueueProblem::Undecompressed { bytes: Some(bytes) } => Some(Self::TooLarge { bytes }),
            QueueProblem::Undecompressed { bytes: None } => Some(Self::Broken),
            QueueProblem::Unreadable => Some(Self::Foreign),
            QueueProblem::ReadAgain | QueueProblem::OutOfRange | QueueProblem::Passing => None,
        }
    }

    /// The reason as a metric label.
    pub fn label(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "batch_too_large",
            Self::Broken => "batch_broken",
            Self::Foreign => "batch_foreign",
        }
    }

    /// Whether a second fetch may succeed because the batch was damaged in transit.
    pub fn may_be_read_again(&self) -> bool {
        match self {
            Self::Broken | Self::Foreign => true,
            Self::TooLarge { .. } => false,
        }
    }

    /// Logs that the partition stops. `position` is the offset behind the last message that was read; `held` is the result of
    /// [`Cutter::held`](sluice_ranges::Cutter::held).
    pub fn log(&self, id: &PartitionId, position: i64, sizing: &Sizing, held: Option<(OffsetRange, i64)>) {
        let (topic, partition) = (&*id.topic, id.partition);
        let advice = self.advice(sizing) + &waiting(held);
        tracing::error!(
            topic,
            partition,
            offset = position,
            reason = %self,
            "the record batch cannot be read; its partition stops until the cause is fixed and the gateway has restarted{advice}"
        );
    }

    /// What would let the batch be read, in parentheses, if that is known.
    pub fn advice(&self, sizing: &Sizing) -> String {
        match self.remedy(sizing) {
            BatchRemedy::Unknown => String::new(),
            remedy => format!(" ({remedy})"),
        }
    }

    /// What would let the batch be read.
    pub fn remedy(&self, sizing: &Sizing) -> BatchRemedy {
        let Self::TooLarge { bytes } = self else { return BatchRemedy::Unknown };
        let record_batch_bytes_max = ByteSize::mib(ByteSize::bytes(*bytes).mib_ceil());
        if record_batch_bytes_max > budget::RECORD_BATCH_BYTES_MAX {
            return BatchRemedy::SmallerBatches;
        }
        let limit = budget::smallest_limit(&Sizing { record_batch_bytes_max, ..*sizing });
        BatchRemedy::Settings { record_batch_bytes_max, memory_limit: limit.max(sizing.limit) }
    }
}

/// The part of the log line about earlier messages that must wait for the batch.
fn waiting(held: Option<(OffsetRange, i64)>) -> String {
    let Some((OffsetRange { first, next }, horizon)) = held else { return String::new() };
    let last = next - 1;
    format!(
        "; messages from offset {first} to {last} wait with it, because an earlier gateway may have inserted them together with later \
         ones: they are inserted once the log can be read up to offset {horizon}"
    )
}

/// What is kept of a rejected message until its letter is acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    pub offset: i64,
    /// The message's part in the digest of its range.
    pub digest: Digest,
    /// The reason, as a metric label.
    pub label: &'static str,
    /// Where the error is, in bytes from the start of the message.
    pub position: Option<u64>,
    /// The reason in words.
    pub text: String,
    /// Whether it is OTLP as far as it was read, and only too large.
    pub is_otlp: bool,
}

impl Rejected {
    /// For this message and reason.
    pub fn of(message: &impl Message, reason: &Reason) -> Self {
        Self {
            offset: message.offset(),
            digest: Digest::of(message.payload()),
            label: reason.label(),
            position: reason.position(),
            is_otlp: matches!(reason, Reason::RowTooLarge(_) | Reason::MessageTooLarge),
            text: match reason.advice(message.payload().unwrap_or_default()) {
                Some(advice) => format!("{reason}; {advice}"),
                None => reason.to_string(),
            },
        }
    }
}

/// Logs the first letters of a partition; later ones are counted.
pub fn log_lettered(id: &PartitionId, rejected: &Rejected, delivered: &Delivered) {
    let (topic, partition) = (&*id.topic, id.partition);
    let Rejected { offset, position, text: reason, .. } = rejected;
    tracing::warn!(
        topic,
        partition,
        offset,
        position,
        reason,
        dead_letter_topic = delivered.topic,
        "a message cannot be read and is in the dead-letter topic (sluice-gateway dead-letter list); more of them are counted, not logged"
    );
}

/// Logs that Kafka has not acknowledged a letter yet.
pub fn log_slow(id: &PartitionId, rejected: &Rejected) {
    let (topic, partition, offset) = (&*id.topic, id.partition, rejected.offset);
    tracing::warn!(
        topic,
        partition,
        offset,
        reason = rejected.text,
        "a message cannot be read and Kafka has not acknowledged its dead letter yet; its partition waits"
    );
}

/// Logs that a partition stops because Kafka refuses a letter.
pub fn log_stopped(id: &PartitionId, rejected: &Rejected, refused: &Refused) {
    let (topic, partition) = (&*id.topic, id.partition);
    let Rejected { offset, position, text: reason, .. } = rejected;
    tracing::error!(
        topic,
        partition,
        offset,
        position,
        reason,
        %refused,
        "a message cannot be read and Kafka refuses its dead letter; its partition stops and continues automatically {}",
        advice(refused)
    );
}

/// Logs that a partition continues.
pub fn log_goes_on(id: &PartitionId, rejected: &Rejected, delivered: &Delivered) {
    let (topic, partition, offset) = (&*id.topic, id.partition, rejected.offset);
    tracing::info!(
        topic,
        partition,
        offset,
        dead_letter_topic = delivered.topic,
        "Kafka has acknowledged the dead letter; the partition continues"
    );
}

/// Logs the first skipped message for each cause; later ones are counted.
pub fn log_skipped(id: &PartitionId, rejected: &Rejected, refused: &Refused) {
    let (topic, partition) = (&*id.topic, id.partition);
    let Rejected { offset, position, text: reason, .. } = rejected;
    tracing::error!(
        topic,
        partition,
        offset,
        position,
        reason,
        %refused,
        "a message cannot be read, Kafka refuses its dead letter, and it is skipped (delivery.deadLetter.onMissing: Skip); more of them \
         are counted, not logged"
    );
}

/// When the partition continues: the end of the log line.
fn advice(refused: &Refused) -> &'static str {
    match refused {
        Refused::Missing { .. } => {
            "once the topic exists: create it, or name another one (delivery.deadLetter.topic); delivery.deadLetter.onMissing: Skip \
             would skip such messages"
        }
        Refused::NotAuthorized { .. } => {
            "once the gateway's user may describe the topic and write to it; delivery.deadLetter.onMissing: Skip would skip such messages"
        }
        Refused::TooLarge { .. } => {
            "once the topic's max.message.bytes is increased; a letter without a value takes 2 KiB"
        }
        Refused::Unfit { .. } => "once the topic's configuration accepts dead letters",
        Refused::Full { .. } => {
            "once there is room: increase source.otlp.deadLetterBytesMax; delivery.deadLetter.onMissing: Skip would skip such messages"
        }
        Refused::Ended => "after a restart of the gateway",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::metrics::reference;

    #[test]
    fn a_message_in_the_other_format_names_that_format() {
        let protobuf = |value: &[u8]| {
            let reason = Reason::Malformed(sluice_otlp::validate(value).unwrap_err());
            reason.advice(value).is_some_and(|advice| advice.contains("OtlpJson"))
        };
        for json in ["{\"resourceSpans\":[]}", "{}", "\u{feff} {\n \"a\":1}", "\n{ \"resourceSpans\": ["] {
            assert!(protobuf(json.as_bytes()), "{json}");
        }
        let framed = b"\x00\x00\x00\x00\x01{}";
        let reason = Reason::Framing(framing::payload(framed, Format::OtlpProto).unwrap_err());
        assert!(reason.advice(framed).is_some_and(|advice| advice.contains("OtlpJson")), "JSON in a frame");
        for other in [&b"{"[..], b"text", b"[{}]", b"\x0a\x7f", b"{\x01\""] {
            assert!(!protobuf(other), "{}", other.escape_ascii());
        }
        let json = |value: &[u8]| {
            let reason = Reason::MalformedJson(sluice_otlp_json::validate(value).unwrap_err());
            reason.advice(value).is_some_and(|advice| advice.contains("OtlpProto"))
        };
        assert!(json(b"\x0a\x00") && json(b"\x00\x00\x00\x00\x01\x00\x0a\x00"));
        assert!(!json(b"{") && !json(b"\x0a\x7f") && !json(br#"{"resourceLogs":[]}"#));
    }

    #[test]
    fn a_span_that_is_too_large_is_said_to_pass_one_limit() {
        for (limit, words) in [
            (RowLimit::Bytes, "one of its spans makes a row of more than 4 MiB"),
            (
                RowLimit::Attributes,
                "one of its spans has more than 100000 attributes in one object and in the objects that contain it",
            ),
            (
                RowLimit::Ruled,
                "one of its spans has a list, an array or a key of more than 256 KiB to which attributes.rules apply",
            ),
        ] {
            assert_eq!(Reason::RowTooLarge(limit).to_string(), words);
        }
    }

    #[test]
    fn messages_that_wait_for_a_batch_behind_them_are_named() {
        let text = waiting(Some((OffsetRange { first: 1, next: 3 }, 5)));
        assert!(text.starts_with("; messages from offset 1 to 2 wait with it"), "{text}");
        assert!(text.ends_with("once the log can be read up to offset 5"), "{text}");
        assert_eq!(waiting(None), "");
    }

    #[test]
    fn the_advice_for_a_batch_is_a_config_that_is_accepted() {
        let sizing = reference::sizing();
        let advice = |bytes| BadBatch::TooLarge { bytes }.advice(&sizing);
        let larger = advice((2 << 20) - 1);
        assert!(larger.contains("recordBatchBytesMax: 2Mi with memory.limit: 192Mi "), "{larger}");
        for bytes in [(256 << 20) + 1, u64::MAX] {
            assert!(advice(bytes).contains("at most 256MiB"), "{}", advice(bytes));
        }
    }
}
