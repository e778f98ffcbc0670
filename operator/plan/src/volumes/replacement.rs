//! Replaces the queue volume of a gateway by one of another size or storage class. A volume that is larger than `queue.size`, or of
//! another class, cannot be changed; only a new claim helps.
//!
//! ```text
//!  next --> Draining --> empty: pod held and deleted --> ended, and no other container ran: claim deleted, pod released
//!             |  ^                                  `--> another container ran, or it is unknown: pod released, claim stays
//!             |  `--------- after the same time --------.
//!             `--> too late: Waiting (it reads again) --> Resuming --> (none)
//! ```
//!
//! The StatefulSet makes the new claim ([`super::growth`]). One gateway at a time is replaced, the highest ordinal first, and only while
//! all are ready and nothing else is under way. The status has the state. The status names a request before a gateway gets it, and the
//! operator repeats it to any pod that answers by that name.
//!
//! A claim that may hold rows is never deleted. With `AfterEnqueue` the volume may hold the only copy. A gateway that restarts after it
//! answered that it is empty reads messages and writes blocks to the volume. So the answer is not enough, and the operator proves more:
//!
//! 1. It adds a finalizer to the pod, and with it the id of the container that answered ([`Emptied`]). Then it deletes the pod. The
//!    finalizer keeps the pod, and no other pod of this name can use the claim.
//! 2. When the kubelet has finished with the pod, the operator compares the container that ended last with that id. If they are equal, no
//!    other container ran since the answer: the operator deletes the claim and removes the finalizer.
//! 3. If another container ran, or the last one is unknown, the operator removes the finalizer and keeps the claim. The replacement
//!    starts again.
//!
//! Pod and status hold all that this needs ([`fate`]). So an operator that crashed continues at any step, also after the spec has
//! changed.
//!
//! A claim is too large if it requests too much; its capacity does not count, because provisioners round up, and would round up again.
//! Pure: no clock and no client.

use super::growth::{Growth, GrowthState};
use crate::{
    drain::{Answer, Request, in_words},
    facts::Observed,
    ground::{moment::Moment, quantity},
    observed::{ClaimSeen, Emptied, HolderSeen, StorageClassSeen, VolumesSeen},
    pipeline::drain_terms::Terms,
};
use sluice_crds::{DrainState, Queue, QueueMode, ReplacementStatus};
use std::time::Duration;

/// If a held pod has not ended this long after its grace period, the operator removes its finalizer and keeps its claim: the node is
/// probably lost, and the pod would stay for ever. Chosen: a Job has the same time to end.
const ENDS_LATE: Duration = Duration::from_mins(2);

/// Beginning of a reason in the status.
const EMPTY: &str = "it is empty";

/// Whether only a new claim gets the size and class of the spec. If the spec names no class, any class is right.
pub(crate) fn is_to_be_replaced(claim: &ClaimSeen, queue: &Queue) -> bool {
    let is_other_class =
        queue.storage_class_name.is_some() && claim.storage_class != queue.storage_class_name;
    let is_larger = claim.requested > quantity::bytes(&queue.size);
    queue.mode == QueueMode::Spill && !claim.is_going && (is_other_class || is_larger)
}

/// The claims to be replaced that a gateway uses. Other claims are replaced once a gateway uses them.
pub fn outdated<'a>(queue: &'a Queue, seen: &'a VolumesSeen) -> impl Iterator<Item = &'a ClaimSeen> {
    seen.claims.iter().filter(|claim| claim.has_gateway && is_to_be_replaced(claim, queue))
}

/// Whether the operator must look for the storage class of the spec: a new claim will need it.
pub fn needs_class(queue: &Queue, seen: &VolumesSeen) -> bool {
    let template = seen.template.as_ref();
    let is_new = template.is_some_and(|template| template.storage_class != queue.storage_class_name);
    is_new || outdated(queue, seen).next().is_some()
}

/// The gateway whose volume is replaced next; `None` unless all gateways are ready and the StatefulSet makes claims by the spec.
pub(crate) fn next(queue: &Queue, observed: &Observed, growth: &Growth) -> Option<u32> {
    let (workload, seen) = (observed.workload.as_ref()?, &observed.volumes);
    let is_possible =
        growth.state == GrowthState::Asked && observed.storage_class != StorageClassSeen::Missing;
    let is_well = workload.ready == workload.wanted
        && workload.gateways.iter().all(|gateway| !gateway.is_leaving)
        && seen.claims.iter().filter(|claim| claim.ordinal < workload.wanted).all(|claim| !claim.is_going);
    let ordinals = outdated(queue, seen).map(|claim| claim.ordinal);
    ordinals.filter(|ordinal| *ordinal < workload.wanted).max().filter(|_| is_possible && is_well)
}

