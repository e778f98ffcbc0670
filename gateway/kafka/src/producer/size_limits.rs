//! How large messages for the topic may be.
//!
//! A message must fit three limits, each without compression. The topic's `max.message.bytes` counts a compressed batch, but what a message
//! compresses to is only known afterwards. The pipeline's `recordBatchBytesMax` is what its gateways hold of a batch, decompressed: a larger
//! one would stop their partition. And the budget must have room for the message.
//!
//! If the topic's limit is not known (the client may not be allowed to describe the topic), Kafka's default counts. After a refusal, the limit for
//! messages of several spans is half of the refused size. A refusal never lowers the limit of a single span: Kafka refuses a whole batch, perhaps
//! because of its other messages, and a span above the limit is rejected for good. Pure; the owners are the thread that asks for the topic, and
//! the callbacks of refused messages.

/// Kafka's default of `max.message.bytes`.
pub const TOPIC_BYTES_DEFAULT: usize = 1_048_588;

/// Bytes of a record batch beside a message's value, at most: the batch's head of 61 bytes, and those of a record with a key of 32.
/// Chosen: with room to spare.
pub const BATCH_OVERHEAD_BYTES: usize = 1 << 10;

/// The least that refusals lower a limit to. Chosen: a span of average size still passes.
const BYTES_MIN: usize = 4 << 10;

/// How large messages may be, in bytes of their value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeLimits {
    /// A message of several spans.
    pub shared_bytes_max: usize,
    /// A message of a single span.
    pub single_bytes_max: usize,
}

impl SizeLimits {
    /// The limits of a topic, `None` if they are not known, whose batches are read if they have at most `batch_bytes_max`.
    pub(super) fn of(topic_bytes_max: Option<u64>, batch_bytes_max: usize) -> Self {
        let topic =
            topic_bytes_max.map_or(TOPIC_BYTES_DEFAULT, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        let bytes = topic.min(batch_bytes_max).saturating_sub(BATCH_OVERHEAD_BYTES);
        Self { shared_bytes_max: bytes, single_bytes_max: bytes }
    }

    /// The limits after the topic refused a message of this size.
    #[must_use]
    pub(super) fn refused(self, bytes: usize, is_single: bool) -> Self {
        let shared = if is_single { bytes } else { bytes / 2 };
        Self { shared_bytes_max: self.shared_bytes_max.min(shared.max(BYTES_MIN)), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn the_smaller_of_topic_and_reader_counts() {
        let of = |topic, reader| SizeLimits::of(topic, reader).single_bytes_max;
        assert_eq!(of(Some(4 << 20), MIB), MIB - BATCH_OVERHEAD_BYTES);
        assert_eq!(of(Some(1 << 16), MIB), (1 << 16) - BATCH_OVERHEAD_BYTES);
        assert_eq!(of(None, 8 * MIB), TOPIC_BYTES_DEFAULT - BATCH_OVERHEAD_BYTES);
        assert_eq!(of(Some(u64::MAX), 8 * MIB), 8 * MIB - BATCH_OVERHEAD_BYTES);
    }

    #[test]
    fn a_refusal_lowers_what_is_sent_next_until_it_passes() {
        let topic_takes = 100_000;
        let mut limits = SizeLimits::of(None, 8 * MIB);
        for _ in 0..20 {
            if limits.shared_bytes_max > topic_takes {
                limits = limits.refused(limits.shared_bytes_max, false);
            }
        }
        assert!((50_000..=topic_takes).contains(&limits.shared_bytes_max), "{limits:?}");
        assert_eq!(limits.single_bytes_max, SizeLimits::of(None, 8 * MIB).single_bytes_max);
        // It was refused with its batch, and may fit alone.
        assert_eq!(limits.refused(300_000, true), limits);
        assert!(limits.refused(10, false).shared_bytes_max >= BYTES_MIN);
    }
}
