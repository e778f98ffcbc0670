//! The spec, in the order a user thinks: source, sink, size, gateway, queue, delivery, lifecycle. One file per noun below.
//!
//! The comments are the descriptions that `kubectl explain` shows, so they speak to a user of the resource. Every
//! optional object has a default, so that CEL rules and the operator never meet an absent one.

#![allow(clippy::doc_markdown, reason = "the comments on fields are descriptions, which are plain text")]

mod attributes;
mod client_rules;
mod delivery;
mod edge;
mod gateway;
mod insert;
mod lifecycle;
mod observability;
mod otlp;
mod pod_template;
mod protection;
mod queue;
mod resources;
mod rollout;
mod scaling;
mod schema;
pub(crate) mod shard_rules;
mod sink;
pub(crate) mod source;

pub use attributes::{AttributeAction, AttributeRule, Attributes, AttributesOf, UnreadableLetters};
pub use delivery::{Commit, DeadLetter, Delivery, OnMissing};
pub use edge::{
    Edge, EdgeAuthentication, EdgeAutoscaling, EdgeGrpc, EdgeHttp, EdgePodTemplate, EdgeResourceLimits,
    EdgeResources, EdgeService, EdgeServiceType, EdgeTenants, EdgeTls,
};
pub use gateway::{Gateway, ImagePullPolicy, LogLevel, UpgradeStrategy};
pub use insert::{Insert, InsertFormat, SettingValue};
pub use lifecycle::{DeletionPolicy, ManagementState};
pub use observability::{Observability, PodMonitoring};
pub use otlp::{Listeners, OtlpSource};
pub use pod_template::{AnnotationValue, DnsPolicy, LabelValue, PodTemplate, UserAndGroup};
pub use protection::{DisruptionBudget, NetworkRules};
pub use queue::{OnZoneLoss, Queue, QueueMode, Retention, RetentionPolicy};
pub use resources::{
    Cpu, DeprecatedField, MemoryResizing, ResourceLimits, ResourceQuantity, ResourceRequests, Resources,
};
pub use rollout::{Canary, MaxUnavailable, Rollout, RolloutStrategy};
pub use scaling::{Day, Drain, Idle, OnTimeout, Scaling, ScalingMode, Schedule};
pub use schema::{
    Durability, Engine, ExtraColumn, Layout, OptionalColumns, PathType, Preset, Schema, SchemaManagement,
    TypedPaths, View,
};
pub use sink::{ClickHouseSink, Credentials, SecretRef, Shard, Sink};
pub use source::{Format, GroupProtocol, InitialOffset, KafkaSource, PropertyValue, Source};

