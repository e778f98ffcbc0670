//! The status of a pipeline: counts, conditions, and the types and reasons of conditions.
//!
//! Condition types and reasons are stable API: scripts, alerts and `kubectl wait` rely on them. `Ready` is the summary; `Reconciling` and
//! `Stalled` follow kstatus, so Argo CD, Flux and `kubectl wait` reach the same verdict.

#![allow(clippy::doc_markdown, reason = "the comments on fields are descriptions, which are plain text")]

mod connections;
mod delivery;
mod edge;
mod lifecycle;
mod loss;
mod resize;
mod rollout;
mod scaling;
mod schema;
mod silent;
mod volumes;

pub use connections::ConnectionsStatus;
pub use delivery::{DeliveryStatus, EXACTLY_ONCE, QueueStatus, status_word};
pub use edge::EdgeStatus;
pub use lifecycle::SuspensionStatus;
pub use loss::LossStatus;
pub use resize::{MEMORY_RESIZES_MAX, MemoryResize, MemoryResizeState};
pub use rollout::{RolloutState, RolloutStatus};
pub use scaling::{DrainOutcome, DrainState, DrainStatus, Remembered, ScalingStatus};
pub use schema::SchemaStatus;
pub use silent::{SILENT_GATEWAYS_MAX, SilentGateway};
pub use volumes::{ReplacementStatus, VolumesStatus};

use crate::derived::Derived;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// `observedGeneration` before an operator has written a status: no generation has this number, so tools that wait for the pipeline
/// (kstatus, and with it Flux and Helm) keep waiting. The CRD's default.
pub const NEVER_OBSERVED: i64 = -1;

/// What the operator says about a pipeline.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TracePipelineStatus {
    /// The generation of the spec that this status is about; -1 while no operator has looked at the pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Ready, Reconciling, Stalled, SourceReachable, SinkReachable, SchemaReady, ScalingActive, ScalingLimited, Suspended,
    /// ReconciliationPaused, VolumesResized and VolumesDrained; all of them always. EdgeReady, while spec.edge is set or its pods still exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,

    /// Gateways that are ready, of those wanted, such as 3/3: what kubectl get shows. 0/? before it is known how many are wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub ready: Option<String>,

    /// Gateways wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_replicas: Option<u32>,

    /// Gateways that exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,

    /// Gateways that are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<u32>,

    /// Gateways that run the newest revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_replicas: Option<u32>,

    /// Label selector of the gateways' pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,

    /// Where gateways accept OTLP, as host:port of the Service, gRPC first; only with source.otlp.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2), inner(length(max = 261)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub endpoints: Vec<String>,

    /// Partitions of all topics; not set with source.otlp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitions: Option<u32>,

    /// Topics and their partitions as last seen; used while Kafka is away.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub topics: Vec<TopicStatus>,

    /// The consumer group that the gateways are in; not set with source.otlp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumer_group: Option<String>,

    /// The brokers whose consumer group that is. Of two pipelines with one group, the first keeps it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 261)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub bootstrap_servers: Vec<String>,

    /// The TraceConnections that the gateways have their brokers and servers from; not set where the pipeline names both itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<ConnectionsStatus>,

    /// How far the gateways are behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<Lag>,

    /// The delivery guarantee that the gateways have found; the weakest of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<DeliveryStatus>,

    /// What waits on the queue volumes; not set while queue.mode is Disabled. While a gateway is not ready or does not say it, the last
    /// known numbers stay; not set then if they are 0, since a gateway that waits for its table has not read its volume yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueStatus>,

    /// How the schema Job failed last; not set once it has succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<SchemaStatus>,

    /// The schema Job that last found a table to which rows can be written, by its name, which follows from all that the Job is to do. It
    /// is not run again for a spec with the same name, even if the Job is gone; not set once another one has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub schema_job: Option<String>,

    /// Messages that Kafka deleted before they were read, or that a gateway could not read from its volume; not set while none is known to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<LossStatus>,

    /// How many queue volumes there are and how far they are; not set while queue.mode is Disabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<VolumesStatus>,

    /// How the number of gateways was decided; not set while scaling.mode is Fixed or External and no gateway drains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<ScalingStatus>,

    /// The edge's pods; not set while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge: Option<EdgeStatus>,

    /// Gateways that were OOM-killed and get more memory in place (gateway.resources.resize), as long as their pods exist; at most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["pod".into()]))]
    pub memory_resizes: Vec<MemoryResize>,

    /// Ready gateways that do not answer the operator, all that Ready counts. An operator that starts goes on from here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub silent_gateways: Vec<SilentGateway>,

    /// How far gateways are on their way to the newest config, image and size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutStatus>,

    /// Set while the pipeline is suspended and until its gateways are back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspension: Option<SuspensionStatus>,

    /// The gateways' image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,

    /// The image of gateways while gateway.image is not set. With gateway.upgradeStrategy Manual, an upgrade of the operator does not change it
    /// once a gateway was ready with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_image: Option<String>,

    /// The image of this operator's version, if it differs from defaultImage: gateway.upgradeStrategy Automatic switches to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator_image: Option<String>,

    /// The config that the gateways are given, by the hash of its content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_hash: Option<String>,

    /// What follows from the spec and the number of partitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derived: Option<Derived>,

    /// The StatefulSet's revision that all gateways had when it was last rolled out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_revision: Option<String>,

    /// The StatefulSet's revision that gateways are brought to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_revision: Option<String>,

    /// Version of the operator that wrote this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator_version: Option<String>,
}

