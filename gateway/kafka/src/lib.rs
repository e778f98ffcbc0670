//! Kafka, as a gateway uses it: a consumer that hands partitions to worker threads, and commits that contain the plan of ranges
//! ([`sluice_ranges`]). The plan says which messages are inserted together, when a range may be sent, and up to where a partition is
//! committed.
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
//! A partition leaves by `Ownership::Lost` and `Report::Released`. A worker releases a partition that must restart on its own.
//!
//! A gateway that accepts OTLP itself has no Kafka. Its [`LogConsumer`] reads logs of this process as partitions: assignment, ranges, reports and
//! orders are the same.
//!
//! Messages and rows that cannot be delivered go to [`dead_letter`], which has a thread of its own.
//!
//! The edge has no consumer: it writes to a topic with a [`producer`].
//!
//! The poll thread owns the consumer, the assignment and the ranges. No code here takes a lock in the path of messages.

pub mod dead_letter;
mod ground;
mod group;
pub mod producer;
mod questions;

// The C files in this folder are linked in front of functions of librdkafka. librdkafka_layouts.c compares signatures and layouts with
// its headers. Read the functions again for every new version; the faults `oversized-*`, `foreign-metadata`, `heartbeat-lost`,
// `duplicate-member` and `clock-jump` test them. producer_id.c is linked in front of none: it reads librdkafka's state.
const _: () =
    assert!(rdkafka_sys::RD_KAFKA_VERSION == 0x02_0c_01_ff, "the C files are made for librdkafka 2.12.1");

pub use ground::clock;
pub use ground::cluster::UNNAMED as UNNAMED_CLUSTER;
pub use ground::refusal::QueueProblem;
pub use ground::security::{ConnectionProblem, security_settings};
pub use ground::settings::{Identity, consumer_settings, probe_settings};
pub use ground::throttle::Throttle;
pub use group::arrivals::{DestinationOf, KeptRanges};
pub use group::assignment::{OrderSink, TopicMadeAnew};
pub use group::batch_remedy::BatchRemedy;
pub use group::committer::{BeforeBegin, Beginning};
pub use group::consumer::{Consumer, Error, Inbox, Limits, Shortage};
pub use group::log_consumer::{LogConsumer, LogKeeper, LogState};
pub use group::membership::{Drain, Phase, Stop};
pub use group::open_transactions::{OPEN_MAX, OpenTransaction};
pub use group::partition::{
    LogMessages, Order, Ownership, Partition, PartitionQueue, PlanStored, Polled, Renew, Report,
};
pub use group::rest::Rest;
pub use group::stats::{ConsumerStats, PartitionStats};
pub use group::unfetched::Unfetched;
pub use group::watchdog;
pub use questions::oversize::batch_warning;
pub use questions::probe::{ProbeError, TopicPartitions, probe_topics, would_make};
pub use questions::retention;
pub use questions::topic_reader::{CommittedOffset, Patience, ReadError, TopicReader};
pub use rdkafka::error::KafkaError;
pub use rdkafka::message::{BorrowedMessage, Headers, Message, OwnedMessage, Timestamp};
