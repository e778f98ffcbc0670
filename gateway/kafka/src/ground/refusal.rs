//! What a partition's queue says instead of a message, and what follows from it.
//!
//! librdkafka reads a batch that it cannot decompress, or that is over our limit, again and again, and passes over one whose checksum is wrong. Both mean that
//! nothing behind it may be read: an offset that is committed later would pass over the batch.
//!
//! The limit of a batch, decompressed or never compressed, is in `batch_limit.c`; it speaks through librdkafka's properties, so that no foreign function
//! is called here.

use rdkafka::{ClientConfig, error::KafkaError, types::RDKafkaErrorCode};

/// The property that sets the limit, in bytes. A program that was linked without `batch_limit.c` does not know it, and starts no
/// consumer.
pub(crate) const LIMIT_PROPERTY: &str = "sluice.batch.bytes.max";

/// The property with the size of the last batch that was over it.
const REFUSED_PROPERTY: &str = "sluice.refused.bytes";

/// What an error of a partition's queue means for the partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueProblem {
    /// The rest of an answer did not fit into what is kept at a time; librdkafka reads it once the queue is empty.
    ReadAgain,
    /// The next batch is larger than the limit, compressed or not, or it cannot be decompressed because it is broken.
    Undecompressed {
        /// What is in it, decompressed; `None` for one that is broken, or whose size cannot be told.
        bytes: Option<u64>,
    },
    /// The next batch is not what was written: its checksum is wrong, or it is of a kind that nobody knows.
    Unreadable,
    /// Kafka does not have the next offset: retention has overtaken it, or the topic was made anew. librdkafka reads nothing more.
    OutOfRange,
    /// Nothing that concerns one batch; librdkafka goes on.
    Passing,
}

impl QueueProblem {
    /// Sorts an error. `batch_bytes_max` is the limit that the consumer was made with.
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

/// The size of the last batch that was over the limit. Batches of two partitions at the same moment may be taken for each other.
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
