//! The edge: OTLP requests become messages of the pipeline's topic.
//!
//! A process of its own, `sluice-gateway edge`. It has no consumer, no table and no volume, and shares the ground with the gateway, and [`intake`](crate::intake) with one that accepts OTLP
//! itself.
//!
//! ```text
//!  clients -- gRPC, HTTP --> otlp_server (io) --> acceptor --> splitting (io, split-N) --> producer (gateway/kafka) --> topic
//!     ^                          |  permits           |  tenants                               |
//!     `---- answer --------------'<------ acknowledged, or come again -------------------------'
//! ```
//!
//! | file | is |
//! | --- | --- |
//! | [`run`] | builds the parts, and starts the threads |
//! | [`serving`] | the OTLP server |
//! | [`acceptor`] | a request from its body to its answer |
//! | [`splitting`] | requests become messages, in tasks and in threads |
//! | [`metrics`] | all metrics, created once |
//! | [`status`] | probes and metrics over HTTP |
//!
//! Limits: the parts of [`sluice_gateway_config::edge_budget`]. What it promises: EDGE.md.

pub mod acceptor;
pub mod metrics;
pub mod run;
#[cfg(test)]
mod samples;
pub mod serving;
pub mod splitting;
pub mod status;
