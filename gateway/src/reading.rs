//! From a Kafka message to an open block, or to the dead-letter topic.
//!
//! Owner: each worker thread has its own instance of everything here. Messages come from the queues of the partitions that the poll thread
//! has assigned to it. Sealed blocks go through a channel to [delivery](crate::delivery), dead letters to the dead-letter thread.
//! ```text
//!  librdkafka --> worker --> framing, reader --> encode --> rows, blocks --> worker --seal--> delivery
//!                              |                |
//!                              `----------------`--> reject --> worker: sends its letter, then skips it
//! ```

pub mod worker;

pub mod framing;

pub mod reader;

pub mod encode;

pub mod reject;
