//! Values that the CEL rules take and refuse: tried without a server beside this, and on a real one in e2e.

// By its path from this file, which other packages read, too.
#[path = "cases/connections.rs"]
pub mod connections;
#[path = "cases/edge.rs"]
mod edge;
#[path = "cases/idle.rs"]
mod idle;
#[path = "cases/logins.rs"]
mod logins;
#[path = "cases/otlp.rs"]
mod otlp;
#[path = "cases/pods.rs"]
mod pods;
#[path = "cases/presets.rs"]
mod presets;
#[path = "cases/resources.rs"]
mod resources;
#[path = "cases/schedules.rs"]
mod schedules;
#[path = "cases/texts.rs"]
mod texts;
#[path = "cases/values.rs"]
mod values;

use values::Case;

/// Rules about a value by itself.
pub fn value_cases() -> impl Iterator<Item = &'static Case> {
    values::VALUES
        .iter()
        .chain(texts::TEXTS)
        .chain(resources::RESOURCES)
        .chain(schedules::SCHEDULES)
        .chain(pods::PODS)
        .chain(edge::EDGE)
        .chain(otlp::OTLP)
        .chain(idle::IDLE)
        .chain(presets::PRESETS)
        .chain(logins::LOGINS)
        .chain(connections::REFERENCES)
}

/// Rules about replicas and who sets it: `replicas`, the mode, and a part of the message when it is refused.
pub const REPLICAS: &[(&str, &str, &str)] = &[
    ("null", "Fixed", ""),
    ("3", "Fixed", ""),
    ("null", "Auto", ""),
    ("3", "Auto", "replicas must not be set while scaling.mode is Auto"),
    ("null", "Recommend", ""),
    ("3", "Recommend", ""),
    ("3", "External", ""),
    ("null", "External", "replicas must be set while scaling.mode is External"),
];

const ONE_SHARD: &str = r#"{"shards": [{"endpoints": ["http://a:8123"]}]}"#;
const TWO_SHARDS: &str =
    r#"{"shards": [{"endpoints": ["http://a:8123"]}, {"endpoints": ["http://b:8123"]}]}"#;
/// As a merge patch says it: `shards` goes away.
const NO_SHARDS: &str = r#"{"endpoints": ["http://a:8123"], "shards": null}"#;

/// The same with other servers: c in the place of a, and a beside b in the second place.
const MOVED: &str =
    r#"{"shards": [{"endpoints": ["http://c:8123"]}, {"endpoints": ["http://a:8123", "http://b:8123"]}]}"#;
const SWAPPED: &str = r#"{"shards": [{"endpoints": ["http://b:8123"]}, {"endpoints": ["http://a:8123"]}]}"#;
/// Each shard has one server more, and keeps one.
const WITH_REPLICAS: &str = r#"{"shards": [{"endpoints": ["http://c:8123", "http://a:8123"]}, {"endpoints": ["http://b:8123", "http://d:8123"]}]}"#;
const NAMED: &str = r#"{"shards": [{"name": "one", "endpoints": ["http://a:8123"]}, {"name": "two", "endpoints": ["http://b:8123"]}]}"#;
const NAMED_SWAPPED: &str = r#"{"shards": [{"name": "two", "endpoints": ["http://b:8123"]}, {"name": "one", "endpoints": ["http://a:8123"]}]}"#;
const NAMED_OTHERWISE: &str = r#"{"shards": [{"name": "one", "endpoints": ["http://a:8123"]}, {"name": "three", "endpoints": ["http://b:8123"]}]}"#;
/// All servers are known by other addresses.
const NAMED_ELSEWHERE: &str = r#"{"shards": [{"name": "one", "endpoints": ["http://c:8123"]}, {"name": "two", "endpoints": ["http://d:8123"]}]}"#;
const NAMED_ADDED: &str = r#"{"shards": [{"name": "one", "endpoints": ["http://a:8123"]}, {"name": "two", "endpoints": ["http://b:8123"]},
    {"name": "three", "endpoints": ["http://c:8123"]}]}"#;
/// Each shard keeps its name and its place, and has the server of the other.
const NAMED_ENDPOINTS_SWAPPED: &str = r#"{"shards": [{"name": "one", "endpoints": ["http://b:8123"]}, {"name": "two", "endpoints": ["http://a:8123"]}]}"#;
/// One shard has taken the server of the other, which has another one.
const NAMED_ENDPOINT_TAKEN: &str = r#"{"shards": [{"name": "one", "endpoints": ["http://a:8123", "http://b:8123"]}, {"name": "two", "endpoints": ["http://c:8123"]}]}"#;
/// And without names: each shard keeps an endpoint, and one has moved.
const REPLICA_MOVED: &str =
    r#"{"shards": [{"endpoints": ["http://a:8123"]}, {"endpoints": ["http://b:8123", "http://c:8123"]}]}"#;
