//! A connection that pipelines share: brokers or servers with their logins, once for all pipelines of a namespace.
//!
//! The fields are those of a pipeline's `source.kafka` and `sink.clickhouse`, of the same types. The operator puts them in the place of a
//! reference before it plans anything, so that a pipeline with a reference runs as one that has the same values itself.

#![allow(clippy::duplicated_attributes, reason = "columns have types, of which several have the same")]
#![allow(clippy::doc_markdown, reason = "the comments on fields are descriptions, which are plain text")]

use crate::{
    repeated::repeated_at,
    security::{Sasl, Tls},
    texts,
    trace_pipeline::{Credentials, Shard, shard_rules, source},
};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// Brokers of Kafka, servers of ClickHouse, or both, with their logins.
#[derive(CustomResource, KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "sluice.dev",
    version = "v1alpha1",
    kind = "TraceConnection",
    plural = "traceconnections",
    shortname = "tconn",
    category = "observability",
    namespaced,
    doc = "A connection to Kafka or ClickHouse that the TracePipelines of its namespace share.",
    derive = "PartialEq",
    status = "TraceConnectionStatus",
    printcolumn(
        name = "Kafka",
        type_ = "string",
        json_path = ".spec.kafka.bootstrapServers[0]",
        description = "the first of the brokers"
    ),
    printcolumn(
        name = "ClickHouse",
        type_ = "string",
        json_path = ".spec.clickhouse.endpoints[0]",
        description = "the first of the servers; none for a connection with shards"
    ),
    printcolumn(
        name = "Shards",
        type_ = "string",
        json_path = ".spec.clickhouse.shards[0].endpoints[0]",
        description = "the first server of the first shard; none for a connection without shards"
    ),
    printcolumn(
        name = "Pipelines",
        type_ = "integer",
        json_path = ".status.pipelines",
        description = "pipelines that reference it"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.kafka) || has(self.clickhouse)")
    .message("a TraceConnection has kafka, clickhouse or both"))]
pub struct TraceConnectionSpec {
    /// Brokers and the login to them, for source.kafka.connectionRef of pipelines. When it is not set, none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kafka: Option<KafkaConnection>,

    /// Servers and the login to them, for sink.clickhouse.connectionRef of pipelines. When it is not set, none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clickhouse: Option<ClickHouseConnection>,
}

/// Brokers and the login to them.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = repeated_at(&[source::AWS_REGION_AT], Rule::new(source::AWS_REGION).message(source::AWS_REGION_SAID)),
    validation = Rule::new(source::AWS_TLS).message(source::AWS_TLS_SAID)
)]
pub struct KafkaConnection {
    /// Brokers to ask first, each as host:port; 1 to 16.
    #[schemars(length(min = 1, max = 16), inner(length(min = 3, max = 261)))]
    #[x_kube(
        validation = Rule::new(source::BROKERS).message(source::BROKERS_SAID),
        merge_strategy = ListMerge::Atomic
    )]
    pub bootstrap_servers: Vec<String>,

    /// TLS to the brokers. When it is not set, none; {} is TLS with the authorities that the image trusts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,

    /// User and password. When it is not set, the brokers ask for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sasl: Option<Sasl>,
}

/// Servers and the login to them.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = repeated_at(shard_rules::ONE_OF, Rule::new("has(self.endpoints) != has(self.shards)")
        .message("one of endpoints and shards is set, and not both: endpoints are replicas of a single shard")),
    validation = repeated_at(&["tls"], Rule::new(shard_rules::TLS).message(shard_rules::TLS_SAID)),
    validation = Rule::new(shard_rules::ADDED).message(shard_rules::ADDED_SAID),
    validation = Rule::new(shard_rules::PLACE).message(shard_rules::PLACE_SAID),
    validation = Rule::new(shard_rules::FIRST).message(shard_rules::FIRST_SAID),
    validation = Rule::new(shard_rules::MOVES).message(shard_rules::MOVES_SAID)
)]
pub struct ClickHouseConnection {
    /// HTTP interfaces of the replicas of one shard, each as http://host:port or each as https://host:port; 1 to 16, each
    /// once. They are tried in turn. Either these or shards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 16), inner(length(min = 10, max = 269)))]
    #[x_kube(
        validation = Rule::new(shard_rules::ENDPOINTS).message(shard_rules::ENDPOINTS_SAID),
        validation = Rule::new(shard_rules::SCHEMES).message(shard_rules::SCHEMES_SAID),
        validation = Rule::new(shard_rules::DISTINCT).message(shard_rules::DISTINCT_SAID),
        merge_strategy = ListMerge::Atomic
    )]
    pub endpoints: Vec<String>,

    /// Several shards, 1 to 64, instead of endpoints, as in sink.clickhouse.shards of a pipeline: add others at the end, remove none, and
    /// move none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(
        validation = Rule::new(shard_rules::SHARD_SCHEMES).message(shard_rules::SHARD_SCHEMES_SAID),
        validation = Rule::new(shard_rules::NAMES).message(shard_rules::NAMES_SAID),
        merge_strategy = ListMerge::Atomic
    )]
    pub shards: Vec<Shard>,

    /// Which certificates to trust where endpoints are https, and the gateways' own. When it is not set: the authorities
    /// that the image trusts, and none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,

    /// User and password, or a token. When it is not set, the user "default" without a password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Credentials>,
}

/// What the operator says about a connection.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceConnectionStatus {
    /// Pipelines of the namespace that reference the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipelines: Option<u32>,
}

/// A TraceConnection by name.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = texts::object_name("name of connectionRef is the name of a TraceConnection", "main"))]
    pub name: String,
}
