//! Reports failures of reconciles in the pipeline's status, also if the reconcile failed before it could write a status. This file decides
//! which failures are reported; `sluice-plan` writes the conditions.

use crate::{
    watch::state::WatchState,
    world::{
        World,
        api_error::{ErrorClass, described},
        cache::Pipeline,
        error::Error,
        events::shortened,
        memory::Key,
    },
    write::{events, status::STATUS},
};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{ApiResource, Patch, PatchParams},
    core::DynamicObject,
};
use serde_json::{Value, json};
use sluice_crds::{
    TracePipeline, TracePipelineStatus,
    status::{condition, reason},
};
use sluice_plan::{ReconcileFailure, status_of_failure, words::plural};
use std::time::{Duration, Instant};
use tracing::debug;

/// Consecutive failures before the operator reports one that may be temporary. They take 15 s: by then a conflict or a restart of the API
/// server is over, and a recreated token, Role, quota or namespace exists again. Chosen.
pub const TRIES: u32 = 5;

/// How long the API server must refuse a watch before the status says it. Chosen, as for [`TRIES`].
const WATCH_REFUSED: Duration = Duration::from_secs(15);

/// How long a failure lasts, judged by its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lasts {
    /// It is temporary.
    AWhile,
    /// It is permanent once it has lasted for [`TRIES`] failures.
    Maybe,
    /// It is permanent: a person must act.
    Stays,
}

/// What the status reports of a failure. `None` while it may be temporary, and for a replica conflict, which the status reports otherwise.
pub fn of(
    error: &Error,
    status: Option<&TracePipelineStatus>,
    key: &Key,
    world: &World,
) -> Option<ReconcileFailure> {
    if error.replica_conflict().is_some() {
        return None;
    }
    // This one is not counted yet.
    let failures = world.shared.memory.failures(key).saturating_add(1);
    of_counted(error, failures, status.map_or(&[], |status| &status.conditions))
}

/// As [`of`], for a failure that is already counted in `failures`.
fn of_counted(error: &Error, failures: u32, said: &[Condition]) -> Option<ReconcileFailure> {
    if error.is_namespace_going() {
        let message =
            "the namespace is being deleted, and the pipeline with it; the operator creates nothing any more";
        return Some(ReconcileFailure {
            reason: reason::DELETING,
            message: message.to_owned(),
            stays: false,
        });
    }
    let stays = stays(lasts(error.class()), failures, said)?;
    Some(as_told(error, stays))
}

/// Whether to report a failure as permanent; `None` to not report it yet.
fn stays(lasts: Lasts, failures: u32, said: &[Condition]) -> Option<bool> {
    let is_late = failures >= TRIES;
    match lasts {
        Lasts::Stays => Some(true),
        // After a restart, the operator keeps reporting what the previous process reported.
        Lasts::Maybe if is_late || is_told(said, condition::STALLED) => Some(true),
        Lasts::Maybe | Lasts::AWhile => (is_late || is_told(said, condition::READY)).then_some(false),
    }
}

fn as_told(error: &Error, stays: bool) -> ReconcileFailure {
    let message = format!("{}; the operator tries again within five minutes", shortened(&described(error)));
    ReconcileFailure { reason: reason::APPLY_FAILED, message, stays }
}

/// What the status reports of watches that the API server refuses; `None` if it refuses none that a pipeline needs. Copies of objects, also
/// of Secrets, then stay as they were, so that no pipeline is said to be well.
pub fn of_watches(watches: &WatchState) -> Option<ReconcileFailure> {
    let mut refused = watches.refused(WATCH_REFUSED, Instant::now()).into_iter();
    let (kind, answer) = refused.next()?;
    let others = match refused.len() {
        0 => String::new(),
        others => format!(" and {}", plural(others, "other kind")),
    };
    let message = format!(
        "the operator cannot watch {kind}{others}: {}; grant its ServiceAccount the rights of operator/SECURITY.md, as the chart's Role does",
        shortened(&answer)
    );
    Some(ReconcileFailure { reason: reason::APPLY_FAILED, message, stays: true })
}

/// A conflict may come from another client that writes at the same time. A right, a token, a quota, a namespace or a CRD may be recreated at
/// this moment.
fn lasts(class: ErrorClass) -> Lasts {
    match class {
        ErrorClass::Refused | ErrorClass::Foreign | ErrorClass::Panicked => Lasts::Stays,
        ErrorClass::Forbidden | ErrorClass::Missing => Lasts::Maybe,
        ErrorClass::Conflict | ErrorClass::Unavailable | ErrorClass::Unreadable | ErrorClass::Timeout => {
            Lasts::AWhile
        }
    }
}

/// Whether a condition of this type already reports a failed apply.
fn is_told(conditions: &[Condition], kind: &str) -> bool {
    let is_it = |one: &Condition| {
        one.type_ == kind
            && one.reason == reason::APPLY_FAILED
            && (kind != condition::STALLED || one.status == "True")
    };
    conditions.iter().any(is_it)
}

/// Writes into the status that a reconcile failed, if the reconcile itself could not.
pub async fn tell_failure(pipeline: &Pipeline, key: &Key, (error, failures): (&Error, u32), world: &World) {
    // If the API server refused the status a moment ago, it refuses it again.
    if error.replica_conflict().is_some() || matches!(error, Error::Status { .. }) {
        return;
    }
    let said = pipeline.0.as_ref().ok().and_then(|pipeline| pipeline.status.as_ref());
    let said = said.map_or(&[][..], |status| &status.conditions);
    if let Some(failure) = of_counted(error, failures, said) {
        // The operator retries the reconcile in any case.
        let _is_told = tell(pipeline, key, &failure, world).await;
    }
}

/// Writes the failure into the current status, unless it is there already; the rest of the status stays. Returns `false` if the API server
/// refused the read or the write.
pub async fn tell(pipeline: &Pipeline, key: &Key, failure: &ReconcileFailure, world: &World) -> bool {
    let resource = ApiResource::erase::<TracePipeline>(&());
    let api: Api<DynamicObject> =
        Api::namespaced_with(world.shared.client.clone(), &key.namespace, &resource);
    let now = match api.get_opt(&key.name).await {
        Ok(Some(now)) if now.uid() == pipeline.uid() => now,
        Ok(_) => return true,
        Err(error) => {
            debug!(%error, pipeline = %key.name, "cannot read the status");
            return false;
        }
    };
    let before = &now.data["status"];
    let after = status_of_failure(before, pipeline.meta().generation, failure, &Time(Timestamp::now()));
    let (of, conditions) = ((key.namespace.as_str(), key.name.as_str()), conditions(&after));
    world.shared.metrics.set_conditions(of, &conditions);
    if *before == after {
        return true;
    }
    world.shared.metrics.wrote("status");
    let full = json!({
        "apiVersion": TracePipeline::api_version(&()), "kind": TracePipeline::kind(&()),
        "metadata": {"name": key.name, "namespace": key.namespace, "uid": now.uid()},
        "status": after,
    });
    let written = api.patch_status(&key.name, &PatchParams::apply(STATUS).force(), &Patch::Apply(full)).await;
    if let Err(error) = written {
        // The metrics already report it.
        debug!(%error, pipeline = %key.name, "cannot write the status");
        return false;
    }
    events::ready_changed(pipeline, (&self::conditions(before), &conditions), world).await;
    true
}

fn conditions(status: &Value) -> Vec<Condition> {
    let all = status["conditions"].as_array().into_iter().flatten();
    all.filter_map(|one| serde_json::from_value(one.clone()).ok()).collect()
}