impl TracePipelineStatus {
    /// The condition of a type.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|one| one.type_ == kind)
    }

    /// The same with `ready` as the counts are.
    #[must_use]
    pub fn counted(self) -> Self {
        let wanted = self.desired_replicas.map_or_else(|| "?".to_owned(), |wanted| wanted.to_string());
        Self { ready: self.ready_replicas.map(|ready| format!("{ready}/{wanted}")), ..self }
    }
}

/// A topic as last seen.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopicStatus {
    /// Its name.
    #[schemars(length(max = 249))]
    pub name: String,
    /// Its number of partitions.
    pub partitions: u32,
}

/// How far the gateways are behind.
#[derive(KubeSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lag {
    /// Messages that are not yet committed, over all partitions, or with source.otlp over the logs of all gateways, in steps: the number stays
    /// until it is half or twice as many, and is then rounded to two significant digits. 0 is exact. With source.otlp it may be a
    /// minute old: the operator asks gateways every 15 to 30 s. `kubectl sluice lag` and metrics show the exact number of now.
    pub messages: i64,
}

/// Types of conditions.
pub mod condition {
    /// Summary: everything is as the spec says. Gateways run, or none does because the pipeline is suspended.
    pub const READY: &str = "Ready";
    /// True while something is changing towards what the spec says.
    pub const RECONCILING: &str = "Reconciling";
    /// True when nothing will change until someone changes something.
    pub const STALLED: &str = "Stalled";
    /// Kafka answers, every topic exists, gateways reach a broker, and do not reject all messages.
    pub const SOURCE_REACHABLE: &str = "SourceReachable";
    /// ClickHouse answered with these credentials when it was last asked, and no gateway's inserts have failed since.
    pub const SINK_REACHABLE: &str = "SinkReachable";
    /// The table exists with the columns that are needed.
    pub const SCHEMA_READY: &str = "SchemaReady";
    /// The operator decides the number of gateways from what it observes, and nothing holds the decision.
    pub const SCALING_ACTIVE: &str = "ScalingActive";
    /// True while something other than the load limits the number of gateways.
    pub const SCALING_LIMITED: &str = "ScalingLimited";
    /// The pipeline is suspended: `suspend`.
    pub const SUSPENDED: &str = "Suspended";
    /// The operator does not change the pipeline's objects: `managementState: Unmanaged`.
    pub const RECONCILIATION_PAUSED: &str = "ReconciliationPaused";
    /// Every queue volume has the size that the spec asks for.
    pub const VOLUMES_RESIZED: &str = "VolumesResized";
    /// No queue volume without a gateway may hold rows.
    pub const VOLUMES_DRAINED: &str = "VolumesDrained";
    /// Every pod of the edge that is wanted is ready.
    pub const EDGE_READY: &str = "EdgeReady";

    /// The types that every pipeline has, in the order in which they are written. [`EDGE_READY`] stands after them, while there is an edge.
    pub const ALL: [&str; 12] = [
        READY,
        RECONCILING,
        STALLED,
        SOURCE_REACHABLE,
        SINK_REACHABLE,
        SCHEMA_READY,
        SCALING_ACTIVE,
        SCALING_LIMITED,
        SUSPENDED,
        RECONCILIATION_PAUSED,
        VOLUMES_RESIZED,
        VOLUMES_DRAINED,
    ];
}

