//! Decides what a pipeline's objects should be, and what its status says. The operator crate carries it out.
//!
//! ```text
//!  Observed ---+
//!              +--> plan --> Planned::Ready(Plan) --> build --> Objects<Desired>   (applied by the operator)
//!  TracePipeline+      \---> Planned::Waiting      \
//!                       \--> Violations -----------+--> status --> TracePipelineStatus
//! ```
//!
//! Every function is plain: no client, no clock, no runtime, no randomness. The same arguments give the same bytes, so
//! that a second reconcile writes nothing and an operator that restarts changes nothing.

mod as_it_runs;
mod contest;
mod derived;
mod gateway_config;
mod hash;
mod image;
pub mod lifecycle;
pub mod message_window;
pub mod names;
mod news;
pub mod objects;
pub mod observed;
mod plan;
mod pod_template;
mod quantity;
pub mod resize;
mod resources;
mod rival;
pub mod rollout;
pub mod scale;
mod schema;
mod secrets;
pub mod sink;
mod size;
mod source;
mod status;
mod topics;
pub mod volumes;

pub use contest::{contested, scaled_by_others};
pub use derived::{Advice, Server, advice, derived};
pub use lifecycle::Intent;
pub use names::Names;
pub use news::{News, news};
pub use objects::{Applied, Desired, Objects, Parts, PodMonitor, build, drain_job, pod_monitor};
pub use observed::{
    ClaimSeen, DrainJobSeen, DrainJobState, Emptied, FailedSeen, GatewaySeen, GoingSeen, Hindrance,
    HolderSeen, KeptVersion, KeptVersions, MemorySeen, Observed, Partitions, PodSeen, ProvedSeen, SaidBy,
    ScalingSeen, SchemaFailed, SchemaFailure, SchemaSeen, SecretSeen, Secrets, SourceFailure,
    StorageClassSeen, TemplateSeen, TopicSeen, VolumesSeen, Wait, WorkloadSeen,
};
pub use plan::{Defaults, OperatorPods, Plan, Planned, Waiting, plan};
pub use rival::{asks_first, group_of, rival};
pub use schema::{
    SCHEMA_LOOK_AFTER, SCHEMA_RETRY_AFTER, SCHEMA_RETRY_AFTER_MAX, SchemaPlan, SchemaStep, schema_job_name,
};
pub use size::REPLICAS_MAX;
pub use status::{hindered, removing, status, told};

// What `plan` returns belongs to the contract crate; callers need no second import.
pub use sluice_gateway_config::{Violation, Violations};
