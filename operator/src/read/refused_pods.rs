//! Why Kubernetes does not create the pods of a StatefulSet, or of a Job. Only an event of that object has the reason. The operator reads events
//! only while pods are missing for longer than their creation takes. Reads only.

use crate::world::{World, events::shortened};
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::Event},
    jiff::{SignedDuration, Timestamp},
};
use kube::{Api, ResourceExt, api::ListParams};
use sluice_crds::{TracePipeline, status::condition};
use sluice_plan::{Intent, Names, WorkloadSeen};
use tracing::debug;

/// Event reason of Kubernetes for a pod that it could not create.
const FAILED_CREATE: &str = "FailedCreate";
/// Seconds for which a pipeline must be unready: before, the missing pods may just be about to be created.
const MISSING_SECONDS: i64 = 10;
/// An older event is about a problem that is over: the StatefulSet controller tries at least every 1,000 s.
const EVENT_SECONDS_MAX: i64 = 1_200;
/// Events that are read: one for each missing pod would be enough.
const EVENTS_MAX: u32 = 50;

/// The latest message of Kubernetes about missing pods; `None` if no pod is missing or the events cannot be read.
pub async fn look(
    pipeline: &TracePipeline,
    workload: Option<&WorkloadSeen>,
    names: &Names,
    world: &World,
) -> Option<String> {
    let is_missing =
        workload.is_some_and(|workload| workload.is_observed && workload.replicas < workload.wanted);
    let now = Timestamp::now();
    if !is_missing || Intent::of(pipeline) != Intent::Run || !is_unready_for_long(pipeline, now) {
        return None;
    }
    latest(("StatefulSet", &names.gateway()), names.namespace(), now, world).await
}

/// The latest message of Kubernetes about the pod of a Job that has none; `None` if it has just been made or the events cannot be read.
pub async fn of_job(job: &Job, world: &World) -> Option<String> {
    let (now, made) = (Timestamp::now(), job.metadata.creation_timestamp.as_ref()?.0);
    if now.duration_since(made) < SignedDuration::from_secs(MISSING_SECONDS) {
        return None;
    }
    latest(("Job", &job.name_any()), &job.namespace()?, now, world).await
}

async fn latest(
    (kind, name): (&str, &str),
    namespace: &str,
    now: Timestamp,
    world: &World,
) -> Option<String> {
    let events: Api<Event> = Api::namespaced(world.shared.client.clone(), namespace);
    let selected =
        format!("involvedObject.kind={kind},involvedObject.name={name},reason={FAILED_CREATE},type=Warning");
    let found = match events.list(&ListParams::default().fields(&selected).limit(EVENTS_MAX)).await {
        Ok(found) => found,
        Err(error) => {
            debug!(%error, kind, name, "cannot read the events about missing pods");
            return None;
        }
    };
    let is_meant = |event: &Event| {
        let of = &event.involved_object;
        event.reason.as_deref() == Some(FAILED_CREATE)
            && (of.kind.as_deref(), of.name.as_deref()) == (Some(kind), Some(name))
    };
    let said =
        found.items.into_iter().filter(is_meant).filter_map(|event| Some((at(&event)?, event.message?)));
    let (at, words) = said.max_by_key(|(at, _)| *at)?;
    (now.duration_since(at) < SignedDuration::from_secs(EVENT_SECONDS_MAX)).then(|| shortened(&words))
}

fn at(event: &Event) -> Option<Timestamp> {
    let times =
        [event.last_timestamp.as_ref().map(|time| time.0), event.event_time.as_ref().map(|time| time.0)];
    times.into_iter().flatten().max()
}

fn is_unready_for_long(pipeline: &TracePipeline, now: Timestamp) -> bool {
    let ready = pipeline.status.as_ref().and_then(|status| status.condition(condition::READY));
    ready.filter(|ready| ready.status == "False").is_some_and(|ready| {
        now.duration_since(ready.last_transition_time.0) >= SignedDuration::from_secs(MISSING_SECONDS)
    })
}
