//! The user's contract: the custom resources `TracePipeline` and `TraceConnection`, their rules and their status.
//!
//! Everything a user can write is bounded here (lengths, counts, ranges), and every default is a default of the schema. The
//! API server refuses what CEL can check, before a program of ours reads it. Rules that need more than the object
//! itself (does the topic exist, does the memory fit) are the operator's, and become conditions.
//!
//! Nothing here runs: types, schema and constants only.

mod derived;
mod manifest;
mod of_kubernetes;
mod reference;
mod repeated;
pub mod security;
pub mod status;
mod texts;
mod trace_connection;
mod trace_pipeline;

pub use derived::Derived;
pub use manifest::{connection_crd, connection_crd_yaml, crd, crd_yaml, repeated_rules};
pub use reference::{DERIVED, reference_markdown};
pub use repeated::RepeatedRules;
pub use security::{KeyUse, NamedSecret, Sasl, SaslMechanism, SecretUse, Side, Tls, UsedKey};
pub use status::{
    ConnectionsStatus, DeliveryStatus, DrainOutcome, DrainState, DrainStatus, EXACTLY_ONCE, EdgeStatus, Lag,
    LossStatus, MEMORY_RESIZES_MAX, MemoryResize, MemoryResizeState, QueueStatus, Remembered,
    SILENT_GATEWAYS_MAX, ScalingStatus, SchemaStatus, SilentGateway, SuspensionStatus, TopicStatus,
    TracePipelineStatus, VolumesStatus, status_word,
};
pub use status::{ReplacementStatus, RolloutState, RolloutStatus};
pub use texts::OBJECT_NAME_FORM;
pub use trace_connection::{
    ClickHouseConnection, ConnectionRef, KafkaConnection, TraceConnection, TraceConnectionSpec,
    TraceConnectionStatus,
};
pub use trace_pipeline::{
    AnnotationValue, DisruptionBudget, DnsPolicy, LabelValue, NetworkRules, PodTemplate, UserAndGroup,
};
pub use trace_pipeline::{AttributeAction, AttributeRule, Attributes, AttributesOf, UnreadableLetters};
pub use trace_pipeline::{Canary, MaxUnavailable, Rollout, RolloutStrategy};
pub use trace_pipeline::{
    ClickHouseSink, Commit, Credentials, Day, DeadLetter, DeletionPolicy, Delivery, Drain, Durability,
    Engine, ExtraColumn, Format, Gateway, GroupProtocol, Idle, ImagePullPolicy, InitialOffset, Insert,
    InsertFormat, KafkaSource, Layout, LogLevel, ManagementState, MemoryResizing, OnMissing, OnTimeout,
    OnZoneLoss, OptionalColumns, PathType, Preset, PropertyValue, Queue, QueueMode, Resources, Retention,
    RetentionPolicy, Scaling, ScalingMode, Schedule, Schema, SchemaManagement, SecretRef, SettingValue,
    Shard, Sink, Source, TracePipeline, TracePipelineSpec, TypedPaths, UpgradeStrategy, View,
};
pub use trace_pipeline::{Cpu, DeprecatedField, ResourceLimits, ResourceQuantity, ResourceRequests};
pub use trace_pipeline::{
    Edge, EdgeAuthentication, EdgeAutoscaling, EdgeGrpc, EdgeHttp, EdgePodTemplate, EdgeResourceLimits,
    EdgeResources, EdgeService, EdgeServiceType, EdgeTenants, EdgeTls,
};
pub use trace_pipeline::{Listeners, OtlpSource};
pub use trace_pipeline::{Observability, PodMonitoring};

/// The API group.
pub const GROUP: &str = "sluice.dev";

/// The version served and stored.
pub const VERSION: &str = "v1alpha1";

/// The finalizer by which the operator holds a pipeline whose gateways are to be drained, or left, when it is deleted.
pub const FINALIZER: &str = "sluice.dev/drain";

/// The longest name of a pipeline, in characters. A pod of its StatefulSet `<name>-gateway` carries the label
/// `controller-revision-hash: <name>-gateway-<10 digits>`, and a label holds 63.
pub const NAME_CHARS_MAX: usize = 44;
