//! What keeps a pipeline from being looked after, and how a person gets to know: by its status, also when a look came to nothing before
//! anything could be said. Which failures are worth it is decided here; the words of the conditions are the plan's.

use crate::{
    api_error::{ErrorClass, described},
    cache::Pipeline,
    memory::Key,
    reconcile::{Error, World},
    report::{self, STATUS, shortened},
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
use sluice_plan::{Hindrance, hindered};
use tracing::debug;

/// Failures in a row before one is told that may pass by itself: a quarter of a minute, in which a conflict or a restart of the API
/// server is over, and a token, a role, a quota or a namespace that is made anew is there again. Chosen.
pub const TRIES: u32 = 5;

/// How long a failure lasts, as far as its class says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lasts {
    /// Until it passes by itself.
    AWhile,
    /// Until a person does something, once it has lasted for [`TRIES`] failures.
    Maybe,
    /// Until a person does something.
    Stays,
}

/// What is to be told of a failure; `None` while it may pass by itself, and of what is told in other words.
pub fn of(
    error: &Error,
    status: Option<&TracePipelineStatus>,
    key: &Key,
    world: &World,
) -> Option<Hindrance> {
    if error.contested().is_some() {
        return None;
    }
    // This one is not counted yet.
    let failures = world.shared.memory.failures(key).saturating_add(1);
    of_counted(error, failures, status.map_or(&[], |status| &status.conditions))
}

/// The same of a failure that is counted already.
fn of_counted(error: &Error, failures: u32, said: &[Condition]) -> Option<Hindrance> {
    let stays = stays(lasts(error.class()), failures, said)?;
    Some(as_told(error, stays))
}

/// Whether a failure is told as one that stays; `None` while it is not told.
fn stays(lasts: Lasts, failures: u32, said: &[Condition]) -> Option<bool> {
    let is_late = failures >= TRIES;
    match lasts {
        Lasts::Stays => Some(true),
        // An operator that starts goes on saying what the one before said.
        Lasts::Maybe if is_late || is_told(said, condition::STALLED) => Some(true),
        Lasts::Maybe | Lasts::AWhile => (is_late || is_told(said, condition::READY)).then_some(false),
    }
}

fn as_told(error: &Error, stays: bool) -> Hindrance {
    let message = format!("{}; the operator tries again within five minutes", shortened(&described(error)));
    Hindrance { reason: reason::APPLY_FAILED, message, stays }
}

/// A conflict may be somebody who writes at the same time. A right, a token, a quota, a namespace or a kind may be made anew at this moment.
fn lasts(class: ErrorClass) -> Lasts {
    match class {
        ErrorClass::Refused | ErrorClass::Foreign | ErrorClass::Panicked => Lasts::Stays,
        ErrorClass::Forbidden | ErrorClass::Missing => Lasts::Maybe,
        ErrorClass::Conflict | ErrorClass::Unavailable | ErrorClass::Unreadable | ErrorClass::Timeout => {
            Lasts::AWhile
        }
    }
}

/// Whether a condition of this type says it.
fn is_told(conditions: &[Condition], kind: &str) -> bool {
    let is_it = |one: &Condition| {
        one.type_ == kind
            && one.reason == reason::APPLY_FAILED
            && (kind != condition::STALLED || one.status == "True")
    };
    conditions.iter().any(is_it)
}

/// A person reads in the status that a look came to nothing, where the look itself could not say so.
pub async fn tell_failure(pipeline: &Pipeline, key: &Key, (error, failures): (&Error, u32), world: &World) {
    // A status that is not taken now is not taken a second time.
    if error.contested().is_some() || matches!(error, Error::Report(_)) {
        return;
    }
    let said = pipeline.0.as_ref().ok().and_then(|pipeline| pipeline.status.as_ref());
    let said = said.map_or(&[][..], |status| &status.conditions);
    if let Some(hindrance) = of_counted(error, failures, said) {
        // It is tried again in any case.
        let _is_told = tell(pipeline, key, &hindrance, world).await;
    }
}

/// Writes what hinders into the status as it is now, if it is not there; the rest of the status stays as it is. `false` when the API server
/// did not let it: nobody has been told then.
pub async fn tell(pipeline: &Pipeline, key: &Key, hindrance: &Hindrance, world: &World) -> bool {
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
    let after = hindered(before, pipeline.meta().generation, hindrance, &Time(Timestamp::now()));
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
        // The metrics say it all the same.
        debug!(%error, pipeline = %key.name, "cannot write the status");
        return false;
    }
    report::ready_changed(pipeline, (&self::conditions(before), &conditions), world).await;
    true
}

fn conditions(status: &Value) -> Vec<Condition> {
    let all = status["conditions"].as_array().into_iter().flatten();
    all.filter_map(|one| serde_json::from_value(one.clone()).ok()).collect()
}
