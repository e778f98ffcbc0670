//! Writes a pipeline's status when it changes, and Kubernetes events for a person who reads `kubectl describe`. Writes only.

use crate::{
    api_error::{ApiError, ErrorClass},
    cache::find,
    memory::Key,
    reconcile::{Shared, World},
    resize_events::resize_events,
    unkept::{unkept, without},
    volume_events::volume_events,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
    runtime::events::{Event, EventType},
};
use serde_json::json;
use sluice_crds::{
    DeliveryStatus, DrainState, EXACTLY_ONCE, QueueStatus, ScalingStatus, TracePipeline, TracePipelineStatus,
    status::{condition, reason},
};
use sluice_plan::{News, drain::lifecycle::LetGo, news, scale::Limit};
use std::time::Instant;
use tracing::{debug, info};

/// Field manager of the status.
pub const STATUS: &str = "sluice-operator/status";
/// Longest note of an event in bytes; the API server refuses more than 1,024.
const NOTE_BYTES_MAX: usize = 1_000;

/// A failed write.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The status could not be written.
    #[error("cannot write the status")]
    Status { source: ApiError },
}

impl Error {
    /// The class of the error.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Status { source } => source.class(),
        }
    }
}

/// Writes the status if it changed, and the events that follow from the change: about readiness, the number of gateways, delivery and volumes.
pub async fn report(
    pipeline: &TracePipeline,
    key: &Key,
    status: TracePipelineStatus,
    world: &World,
) -> Result<(), Error> {
    let before = pipeline.status.clone().unwrap_or_default();
    let kept = without(&status, &world.shared.memory.unkept(key));
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
    match api.patch_status(&key.name, &PatchParams::apply(STATUS).force(), &Patch::Apply(full)).await {
        Ok(stored) => {
            let stored = stored.status.unwrap_or_default();
            world.shared.memory.set_unkept(key, unkept(&status, &stored));
        }
        // The pipeline was deleted meanwhile, and maybe created again; or another writer was faster, and the next look writes.
        Err(kube::Error::Api(answer)) if matches!(answer.code, 404 | 409) => return Ok(()),
        Err(source) => return Err(Error::Status { source: source.into() }),
    }
    ready_changed(pipeline, (&before.conditions, &status.conditions), world).await;
    let of_gateways = gateway_events(&before, &status).into_iter().chain(volume_events(&before, &status));
    let of_gateways = of_gateways.chain(resize_events(&before.memory_resizes, &status.memory_resizes));
    let of_gateways = of_gateways.chain(news(&before, &status).into_iter().map(|news| once(&news)));
    for event in of_gateways.chain(scaling_events(before.scaling.as_ref(), status.scaling.as_ref())) {
        publish(pipeline, &event, &world.shared).await;
    }
    Ok(())
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

/// Logs and publishes a change of `Ready`, or of its reason.
pub async fn ready_changed(
    pipeline: &impl Resource<DynamicType = ()>,
    (before, after): (&[Condition], &[Condition]),
    world: &World,
) {
    let Some(ready) = changed_ready(before, after) else { return };
    info!(
        namespace = %pipeline.namespace().unwrap_or_default(), pipeline = %pipeline.name_any(), ready = %ready.status,
        reason = %ready.reason, message = %ready.message, "status changed"
    );
    publish(pipeline, &event(ready), &world.shared).await;
}

/// Publishes why the operator does not reconcile a pipeline whose spec is valid.
pub async fn tell(regarding: &impl Resource<DynamicType = ()>, why: &str, note: &str, shared: &Shared) {
    let event = Event {
        type_: EventType::Warning,
        reason: why.to_owned(),
        note: Some(shortened(note)),
        action: "Reconcile".to_owned(),
        secondary: None,
    };
    publish(regarding, &event, shared).await;
}

/// Publishes why the deletion of a pipeline completes, and whether all its gateways were empty.
pub async fn let_go(pipeline: &TracePipeline, why: LetGo, note: &str, shared: &Shared) {
    let is_sure = !matches!(why, LetGo::Late(_) | LetGo::Unproved);
    let type_ = if is_sure { EventType::Normal } else { EventType::Warning };
    publish(pipeline, &happened(why.word(), type_, note, "Delete"), shared).await;
}

/// Publishes that a queue volume was replaced.
pub async fn replaced(pipeline: &TracePipeline, note: &str, shared: &Shared) {
    publish(pipeline, &happened("VolumeReplaced", EventType::Normal, note, "Store"), shared).await;
}

/// Publishes that a queue volume was replaced because no node can reach it.
pub async fn recreated(pipeline: &TracePipeline, note: &str, shared: &Shared) {
    publish(pipeline, &happened("VolumeOutOfReach", EventType::Warning, note, "Store"), shared).await;
}

/// Publishes that a gateway drained without a request, and was resumed.
pub async fn taken_back(pipeline: &TracePipeline, note: &str, shared: &Shared) {
    publish(pipeline, &happened("TakenBack", EventType::Warning, note, "Scale"), shared).await;
}

/// Publishes an event. A failure does not fail the reconcile: the status has the same information.
async fn publish(regarding: &impl Resource<DynamicType = ()>, event: &Event, shared: &Shared) {
    shared.metrics.wrote("Event");
    if let Err(error) = shared.events.publish(event, &regarding.object_ref(&())).await {
        debug!(%error, pipeline = %regarding.name_any(), "cannot publish an event");
    }
}

/// Whether to write the status now. A status that differs only in values that change all the time waits until `may_write_lag`.
fn is_worth_writing(
    before: &TracePipelineStatus,
    after: &TracePipelineStatus,
    may_write_lag: impl FnOnce() -> bool,
) -> bool {
    if before == after {
        return false;
    }
    with_moving_parts_of(after, before.clone()) != *after || may_write_lag()
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

/// The condition `Ready` if its status or reason changed.
fn changed_ready<'a>(before: &[Condition], after: &'a [Condition]) -> Option<&'a Condition> {
    let was = ready(before).map(|ready| (&ready.status, &ready.reason));
    ready(after).filter(|ready| was != Some((&ready.status, &ready.reason)))
}