/// A server that is no replica becomes a shard of its own.
const SPLIT: &str = r#"{"shards": [{"endpoints": ["http://a:8123"]}, {"endpoints": ["http://b:8123", "http://d:8123"]}, {"endpoints": ["http://c:8123"]}]}"#;
/// Names are given, and all addresses changed, in one step.
const NAMED_AND_MOVED: &str = r#"{"shards": [{"name": "one", "endpoints": ["http://c:8123"]}, {"name": "two", "endpoints": ["http://b:8123"]}]}"#;
/// As a merge patch says it: `endpoints` goes away.
const OF_SHARD_A: &str = r#"{"endpoints": ["http://a:8123"]}"#;
const TO_SHARDS_A_B: &str =
    r#"{"endpoints": null, "shards": [{"endpoints": ["http://a:8123"]}, {"endpoints": ["http://b:8123"]}]}"#;
const TO_SHARDS_B_A: &str =
    r#"{"endpoints": null, "shards": [{"endpoints": ["http://b:8123"]}, {"endpoints": ["http://a:8123"]}]}"#;
const TO_NAMED_SHARDS: &str =
    r#"{"endpoints": null, "shards": [{"name": "one", "endpoints": ["http://a:8123"]}]}"#;

/// Servers that stand in a connection, and servers that come back from there.
const OF_CONNECTION: &str = r#"{"connectionRef": {"name": "main"}}"#;
const TO_CONNECTION: &str = r#"{"shards": null, "endpoints": null, "connectionRef": {"name": "main"}}"#;
const TO_OTHER_CONNECTION: &str = r#"{"connectionRef": {"name": "other"}}"#;
const FROM_CONNECTION: &str = r#"{"connectionRef": null, "shards": [{"endpoints": ["http://c:8123"]}]}"#;

/// What is said of a shard that is not what stood in its place.
const KEEPS_PLACE: &str = "a shard keeps its place in the list";
/// What is said of an endpoint that stood in another shard.
const MOVES: &str = "an endpoint may not move to another shard";
/// And of the first one.
const FIRST_OF_SHARDS: &str = "the first of shards replaces endpoints";

/// Two kinds of sources.
const OF_KAFKA: &str = r#"{"kafka": {"bootstrapServers": ["a:1"], "topics": ["a"]}}"#;
const OF_OTLP: &str = r#"{"otlp": {}}"#;
const OF_OTLP_ALONE: &str = r#"{"otlp": {}, "kafka": null}"#;

/// As an earlier version stored it, with what its server filled in.
const STORED_RESOURCES: &str = r#"{"memory": "512Mi", "cpuRequest": "500m", "resize": "None"}"#;
/// What a tool applies that has not written the former fields: its apply does not remove them.
const STORED_AND_NEW: &str = r#"{"memory": "512Mi", "cpuRequest": "500m", "resize": "None",
    "requests": {"cpu": 2}, "limits": {"cpu": 4, "memory": "1Gi"}}"#;
const NEW_RESOURCES: &str =
    r#"{"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"memory": "512Mi"}}"#;

