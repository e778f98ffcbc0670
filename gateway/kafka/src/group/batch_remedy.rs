//! What lets a gateway read the record batch at which a partition stands.
//!
//! Place in the flow: the worker that stops the partition knows the batch's size and the memory. Its report takes this to the poll thread,
//! which tells readiness, and the operator writes that into a condition.

use sluice_gateway_config::{ByteSize, budget::RECORD_BATCH_BYTES_MAX};
use std::fmt;

/// What helps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BatchRemedy {
    /// It is not known: the batch is broken, or it does not contain its size.
    #[default]
    Unknown,
    /// Settings that are at least so large.
    Settings {
        /// `source.kafka.recordBatchBytesMax`.
        record_batch_bytes_max: ByteSize,
        /// `memory.limit`, which is the memory limit of the gateway's container.
        memory_limit: ByteSize,
    },
    /// Smaller batches: no setting is large enough.
    SmallerBatches,
}

impl fmt::Display for BatchRemedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str(
                "the gateway's log says why and what helps, such as a higher source.kafka.recordBatchBytesMax",
            ),
            // Mi, as Kubernetes writes it: the config of a gateway takes MiB as well, a TracePipeline does not.
            Self::Settings { record_batch_bytes_max, memory_limit } => write!(
                f,
                "set source.kafka.recordBatchBytesMax: {}Mi with memory.limit: {}Mi (in a TracePipeline: \
                 gateway.resources.limits.memory)",
                record_batch_bytes_max.mib_ceil(),
                memory_limit.mib_ceil()
            ),
            Self::SmallerBatches => write!(
                f,
                "source.kafka.recordBatchBytesMax is at most {RECORD_BATCH_BYTES_MAX}: the producer must write smaller batches"
            ),
        }
    }
}
