//! Kubernetes events about a pipeline, for a person who reads `kubectl describe`: about changes of its status, and about steps that the status does
//! not show.

use super::{resize_events::resize_events, volume_events::volume_events};
use crate::world::{Shared, World, events::shortened};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    Resource, ResourceExt,
    runtime::events::{Event, EventType},
};
use sluice_crds::{
    DeliveryStatus, DrainOutcome, EXACTLY_ONCE, QueueStatus, ScalingStatus, TracePipeline,
    TracePipelineStatus,
    status::{condition, reason},
};
use sluice_plan::{OneTimeEvent, drain::lifecycle::LetGo, one_time_events, scale::Limit, words};
use tracing::{debug, info};

/// Publishes the events that follow from a change of the status: about readiness, the number of gateways, delivery and volumes.
pub async fn status_changed(
    pipeline: &TracePipeline,
    before: &TracePipelineStatus,
    after: &TracePipelineStatus,
    world: &World,
) {
    ready_changed(pipeline, (&before.conditions, &after.conditions), world).await;
    let of_gateways = gateway_events(before, after).into_iter().chain(volume_events(before, after));
    let of_gateways = of_gateways.chain(resize_events(&before.memory_resizes, &after.memory_resizes));
    let of_gateways = of_gateways.chain(one_time_events(before, after).into_iter().map(|event| once(&event)));
    for event in of_gateways.chain(scaling_events(before.scaling.as_ref(), after.scaling.as_ref())) {
        publish(pipeline, &event, &world.shared).await;
    }
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
pub async fn undrained(pipeline: &TracePipeline, note: &str, shared: &Shared) {
    publish(pipeline, &happened("TakenBack", EventType::Warning, note, "Scale"), shared).await;
}

/// Publishes an event. A failure does not fail the reconcile: the status has the same information.
async fn publish(regarding: &impl Resource<DynamicType = ()>, event: &Event, shared: &Shared) {
    shared.metrics.wrote("Event");
    if let Err(error) = shared.events.publish(event, &regarding.object_ref(&())).await {
        debug!(%error, pipeline = %regarding.name_any(), "cannot publish an event");
    }
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
        reason::RUNNING | reason::PROGRESSING | reason::SUSPENDED | reason::IDLE | reason::DELETING
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
            let note = format!(
                "{} ({} MiB) {} on the queue volumes for ClickHouse",
                words::plural(blocks, "block"),
                bytes >> 20,
                words::form(blocks, "waits", "wait")
            );
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
fn once(event: &OneTimeEvent) -> Event {
    let type_ = if event.is_bad { EventType::Warning } else { EventType::Normal };
    happened(event.reason, type_, &event.words, event.action)
}

fn promised(delivery: &DeliveryStatus) -> Event {
    if delivery.guarantee == EXACTLY_ONCE {
        return happened("ExactlyOnce", EventType::Normal, "every row is in the table once", "Deliver");
    }
    let reason = delivery.reason.as_deref().unwrap_or("Unknown");
    let note = format!(
        "delivery is {} ({reason}): after a failure, rows may be in the table twice; none is lost. `sluice-gateway check` says \
         what to change",
        delivery.guarantee
    );
    happened("AtLeastOnce", EventType::Warning, &note, "Deliver")
}

/// Events about scaling: a rescale, a limit, or a drain that timed out. After that, gateways stay, or are removed although they are not empty.
fn scaling_events(before: Option<&ScalingStatus>, after: Option<&ScalingStatus>) -> Vec<Event> {
    let Some(after) = after else { return Vec::new() };
    let is_news = |of: fn(&ScalingStatus) -> Option<String>| {
        of(after).filter(|now| before.and_then(of).as_ref() != Some(now))
    };
    let rescaled = is_news(|scaling| scaling.last_rescale_time.as_ref().map(|at| at.0.to_string()))
        .map(|_| scaling_event("Rescaled", EventType::Normal, &after.reason));
    let limited = is_news(|scaling| scaling.limited.clone())
        .map(|limited| scaling_event(&limited, gravity(&limited), &after.reason));
    let late = is_news(late_drain).map(|reason| scaling_event("DrainTimedOut", EventType::Warning, &reason));
    [rescaled, limited, late].into_iter().flatten().collect()
}

/// Why a drain was late; `None` while it is not.
fn late_drain(scaling: &ScalingStatus) -> Option<String> {
    let drain = scaling.drain.as_ref()?;
    (drain.outcome == Some(DrainOutcome::TimedOut)).then(|| drain.reason.clone())
}

/// A limit by the user's maximum or by the number of partitions is normal; any other limit is a warning.
fn gravity(limited: &str) -> EventType {
    let is_bound = [Limit::MaxReplicas, Limit::TooFewPartitions].iter().any(|bound| bound.word() == limited);
    if is_bound { EventType::Normal } else { EventType::Warning }
}

fn scaling_event(reason: &str, type_: EventType, note: &str) -> Event {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::status::tests::status;
    use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
    use sluice_crds::{DrainState, DrainStatus};

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
        let (once, off) = (delivery(EXACTLY_ONCE, None), delivery("AtLeastOnce", Some("WindowOff")));
        let reasons = |before: &TracePipelineStatus, after: &TracePipelineStatus| {
            gateway_events(before, after).into_iter().map(|event| event.reason).collect::<Vec<_>>()
        };
        assert_eq!(reasons(&none, &of(once.clone(), 0)), ["ExactlyOnce"]);
        assert_eq!(reasons(&of(once.clone(), 0), &of(off.clone(), 3)), ["AtLeastOnce", "Queued"]);
        assert_eq!(reasons(&of(off.clone(), 3), &of(off.clone(), 70)), Vec::<String>::new());
        assert_eq!(reasons(&of(off.clone(), 3), &of(off.clone(), 0)), ["QueueEmpty"]);
        let durable = once.clone().map(|once| DeliveryStatus { durability: Some("Fsync".into()), ..once });
        assert_eq!(reasons(&of(once, 0), &of(durable, 0)), Vec::<String>::new(), "the promise is the same");
        let words = gateway_events(&none, &of(off, 3)).remove(0).note.unwrap();
        assert!(words.contains("WindowOff") && words.contains("none is lost"), "{words}");
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
            outcome: None,
        };
        let with = |state| ScalingStatus { drain: Some(drain(state)), ..before.clone() };
        assert_eq!(reasons(&with(DrainState::Waiting)), Vec::<String>::new(), "a gateway does not run");
        let late = DrainStatus { outcome: Some(DrainOutcome::TimedOut), ..drain(DrainState::Waiting) };
        let late = ScalingStatus { drain: Some(late), ..before.clone() };
        assert_eq!(reasons(&late), ["DrainTimedOut"]);
        let left = |outcome| {
            let drain = DrainStatus { outcome: Some(outcome), ..drain(DrainState::Draining) };
            ScalingStatus { drain: Some(drain), ..before.clone() }
        };
        assert_eq!(reasons(&left(DrainOutcome::TimedOut)), ["DrainTimedOut"]);
        let again = left(DrainOutcome::TimedOut);
        assert!(scaling_events(Some(&again), Some(&again)).is_empty(), "it is told once");
        assert_eq!(reasons(&left(DrainOutcome::Empty)), Vec::<String>::new());
        assert_eq!(reasons(&left(DrainOutcome::Unconfirmed)), Vec::<String>::new());
        assert_eq!(reasons(&with(DrainState::Draining)), Vec::<String>::new());
        assert!(scaling_events(Some(&before), None).is_empty());
    }
}
