//! Kafka, as a gateway uses it: a consumer whose partitions are handed to worker threads, and commits that hold the planned ranges
//! ([`sluice_ranges`]): what is inserted together, when it may be sent, and up to where a partition is committed.
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
//!       |---- Report::Parted (it goes in parts) -- commit -- PlanStored ----------->|
//!       `---- Report::Settled <------------------------------------------------'
//! ```
//!
//! A partition goes by `Ownership::Lost` and `Report::Released`; one that must begin anew is released by the worker unasked.
//!
//! [`dead_letter`] is where messages and rows go that cannot be delivered; it has a thread of its own.
//!
//! The poll thread owns the consumer, the assignment and the ranges; nothing here takes a lock in the path of messages.

pub mod dead_letter;
mod ground;
mod group;
mod questions;

// The C files beside this one are linked in front of functions of librdkafka. librdkafka_layouts.c compares signatures and layouts with its
// headers. What the functions do must be read again for every version; the faults `oversized-*`, `foreign-metadata`, `heartbeat-lost`,
// `duplicate-member` and `clock-jump` show it.
const _: () =
    assert!(rdkafka_sys::RD_KAFKA_VERSION == 0x02_0c_01_ff, "the C files are made for librdkafka 2.12.1");

pub use ground::clock;
pub use ground::refusal::QueueProblem;
pub use ground::security::{ConnectionProblem, security_settings};
pub use ground::settings::{Identity, consumer_settings, probe_settings};
pub use group::arrivals::KeptRanges;
pub use group::assignment::{OrderSink, TopicMadeAnew};
pub use group::committer::{BeforeBegin, Beginning};
pub use group::consumer::{Consumer, Error, Inbox, Limits, Shortage};
pub use group::membership::{Drain, Phase, Stop};
pub use group::open_transactions::{OPEN_MAX, OpenTransaction};
pub use group::partition::{Order, Ownership, Partition, PartitionQueue, PlanStored, Renew, Report};
pub use group::rest::Rest;
pub use group::stats::{ConsumerStats, PartitionStats};
pub use group::watchdog;
pub use questions::oversize::batch_warning;
pub use questions::probe::{ProbeError, TopicPartitions, batch_bytes_max, probe_topics, would_make};
pub use questions::retention;
pub use questions::topic_reader::{CommittedOffset, Patience, ReadError, TopicReader};
pub use rdkafka::error::KafkaError;
pub use rdkafka::message::{BorrowedMessage, Headers, Message, OwnedMessage};
