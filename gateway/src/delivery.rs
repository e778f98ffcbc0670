//! From a sealed block to rows in the table, including retries, refusals and moves to the queue volume.
//!
//! Owner: one task on the I/O runtime, and a task for each block that may be sent. Blocks come from the workers and from the
//! [queue volume](crate::volume), orders from the poll thread. Reports go back to the poll thread, which commits.
//!
//! ```text
//!  blocks, orders --> task --> held --> shipment --> insert --> report
//!                                         |   ^
//!       route: which shard                |   `-- tries: what next?   retry: when?   breaker: to which server, how many?
//!                                         `-- refused --> bisect: which rows does ClickHouse refuse?
//!
//!  held --> enqueue: counts as settled once it is on the queue volume (`delivery.commit: AfterEnqueue`)
//!  volume, left by an earlier run --> orphans: sent, or dropped because Kafka has its messages
//! ```
//!
//! One thread runs all of this, and the probes too, so nothing here may block. Messages to other threads go through an
//! [`AsyncSender`](crate::ground::async_sender::AsyncSender).
//!
//! The deciding parts ([`tries`], [`breaker`], [`bisect`], [`retry`]) are pure: time, randomness and answers are arguments.

pub mod task;

pub mod block_queue;
pub mod enqueue;
pub(crate) mod orphans;

pub mod deduplicated;
pub mod native;
pub mod originals;
pub mod places;
pub mod query_ids;
pub mod shipment;

pub mod breaker;
pub mod retry;
pub mod tries;

pub mod bisect;