/// Reasons of conditions.
pub mod reason {
    /// All is well.
    pub const OK: &str = "Ok";

    // Ready
    /// Every gateway is ready and of the newest revision.
    pub const RUNNING: &str = "Running";
    /// The pipeline is on its way to what the spec says.
    pub const PROGRESSING: &str = "Progressing";
    /// The spec cannot be carried out.
    pub const SPEC_INVALID: &str = "SpecInvalid";
    /// Kafka cannot be reached, or a topic is missing.
    pub const SOURCE_UNAVAILABLE: &str = "SourceUnavailable";
    /// ClickHouse, its table or the credentials are not as they must be, or inserts fail.
    pub const SINK_UNAVAILABLE: &str = "SinkUnavailable";
    /// Gateways do not become ready, or are ready and do not answer the operator.
    pub const REPLICAS_NOT_READY: &str = "ReplicasNotReady";
    /// Also of `Stalled`: the change failed, and what ran before runs again.
    pub const ROLLED_BACK: &str = "RolledBack";
    /// Also of `Stalled`: the change failed, and stays as far as it got.
    pub const ROLLOUT_FAILED: &str = "RolloutFailed";

    /// The pipeline is suspended, or its gateways still drain. `Ready` is true once no gateway runs.
    pub const SUSPENDED: &str = "Suspended";
    /// The topics are idle, and no gateway runs until messages arrive: `scaling.idle`. `Ready` is true.
    pub const IDLE: &str = "Idle";
    /// The pipeline is being deleted, and its finalizer still holds it.
    pub const DELETING: &str = "Deleting";

    // Ready, Reconciling, Stalled
    /// The operator cannot read or write an object: the API server, an admission rule or a quota refuses it.
    pub const APPLY_FAILED: &str = "ApplyFailed";
    /// The operator cannot read the TracePipeline: the CRD in the cluster is of another version.
    pub const MALFORMED: &str = "Malformed";

    // Ready
    /// No pod of the edge is ready, so that no OTLP is accepted; gateways run.
    pub const EDGE_NOT_READY: &str = "EdgeNotReady";

    // Ready, EdgeReady
    /// Kubernetes does not create pods: a quota, or a rule of the namespace.
    pub const PODS_REFUSED: &str = "PodsRefused";

    // Ready
    /// Gateways are ready, and partitions have no reader among them for more than 30 seconds.
    pub const PARTITIONS_UNREAD: &str = "PartitionsUnread";

    // Ready, SourceReachable
    /// Another pipeline has the same consumer group and keeps it: its gateways read with it, or it is older.
    pub const CONSUMER_GROUP_TAKEN: &str = "ConsumerGroupTaken";
    /// A topic has fewer partitions than it had.
    pub const PARTITIONS_LOST: &str = "PartitionsLost";
    /// Also of `SourceReachable` and `SinkReachable`: the `TraceConnection` that the spec references does not exist, lacks the part that is
    /// wanted, or cannot be read.
    pub const CONNECTION_MISSING: &str = "ConnectionMissing";
    /// The storage class of the queue volumes does not exist.
    pub const STORAGE_CLASS_MISSING: &str = "StorageClassMissing";

    // Ready
    /// A gateway is unschedulable, because no node that reaches its queue volume takes it.
    pub const VOLUME_OUT_OF_REACH: &str = "VolumeOutOfReach";

    // Reconciling
    /// Gateways insert and commit what they hold, before they are removed.
    pub const DRAINING: &str = "Draining";
    /// The spec changed and is not carried out yet.
    pub const SPEC_CHANGED: &str = "SpecChanged";
    /// Gateways are replaced by ones of a new revision.
    pub const ROLLING_OUT: &str = "RollingOut";
    /// Gateways are added or removed.
    pub const SCALING: &str = "Scaling";
    /// Queue volumes grow, or are replaced.
    pub const RESIZING_VOLUMES: &str = "ResizingVolumes";
    /// Something outside of the spec must come first.
    pub const WAITING: &str = "Waiting";

    // ScalingActive; what holds the decision, and what limits it, are words of `sluice_plan::scale::{Hold, Limit}`.
    /// The operator decides the number, or recommends one.
    pub const ACTIVE: &str = "Active";
    /// `scaling.mode: Fixed`.
    pub const DISABLED: &str = "Disabled";
    /// `scaling.mode: External`.
    pub const EXTERNAL: &str = "External";

