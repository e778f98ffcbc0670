//! The Sluice operator: it observes a pipeline and its cluster, lets `sluice-plan` decide, and applies the result.
//!
//! ```text
//!  run: probes, Lease -> watch ---events---> reconcile:  observe -> scale -> plan -> build -> drain -> apply, prune -> report
//!                          |                             read       steer    `sluice-plan'   steer    write           write
//!                          `--copies--> world                                                volumes, remove
//! ```
//!
//! Each room names only rooms below it:
//!
//! | room | does |
//! | --- | --- |
//! | [`run`] | starts and stops: probes, metrics, Lease |
//! | [`reconcile`] | one reconcile of one pipeline, its failures, and when the next one is due |
//! | [`remove`] | a pipeline that is being deleted |
//! | [`steer`], [`volumes`] | gateways: how many, which revision; their queue volumes |
//! | [`write`] | writes to the API server |
//! | [`read`] | facts: Kafka, Secrets, gateways, volumes |
//! | [`watch`] | watches of the API server |
//! | [`world`] | what all of them share: client, copies, memory of each pipeline, clock, errors, metrics |
//!
//! Everything runs on tokio's threads. Calls to librdkafka block, and run on tokio's blocking threads; `read::kafka::clients` limits them.

pub mod args;
pub mod read;
pub mod ready_command;
pub mod reconcile;
pub mod remove;
pub mod run;
pub mod steer;
pub mod volumes;
pub mod watch;
pub mod world;
pub mod write;
