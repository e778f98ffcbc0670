//! What an error in a partition's queue means.
//!
//! librdkafka reads a batch that it cannot decompress, or that is above the limit, again and again. It skips a batch whose checksum is
//! wrong. In both cases the messages behind it must not be read: a later commit would pass over the batch.
//!
//! `batch_limit.c` enforces the limit of a batch, decompressed or never compressed. It is reached through librdkafka's properties, so
//! that no foreign function is called here.

use rdkafka::{ClientConfig, error::KafkaError, types::RDKafkaErrorCode};

/// The property that sets the limit in bytes. A program that was linked without `batch_limit.c` does not know it, and starts no consumer.
pub(crate) const LIMIT_PROPERTY: &str = "sluice.batch.bytes.max";

/// The property with the size of the last batch above the limit.
const REFUSED_PROPERTY: &str = "sluice.refused.bytes";

/// The meaning of an error in a partition's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueProblem {
    /// The rest of an answer did not fit the memory limit of the queue. librdkafka fetches it again once the queue is empty.
    ReadAgain,
    /// The next batch is above the limit, compressed or not, or is broken and cannot be decompressed.
    Undecompressed {
        /// Its decompressed size; `None` if it is broken or its size is unknown.
        bytes: Option<u64>,
    },
    /// The next batch is damaged: its checksum is wrong, or its format is unknown.
    Unreadable,
    /// Kafka does not have the next offset: retention deleted it, or the topic was created again. librdkafka reads no more.
    OutOfRange,
    /// An error that does not concern a batch. librdkafka continues.
    Passing,
}

impl QueueProblem {
    /// Classifies an error. `batch_bytes_max` is the limit that the consumer was created with.
    pub fn of(error: &KafkaError, batch_bytes_max: u64) -> Self {
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::QueueFull) => Self::ReadAgain,
            Some(RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange) => Self::OutOfRange,
            Some(RDKafkaErrorCode::BadCompression) => {
                Self::Undecompressed { bytes: refused_bytes().filter(|bytes| *bytes > batch_bytes_max) }
            }
            Some(
                RDKafkaErrorCode::BadMessage
                | RDKafkaErrorCode::NotImplemented
                | RDKafkaErrorCode::MessageSizeTooLarge,
            ) => Self::Unreadable,
            _ => Self::Passing,
        }
    }
}

/// The size of the last batch above the limit. If two partitions hit the limit at the same moment, their batches may be confused.
fn refused_bytes() -> Option<u64> {
    let asked = ClientConfig::new().create_native_config().ok()?.get(REFUSED_PROPERTY).ok()?;
    asked.parse().ok().filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_sorted_by_what_follows() {
        let of = |code| QueueProblem::of(&KafkaError::MessageConsumption(code), 1 << 20);
        assert_eq!(of(RDKafkaErrorCode::QueueFull), QueueProblem::ReadAgain);
        assert_eq!(of(RDKafkaErrorCode::BadCompression), QueueProblem::Undecompressed { bytes: None });
        assert_eq!(of(RDKafkaErrorCode::BadMessage), QueueProblem::Unreadable);
        assert_eq!(of(RDKafkaErrorCode::BrokerTransportFailure), QueueProblem::Passing);
    }

    #[test]
    fn the_program_is_linked_with_the_limit() {
        let mut config = ClientConfig::new();
        config.set(LIMIT_PROPERTY, "1048576");
        config.create_native_config().unwrap();
        config.set(LIMIT_PROPERTY, "none");
        assert!(config.create_native_config().is_err());
    }
}