    // ScalingLimited
    /// Another client has set the replicas of the StatefulSet, and the operator keeps that number.
    pub const SCALING_CONFLICT: &str = "ScalingConflict";

    // ReconciliationPaused
    /// `managementState: Managed`.
    pub const MANAGED: &str = "Managed";
    /// `managementState: Unmanaged`.
    pub const UNMANAGED: &str = "Unmanaged";

    // VolumesResized
    /// Every volume has its size.
    pub const UP_TO_DATE: &str = "UpToDate";
    /// Volumes grow.
    pub const RESIZING: &str = "Resizing";
    /// Volumes are replaced, one after the other.
    pub const REPLACING: &str = "Replacing";
    /// Volumes have grown, their file systems have not.
    pub const FILE_SYSTEM_RESIZE_PENDING: &str = "FileSystemResizePending";
    /// The storage class does not let volumes grow. Also a reason of Ready and Stalled.
    pub const NOT_EXPANDABLE: &str = "NotExpandable";

    // VolumesDrained
    /// The claim of a gateway that stays was deleted: its volume and the rows on it go when the gateway's pod ends.
    pub const CLAIM_DELETED: &str = "ClaimDeleted";
    /// A Job could not drain a volume without a gateway; it runs again.
    pub const DRAIN_FAILED: &str = "DrainFailed";
    /// Empty volumes that should be deleted stay: the API server refuses to delete their claims.
    pub const NOT_DELETED: &str = "NotDeleted";

    // SourceReachable
    /// Gateways have rejected messages in the last 15 minutes: some of them while the condition is true, all while it is false; then also a
    /// reason of Ready.
    pub const MESSAGES_REJECTED: &str = "MessagesRejected";
    /// ClickHouse refuses rows for their content: many, from a tenth on, while the condition SinkReachable is true, all while it is false.
    pub const ROWS_REFUSED: &str = "RowsRefused";
    /// No message that gateways have read has a span; the condition is true, since OTLP allows it.
    pub const MESSAGES_WITHOUT_SPANS: &str = "MessagesWithoutSpans";

    /// A transaction of the source has been open for longer than its coordinator allows: messages behind it are not read.
    pub const TRANSACTION_HANGING: &str = "TransactionHanging";

    // SourceReachable, SinkReachable, SchemaReady
    /// Nothing was asked yet.
    pub const NOT_PROBED: &str = "NotProbed";
    /// Not checked: `schema.management: None`.
    pub const NOT_MANAGED: &str = "NotManaged";
    /// The server refused user or password.
    pub const AUTH_FAILED: &str = "AuthFailed";
    /// No TLS connection: one side does not trust the other's certificate, or one does not speak TLS.
    pub const TLS_FAILED: &str = "TlsFailed";
    /// The server could not be connected to.
    pub const UNREACHABLE: &str = "Unreachable";
    /// The server did not answer in time.
    pub const TIMEOUT: &str = "Timeout";
    /// A topic does not exist.
    pub const TOPIC_MISSING: &str = "TopicMissing";
    /// The Secret does not exist.
    pub const SECRET_MISSING: &str = "SecretMissing";
    /// The Secret lacks a key.
    pub const SECRET_INCOMPLETE: &str = "SecretIncomplete";
    /// The database does not exist.
    pub const DATABASE_MISSING: &str = "DatabaseMissing";
    /// The table does not exist.
    pub const TABLE_MISSING: &str = "TableMissing";
    /// The table's columns are not the ones that are needed.
    pub const COLUMN_MISMATCH: &str = "ColumnMismatch";
    /// Rows can be written to the table, but it differs otherwise from what the spec asks for, in a way that only a person may change.
    pub const SCHEMA_DIFFERS: &str = "SchemaDiffers";
    /// Some servers did not answer the schema Job, and may lack the table; the others have one that rows can be written to.
    pub const SERVERS_NOT_REACHED: &str = "ServersNotReached";
    /// Gateways are ready, and their inserts fail.
    pub const INSERTS_FAILING: &str = "InsertsFailing";
    /// The schema Job is running.
    pub const JOB_RUNNING: &str = "JobRunning";
    /// The schema Job failed for a reason that none of the others names; the message tells it.
    pub const JOB_FAILED: &str = "JobFailed";
    /// The pod of the schema Job does not start: its image, a node, a quota. Also a reason of `Ready`.
    pub const JOB_NOT_STARTED: &str = "JobNotStarted";
}