/// Claims to be replaced that never had a volume, for instance of a storage class that was named by mistake: by name and uid. They are
/// empty, because their gateways never ran, and Kubernetes makes them again by the spec.
pub fn never_bound<'a>(queue: &'a Queue, seen: &'a VolumesSeen) -> impl Iterator<Item = (&'a str, &'a str)> {
    let is_ready = seen.template.as_ref().is_some_and(|template| {
        let is_size = template.size.as_deref().and_then(quantity::bytes) == quantity::bytes(&queue.size);
        !template.is_going && is_size && template.storage_class == queue.storage_class_name
    });
    let outdated = seen.claims.iter().filter(move |claim| is_ready && is_to_be_replaced(claim, queue));
    let never = outdated.filter(|claim| !claim.is_bound && claim.capacity.is_none());
    never.map(|claim| (claim.name.as_str(), claim.uid.as_str()))
}

/// The request that the gateway gets now, by the state in the status alone.
pub fn request(written: Option<&ReplacementStatus>) -> Option<(Request, u32)> {
    let written = written?;
    let request = match written.state {
        DrainState::Draining => Request::Drain,
        DrainState::Resuming | DrainState::Waiting => Request::Resume,
    };
    Some((request, written.gateway))
}

/// The facts for a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen<'a> {
    /// The spec's queue.
    pub queue: &'a Queue,
    /// Claims and pods, read before the gateway answered.
    pub volumes: &'a VolumesSeen,
    /// The answer of the gateway to [`request`].
    pub answer: Answer,
    /// `false` while the number of gateways changes, the pipeline is to be suspended, or the spec has no plan.
    pub may_go_on: bool,
    /// The gateway that the plan replaces next.
    pub next: Option<u32>,
}

/// What the operator does now, and what it writes into the status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// The next state; `None` when no volume is replaced.
    pub next: Option<ReplacementStatus>,
    /// The pod that gets the finalizer and is then deleted.
    pub take: Option<Take>,
}

/// The pod of an empty gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Take {
    pub pod: String,
    pub pod_uid: String,
    /// The annotation that it gets.
    pub emptied: Emptied,
}

/// The next step.
pub fn step(now: Moment, terms: Terms, written: Option<&ReplacementStatus>, seen: &Seen<'_>) -> Step {
    match written {
        None => begin(now, seen),
        Some(written) => match written.state {
            DrainState::Draining => draining(now, terms, written, seen),
            DrainState::Resuming => resuming(now, terms, written, seen),
            DrainState::Waiting => waiting(now, terms, written, seen),
        },
    }
}

fn begin(now: Moment, seen: &Seen<'_>) -> Step {
    let next = seen.next.filter(|_| seen.may_go_on).map(|gateway| ReplacementStatus {
        state: DrainState::Draining,
        gateway,
        since: now.time(),
        reason: "its drain is about to begin".to_owned(),
    });
    Step { next, take: None }
}

fn draining(now: Moment, terms: Terms, written: &ReplacementStatus, seen: &Seen<'_>) -> Step {
    let stay =
        |reason: String| Step { next: Some(ReplacementStatus { reason, ..written.clone() }), take: None };
    let holder = seen.volumes.holders.iter().find(|holder| holder.ordinal == written.gateway);
    let claim = seen.volumes.claims.iter().find(|claim| claim.ordinal == written.gateway);
    // The pod has a deletion timestamp, from the operator or from another client, and that cannot be undone. If the pod is held, the
    // operator waits for its end. Afterwards `fate` decides by pod and claim alone, and the next pod of this name reads again.
    let leaving = holder.and_then(|holder| Some((holder.late_for?, holder.emptied.is_some())));
    if leaving.is_some_and(|(late, is_held)| is_held && late < ENDS_LATE) {
        return stay(format!("{EMPTY}, and its pod is ending"));
    }
    if leaving.is_some() || claim.is_some_and(|claim| claim.is_going) {
        return changed(written, DrainState::Resuming, now, "Kubernetes recreates its pod".to_owned());
    }
    let Some(claim) = claim.filter(|claim| is_to_be_replaced(claim, seen.queue) && seen.may_go_on) else {
        return changed(written, DrainState::Resuming, now, "it reads again".to_owned());
    };
    let late = now.seconds_since(Moment::of(&written.since)) >= f64::from(terms.timeout_seconds);
    let is_empty = seen.answer == Answer::Done;
    let take = holder.filter(|_| is_empty).and_then(|holder| take(written, holder, claim));
    let held = match (seen.answer, &take) {
        (Answer::Done, Some(_)) => format!("{EMPTY}, and the operator deletes its pod"),
        (Answer::Done, None) => format!("{EMPTY}, but the status of its pod names no container"),
        (Answer::Damaged, _) => {
            "it is drained, but its volume must stay: it is damaged, or has dead letters, or its gateway does not say".to_owned()
        }
        (Answer::Holds { blocks }, _) => {
            format!("it holds {}, or uncommitted messages", in_words(blocks))
        }
        (Answer::Unreadable, _) => {
            "it cannot read a log on its volume now, and the requests in it are not inserted".to_owned()
        }
        (Answer::Gone | Answer::Away, _) => "it does not run".to_owned(),
        (Answer::Unknown, _) => "its version cannot drain".to_owned(),
        (Answer::OtherPod, _) => "another pod answers at its address".to_owned(),
        (Answer::Silent, _) => "it does not answer".to_owned(),
    };
    // Also if it is empty: a pod that the API server refuses to hold or delete must read again.
    if late {
        let reason = format!("not ended after {} s: {held}", terms.timeout_seconds);
        return changed(written, DrainState::Waiting, now, reason);
    }
    Step { take, ..stay(held) }
}

