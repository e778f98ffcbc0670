//! Messages that were lost before they were read.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Messages that Kafka deleted before they were read; with source.otlp, requests that gateways could not read from damaged volumes.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LossStatus {
    /// How many, over all gateways that have said so.
    pub messages: i64,
    /// When more of them were last found.
    pub last_time: Time,
    /// What each gateway had counted since it was started, by its number; those that had counted none are not named.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 1000))]
    pub gateways: BTreeMap<String, i64>,
}
