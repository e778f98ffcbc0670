//! The table that rows go to: who makes it, and how.

use crate::{repeated::repeated_at, texts};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where the planner refuses a column of the preset. It may refuse the same column for another reason.
const PRESET_COLUMNS: &[&str] = &[
    "columns.SampleRate: preset ClickStack adds this column",
    "columns.ResourceAttributeItems: preset ClickStack adds this column",
    "columns.SpanAttributeItems: preset ClickStack adds this column",
];

/// Who makes the table, and how.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = repeated_at(&["layout"], Rule::new("!has(self.layout) || self.layout == 'Json' || (!has(self.maxDynamicPaths) \
        && size(self.typedPaths.resource) == 0 && size(self.typedPaths.span) == 0)")
        .message("layout must be Json while maxDynamicPaths or typedPaths is set: only JSON columns have paths")),
    validation = repeated_at(&["ttl: must not be set with engine Null", "orderBy: must not be set with engine Null"], Rule::new(
        "!has(self.engine) || self.engine != 'Null' \
        || (!has(self.ttl) && (!has(self.orderBy) || size(self.orderBy) == 0))")
        .message("engine Null stores nothing, so that ttl and orderBy must not be set")),
    validation = repeated_at(&["engine"], Rule::new("!has(self.durability) || self.durability != 'Quorum' || !has(self.engine) \
        || self.engine == 'ReplicatedMergeTree'")
        .message("durability Quorum needs replicas: engine must be ReplicatedMergeTree, or not set")),
    validation = repeated_at(&["preset", "layout"], Rule::new("!has(self.preset) || ((!has(self.layout) || self.layout == 'Map') && !has(self.maxDynamicPaths) \
        && size(self.typedPaths.resource) == 0 && size(self.typedPaths.span) == 0)")
        .message("preset ClickStack stores attributes as Map: layout must be Map or not set, without maxDynamicPaths and typedPaths")),
    validation = repeated_at(PRESET_COLUMNS, Rule::new("!has(self.preset) || !has(self.columns) \
        || self.columns.all(c, !(c.name in ['SampleRate', 'ResourceAttributeItems', 'SpanAttributeItems']))")
        .message("preset ClickStack adds the columns SampleRate, ResourceAttributeItems and SpanAttributeItems: remove them from columns"))
)]
pub struct Schema {
    /// None: nothing is done, the gateways look at the columns when they start. Validate: the table is compared before gateways are
    /// started. CreateIfMissing (the default): database, table and views are made when they are missing. Evolve: missing columns and
    /// settings for durability are added as well. Sluice never runs a statement that would drop, rewrite or copy rows: the condition
    /// SchemaReady names it, and gateways keep running.
    #[serde(default)]
    pub management: SchemaManagement,

    /// The reader that the table is made for. ClickStack: HyperDX. The table has the columns, text indexes, SampleRate and sorting key of
    /// ClickStack's own otel_traces, and attributes as Map. Evolve adds columns that a table of ClickStack lacks; indexes and sorting key
    /// are not compared. Set ttl as well: ClickStack drops rows after 30d. When it is not set: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Preset")]
    pub preset: Option<Preset>,

    /// How attributes lie in the table. Json: each set of attributes is one JSON column. Map: it is a
    /// Map(LowCardinality(String), String), as in the OpenTelemetry exporter's table. Nested: it is a group of keys and values
    /// for each type. When it is not set: as in the table; Json in one that is made, Map with a preset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Layout")]
    pub layout: Option<Layout>,

    /// The table's engine: MergeTree, ReplicatedMergeTree, or Null, which stores nothing and fills views alone. When it is not
    /// set: the one that the table has; in one that is made MergeTree, or ReplicatedMergeTree with durability Quorum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Engine")]
    pub engine: Option<Engine>,

    /// The cluster on which statements are run (ON CLUSTER). When it is not set, they are run at each of the endpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(validation = texts::form(
        "^[a-zA-Z_][a-zA-Z0-9_]*$",
        "cluster is a-z, A-Z, 0-9 and '_', with no digit at the beginning, such as prod_eu"
    ))]
    pub cluster: Option<String>,

    /// Age at which rows are dropped, whole days at a time: a duration such as 30d or 1d12h, from 1h to 36500d. When it is not
    /// set, an existing table keeps its TTL, and a new table keeps rows for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new("self != '' && self.matches('^([1-9][0-9]{0,4}d)?([1-9][0-9]{0,5}h)?$')")
        .message("ttl is a duration from 1h to 36500d in whole d and h, such as 30d or 1d12h"))]
    pub ttl: Option<String>,

    /// The sorting key: columns, or functions of one, at most 8, such as ServiceName or toStartOfHour(Timestamp). Low
    /// cardinality first compresses best. When it is empty, an existing table keeps its key. A new table gets that of the
    /// preset, or else ServiceName, SpanName, toDateTime(Timestamp), Timestamp.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(min = 1, max = 128)))]
    #[x_kube(
        validation = Rule::new(
            "self.all(k, k.matches('^[a-zA-Z_][a-zA-Z0-9_]*([(][a-zA-Z_][a-zA-Z0-9_]*[)])?$'))")
            .message("each of orderBy is a column, or a function of one, such as ServiceName or toStartOfHour(Timestamp)"),
        merge_strategy = ListMerge::Atomic
    )]
    pub order_by: Vec<String>,

    /// Paths of a JSON column that get a column of their own; further ones share one. 0 to 1024. When it is not set, an existing
    /// table keeps its number, and a new table has 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1024))]
    pub max_dynamic_paths: Option<u32>,

    /// Paths of JSON columns with a type.
    #[serde(default)]
    pub typed_paths: TypedPaths,

    /// Groups of columns that gateways fill if the table has them. AttributeKeys: the keys of resource and span attributes, with an index
    /// each, as in the OpenTelemetry exporter's JSON table. ScopeAttributes: the attributes of the instrumentation scope, and their keys.
    /// SchemaUrls: those of resource and scope. DroppedCounts: how many attributes, events and links an SDK dropped. TraceFlags: the
    /// span's flags. KafkaCoordinates: topic, partition, offset and timestamp of the message. KafkaHeaders: its headers, up to 4096 bytes.
    /// A table that is made has these columns, and Evolve adds them to one that is there; otherwise SchemaReady names the statement. When
    /// it is not set: as the table has them; one that is made has none. An empty list asks for none. gateway/TABLE.md has the names of all columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<OptionalColumns>", length(max = 7))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub optional_columns: Option<Vec<OptionalColumns>>,

    /// Columns beside the gateway's own, which the server computes; at most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub columns: Vec<ExtraColumn>,

    /// Tables that materialized views fill beside this one, where a block that is inserted twice changes no result. Operations: services
    /// and their operations, since when and until when, in TABLE_operations. TraceTimes: the time range of each trace in TABLE_trace_id_ts,
    /// so that a query by trace id that names the time reads its days alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub views: Vec<View>,

    /// What acknowledged rows must survive at least. Process (the default): the end of its process; a power failure of its host can lose
    /// the last inserted rows. Fsync: a power failure, too. Tables that are made sync every part before an INSERT is acknowledged
    /// (fsync_after_insert, fsync_part_directory), so that each INSERT takes longer. Evolve gives a table that is there these settings;
    /// otherwise SchemaReady names the statement. Quorum: the loss of a host. An INSERT is acknowledged once a majority of the replicas has
    /// its rows (insert_quorum); while fewer answer, nothing is inserted. What the table gives is in status.delivery.durability.
    #[serde(default = "durability", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Durability")]
    pub durability: Option<Durability>,
}