use crate::{repeated::repeated_at, status::TracePipelineStatus};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// What a pipeline reads, where it writes, and how large it is.
#[derive(CustomResource, KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "sluice.dev",
    version = "v1alpha1",
    kind = "TracePipeline",
    plural = "tracepipelines",
    shortname = "tp",
    category = "observability",
    namespaced,
    doc = "Traces from Kafka topics, or from OTLP clients, into one ClickHouse table.",
    derive = "PartialEq",
    status = "TracePipelineStatus",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    validation = Rule::new("size(self.metadata.name) <= 44 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("the name of a TracePipeline is a-z, 0-9 and '-', begins with a letter and has at most 44 characters, such as \
                  prod-traces: a StatefulSet and a Service are named after it"),
    printcolumn(
        name = "Ready", type_ = "string", json_path = ".status.ready",
        description = "gateways that are ready, of those wanted"
    ),
    printcolumn(
        name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        description = "why the pipeline is ready or not: Running while all is as the spec says"
    ),
    printcolumn(
        name = "Partitions", type_ = "integer", json_path = ".status.partitions",
        description = "partitions of all topics"
    ),
    printcolumn(
        name = "Lag", type_ = "integer", json_path = ".status.lag.messages",
        description = "messages that are not yet committed; with source.otlp, requests that wait on the volumes"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Cause", type_ = "string", json_path = ".status.scaling.cause", priority = 1,
        description = "what limits, as far as the operator looks"
    ),
    printcolumn(
        name = "Delivery", type_ = "string", json_path = ".status.delivery.guarantee", priority = 1,
        description = "what is promised about delivery"
    ),
    printcolumn(name = "Topic", type_ = "string", json_path = ".spec.source.kafka.topics[0]", priority = 1),
    printcolumn(
        name = "Endpoint", type_ = "string", json_path = ".status.endpoints[0]", priority = 1,
        description = "where gateways accept OTLP, with source.otlp"
    ),
    printcolumn(name = "Table", type_ = "string", json_path = ".spec.sink.clickhouse.table", priority = 1),
    printcolumn(name = "Memory", type_ = "string", json_path = ".status.derived.memory", priority = 1),
    printcolumn(
        name = "Status", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    ),
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.scaling.mode != 'Auto' || !has(self.replicas)")
        .message("replicas must not be set while scaling.mode is Auto: the operator sets the number; set scaling.minReplicas \
                  and scaling.maxReplicas"),
    validation = Rule::new("self.scaling.mode != 'External' || has(self.replicas)")
        .message("replicas must be set while scaling.mode is External: it is the first number, without which the scale subresource \
                  cannot be read; from then on the client of /scale writes it"),
    validation = repeated_at(&["delivery.commit"], Rule::new("self.delivery.commit != 'AfterEnqueue' || self.queue.mode == 'Spill'")
        .message("delivery.commit AfterEnqueue needs queue.mode Spill: the queue volume is the only copy of what is committed and \
                  not inserted yet")),
    validation = Rule::new("self.delivery.commit != 'AfterEnqueue' || self.scaling.drain.onTimeout != 'Force'")
        .message("scaling.drain.onTimeout Force cannot be used with delivery.commit AfterEnqueue: the queue volume is the only \
                  copy of what is committed and not inserted yet; use Abort or Job"),
    validation = repeated_at(&["delivery.deadLetter.topic"], Rule::new(
        "!has(self.delivery.deadLetter.topic) || !has(self.source.kafka) \
         || !(self.delivery.deadLetter.topic in self.source.kafka.topics)")
        .message("delivery.deadLetter.topic is a topic of the source, which would read its dead letters again")),
    validation = Rule::new(
        "!has(self.scaling.idle) || !has(self.source.kafka) || self.source.kafka.groupProtocol == 'Classic'")
        .message("scaling.idle needs source.kafka.groupProtocol Classic: with the other protocol Kafka counts the retention of an offset \
                  from its commit, and deletes those of an idle topic when the last gateway leaves"),
    validation = repeated_at(&["edge"], Rule::new("!has(self.edge) || !has(self.source.kafka) || self.source.kafka.format == 'OtlpProto'")
        .message("edge needs source.kafka.format OtlpProto, which is how it writes messages: set that, or remove edge")),
    validation = repeated_at(&["edge.topic"], Rule::new(
        "!has(self.edge) || !has(self.source.kafka) \
         || (has(self.edge.topic) ? self.edge.topic in self.source.kafka.topics : size(self.source.kafka.topics) == 1)")
        .message("edge.topic is one of source.kafka.topics, and must be set if there are several")),
    validation = repeated_at(&["edge"], Rule::new("!has(self.edge) || !has(self.source.otlp) || self.source.otlp == null")
        .message("edge cannot be used with source.otlp: the edge writes to a topic of Kafka, and gateways accept OTLP themselves; remove edge")),
    validation = repeated_at(&["queue.mode"], Rule::new("!has(self.source.otlp) || self.source.otlp == null || self.queue.mode == 'Spill'")
        .message("source.otlp needs queue.mode Spill: gateways keep requests on the queue volume before they answer them")),
    validation = repeated_at(&["delivery.commit"], Rule::new("!has(self.source.otlp) || self.source.otlp == null || self.delivery.commit == 'AfterInsert'")
        .message("delivery.commit AfterEnqueue cannot be used with source.otlp: the queue volume has the only copy in any case; leave commit \
                  out")),
    validation = repeated_at(&["delivery.deadLetter.topic"], Rule::new("!has(self.source.otlp) || self.source.otlp == null || !has(self.delivery.deadLetter.topic)")
        .message("delivery.deadLetter.topic cannot be used with source.otlp: dead letters are on the queue volume, up to \
                  source.otlp.deadLetterBytesMax; leave topic out")),
    validation = Rule::new("!has(self.source.otlp) || self.source.otlp == null || self.scaling.drain.onTimeout == 'Abort'")
        .message("source.otlp needs scaling.drain.onTimeout Abort: only the gateway itself inserts what is in the logs of its volume"),
    validation = Rule::new("!has(self.source.otlp) || self.source.otlp == null || !has(self.scaling.idle)")
        .message("scaling.idle cannot be used with source.otlp: without a gateway, no request is accepted"),
    validation = repeated_at(&["scaling.maxReplicas"], Rule::new("!has(self.source.otlp) || self.source.otlp == null || !(self.scaling.mode in ['Auto', 'Recommend']) || has(self.scaling.maxReplicas)")
        .message("source.otlp with scaling.mode Auto or Recommend needs scaling.maxReplicas: no number of partitions limits the gateways"))
)]
pub struct TracePipelineSpec {
    /// Where spans come from.
    pub source: Source,

