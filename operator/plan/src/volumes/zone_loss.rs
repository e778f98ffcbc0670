//! Gateways whose volumes no node reaches: those of a zone or a machine that is gone, or full. Kubernetes waits for ever. Where the
//! spec says `queue.onZoneLoss: Recreate`, the claim is deleted, and Kubernetes makes another for the pod that waits, once it is known
//! that nothing but copies of what Kafka still has was on it:
//!
//! - gateways commit after the insert, and since they do, and read these topics there, all volumes were empty at some time
//!   (`status.volumes.cacheSince`);
//! - Kafka has deleted nothing unread since then;
//! - of every partition Kafka has all that is not committed.
//!
//! Pure: no clock and no client.

use crate::{
    facts::Observed,
    ground::{moment::Moment, pods::number_of},
    observed::{ClaimSeen, PodSeen},
};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use sluice_crds::{LossStatus, OnZoneLoss, TracePipeline};
use std::{collections::BTreeSet, time::Duration};

/// The operator waits this long for a gateway after it first found no node. Chosen: twice the time after which Kubernetes gives up the pods
/// of a node that is away. A machine that is restarted is back within this time.
const WAITED_FOR: Duration = Duration::from_mins(10);

/// A gateway that no node takes which reaches its volume.
#[derive(Debug, Clone, Copy)]
pub struct OutOfReach<'a> {
    pub pod: &'a PodSeen,
    pub claim: &'a ClaimSeen,
}

/// All of them, by the names of their pods.
pub(crate) fn out_of_reach(observed: &Observed) -> impl Iterator<Item = OutOfReach<'_>> {
    let pods = observed.workload.iter().flat_map(|workload| &workload.pods);
    pods.filter(|pod| pod.is_kept_by_volume).filter_map(|pod| {
        let ordinal = number_of(&pod.name)?;
        let claim = observed.volumes.claims.iter().find(|claim| claim.ordinal == ordinal)?;
        Some(OutOfReach { pod, claim })
    })
}

/// Those whose claims are to be deleted now.
pub fn recreated<'a>(
    now: Moment,
    pipeline: &TracePipeline,
    observed: &'a Observed,
) -> impl Iterator<Item = OutOfReach<'a>> {
    let now = now.time().0;
    let is_wanted = pipeline.spec.queue.on_zone_loss == Some(OnZoneLoss::Recreate);
    let due = move |lost: &OutOfReach<'_>| due(pipeline, observed, lost.pod).is_ok_and(|at| now >= at);
    out_of_reach(observed).filter(move |lost| is_wanted && !lost.claim.is_going && due(lost))
}

/// When the claim of a gateway is deleted if it finds no node until then; else why it is not, for people.
pub(crate) fn due(
    pipeline: &TracePipeline,
    observed: &Observed,
    pod: &PodSeen,
) -> Result<Timestamp, &'static str> {
    let loss = pipeline.status.as_ref().and_then(|status| status.loss.as_ref());
    let since = known_since(pipeline).filter(|since| holds(since, loss) && !is_more_lost(loss, observed));
    if pipeline.spec.source.otlp.is_some() {
        Err("with source.otlp the volume has the only copy of requests that are not inserted")
    } else if pipeline.spec.has_only_copies_on_volumes() {
        Err("with delivery.commit AfterEnqueue the volume may hold the only copy of rows")
    } else if since.is_none() {
        Err(
            "the volume may hold rows that Kafka no longer has: not all volumes have been empty since the last change of \
             delivery.commit, topics or brokers, and since Kafka last deleted unread messages",
        )
    } else if !observed.has_uncommitted {
        Err("Kafka has not confirmed that it still has all uncommitted messages")
    } else {
        let lost_at = pod.unscheduled_since.ok_or("it is not known since when the pod is unschedulable")?;
        lost_at
            .checked_add(WAITED_FOR)
            .map_err(|_| "the time since when the pod is unschedulable is not valid")
    }
}

/// The time from which on the operator knows that volumes hold only copies of what Kafka has; `None` without such knowledge. `is_empty`: all
/// volumes are known to be empty now.
pub(crate) fn cache_since(
    pipeline: &TracePipeline,
    is_empty: bool,
    loss: Option<&LossStatus>,
    now: &Time,
) -> Option<Time> {
    if pipeline.spec.has_only_copies_on_volumes() {
        return None;
    }
    let before = known_since(pipeline).cloned();
    before.filter(|since| holds(since, loss)).or_else(|| is_empty.then(|| now.clone()))
}

/// What the status says, if it was written for the same topics and brokers: rows from other topics are no copies of these messages.
fn known_since(pipeline: &TracePipeline) -> Option<&Time> {
    let (status, kafka) = (pipeline.status.as_ref()?, pipeline.spec.source.kafka.as_ref()?);
    let said: BTreeSet<&str> = status.topics.iter().map(|topic| topic.name.as_str()).collect();
    let wanted: BTreeSet<&str> = kafka.topics.iter().map(String::as_str).collect();
    let is_same = said == wanted && status.bootstrap_servers == kafka.bootstrap_servers;
    status.volumes.as_ref()?.cache_since.as_ref().filter(|_| is_same)
}

/// Whether gateways have counted losses that the status does not say yet.
fn is_more_lost(loss: Option<&LossStatus>, observed: &Observed) -> bool {
    let known = |gateway: &u32| loss.and_then(|loss| loss.gateways.get(&gateway.to_string())).copied();
    observed.messages_lost.iter().any(|(gateway, count)| *count > known(gateway).unwrap_or(0))
}

/// Whether the knowledge still holds after this loss. Messages that were lost before `since` are not on the volumes: they were empty.
fn holds(since: &Time, loss: Option<&LossStatus>) -> bool {
    loss.is_none_or(|loss| loss.last_time.0 <= since.0)
}
