//! Where rows go: one ClickHouse table, on one shard or on several.

use crate::{
    security::{ServiceAccountToken, Tls, TokenSecretRef, UserSecretRef},
    trace_pipeline::{insert::Insert, schema::Schema},
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
    validation = Rule::new("has(self.endpoints) != has(self.shards)")
        .message("one of endpoints and shards is set, and not both: endpoints are replicas of a single shard"),
    validation = Rule::new(
        "!has(self.tls) || (has(self.endpoints) && self.endpoints.exists(e, e.startsWith('https:'))) \
         || (has(self.shards) && self.shards.exists(s, s.endpoints.exists(e, e.startsWith('https:'))))")
        .message("tls is set, but endpoints are http: write them as https://host:port, or leave tls out"),
    validation = Rule::new(
        "!has(oldSelf.shards) || (has(self.shards) ? size(self.shards) >= size(oldSelf.shards) : size(oldSelf.shards) == 1)")
        .message("shards can only be added, at the end: rows on their way to a removed shard could not be inserted"),
    // CEL has no numbers of places but those that are written down: as many as there may be shards.
    validation = Rule::new(
        "!has(oldSelf.shards) || !has(self.shards) || [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,\
         32,33,34,35,36,37,38,39,40,41,42,43,44,45,46,47,48,49,50,51,52,53,54,55,56,57,58,59,60,61,62,63].all(i, \
         i >= size(oldSelf.shards) || i >= size(self.shards) || (has(oldSelf.shards[i].name) \
         ? has(self.shards[i].name) && self.shards[i].name == oldSelf.shards[i].name \
         : self.shards[i].endpoints.exists(e, e in oldSelf.shards[i].endpoints)))")
        .message("a shard keeps its place in the list: one with a name keeps the name, and one without a name keeps at least one of its \
                  endpoints (to change all of them, first give every shard a name)"),
    validation = Rule::new(
        "!has(oldSelf.endpoints) || !has(self.shards) || self.shards[0].endpoints.exists(e, e in oldSelf.endpoints)")
        .message("the first of shards replaces endpoints: it keeps at least one of those endpoints"),
    // Shards that are added may take endpoints of others: that is how servers that are no replicas of each other become shards. Only shards
    // that change are compared, for what one change may cost the API server.
    validation = Rule::new(
        "!has(oldSelf.shards) || !has(self.shards) || [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,\
         32,33,34,35,36,37,38,39,40,41,42,43,44,45,46,47,48,49,50,51,52,53,54,55,56,57,58,59,60,61,62,63].all(i, \
         i >= size(oldSelf.shards) || i >= size(self.shards) || self.shards[i].endpoints == oldSelf.shards[i].endpoints \
         || [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,\
         32,33,34,35,36,37,38,39,40,41,42,43,44,45,46,47,48,49,50,51,52,53,54,55,56,57,58,59,60,61,62,63].all(j, \
         i == j || j >= size(oldSelf.shards) || !sets.intersects(self.shards[i].endpoints, oldSelf.shards[j].endpoints)))")
        .message("an endpoint may not move to another shard: blocks on their way would go to another server under the same token. Remove it \
                  in one edit and add it in a later one, with suspend: true in between")
)]
pub struct ClickHouseSink {
    /// HTTP interfaces of the replicas of one shard, each as http://host:port or each as https://host:port; 1 to 16. They are
    /// tried in turn. Either these or shards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 16), inner(length(min = 10, max = 269)))]
    #[x_kube(
        validation = Rule::new("self.all(e, e.matches('^https?://[^/@, ]+:[1-9][0-9]{0,4}/?$'))")
            .message("each of endpoints is http://host:port or https://host:port, such as http://clickhouse:8123"),
        validation = Rule::new("self.all(e, e.startsWith('https:')) || !self.exists(e, e.startsWith('https:'))")
            .message("endpoints are all http or all https: a server without TLS would receive the password in clear text"),
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
        validation = Rule::new(
            "self.all(s, s.endpoints.all(e, e.startsWith('https:'))) || !self.exists(s, s.endpoints.exists(e, e.startsWith('https:')))")
            .message("the endpoints of shards are all http or all https: a server without TLS would receive the password in clear text"),
        validation = Rule::new(
            "!self.exists(s, has(s.name)) || self.all(s, has(s.name) && self.exists_one(t, has(t.name) && t.name == s.name))")
            .message("either every shard has a name of its own, or no shard has a name"),
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
    #[schemars(length(min = 1, max = 128), regex(pattern = "^[a-zA-Z0-9._-]+$"))]
    pub database: String,

    /// Table. Default otel_traces.
    #[serde(default = "table")]
    #[schemars(length(min = 1, max = 128), regex(pattern = "^[a-zA-Z0-9._-]+$"))]
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
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: Option<String>,

    /// HTTP interfaces of its replicas, as in endpoints; 1 to 16, none of them in another shard.
    #[schemars(length(min = 1, max = 16), inner(length(min = 10, max = 269)))]
    #[x_kube(
        validation = Rule::new("self.all(e, e.matches('^https?://[^/@, ]+:[1-9][0-9]{0,4}/?$'))")
            .message("each of the endpoints of a shard is http://host:port or https://host:port, such as http://clickhouse-0:8123"),
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
    validation = Rule::new("!has(self.username) || (has(self.secretRef) && !has(self.secretRef.usernameKey))")
        .message("username of credentials needs secretRef for the password, and replaces secretRef.usernameKey: set secretRef without \
                  usernameKey, or remove username"),
    validation = Rule::new(
        "[has(self.secretRef), has(self.tokenSecretRef), has(self.serviceAccountToken)].exists_one(is_set, is_set)")
        .message("credentials has exactly one of secretRef (user and password), tokenSecretRef and serviceAccountToken")
)]
pub struct Credentials {
    /// The user's name, for a Secret without one. When it is not set, the Secret has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255), regex(pattern = "^[^:\\x00-\\x1f\\x7f]+$"))]
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
    pub name: String,
}
