//! The poll thread: the consumer and its callbacks, which partitions this process has, where they begin, and what is committed.
//!
//! | file | is |
//! | --- | --- |
//! | [`consumer`] | the poll thread's loop |
//! | [`membership`], [`member_id`], [`rebalancing`] | join, drain and leave; librdkafka's callbacks |
//! | [`assignment`], [`arrivals`], [`turns`] | which partitions are owned, how they begin, which are read now |
//! | [`partition`] | what passes between the poll thread, workers and delivery |
//! | [`committer`], [`log_reader`] | requests to the coordinator; where a log begins and ends |
//! | [`log_consumer`] | the poll thread's loop for logs of this process, without Kafka |
//! | [`rest`] | what is waited for when partitions are let go |
//! | [`stats`] | the numbers for metrics |
//! | [`inspection`], [`watchdog`], [`open_transactions`] | which partitions stand still, and why |
//! | [`unfetched`] | which of them Kafka gives no messages of, and why |
//! | [`batch_remedy`] | what lets a batch be read at which one stands |

pub mod arrivals;
pub mod assignment;
pub mod batch_remedy;
pub mod committer;
pub mod consumer;
pub mod inspection;
pub mod log_consumer;
pub mod log_reader;
pub mod member_id;
pub mod membership;
pub mod open_transactions;
pub mod partition;
pub mod rebalancing;
pub mod rest;
pub mod stats;
pub mod turns;
pub mod unfetched;
pub mod watchdog;
