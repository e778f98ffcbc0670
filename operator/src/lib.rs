//! The Sluice operator: it observes a pipeline and its cluster, lets `sluice-plan` decide, and applies the result.
//!
//! ```text
//!  watch, cache ---+                         decide
//!                  +--> reconcile: observe -> scaling -> plan -> build -> apply, prune -> report
//!  kafka, sample --+                             |   `--- sluice-plan ---'
//!                                                `--> gateways: read their reports, send drain and resume, beside the reconciles
//!
//!  run: admin, lease, watches                 memory: state between two reconciles
//! ```
//!
//! Everything runs on tokio's threads. Calls to librdkafka block, and run on tokio's blocking threads; `kafka::clients` limits them.

pub mod absence;
pub mod admin;
pub mod api_error;
pub mod apply;
pub mod args;
pub mod cache;
pub mod claim_guard;
pub mod drift;
pub mod events;
pub mod exchange;
pub mod finalizer;
pub mod gateways;
pub mod gather;
pub mod hindrance;
pub mod kafka;
pub mod kafka_security;
pub mod kubeconfig;
pub mod lease;
pub mod memory;
pub mod metrics;
pub mod next;
pub mod observe;
pub mod offsets;
pub mod outcome;
pub mod pod_monitor;
pub mod prune;
pub mod readers;
pub mod ready_command;
pub mod reconcile;
pub mod refused_pods;
pub mod release;
pub mod removal;
pub mod replacement;
pub mod report;
pub mod resize;
pub mod resize_events;
pub mod rollout;
pub mod run;
pub mod sample;
pub mod scaling;
pub mod secrets;
pub mod server_time;
pub mod told;
pub mod unasked;
pub mod unkept;
pub mod volume_events;
pub mod volumes;
pub mod watch;
pub mod watch_state;
