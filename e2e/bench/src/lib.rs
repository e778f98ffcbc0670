//! Measurements: throughput and memory of the gateway, the cost of spans until their rows are merged, the cost of accepting OTLP, a gateway
//! under a heavy load of OTLP, tables of `ClickHouse`, and the operator with hundreds of pipelines.

pub mod bill;
mod collector;
mod command;
mod figures;
pub mod load;
pub mod memory;
pub mod operator_scale;
pub mod otlp;
pub mod outcomes;
pub mod schema_bench;
pub mod throughput;
mod waiting;
