//! Messages in, rows in a real `ClickHouse`, and SELECTed back: every layout of the attributes, and tables of every sort.
//!
//! Run by `cargo verify` once its `ClickHouse` is up, or by hand:
//!
//! ```text
//! SLUICE_CLICKHOUSE=http://127.0.0.1:8123 cargo test -p sluice-gateway --test live
//! ```
//!
//! The server must let the user `default` in without a password. Each test has a database of its own and drops it.

#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

mod cut;
mod fate;
mod guarantee;
mod layouts;
mod messages;
mod refresh;
mod server;
mod typed;