/// Rules about a change: from, to, whether it is taken, and a part of the message.
pub const CHANGES: &[(&str, &str, &str, bool, &str)] = &[
    ("/spec/source/kafka/consumerGroup", r#""""#, r#""a""#, true, ""),
    ("/spec/source/kafka/consumerGroup", r#""a""#, r#""a""#, true, ""),
    ("/spec/source/kafka/consumerGroup", r#""a""#, r#""b""#, false, "consumerGroup cannot be changed"),
    ("/spec/source/kafka/consumerGroup", r#""a""#, r#""""#, true, ""),
    ("/spec/sink/clickhouse", ONE_SHARD, TWO_SHARDS, true, ""),
    ("/spec/sink/clickhouse", TWO_SHARDS, TWO_SHARDS, true, ""),
    ("/spec/sink/clickhouse", TWO_SHARDS, ONE_SHARD, false, "shards can only be added"),
    ("/spec/sink/clickhouse", ONE_SHARD, NO_SHARDS, true, ""),
    ("/spec/sink/clickhouse", TWO_SHARDS, NO_SHARDS, false, "shards can only be added"),
    ("/spec/sink/clickhouse", TWO_SHARDS, SWAPPED, false, KEEPS_PLACE),
    ("/spec/sink/clickhouse", TWO_SHARDS, MOVED, false, KEEPS_PLACE),
    ("/spec/sink/clickhouse", TWO_SHARDS, WITH_REPLICAS, true, ""),
    ("/spec/sink/clickhouse", TWO_SHARDS, NAMED, true, ""),
    ("/spec/sink/clickhouse", TWO_SHARDS, NAMED_AND_MOVED, false, KEEPS_PLACE),
    ("/spec/sink/clickhouse", NAMED, NAMED_SWAPPED, false, KEEPS_PLACE),
    ("/spec/sink/clickhouse", NAMED, NAMED_OTHERWISE, false, KEEPS_PLACE),
    ("/spec/sink/clickhouse", NAMED, TWO_SHARDS, false, KEEPS_PLACE),
    ("/spec/sink/clickhouse", NAMED, NAMED_ELSEWHERE, true, ""),
    ("/spec/sink/clickhouse", NAMED, NAMED_ADDED, true, ""),
    ("/spec/sink/clickhouse", NAMED, NAMED_ENDPOINTS_SWAPPED, false, MOVES),
    ("/spec/sink/clickhouse", NAMED, NAMED_ENDPOINT_TAKEN, false, MOVES),
    ("/spec/sink/clickhouse", WITH_REPLICAS, REPLICA_MOVED, false, MOVES),
    ("/spec/sink/clickhouse", WITH_REPLICAS, SPLIT, true, ""),
    ("/spec/sink/clickhouse", OF_SHARD_A, TO_SHARDS_A_B, true, ""),
    ("/spec/sink/clickhouse", OF_SHARD_A, TO_SHARDS_B_A, false, FIRST_OF_SHARDS),
    ("/spec/sink/clickhouse", OF_SHARD_A, TO_NAMED_SHARDS, true, ""),
    // The operator compares them (operator/plan/src/plan/shard_order.rs).
    ("/spec/sink/clickhouse", TWO_SHARDS, TO_CONNECTION, true, ""),
    ("/spec/sink/clickhouse", OF_SHARD_A, TO_CONNECTION, true, ""),
    ("/spec/sink/clickhouse", OF_CONNECTION, TO_OTHER_CONNECTION, true, ""),
    ("/spec/sink/clickhouse", OF_CONNECTION, FROM_CONNECTION, true, ""),
    ("/spec/source", OF_OTLP, OF_OTLP, true, ""),
    ("/spec/source", OF_OTLP, OF_KAFKA, false, "source.kafka and source.otlp cannot replace each other"),
    ("/spec/source", OF_KAFKA, OF_OTLP, false, "source.kafka and source.otlp cannot replace each other"),
    ("/spec/source", OF_OTLP, OF_OTLP_ALONE, true, ""),
    (
        "/spec/source",
        OF_KAFKA,
        OF_OTLP_ALONE,
        false,
        "source.kafka and source.otlp cannot replace each other",
    ),
    ("/spec/queue", "{}", r#"{"size": "10Gi", "mode": "Spill"}"#, true, ""),
    // Whether volumes can grow is their storage class's to say; what is smaller or of another class is made anew.
    ("/spec/queue", "{}", r#"{"size": "11Gi"}"#, true, ""),
    ("/spec/queue", "{}", r#"{"retentionPolicy": {"whenScaled": "Retain"}}"#, true, ""),
    ("/spec/queue", "{}", r#"{"mode": "Disabled"}"#, false, "queue.mode cannot be changed"),
    ("/spec/queue", "{}", r#"{"storageClassName": "fast"}"#, true, ""),
    ("/spec/queue", r#"{"storageClassName": "fast"}"#, r#"{"storageClassName": "slow"}"#, true, ""),
    ("/spec/queue", r#"{"storageClassName": "fast"}"#, r#"{"size": "9Gi"}"#, true, ""),
    ("/spec/replicas", "1", "2", true, ""),
    ("/spec/gateway/resources", r#"{"memory": "512Mi"}"#, r#"{"limits": {"memory": "256Mi"}}"#, true, ""),
    ("/spec/gateway/resources", STORED_RESOURCES, STORED_AND_NEW, true, ""),
    ("/spec/gateway/resources", STORED_RESOURCES, NEW_RESOURCES, true, ""),
];

/// Rules about what is committed when: `queue.mode`, `scaling.drain.onTimeout`, and a part of the message when that is refused
/// together with `delivery.commit: AfterEnqueue`.
pub const AFTER_ENQUEUE: &[(&str, &str, &str)] = &[
    ("Spill", "Abort", ""),
    ("Spill", "Job", ""),
    ("Spill", "Force", "onTimeout Force cannot be used with delivery.commit AfterEnqueue"),
    ("Disabled", "Abort", "AfterEnqueue needs queue.mode Spill"),
];
