//! Where rows go: one ClickHouse table, on one shard or on several.

use crate::{
    repeated::repeated_at,
    security::{ServiceAccountToken, Tls, TokenSecretRef, UserSecretRef},
    texts,
    trace_connection::ConnectionRef,
    trace_pipeline::{insert::Insert, schema::Schema, shard_rules},
};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// Where rows go.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sink {
    /// ClickHouse.
    pub clickhouse: ClickHouseSink,
}

/// Servers and table.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = repeated_at(shard_rules::ONE_OF, Rule::new(
        "[has(self.endpoints), has(self.shards), has(self.connectionRef)].exists_one(is_set, is_set)")
        .message("exactly one of endpoints, shards and connectionRef is set in sink.clickhouse: endpoints are replicas of a single shard; \
                  with connectionRef, endpoints or shards stand in the TraceConnection")),
    validation = Rule::new("!has(self.connectionRef) || (!has(self.tls) && !has(self.credentials))")
        .message("with sink.clickhouse.connectionRef, tls and credentials stand in the TraceConnection: remove them here"),
    validation = repeated_at(&["tls"], Rule::new(shard_rules::TLS).message(shard_rules::TLS_SAID)),
    // What the operator compares when the connection stands in a TraceConnection.
    validation = Rule::new(
        "!has(oldSelf.shards) || has(self.connectionRef) \
         || (has(self.shards) ? size(self.shards) >= size(oldSelf.shards) : size(oldSelf.shards) == 1)")
        .message(shard_rules::ADDED_SAID),
    validation = Rule::new(shard_rules::PLACE).message(shard_rules::PLACE_SAID),
    validation = Rule::new(shard_rules::FIRST).message(shard_rules::FIRST_SAID),
    validation = Rule::new(shard_rules::MOVES).message(shard_rules::MOVES_SAID)
)]
pub struct ClickHouseSink {
    /// A TraceConnection in the pipeline's namespace with spec.clickhouse, instead of endpoints, shards, tls and credentials. When it is not
    /// set, they stand here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_ref: Option<ConnectionRef>,

    /// HTTP interfaces of the replicas of one shard, each as http://host:port or each as https://host:port; 1 to 16, each
    /// once. They are tried in turn. Either these, or shards, or connectionRef.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 16), inner(length(min = 10, max = 269)))]
    #[x_kube(
        validation = Rule::new(shard_rules::ENDPOINTS).message(shard_rules::ENDPOINTS_SAID),
        validation = Rule::new(shard_rules::SCHEMES).message(shard_rules::SCHEMES_SAID),
        validation = Rule::new(shard_rules::DISTINCT).message(shard_rules::DISTINCT_SAID),
        merge_strategy = ListMerge::Atomic
    )]
    pub endpoints: Vec<String>,

    /// Several shards, 1 to 64, instead of endpoints: the partitions of the topics are spread over them, each always to the same one, and a
    /// shard that is away stops only its own partitions. The position in the list decides which partitions a shard has: add others at the
    /// end, remove none, and move none. Every shard has the table; each insert that may be under way at the same time takes memory for every
    /// shard.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(
        validation = Rule::new(shard_rules::SHARD_SCHEMES).message(shard_rules::SHARD_SCHEMES_SAID),
        validation = Rule::new(shard_rules::NAMES).message(shard_rules::NAMES_SAID),
        // The order decides where partitions go: two managers of a list whose items are merged would change it.
        merge_strategy = ListMerge::Atomic
    )]
    pub shards: Vec<Shard>,

    /// Which certificates to trust where endpoints are https, and the gateways' own. When it is not set: the authorities
    /// that the image trusts, and none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,

    /// Database. Default otel.
    #[serde(default = "database")]
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(validation = texts::form(
        "^[a-zA-Z0-9._-]+$",
        "database is a-z, A-Z, 0-9, '.', '_' and '-', such as otel"
    ))]
    pub database: String,

    /// Table. Default otel_traces.
    #[serde(default = "table")]
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(validation = texts::form(
        "^[a-zA-Z0-9._-]+$",
        "table is a-z, A-Z, 0-9, '.', '_' and '-', such as otel_traces"
    ))]
    pub table: String,

    /// User and password, or a token. When it is not set, the user "default" without a password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Credentials>,

    /// Who makes the table, and how. A field that is not set accepts what an existing table has, and has its default in a table that Sluice
    /// makes.
    #[serde(default)]
    pub schema: Schema,

    /// How rows are inserted.
    #[serde(default)]
    pub insert: Insert,
}

/// One of several shards.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shard {
    /// What it is known by, up to 63 characters: a-z, 0-9 and -. Either every shard has a name or none has. A shard with a name
    /// keeps the name and its place in the list, and all of its endpoints may be changed. A shard without a name keeps at least one of its
    /// endpoints. An endpoint does not move to another shard in one edit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')")
        .message("the name of a shard has only a-z, 0-9 and -, and begins and ends with a letter or digit, such as eu-1"))]
    pub name: Option<String>,

    /// HTTP interfaces of its replicas, as in endpoints; 1 to 16. Another shard must not list them.
    #[schemars(length(min = 1, max = 16), inner(length(min = 10, max = 269)))]
    #[x_kube(
        validation = Rule::new("self.all(e, e.matches('^https?://[^/@, ]+:[1-9][0-9]{0,4}/?$'))")
            .message("each of the endpoints of a shard is http://host:port or https://host:port, such as http://clickhouse-0:8123"),
        validation = Rule::new(shard_rules::DISTINCT).message(shard_rules::DISTINCT_SAID),
        merge_strategy = ListMerge::Atomic
    )]
    pub endpoints: Vec<String>,
}

fn database() -> String {
    "otel".to_owned()
}

fn table() -> String {
    "otel_traces".to_owned()
}

/// User and password, or a token.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = repeated_at(&["secretRef"], Rule::new("!has(self.username) || (has(self.secretRef) && !has(self.secretRef.usernameKey))")
        .message("username of credentials needs secretRef for the password, and replaces secretRef.usernameKey: set secretRef without \
                  usernameKey, or remove username")),
    validation = repeated_at(&["secretRef"], Rule::new(
        "[has(self.secretRef), has(self.tokenSecretRef), has(self.serviceAccountToken)].exists_one(is_set, is_set)")
        .message("credentials has exactly one of secretRef (user and password), tokenSecretRef and serviceAccountToken"))
)]
pub struct Credentials {
    /// The user's name, for a Secret without one. When it is not set, the Secret must contain the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    #[x_kube(validation = texts::form(
        "^[^:[:cntrl:]]+$",
        "username of credentials has no ':' and no control characters, such as a line break"
    ))]
    pub username: Option<String>,

    /// A Secret in the pipeline's namespace with the password and, unless username is set, the user's name. When it changes, the gateways
    /// are restarted one by one. When it is not set, a token is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<UserSecretRef>,

    /// A Secret in the pipeline's namespace with a token, which is sent as Authorization: Bearer. When it is not set, none of a Secret is
    /// sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_secret_ref: Option<TokenSecretRef>,

    /// The token of the pods' own ServiceAccount, which is sent as Authorization: Bearer. When it is not set, none is mounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_token: Option<ServiceAccountToken>,
}

/// A Secret by name.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = texts::secret_name())]
    pub name: String,
}
