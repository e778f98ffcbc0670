//! The Sluice gateway: reads OTLP traces from Kafka and inserts them into ClickHouse.
//!
//! The program is a thin shell around this library, so that benchmarks can drive its parts. Its rooms, in the order in which data
//! passes through them:
//!
//! ```text
//!  Kafka --> reading --> rows --> blocks --> delivery --> table (ClickHouse)
//!                                                |  ^
//!                                                v  |
//!                                               volume
//! ```
//!
//! | room | what is in it | whose |
//! | --- | --- | --- |
//! | [`reading`] | messages are polled, read, and encoded or rejected | the worker threads |
//! | [`rows`] | a message's spans become rows: the only place that knows both OTLP and the table | the worker threads |
//! | [`blocks`] | rows are compressed into blocks, which live in one pool of memory | workers until they are sealed, delivery then |
//! | [`delivery`] | sealed blocks are held, sent, tried again, and taken apart when they are refused | the delivery task |
//! | [`table`] | the table and its servers: how to reach it, how it is made, what becomes of it | inserts, commands |
//! | [`volume`] | blocks on the queue volume: who goes there, who comes back, what an earlier run has left | the spool thread |
//! | [`guarantee`] | whether rows are in the table once, or at least once, and why | a task that asks the servers |
//! | [`admin`] | what is told about all that, and asked, over HTTP | the admin server |
//! | [`ground`] | what all of these name: metrics, the account of rows, the route to a shard, the clock | whoever holds a handle |
//! | [`commands`] | what a person or the operator runs beside the gateway | the command's thread |
//!
//! [`app`] builds the parts, starts the threads, and takes them down; [`args`] is the command line.

pub mod admin;
pub mod app;
pub mod args;
pub mod blocks;
pub mod commands;
pub mod delivery;
pub mod exit_codes;
pub mod ground;
pub mod guarantee;
pub mod reading;
pub mod rows;
pub mod table;
pub mod volume;
