//! How gateways are replaced when their config, image or size changes.

use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// How gateways are replaced when their config, image or size changes.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// Canary (the default): the gateway with the highest number first, and the others once it has proved itself. RollingUpdate:
    /// one after another, each as soon as the one before is ready. A single gateway is replaced at once in both.
    #[serde(default)]
    pub strategy: RolloutStrategy,

    /// When the first gateway has proved itself.
    #[serde(default)]
    pub canary: Canary,

    /// How many gateways a rollout may have away at the same time, once one gateway is ready with the change: a number from 1 to 1000, or a
    /// share of all gateways from 1% to 100%, rounded down and at least 1. Gateways that are not ready for other reasons count, too. With more
    /// than one, the servers and nodes must bear that many gateways starting at once. Default 1: one after another.
    #[serde(default = "max_unavailable", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "number_or_share")]
    pub max_unavailable: Option<MaxUnavailable>,

    /// true (the default): the operator rolls back a change that fails, and tries it again when the spec is edited. false: the change stays
    /// as far as it got.
    #[serde(default = "auto_rollback")]
    pub auto_rollback: bool,

    /// A change fails when no gateway becomes ready within this time: a duration such as 90s or 1m30s, from 20s to 24h. Default 10m. A change
    /// that cannot work fails sooner: the gateway refuses its config, ends three times in a row, or its image cannot be pulled for 2m.
    #[serde(default = "progress_deadline")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(
        "self != '' && self.matches('^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$') \
         && duration(self) >= duration('20s') && duration(self) <= duration('24h')")
        .message("progressDeadline is a duration from 20s to 24h in whole h, m and s, such as 10m or 1h30m"))]
    pub progress_deadline: String,
}

impl Default for Rollout {
    fn default() -> Self {
        Self {
            strategy: RolloutStrategy::default(),
            canary: Canary::default(),
            max_unavailable: max_unavailable(),
            auto_rollback: auto_rollback(),
            progress_deadline: progress_deadline(),
        }
    }
}

/// A number of gateways, or a share of them such as 10%.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MaxUnavailable {
    /// So many.
    Number(u32),
    /// So many of a hundred, as text with a percent sign.
    Share(String),
}

/// The range and the pattern each bound the one of the two types that they fit.
fn number_or_share(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "minimum": 1,
        "maximum": 1000,
        "maxLength": 4,
        "pattern": "^([1-9][0-9]?|100)%$",
    })
}

#[expect(clippy::unnecessary_wraps, reason = "the default of an optional field, as serde wants it")]
fn max_unavailable() -> Option<MaxUnavailable> {
    Some(MaxUnavailable::Number(1))
}

fn auto_rollback() -> bool {
    true
}

fn progress_deadline() -> String {
    "10m".to_owned()
}

/// In which order gateways are replaced.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RolloutStrategy {
    /// One first, the others once it has proved itself.
    #[default]
    Canary,
    /// One after another.
    RollingUpdate,
}

/// When the first gateway has proved itself.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Canary {
    /// How long it must be ready without a restart, and without failures that the other gateways do not have: a duration such
    /// as 90s or 1m30s, from 1s to 24h. Default 1m.
    #[serde(default = "duration")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(
        "self != '' && self.matches('^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$') \
         && duration(self) >= duration('1s') && duration(self) <= duration('24h')")
        .message("canary.duration is a duration from 1s to 24h in whole h, m and s, such as 1m or 1h30m"))]
    pub duration: String,
}

impl Default for Canary {
    fn default() -> Self {
        Self { duration: duration() }
    }
}

fn duration() -> String {
    "1m".to_owned()
}
