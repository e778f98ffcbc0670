//! Measurements: throughput and memory of the gateway, tables of `ClickHouse`, and what hundreds of pipelines cost the operator.

pub mod memory;
pub mod operator_scale;
pub mod schema_bench;
pub mod throughput;
