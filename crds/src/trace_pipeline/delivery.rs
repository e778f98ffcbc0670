//! What is done with what cannot be delivered.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is done with what cannot be delivered.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delivery {
    /// Messages that cannot be read.
    #[serde(default)]
    pub dead_letter: DeadLetter,
}

/// Messages that cannot be read.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    /// What happens to one that has nowhere to go. Stop (the default): its partition stops in front of it, alone, and says
    /// so. Skip: it is counted and passed over.
    #[serde(default)]
    pub on_missing: OnMissing,
}

/// What happens to a message that cannot be read and has nowhere to go.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnMissing {
    /// Its partition stops.
    #[default]
    Stop,
    /// It is counted and passed over.
    Skip,
}
