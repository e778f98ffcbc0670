//! Measurements: throughput and memory of the gateway, what it costs to accept OTLP, how it stands a load of OTLP, tables of `ClickHouse`, and what
//! hundreds of pipelines cost the operator.

pub mod load;
pub mod memory;
pub mod operator_scale;
pub mod otlp;
pub mod outcomes;
pub mod schema_bench;
pub mod throughput;
