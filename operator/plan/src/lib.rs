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
//!
//! The folders in the order of the data flow; each names only those before it:
//!
//! | folder or file | is |
//! | --- | --- |
//! | [`names`], `ground` | names, hashes, quantities, moments, pods, label selectors |
//! | `pipeline` | what the spec says: whether it runs, its terms, the gateways' config |
//! | [`observed`] | facts, one file per source of facts |
//! | `identity` | whose the pods are, and what they run as |
//! | [`scale`], `facts` | the autoscaler's decision; a plan is made only from this decision and from what was observed |
//! | [`size`], [`drain`], [`rollout`], [`volumes`], `schema` | the other decisions |
//! | `otlp_service` | the Service that OTLP clients send to |
//! | [`mod@edge`] | the edge, as the spec wants it |
//! | `planned` | what was decided |
//! | [`objects`] | what a plan looks like in Kubernetes |
//! | `plan` | the order of the decisions |
//! | `status` | the status of the pipeline: conditions, numbers and texts |

pub mod drain;
pub mod edge;
mod facts;
mod ground;
mod identity;
pub mod names;
pub mod objects;
pub mod observed;
mod otlp_service;
mod pipeline;
mod plan;
mod planned;
pub mod rollout;
pub mod scale;
mod schema;
pub mod size;
mod status;
pub mod volumes;

pub use facts::{Observed, ScalingSeen};
pub use ground::{labels, moment::Moment, pods, quantity, refused::Refused, selector::Selector, words};
pub use identity::{Defaults, OperatorPods};
pub use names::Names;
pub use objects::{Applied, Desired, EdgeParts, Objects, Parts, PodMonitor, build, drain_job, pod_monitor};
pub use observed::{
    ClaimSeen, DrainJobSeen, DrainJobState, EdgeSeen, Emptied, FailedSeen, GatewaySeen, GoingSeen,
    HolderSeen, KeptVersion, KeptVersions, MemorySeen, Partitions, PodSeen, ProvedSeen, ReconcileFailure,
    SaidBy, SchemaFailed, SchemaFailure, SchemaSeen, SecretSeen, Secrets, ServersSeen, SourceFailure,
    StorageClassSeen, TemplateSeen, TopicSeen, VolumesSeen, Wait, WorkloadSeen, scaled_by_others,
};
pub use pipeline::{
    Intent,
    connections::{ConnectionSeen, Unresolved, located, references, resolved},
    group_owner::{asks_first, group_of, group_owner},
    policy::REPLICAS_MAX,
    repeated_endpoints::{endpoints_left_out, servers_of_two_shards},
    responsible::{Responsible, Turn, Wait as OperatorWait},
};
pub use plan::{plan, plan_or_refuse, schema_job_name};
pub use planned::{Plan, Planned, Waiting};
pub use schema::{
    RunsAgain, SCHEMA_LOOK_AFTER, SCHEMA_RETRY_AFTER, SCHEMA_RETRY_AFTER_MAX, SchemaPlan, SchemaStep,
    outdated as outdated_schema_job,
};
pub use status::{
    Advice, OneTimeEvent, Server, advice, derived, for_metrics, one_time_events, removing,
    replica_conflict_message, status, status_of_failure,
};

// What `plan` returns belongs to the contract crate; callers need no second import.
pub use sluice_gateway_config::{Violation, Violations};
