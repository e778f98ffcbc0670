//! What the operator remembers of a schema Job that failed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// How the schema Job failed last. It is kept while the Job is run again, and gone once one succeeds.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SchemaStatus {
    /// The Job, whose name follows from all that it is to do.
    #[schemars(length(max = 63))]
    pub job: String,
    /// How often in a row it failed; with each, the time until the next is longer.
    pub failures: u32,
    /// When it failed last.
    pub last_failure_time: Time,
    /// Why: the reason of the condition SchemaReady.
    #[schemars(length(max = 64))]
    pub reason: String,
    /// What it said.
    #[schemars(length(max = 32768))]
    pub message: String,
}
