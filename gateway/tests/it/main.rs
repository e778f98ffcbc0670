//! From messages to rows: what the parts of the gateway do together, without a network.

#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

mod carried;
mod claimed;
mod edge_end;
mod encodes;
mod judged;
mod layouts;
mod memory;
mod metrics;
mod odd_values;
mod optional;
mod program;
mod raw_limit;
mod rows;
mod services;
mod speed_guard;
