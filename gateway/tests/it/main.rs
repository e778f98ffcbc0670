//! From messages to rows: what the parts of the gateway do together, without a network.

#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

mod carried;
mod claimed;
mod edge_process;
mod encodes;
mod judged;
mod layouts;
mod memory;
mod metrics;
#[allow(dead_code, reason = "the spool's tests use all of it")]
#[path = "../../spool/tests/it/model_disk.rs"]
mod model_disk;
mod odd_values;
mod optional;
mod otlp_log;
mod otlp_source;
mod program;
mod raw_limit;
mod rows;
mod services;
mod speed_guard;
