//! Kafka, as a gateway uses it: a consumer whose partitions are handed to worker threads, and a ledger that says up to
//! where a partition may be committed.
//!
//! ```text
//!  poll thread                                worker threads                 delivery
//!  -----------                                --------------                 --------
//!  Consumer::run --- Ownership::Gained -----> PartitionQueue -> messages -> blocks -> insert
//!       ^   |        (queue, generation)                                               |
//!       |   `------- Ownership::Lost -------> seals what is open                       |
//!       |                                        |                                     |
//!       `---- Report::Released ------------------'                                     |
//!       `---- Report::Stopped (is paused)         |                                     |
//!       `---- Report::Settled -----------------------------------------------------------'
//!       |
//!       v
//!     Ledger -> commit
//! ```
//!
//! [`ranges`] says which offsets are inserted together, so that every owner of a partition inserts the same ranges.
//!
//! The poll thread owns the consumer, the assignment and the ledger; nothing here takes a lock in the path of messages.

mod assignment;
mod committer;
mod consumer;
mod ledger;
mod partition;
mod probe;
pub mod ranges;
mod rebalancing;
mod refusal;
mod settings;
mod stats;
mod turns;

pub use consumer::{Consumer, Error, Inbox, Limits, Stop};
pub use ledger::{Ledger, Verdict};
pub use partition::{Generation, OffsetRange, Ownership, Partition, PartitionId, PartitionQueue, Report};
pub use probe::{ProbeError, TopicPartitions, probe_topics};
pub use rdkafka::error::KafkaError;
pub use rdkafka::message::{BorrowedMessage, Message, OwnedMessage};
pub use refusal::QueueProblem;
pub use settings::{Identity, consumer_settings, probe_settings};
pub use stats::{ConsumerStats, PartitionStats};
