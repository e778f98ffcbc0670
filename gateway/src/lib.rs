//! The Sluice gateway: reads OTLP traces from Kafka and inserts them into ClickHouse.
//!
//! The program is a thin shell around this library, so that benchmarks can drive its parts.

pub mod account;
pub mod admin;
pub mod app;
pub mod args;
pub mod attributes;
pub mod audit;
pub mod batch;
pub mod bisect;
pub mod block;
pub mod breaker;
pub mod buffers;
pub mod cargo;
pub mod check;
pub mod clock;
pub mod ddl;
pub mod dead_letter;
pub mod delivery;
pub mod drain;
pub mod encode;
pub mod enqueue;
pub mod guarantee;
pub mod health;
pub mod held;
mod json_text;
pub mod message_rows;
pub mod metrics;
pub mod only_copy;
pub mod passport;
pub mod read;
pub mod reject;
pub mod remaining;
mod resources;
pub mod retry;
pub mod route;
pub mod schema;
pub mod shipment;
pub mod sink;
pub mod span_row;
pub mod spill;
pub mod spool;
mod strays;
pub mod table_watch;
pub mod tries;
mod value_text;
pub mod worker;
