//! Kafka, as a gateway uses it: a consumer whose partitions are handed to worker threads, and the planned ranges that say what
//! is inserted together, when it may be sent, and up to where a partition is committed.
//!
//! ```text
//!  poll thread                                worker threads                 delivery
//!  -----------                                --------------                 --------
//!  Consumer::run --- Ownership::Gained -----> PartitionQueue -> messages -> blocks -> held
//!       ^   |        (queue, cutter)             |                             |
//!       |   |                                    |                             |
//!       `---- Report::Closed (a range ends) -----'                             |
//!       |   v                                                                  v
//!       | Ranges -- commit --> coordinator -- stored --> Order::Send --------> insert
//!       |                                                                      |
//!       |---- Report::Parted (it goes in parts) -- commit -- Noted ----------->|
//!       `---- Report::Settled <------------------------------------------------'
//! ```
//!
//! A partition goes by `Ownership::Lost` and `Report::Released`; one that must begin anew is released by the worker unasked.
//!
//! [`dead_letter`] is where messages and rows go that cannot be delivered; it has a thread of its own.
//!
//! The poll thread owns the consumer, the assignment and the ranges; nothing here takes a lock in the path of messages.

mod admin_call;
mod arrivals;
mod assignment;
pub mod clock;
mod cluster;
mod committer;
mod consumer;
pub mod dead_letter;
mod first_seen;
mod inspection;
mod log_reader;
mod membership;
mod new_topic;
mod open_transactions;
mod oversize;
mod partition;
mod past;
mod probe;
pub mod ranges;
mod rebalancing;
mod refusal;
mod rest;
pub mod retention;
mod security;
mod settings;
mod stats;
mod topic_descriptions;
mod topic_limits;
mod topic_reader;
mod turns;
pub mod watchdog;

// The C files beside this one are linked in front of functions of librdkafka. librdkafka_layouts.c compares signatures and layouts with its
// headers. What the functions do must be read again for every version; the faults `oversized-*`, `foreign-metadata`, `heartbeat-lost`,
// `duplicate-member` and `clock-jump` show it.
const _: () =
    assert!(rdkafka_sys::RD_KAFKA_VERSION == 0x02_0c_01_ff, "the C files are made for librdkafka 2.12.1");

pub use arrivals::{DestinationOf, KeptRanges};
pub use assignment::{OrderSink, TopicMadeAnew};
pub use committer::{BeforeBegin, Beginning};
pub use consumer::{Consumer, Error, Inbox, Limits, Shortage};
pub use membership::{Drain, Phase, Stop};
pub use open_transactions::{OPEN_MAX, OpenTransaction};
pub use oversize::batch_warning;
pub use partition::{
    Generation, Noted, OffsetRange, Order, Ownership, Partition, PartitionId, PartitionQueue, Renew, Report,
    Verdict,
};
pub use probe::{ProbeError, TopicPartitions, batch_bytes_max, probe_topics, would_make};
pub use rdkafka::error::KafkaError;
pub use rdkafka::message::{BorrowedMessage, Headers, Message, OwnedMessage};
pub use refusal::QueueProblem;
pub use rest::Rest;
pub use security::{ConnectionProblem, security_settings};
pub use settings::{Identity, consumer_settings, probe_settings};
pub use stats::{ConsumerStats, PartitionStats};
pub use topic_reader::{CommittedOffset, Patience, ReadError, TopicReader};
