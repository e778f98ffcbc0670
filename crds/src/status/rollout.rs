//! The state of a rollout. An operator that starts continues from it; nothing else is kept.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How far gateways are on their way to the newest revision: the hash of their config, image and size.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStatus {
    /// Pending: there are no gateways. Canary: the first gateway runs the new version. Rolling: the others follow. Complete: all run it and are ready.
    /// RolledBack: it failed, and the previous one is restored. Failed: it failed and stays.
    pub state: RolloutState,

    /// The revision that it is about.
    pub revision: String,

    /// The revision for a rollback; not set when there is none, or none is needed any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proved: Option<String>,

    /// Since when it is in this state.
    pub since: Time,

    /// Since when the first gateway is healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy_since: Option<Time>,

    /// What is waited for, or what failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,

    /// The spec that failed, by its hash without replicas: with another one the revision is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_spec: Option<String>,

    /// Since when the next revision waits for gateways that leave; not set while none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_since: Option<Time>,
}

/// How far gateways are on their way to the newest revision.
#[derive(JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RolloutState {
    /// There are no gateways.
    Pending,
    /// The first gateway runs the new version.
    Canary,
    /// The others get it.
    Rolling,
    /// All have it, and are ready.
    Complete,
    /// The previous revision is restored.
    RolledBack,
    /// It failed and stays.
    Failed,
}