    /// Where rows go.
    pub sink: Sink,

    /// Number of gateways, 0 to 1000; never more than there are partitions. When it is not set, the number follows from
    /// partitionsPerReplica, or from scaling; with source.otlp, it is 2. With scaling.mode External it is required as the first value; from then on the client of
    /// /scale writes it, and tools that apply the spec again should leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: Option<u32>,

    /// Partitions for one gateway, 1 to 1024, while replicas is not set: there are as many gateways as it takes.
    /// Default 4. It has no meaning with source.otlp.
    #[serde(default = "partitions_per_replica")]
    #[schemars(range(min = 1, max = 1024))]
    pub partitions_per_replica: u32,

    /// Who sets the number of gateways, and within which bounds.
    #[serde(default)]
    pub scaling: Scaling,

    /// The gateway's image, size and behaviour.
    #[serde(default)]
    pub gateway: Gateway,

    /// Pods that accept OTLP and write it to the topic, which gateways read. When it is not set, there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge: Option<Box<Edge>>,

    /// How gateways are replaced when their config, image or size changes.
    #[serde(default)]
    pub rollout: Rollout,

    /// The queue volume of each gateway.
    #[serde(default)]
    pub queue: Queue,

    /// What becomes of attributes on their way into rows. When it is not set, they are stored as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attributes: Option<Attributes>,

    /// When an offset is committed, and what is done with what cannot be delivered.
    #[serde(default)]
    pub delivery: Delivery,

    /// How many gateways may be evicted at the same time.
    #[serde(default = "pod_disruption_budget", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DisruptionBudget")]
    pub pod_disruption_budget: Option<DisruptionBudget>,

    /// Which connections to and from the pods are allowed. When it is not set, there is a NetworkPolicy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<NetworkRules>,

    /// What reads the gateways' metrics.
    #[serde(default = "observability", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Observability")]
    pub observability: Option<Observability>,

    /// Whether the pipeline is suspended. Its gateways insert and commit what they hold, for at most scaling.drain.timeout, and are
    /// removed; offsets, configs, queue volumes and the table stay. When it is false again, as many gateways come back as there were. Kafka
    /// deletes the offsets of a group without members after the brokers' offsets.retention.minutes (7 days by default); a pipeline that was
    /// suspended for longer begins at initialOffset. Default false.
    #[serde(default)]
    pub suspend: bool,

    /// Managed (the default): the operator keeps the pipeline's objects as the spec says. Unmanaged: it writes only the status and sends no
    /// request to gateways; it still carries out the pipeline's deletion.
    #[serde(default)]
    pub management_state: ManagementState,

    /// What happens to the gateways when the pipeline is deleted. Drain (the default): they insert and commit what they hold, for at most
    /// scaling.drain.timeout; then the operator removes everything except queue volumes that are not known to be empty. Immediate:
    /// everything is removed at once, also rows on queue volumes that Kafka no longer has. Orphan: the objects keep running without the
    /// pipeline, until one of the same name takes them over. Drain and Orphan hold the pipeline with the finalizer sluice.dev/drain, so
    /// they need a running operator. With delivery.commit AfterEnqueue the queue volumes always stay.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

#[expect(clippy::unnecessary_wraps, reason = "the default of an optional field, as serde wants it")]
fn pod_disruption_budget() -> Option<DisruptionBudget> {
    Some(DisruptionBudget::default())
}

#[expect(clippy::unnecessary_wraps, reason = "the default of an optional field, as serde wants it")]
fn observability() -> Option<Observability> {
    Some(Observability::default())
}

fn partitions_per_replica() -> u32 {
    4
}

impl TracePipelineSpec {
    /// Whether a queue volume may have the only copy of what is on it, whatever Kafka keeps: requests of `source.otlp`, or rows that were
    /// committed before they were inserted.
    pub fn has_only_copies_on_volumes(&self) -> bool {
        self.source.kafka.is_none() || self.delivery.commit == Commit::AfterEnqueue
    }
}
