//! What the operator says about the number of gateways: why it is what it is, and what it was learned from.
//!
//! Numbers are in steps, so that the status of a pipeline at work is written seldom, and of one at rest never.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What the operator says about the number of gateways.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScalingStatus {
    /// Gateways that are needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recommended_replicas: Option<u32>,

    /// What limits: ComputeLimited, SinkLimited, PartitionSkewed, PartitionStuck or MemoryLimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,

    /// Why nothing is decided and the number stays: MetricsUnavailable, Rebalancing, RolloutInProgress or Unschedulable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,

    /// What limits the number: TooFewPartitions, MaxReplicas, SinkLimited, PartitionSkewed, PartitionStuck, Unschedulable, Budget or
    /// Memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited: Option<String>,

    /// All of it in words. Its numbers are written anew when one of them has moved far, or anything else has changed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,

    /// Messages a second that arrive, in steps: the number stays until it differs by a fifth, and is then rounded to two significant digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrival_rate: Option<i64>,

    /// Messages that wait, in seconds of arrivals, in steps: the number stays until it is half or twice as many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_seconds: Option<i64>,

    /// Messages a second that one gateway can do, as learned so far, in steps as arrivalRate; below ten in whole ones, where the reason has
    /// more of it. Decisions use the exact number; remembered keeps it in steps of a twentieth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_per_replica: Option<i64>,

    /// Numbers of gateways that are worth having, from the present one on; at most three.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3))]
    pub next_steps: Vec<u32>,

    /// When the workload was last seen to have become what was decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_rescale_time: Option<Time>,

    /// Gateways on their way out; not set while there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainStatus>,

    /// What the operator continues from after a restart. Only the operator reads it.
    #[serde(default, skip_serializing_if = "Remembered::is_empty")]
    pub remembered: Remembered,
}

/// Gateways on their way out.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainStatus {
    /// Draining: they give up their partitions and insert what they hold. Resuming: the operator asks them to read again. Waiting: they were not
    /// empty in time, or one of them does not run; the operator tries again later.
    pub state: DrainState,
    /// Gateways that remain.
    pub target: u32,
    /// Number of gateways before.
    pub from: u32,
    /// Since when.
    pub since: Time,
    /// What they still hold, or why they stay.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What was known of the gateways when they were removed, or when they were late and stay. Absent before. Empty: each had confirmed that it
    /// holds nothing. Unconfirmed: the pod of one did not run, one was of an older version, or one has a volume that cannot be read. TimedOut:
    /// scaling.drain.timeout was over, and one held blocks, did not run or did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<DrainOutcome>,
}

/// How far gateways are on their way out.
#[derive(JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DrainState {
    /// They give up their partitions and insert what they hold.
    Draining,
    /// The operator asks them to read again.
    Resuming,
    /// They stay, and the operator tries again later.
    Waiting,
}

/// What was known of gateways when they were removed, or when they were late.
#[derive(JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DrainOutcome {
    /// Each had confirmed that it holds nothing.
    Empty,
    /// None is known to hold something, and not all have confirmed that they hold nothing.
    Unconfirmed,
    /// The time was over, and one held blocks or did not answer.
    TimedOut,
}

/// What an operator hands on to the next one. Its fields are the operator's own affair and may change with its version.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Remembered(pub serde_json::Map<String, Value>);

impl Remembered {
    /// Whether there is nothing to hand on.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl JsonSchema for Remembered {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Remembered".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
    }

    fn inline_schema() -> bool {
        true
    }
}
