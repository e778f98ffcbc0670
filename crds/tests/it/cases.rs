//! Values that the CEL rules take and refuse: tried without a server beside this, and on a real one in e2e.

// By its path from this file, which other packages read, too.
#[path = "cases/values.rs"]
mod values;

pub use values::VALUES;

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
    ("/spec/queue", "{}", r#"{"size": "10Gi", "mode": "Spill"}"#, true, ""),
    // Whether volumes can grow is their storage class's to say; what is smaller or of another class is made anew.
    ("/spec/queue", "{}", r#"{"size": "11Gi"}"#, true, ""),
    ("/spec/queue", "{}", r#"{"retentionPolicy": {"whenScaled": "Retain"}}"#, true, ""),
    ("/spec/queue", "{}", r#"{"mode": "Disabled"}"#, false, "queue.mode cannot be changed"),
    ("/spec/queue", "{}", r#"{"storageClassName": "fast"}"#, true, ""),
    ("/spec/queue", r#"{"storageClassName": "fast"}"#, r#"{"storageClassName": "slow"}"#, true, ""),
    ("/spec/queue", r#"{"storageClassName": "fast"}"#, r#"{"size": "9Gi"}"#, true, ""),
    ("/spec/replicas", "1", "2", true, ""),
    ("/spec/gateway/resources/memory", r#""512Mi""#, r#""256Mi""#, true, ""),
];

/// Rules about what is committed when: `queue.mode`, `scaling.drain.onTimeout`, and a part of the message when that is refused
/// together with `delivery.commit: AfterEnqueue`.
pub const AFTER_ENQUEUE: &[(&str, &str, &str)] = &[
    ("Spill", "Abort", ""),
    ("Spill", "Job", ""),
    ("Spill", "Force", "onTimeout Force cannot be used with delivery.commit AfterEnqueue"),
    ("Disabled", "Abort", "AfterEnqueue needs queue.mode Spill"),
];
