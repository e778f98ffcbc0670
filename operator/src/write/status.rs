//! Writes a pipeline's status when it changes.

use super::{
    dropped_fields::{dropped_fields, is_own, removal, without},
    events::status_changed,
};
use crate::world::{World, cache::find, error::Error, memory::Key};
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use sluice_crds::{TracePipeline, TracePipelineStatus};
use std::time::Instant;
use tracing::{info, warn};

/// Field manager of the status.
pub const STATUS: &str = "sluice-operator/status";

/// Writes the status if it changed, and publishes the events that follow from the change.
pub async fn report(
    pipeline: &TracePipeline,
    key: &Key,
    status: TracePipelineStatus,
    world: &World,
) -> Result<(), Error> {
    let before = pipeline.status.clone().unwrap_or_default();
    let kept = without(&status, &world.shared.memory.dropped_fields(key));
    if !is_worth_writing(&before, &kept, || world.shared.memory.may_write_lag(key, Instant::now())) {
        return Ok(());
    }
    world.shared.metrics.wrote("status");
    let api: Api<TracePipeline> = Api::namespaced(world.shared.client.clone(), &key.namespace);
    let mut full = json!({
        "apiVersion": TracePipeline::api_version(&()), "kind": TracePipeline::kind(&()),
        // The uid fails the write if another pipeline now has this name.
        "metadata": {"name": key.name, "namespace": key.namespace, "uid": pipeline.uid()},
        "status": status,
    });
    // The API server refuses a version that is null.
    if let Some(version) = version_to_write(pipeline, key, &status, world) {
        full["metadata"]["resourceVersion"] = version.into();
    }
    match Box::pin(apply(&api, pipeline, (&full, &status))).await {
        Ok(stored) => world.shared.memory.set_dropped_fields(key, dropped_fields(&status, &stored)),
        // The pipeline was deleted meanwhile, and maybe created again; or another writer was faster, and the next look writes.
        Err(kube::Error::Api(answer)) if matches!(answer.code, 404 | 409) => return Ok(()),
        Err(source) => {
            // What may be written once a minute was not: the next look tries again, instead of finding nothing to write.
            world.shared.memory.lag_not_written(key);
            return Err(Error::Status { source: source.into() });
        }
    }
    status_changed(pipeline, &before, &status, world).await;
    Ok(())
}

/// Applies a status, and removes from it what other clients have written there. Returns what the API server stores. If the API server refuses the
/// status, what others have written may be the cause: that is removed first.
async fn apply(
    api: &Api<TracePipeline>,
    pipeline: &TracePipeline,
    (full, status): (&Value, &TracePipelineStatus),
) -> Result<TracePipelineStatus, kube::Error> {
    let how = PatchParams::apply(STATUS).force();
    let name = pipeline.name_any();
    let stored = match api.patch_status(&name, &how, &Patch::Apply(full)).await {
        Err(kube::Error::Api(answer)) if answer.code == 422 => {
            if remove_foreign(api, pipeline, status).await?.is_none() {
                return Err(kube::Error::Api(answer));
            }
            api.patch_status(&name, &how, &Patch::Apply(full)).await?
        }
        stored => stored?,
    };
    // The status is written: the next reconcile tries again to remove what is left.
    let cleaned = match remove_foreign(api, &stored, status).await {
        Ok(Some(cleaned)) => cleaned,
        Ok(None) => stored,
        // Another client has changed or deleted the pipeline meanwhile.
        Err(kube::Error::Api(answer)) if matches!(answer.code, 404 | 409) => stored,
        Err(error) => {
            warn!(pipeline = %name, %error, "cannot remove what another client has written into the status");
            stored
        }
    };
    Ok(cleaned.status.unwrap_or_default())
}

/// Removes from the status what the operator does not write there; `None` if there is no such field. Fails with a conflict if the pipeline has
/// changed since.
async fn remove_foreign(
    api: &Api<TracePipeline>,
    seen: &TracePipeline,
    status: &TracePipelineStatus,
) -> Result<Option<TracePipeline>, kube::Error> {
    let stored = seen.status.as_ref();
    let Some(mut patch) = stored.and_then(|stored| removal(stored, status)) else { return Ok(None) };
    let name = seen.name_any();
    info!(pipeline = %name, %patch, "removing what another client has written into the status");
    patch["metadata"] = json!({"uid": seen.uid(), "resourceVersion": seen.resource_version()});
    let how = PatchParams { field_manager: Some(STATUS.to_owned()), ..PatchParams::default() };
    api.patch_status(&name, &how, &Patch::Merge(patch)).await.map(Some)
}

/// The version of the pipeline that a status may be written to; `None` for any.
///
/// If the status alone remembers the schema Job, a person removes it from there to have the Job run again. A look that began before must
/// not put it back.
fn version_to_write(
    pipeline: &TracePipeline,
    key: &Key,
    status: &TracePipelineStatus,
    world: &World,
) -> Option<String> {
    let job = status.schema_job.as_deref()?;
    let is_there = find(&world.cache.jobs, &key.namespace, job).is_some();
    pipeline.resource_version().filter(|_| !is_there)
}