fn ready(conditions: &[Condition]) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.type_ == condition::READY)
}

fn event(ready: &Condition) -> Event {
    let is_well = matches!(
        ready.reason.as_str(),
        reason::RUNNING | reason::PROGRESSING | reason::SUSPENDED | reason::DELETING
    );
    Event {
        type_: if is_well { EventType::Normal } else { EventType::Warning },
        reason: ready.reason.clone(),
        note: Some(shortened(&ready.message)),
        action: "Reconcile".to_owned(),
        secondary: None,
    }
}

/// Events about delivery: the guarantee changed, or blocks begin or cease to wait on the queue volumes.
fn gateway_events(before: &TracePipelineStatus, after: &TracePipelineStatus) -> Vec<Event> {
    let promise_of = |delivery: &DeliveryStatus| (delivery.guarantee.clone(), delivery.reason.clone());
    let promised_before = before.delivery.as_ref().map(promise_of);
    let promise =
        after.delivery.as_ref().filter(|now| promised_before != Some(promise_of(now))).map(promised);
    let waits = |status: &TracePipelineStatus| status.queue.is_some_and(|queue| queue.blocks > 0);
    let queue = match (waits(before), waits(after)) {
        (false, true) => {
            let QueueStatus { blocks, bytes } = after.queue.unwrap_or_default();
            let note =
                format!("{blocks} blocks ({} MiB) wait on the queue volumes for ClickHouse", bytes >> 20);
            Some(happened("Queued", EventType::Normal, &note, "Deliver"))
        }
        (true, false) => Some(happened(
            "QueueEmpty",
            EventType::Normal,
            "no block waits on the queue volumes any more",
            "Deliver",
        )),
        _ => None,
    };
    promise.into_iter().chain(queue).collect()
}

/// The event of something that happened once, and is not in the status.
fn once(news: &News) -> Event {
    let type_ = if news.is_bad { EventType::Warning } else { EventType::Normal };
    happened(news.reason, type_, &news.words, news.action)
}

fn promised(delivery: &DeliveryStatus) -> Event {
    if delivery.guarantee == EXACTLY_ONCE {
        return happened("ExactlyOnce", EventType::Normal, "every row is in the table once", "Deliver");
    }
    let reason = delivery.reason.as_deref().unwrap_or("unknown");
    let note = format!(
        "delivery is {} ({reason}): after a failure, rows may be in the table twice; none is lost. `sluice-gateway check` says \
         what to change",
        delivery.guarantee
    );
    happened("AtLeastOnce", EventType::Warning, &note, "Deliver")
}

/// Events about scaling: a rescale, a limit, or a drain that timed out.
fn scaling_events(before: Option<&ScalingStatus>, after: Option<&ScalingStatus>) -> Vec<Event> {
    let Some(after) = after else { return Vec::new() };
    let is_news = |of: fn(&ScalingStatus) -> Option<String>| {
        of(after).filter(|now| before.and_then(of).as_ref() != Some(now))
    };
    let stays = |scaling: &ScalingStatus| {
        let drain = scaling.drain.as_ref().filter(|drain| drain.state == DrainState::Waiting);
        drain.map(|drain| drain.reason.clone())
    };
    let rescaled = is_news(|scaling| scaling.last_rescale_time.as_ref().map(|at| at.0.to_string()))
        .map(|_| told("Rescaled", EventType::Normal, &after.reason));
    let limited = is_news(|scaling| scaling.limited.clone())
        .map(|limited| told(&limited, gravity(&limited), &after.reason));
    let late = is_news(stays).map(|reason| told("DrainTimedOut", EventType::Warning, &reason));
    [rescaled, limited, late].into_iter().flatten().collect()
}

/// A limit by the user's maximum or by the number of partitions is normal; any other limit is a warning.
fn gravity(limited: &str) -> EventType {
    let is_bound = [Limit::MaxReplicas, Limit::TooFewPartitions].iter().any(|bound| bound.word() == limited);
    if is_bound { EventType::Normal } else { EventType::Warning }
}