fn take(written: &ReplacementStatus, holder: &HolderSeen, claim: &ClaimSeen) -> Option<Take> {
    let emptied = Emptied {
        container: holder.container.clone()?,
        claim_uid: claim.uid.clone(),
        since: written.since.0.to_string(),
    };
    Some(Take { pod: holder.name.clone(), pod_uid: holder.uid.clone(), emptied })
}

/// Waits until the gateway reads again, and repeats the request while it does not answer. After the timeout, the operator stops waiting as
/// soon as something else is to change. A gateway that does not run reads when it starts.
fn resuming(now: Moment, terms: Terms, written: &ReplacementStatus, seen: &Seen<'_>) -> Step {
    let is_over = written.state == DrainState::Resuming
        && now.seconds_since(Moment::of(&written.since)) >= f64::from(terms.timeout_seconds);
    match seen.answer {
        _ if is_over && !seen.may_go_on => Step::default(),
        Answer::Done | Answer::Damaged | Answer::Gone | Answer::Away | Answer::Unknown => Step::default(),
        Answer::Holds { .. } | Answer::Unreadable | Answer::OtherPod | Answer::Silent => {
            changed(written, DrainState::Resuming, now, written.reason.clone())
        }
    }
}

fn waiting(now: Moment, terms: Terms, written: &ReplacementStatus, seen: &Seen<'_>) -> Step {
    let is_over = now.seconds_since(Moment::of(&written.since)) >= f64::from(terms.timeout_seconds);
    let claim = seen.volumes.claims.iter().find(|claim| claim.ordinal == written.gateway);
    if is_over || !seen.may_go_on || !claim.is_some_and(|claim| is_to_be_replaced(claim, seen.queue)) {
        return resuming(now, terms, written, seen);
    }
    Step { next: Some(written.clone()), take: None }
}

fn changed(written: &ReplacementStatus, state: DrainState, now: Moment, reason: String) -> Step {
    let since = if written.state == state { written.since.clone() } else { now.time() };
    Step { next: Some(ReplacementStatus { state, since, reason, ..written.clone() }), take: None }
}

/// What the operator does with a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate<'a> {
    /// Nothing: it is not held, or has not ended yet.
    Wait,
    /// It has ended, and nothing was written to its volume: the operator deletes the claim with this uid, then removes the finalizer.
    Replace { claim_uid: &'a str },
    /// The operator removes the finalizer, and the claim stays.
    LetGo,
}

/// Decides by the pod and the status. The API server may carry out a request to hold a pod long after the operator sent it, when the
/// gateway reads again. Then the time of the drain in the annotation differs from that in the status, and the annotation proves nothing.
pub fn fate<'a>(holder: &'a HolderSeen, written: Option<&ReplacementStatus>) -> Fate<'a> {
    let Some(emptied) = &holder.emptied else { return Fate::Wait };
    let is_of_now = written.is_some_and(|written| {
        written.state == DrainState::Draining
            && written.gateway == holder.ordinal
            && written.since.0.to_string() == emptied.since
    });
    let Some(late) = holder.late_for else {
        // Held and not deleted: the operator crashed in between. It drains the gateway again and deletes the pod, or lets it read.
        return if is_of_now { Fate::Wait } else { Fate::LetGo };
    };
    match holder.ended.as_deref() {
        Some(ended) if is_of_now && !ended.is_empty() && ended == emptied.container => {
            Fate::Replace { claim_uid: &emptied.claim_uid }
        }
        Some(_) => Fate::LetGo,
        None if late >= ENDS_LATE => Fate::LetGo,
        None => Fate::Wait,
    }
}
