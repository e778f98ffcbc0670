//! The Sluice gateway: reads OTLP traces from Kafka and inserts them into ClickHouse.
//!
//! `main.rs` only parses the command line and calls this library, so that benchmarks can run its parts. The folders, in the order in which
//! data passes through them:
//!
//! ```text
//!  Kafka --> reading --> rows --> blocks --> delivery --> table (ClickHouse)
//!                                                |  ^
//!                                                v  |
//!                                               volume
//! ```
//!
//! | folder | contents | owner |
//! | --- | --- | --- |
//! | [`reading`] | polls messages, reads them, and encodes or rejects them | the worker threads |
//! | [`rows`] | turns a message's spans into rows; the only place that knows both OTLP and the table | the worker threads |
//! | [`blocks`] | compresses rows into blocks, which live in one pool of memory | workers until a block is sealed, then delivery |
//! | [`delivery`] | queues sealed blocks, sends and retries them, and splits those that ClickHouse refuses | the delivery task |
//! | [`table`] | the table and its servers: how to reach it, how it is created, whether it changes | inserts, commands |
//! | [`volume`] | blocks on the queue volume: which are moved there, which return, what an earlier run has left | the spool thread |
//! | [`guarantee`] | whether rows are in the table exactly once or at least once, and why | a task that asks the servers |
//! | [`admin`] | state and commands over HTTP | the admin server |
//! | [`ground`] | used by all of these: metrics, the account of rows, the route to a shard, the clock | every holder of a handle |
//! | [`source`] | OTLP requests become messages of logs on the queue volume, in place of Kafka's | `io`, `check`, `log` threads |
//! | [`intake`] | what the edge and `source` share: the OTLP server and its end | `io` |
//! | [`edge`] | a process of its own: OTLP requests become messages of the topic | its `io` and `split` threads |
//! | [`commands`] | what a person or the operator runs beside the gateway | the command's thread |
//!
//! [`app`] builds the parts, starts the threads and stops them; [`args`] is the command line.

pub mod admin;
pub mod app;
pub mod args;
pub mod blocks;
pub mod commands;
pub mod delivery;
pub mod edge;
pub mod exit_codes;
pub mod ground;
pub mod guarantee;
pub mod intake;
pub mod reading;
pub mod rows;
pub mod source;
pub mod table;
pub mod volume;
