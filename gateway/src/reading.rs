//! From a Kafka message to an open block, or to the dead-letter topic.
//!
//! Owner: each worker thread has all of this for itself. Messages come from the queues of the partitions that the poll thread has
//! given it; sealed blocks go through a channel to [delivery](crate::delivery), letters to the thread of the dead letters.
//!
//! ```text
//!  librdkafka --> worker --> reader --> encode --> rows, blocks --> worker --seal--> delivery
//!                              |         |
//!                              `---------`--> reject --> worker: its letter goes out, then it is passed over
//! ```

pub mod worker;

pub mod reader;

pub mod encode;

pub mod reject;