fn told(reason: &str, type_: EventType, note: &str) -> Event {
    happened(reason, type_, note, "Scale")
}

/// An event about the pipeline.
pub(crate) fn happened(reason: &str, type_: EventType, note: &str, action: &str) -> Event {
    Event {
        type_,
        reason: reason.to_owned(),
        note: Some(shortened(note)),
        action: action.to_owned(),
        secondary: None,
    }
}

/// A text cut to the longest note of an event, which also limits parts of condition messages.
pub(crate) fn shortened(text: &str) -> String {
    text[..text.floor_char_boundary(NOTE_BYTES_MAX)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
    use sluice_crds::{DrainStatus, Lag};

    fn status(reason: &str, lag: i64) -> TracePipelineStatus {
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
    fn events_tell_of_changes_of_ready_alone() {
        let running = status(reason::RUNNING, 1);
        assert!(changed_ready(&running.conditions, &status(reason::RUNNING, 2).conditions).is_none());
        let stuck = status(reason::SOURCE_UNAVAILABLE, 1);
        let told = event(changed_ready(&running.conditions, &stuck.conditions).unwrap());
        assert_eq!((told.type_, told.reason.as_str()), (EventType::Warning, reason::SOURCE_UNAVAILABLE));
        assert_eq!(
            event(changed_ready(&stuck.conditions, &running.conditions).unwrap()).type_,
            EventType::Normal
        );
    }

    #[test]
    fn events_tell_of_another_promise_and_of_blocks_that_begin_to_wait() {
        let delivery = |guarantee: &str, reason: Option<&str>| {
            Some(DeliveryStatus {
                guarantee: guarantee.to_owned(),
                reason: reason.map(str::to_owned),
                durability: None,
            })
        };
        let of = |delivery, blocks| {
            let queue = Some(QueueStatus { blocks, bytes: blocks << 20 });
            TracePipelineStatus { delivery, queue, ..TracePipelineStatus::default() }
        };
        let none = TracePipelineStatus::default();
        let (once, off) = (delivery(EXACTLY_ONCE, None), delivery("at_least_once", Some("window_off")));
        let reasons = |before: &TracePipelineStatus, after: &TracePipelineStatus| {
            gateway_events(before, after).into_iter().map(|event| event.reason).collect::<Vec<_>>()
        };
        assert_eq!(reasons(&none, &of(once.clone(), 0)), ["ExactlyOnce"]);
        assert_eq!(reasons(&of(once.clone(), 0), &of(off.clone(), 3)), ["AtLeastOnce", "Queued"]);
        assert_eq!(reasons(&of(off.clone(), 3), &of(off.clone(), 70)), Vec::<String>::new());
        assert_eq!(reasons(&of(off.clone(), 3), &of(off.clone(), 0)), ["QueueEmpty"]);
        let durable = once.clone().map(|once| DeliveryStatus { durability: Some("fsync".into()), ..once });
        assert_eq!(reasons(&of(once, 0), &of(durable, 0)), Vec::<String>::new(), "the promise is the same");
        let words = gateway_events(&none, &of(off, 3)).remove(0).note.unwrap();
        assert!(words.contains("window_off") && words.contains("none is lost"), "{words}");
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
            (promising(EXACTLY_ONCE), promising("at_least_once")),
        ] {
            assert!(!is_worth_writing(&before, &after, || false));
            assert!(is_worth_writing(&before, &after, || true));
        }
    }

    #[test]
    fn events_tell_of_rescales_and_of_what_keeps_from_them() {
        let at = |second| Some(Time(Timestamp::from_second(second).unwrap()));
        let before = ScalingStatus { last_rescale_time: at(1), ..ScalingStatus::default() };
        let reasons = |after: &ScalingStatus| {
            let events = scaling_events(Some(&before), Some(after));
            events.into_iter().map(|event| event.reason).collect::<Vec<_>>()
        };
        assert_eq!(reasons(&ScalingStatus { arrival_rate: Some(5), ..before.clone() }), Vec::<String>::new());
        assert_eq!(reasons(&ScalingStatus { last_rescale_time: at(2), ..before.clone() }), ["Rescaled"]);
        assert_eq!(reasons(&ScalingStatus { limited: Some("Budget".into()), ..before.clone() }), ["Budget"]);
        let drain = |state| DrainStatus {
            state,
            target: 1,
            from: 2,
            since: Time(Timestamp::UNIX_EPOCH),
            reason: "late".into(),
        };
        let with = |state| ScalingStatus { drain: Some(drain(state)), ..before.clone() };
        assert_eq!(reasons(&with(DrainState::Waiting)), ["DrainTimedOut"]);
        assert_eq!(reasons(&with(DrainState::Draining)), Vec::<String>::new());
        assert!(scaling_events(Some(&before), None).is_empty());
    }

    #[test]
    fn a_note_is_cut_between_characters() {
        assert!(shortened(&"ä".repeat(2_000)).len() <= NOTE_BYTES_MAX);
    }
}