/// Whether to write the status now. A status that differs only in values that change all the time waits until `may_write_lag`.
fn is_worth_writing(
    before: &TracePipelineStatus,
    after: &TracePipelineStatus,
    may_write_lag: impl FnOnce() -> bool,
) -> bool {
    let mut before = before.clone();
    before.conditions.retain(|condition| is_own(&condition.type_));
    if before == *after {
        return false;
    }
    with_moving_parts_of(after, before) != *after || may_write_lag()
}

/// Copies the values that change all the time from `after`: lag, queue, guarantee, and the inputs of scaling, but not its decisions.
fn with_moving_parts_of(after: &TracePipelineStatus, mut before: TracePipelineStatus) -> TracePipelineStatus {
    before.lag = after.lag;
    before.queue = after.queue;
    // A starting gateway reports a weaker guarantee until it has read the table.
    before.delivery.clone_from(&after.delivery);
    if let (Some(before), Some(after)) = (&mut before.scaling, &after.scaling) {
        before.reason.clone_from(&after.reason);
        before.arrival_rate = after.arrival_rate;
        before.lag_seconds = after.lag_seconds;
        before.capacity_per_replica = after.capacity_per_replica;
        before.next_steps.clone_from(&after.next_steps);
        before.remembered.clone_from(&after.remembered);
    }
    before
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use k8s_openapi::{
        apimachinery::pkg::apis::meta::v1::{Condition, Time},
        jiff::Timestamp,
    };
    use sluice_crds::{
        DeliveryStatus, EXACTLY_ONCE, Lag, QueueStatus, ScalingStatus,
        status::{condition, reason},
    };

    /// A status with this reason of `Ready`, and this lag.
    pub fn status(reason: &str, lag: i64) -> TracePipelineStatus {
        let ready = Condition {
            type_: condition::READY.to_owned(),
            status: if reason == reason::RUNNING { "True" } else { "False" }.to_owned(),
            reason: reason.to_owned(),
            message: "m".to_owned(),
            observed_generation: Some(1),
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
        };
        let lag = Some(Lag { messages: lag });
        TracePipelineStatus { conditions: vec![ready], lag, ..TracePipelineStatus::default() }
    }

    #[test]
    fn a_status_is_written_when_it_says_something_new() {
        let running = status(reason::RUNNING, 10);
        let is_written = |after: &TracePipelineStatus, due| is_worth_writing(&running, after, || due);
        assert!(!is_written(&running, true));
        assert!(is_written(&status(reason::RUNNING, 20), true));
        assert!(!is_written(&status(reason::RUNNING, 20), false));
        assert!(is_written(&status(reason::PROGRESSING, 20), false));
    }

    #[test]
    fn a_condition_of_another_controller_causes_no_write() {
        let running = status(reason::RUNNING, 10);
        let mut with_another = running.clone();
        let another = Condition { type_: "Approved".to_owned(), ..running.conditions[0].clone() };
        with_another.conditions.insert(0, another);
        assert!(!is_worth_writing(&with_another, &running, || true));
    }

    #[test]
    fn what_was_decided_is_written_at_once_and_what_it_was_decided_from_is_not() {
        let with = |cause: &str, arrival_rate| {
            let scaling = ScalingStatus {
                cause: Some(cause.to_owned()),
                arrival_rate: Some(arrival_rate),
                reason: format!("{arrival_rate} messages/s"),
                ..ScalingStatus::default()
            };
            TracePipelineStatus { scaling: Some(scaling), ..status(reason::RUNNING, 1) }
        };
        let before = with("ComputeLimited", 100);
        let is_written = |after: &TracePipelineStatus, due| is_worth_writing(&before, after, || due);
        assert!(!is_written(&with("ComputeLimited", 200), false));
        assert!(is_written(&with("ComputeLimited", 200), true));
        assert!(is_written(&with("SinkLimited", 100), false));
        assert!(is_written(&status(reason::RUNNING, 1), false), "scaling was switched off");
    }

    #[test]
    fn what_gateways_say_is_written_once_a_minute() {
        let with = |blocks| {
            let queue = Some(QueueStatus { blocks, bytes: 1 });
            TracePipelineStatus { queue, ..status(reason::RUNNING, 1) }
        };
        let promising = |guarantee: &str| {
            let delivery =
                Some(DeliveryStatus { guarantee: guarantee.to_owned(), reason: None, durability: None });
            TracePipelineStatus { delivery, ..with(1) }
        };
        for (before, after) in [
            (with(1), with(2)),
            (with(1), promising(EXACTLY_ONCE)),
            (promising(EXACTLY_ONCE), promising("AtLeastOnce")),
        ] {
            assert!(!is_worth_writing(&before, &after, || false));
            assert!(is_worth_writing(&before, &after, || true));
        }
    }
}