impl Default for Schema {
    fn default() -> Self {
        Self {
            management: SchemaManagement::default(),
            layout: None,
            preset: None,
            optional_columns: None,
            engine: None,
            cluster: None,
            ttl: None,
            order_by: Vec::new(),
            max_dynamic_paths: None,
            typed_paths: TypedPaths::default(),
            columns: Vec::new(),
            views: Vec::new(),
            durability: durability(),
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the default of an optional field, as serde wants it")]
fn durability() -> Option<Durability> {
    Some(Durability::default())
}

/// What Sluice may do with the table.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SchemaManagement {
    /// Nothing.
    None,
    /// Compare.
    Validate,
    /// Create database, table and views when they are missing, then compare.
    #[default]
    CreateIfMissing,
    /// The same, and add columns that are missing.
    Evolve,
}

/// The reader that a table is made for.
#[derive(JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Preset {
    /// HyperDX.
    ClickStack,
}

/// How attributes lie in a table.
#[derive(JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layout {
    /// One JSON column per set.
    Json,
    /// One map of text per set.
    Map,
    /// A group of keys and values per type and set.
    Nested,
}

/// The table's engine.
#[derive(JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Engine {
    /// One server.
    MergeTree,
    /// Replicas.
    ReplicatedMergeTree,
    /// Nothing is stored.
    Null,
}

/// What rows survive that ClickHouse has acknowledged.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Durability {
    /// The end of its process.
    #[default]
    Process,
    /// A power failure of its host.
    Fsync,
    /// The loss of a host.
    Quorum,
}

/// Columns that gateways fill if the table has them.
#[derive(JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OptionalColumns {
    /// ResourceAttributesKeys, SpanAttributesKeys.
    AttributeKeys,
    /// ScopeAttributes, ScopeAttributesKeys.
    ScopeAttributes,
    /// ResourceSchemaUrl, ScopeSchemaUrl.
    SchemaUrls,
    /// ResourceDroppedAttributesCount, ScopeDroppedAttributesCount, DroppedAttributesCount, DroppedEventsCount, DroppedLinksCount.
    DroppedCounts,
    /// TraceFlags.
    TraceFlags,
    /// KafkaTopic, KafkaPartition, KafkaOffset, KafkaTimestamp.
    KafkaCoordinates,
    /// KafkaHeaders.
    KafkaHeaders,
}

/// Paths of JSON columns with a type, by path; at most 64 of each set of attributes.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TypedPaths {
    /// Of the resource's attributes, such as k8s.pod.name: Nullable(String). HyperDX cannot list the values of such a path.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 64))]
    pub resource: BTreeMap<String, PathType>,

    /// Of the span's attributes, such as http.response.status_code: Nullable(Int64).
    #[serde(default)]
    #[schemars(extend("maxProperties" = 64))]
    pub span: BTreeMap<String, PathType>,
}

/// The type of a path.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PathType(
    #[schemars(length(max = 32), extend("x-kubernetes-validations" = [texts::path_type()]))] pub String,
);

/// A column that the gateways do not fill.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExtraColumn {
    /// Its name.
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(validation = texts::form(
        "^[a-zA-Z_][a-zA-Z0-9_]*$",
        "the name of a column is a-z, A-Z, 0-9 and '_', with no digit at the beginning, such as HttpRoute"
    ))]
    pub name: String,

    /// Its type, such as LowCardinality(String).
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 256))]
    pub type_name: String,

    /// The expression from which the server computes it (DEFAULT), such as SpanAttributes.http.route. When it is not set, the default of
    /// its type. An existing column that has one keeps it: to change it, run ALTER TABLE … MODIFY COLUMN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub default: Option<String>,
}

/// A table that a materialized view fills beside the main one. A block that comes twice changes none of its answers.
#[derive(JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum View {
    /// Services and their operations.
    Operations,
    /// The time range of each trace.
    TraceTimes,
}
