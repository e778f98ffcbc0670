//! Drives everything from outside: demo, verify, the local stack, end-to-end tests.

pub mod cargo;
pub mod cluster;
pub mod demo;
pub mod faults;
pub mod fuzz;
pub mod gateway;
pub mod gitops;
pub mod group_members;
pub mod install;
pub mod kafka_fields;
pub mod letters;
pub mod local_operator;
pub mod memory;
pub mod operator_scale;
pub mod oracle;
pub mod pipeline;
pub mod process;
pub mod produce;
pub mod say;
pub mod schema_bench;
pub mod simulate;
pub mod spans;
pub mod stack;
pub mod throughput;
pub mod verify;
