//! The status of a pipeline that the operator could not read or observe: it sets `Ready`, `Reconciling` and `Stalled`. All other fields
//! stay, also those that only another version of the operator knows.

use super::{progress::Progress, verdict::Verdict};
use crate::observed::ReconcileFailure;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};
use sluice_crds::status::{condition, reason};

/// The status, as JSON, after a reconcile of this generation that was hindered.
pub fn status_of_failure(
    status: &Value,
    generation: Option<i64>,
    failure: &ReconcileFailure,
    now: &Time,
) -> Value {
    let said = status["conditions"].as_array().cloned().unwrap_or_default();
    let before: Vec<Condition> =
        said.iter().filter_map(|one| serde_json::from_value(one.clone()).ok()).collect();
    let progress = Progress::of_failure(failure);
    let ours = [
        (condition::READY, progress.ready()),
        (condition::RECONCILING, progress.reconciling()),
        (condition::STALLED, progress.stalled()),
    ];
    let is_ours = |kind: &str| ours.iter().any(|(own, _)| *own == kind);
    let is_said = |kind: &str| said.iter().any(|one| one["type"] == kind);
    let unsaid = condition::ALL.into_iter().filter(|kind| !is_ours(kind) && !is_said(kind));
    let unsaid: Vec<_> = unsaid
        .map(|kind| (kind, Verdict::unknown(reason::NOT_PROBED, "the operator has not checked this yet")))
        .collect();
    let kept: Vec<Value> =
        said.iter().filter(|one| one["type"].as_str().is_some_and(|kind| !is_ours(kind))).cloned().collect();
    let as_json = |(kind, verdict): (&str, Verdict)| json!(verdict.condition(kind, generation, &before, now));
    let conditions: Vec<Value> =
        ours.into_iter().map(as_json).chain(kept).chain(unsaid.into_iter().map(as_json)).collect();
    let mut after = if status.is_object() { status.clone() } else { json!({}) };
    after["conditions"] = conditions.into();
    if let Some(generation) = generation {
        after["observedGeneration"] = generation.into();
    }
    after
}
