//! Reconciles against a scripted API server and librdkafka's mock cluster: what is written, in which order, and what
//! happens when the server refuses. Real clusters are e2e's; here are the faults that they cannot show.

#![allow(clippy::unwrap_used, reason = "tests may unwrap; the lint knows test functions, not their helpers")]

mod api_server;
mod apply_failure;
mod argo_cd;
mod asked;
mod bench;
mod chart;
mod complaints;
mod connections;
mod deletion;
mod divided;
mod edge;
mod failures;
mod gateway_report;
mod kept;
mod lagging;
mod lease;
mod left_alone;
mod life;
mod otlp;
mod pods;
mod quiet;
mod reach;
mod replaced;
mod replica_conflict;
mod replicas;
mod resize;
mod rights;
mod rollout;
mod scaling;
mod schema;
mod secrets;
mod silent;
mod sink;
mod state;
mod suspended;
mod table;
mod undrain;
mod volumes;
mod watches;
