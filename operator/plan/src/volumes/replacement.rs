//! How a volume is replaced that cannot become as it is wanted: it is larger than `queue.size`, or of another storage class.
//!
//! ```text
//!  next --> Draining --> empty: held, told to end --> ended, and nothing else ran: claim deleted --> let go, with a new claim
//!             |  ^                                `-> something else ran in it, or nobody knows ---> let go, with its claim
//!             |  `--------- after the same time --------.
//!             `--> too late: Waiting (it takes part again) --> Resuming --> (none)
//! ```
//!
//! The StatefulSet makes claims as they are wanted by then ([`super::growth`]). One gateway at a time, the highest first, only while
//! nothing else is under way and all are ready. The state stands in the status, and a gateway is asked for something only when the
//! status says so already; what was asked for is asked again of whatever answers by its name.
//!
//! No claim is deleted that may hold something. With `AfterEnqueue` what is on it is the only copy, and a gateway that is started
//! again between its answer and its end takes messages and puts blocks there. So the answer alone is no proof. The pod gets a
//! finalizer with the container that ran when it was asked ([`Emptied`]), and only then is told to end. Its name is taken for as long
//! as it is held, so that no other pod comes to use the claim; when the kubelet has finished with the pod and its last container is
//! that very one, nothing else has run since, that one was told to drain after it was started, and it said that it was empty, of a
//! volume that it had opened: the claim is deleted, and the pod is let go of. When another one has run, or nobody knows, the pod is let
//! go of with its claim as it is, and all begins anew. All that this needs stands in the pod and in the status ([`fate`]): whoever
//! starts after a crash, at whatever step, goes on from there, also when the spec has changed.
//!
//! A claim counts as too large by what it asks for, not by what it has: provisioners round up, and would do so again. Pure: no clock
//! and no client.

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

/// A pod that was told to end and is not seen to have ended so long after its time was over is let go of with its claim: its node is
/// lost, most likely, and the pod would stay for ever. Chosen, as long as a Job's end is waited for.
const ENDS_LATE: Duration = Duration::from_mins(2);

/// How a reason begins.
const EMPTY: &str = "it is empty";

/// Whether a claim can become as it is wanted only by being made anew. Without a class in the spec any will do.
pub(crate) fn is_to_be_replaced(claim: &ClaimSeen, queue: &Queue) -> bool {
    let is_other_class =
        queue.storage_class_name.is_some() && claim.storage_class != queue.storage_class_name;
    let is_larger = claim.requested > quantity::bytes(&queue.size);
    queue.mode == QueueMode::Spill && !claim.is_going && (is_other_class || is_larger)
}

/// The claims that are to be replaced, of those that a gateway uses. Others are replaced when a gateway comes that takes them, if one
/// ever does.
pub(crate) fn outdated<'a>(queue: &'a Queue, seen: &'a VolumesSeen) -> impl Iterator<Item = &'a ClaimSeen> {
    seen.claims.iter().filter(|claim| claim.has_gateway && is_to_be_replaced(claim, queue))
}

/// Whether the storage class of the spec is to be looked for, before anything is done that needs it.
pub fn needs_class(queue: &Queue, seen: &VolumesSeen) -> bool {
    let template = seen.template.as_ref();
    let is_new = template.is_some_and(|template| template.storage_class != queue.storage_class_name);
    is_new || outdated(queue, seen).next().is_some()
}

/// The gateway whose volume is to be replaced next, when all of them are well and the StatefulSet makes claims as they are wanted.
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

/// Claims that never had a volume and never will, as they are: such as those of a storage class that was named by mistake. Nothing is
/// on them, their gateways never ran, and Kubernetes makes them again as they are wanted. By name and uid.
pub fn never_bound<'a>(queue: &'a Queue, seen: &'a VolumesSeen) -> impl Iterator<Item = (&'a str, &'a str)> {
    let is_ready = seen.template.as_ref().is_some_and(|template| {
        let is_size = template.size.as_deref().and_then(quantity::bytes) == quantity::bytes(&queue.size);
        !template.is_going && is_size && template.storage_class == queue.storage_class_name
    });
    let outdated = seen.claims.iter().filter(move |claim| is_ready && is_to_be_replaced(claim, queue));
    let never = outdated.filter(|claim| !claim.is_bound && claim.capacity.is_none());
    never.map(|claim| (claim.name.as_str(), claim.uid.as_str()))
}

/// What is asked now, and of which gateway; follows from what is written alone.
pub fn request(written: Option<&ReplacementStatus>) -> Option<(Request, u32)> {
    let written = written?;
    let request = match written.state {
        DrainState::Draining => Request::Drain,
        DrainState::Resuming | DrainState::Waiting => Request::Resume,
    };
    Some((request, written.gateway))
}

/// All that a step is decided from.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen<'a> {
    /// The spec's queue.
    pub queue: &'a Queue,
    /// Claims and pods, read before the gateway was asked.
    pub volumes: &'a VolumesSeen,
    /// What the gateway answered to what [`request`] asked for.
    pub answer: Answer,
    /// Whether nothing else wants something of the gateways: another number, a rest, or an edit that has no plan.
    pub may_go_on: bool,
    /// The gateway that is to be next, of the plan.
    pub next: Option<u32>,
}

/// What to do now, and what to write into the status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// The state from now on; `None` when no volume is replaced.
    pub next: Option<ReplacementStatus>,
    /// The pod to hold and to tell to end.
    pub take: Option<Take>,
}

/// An empty gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Take {
    pub pod: String,
    /// The very pod.
    pub pod_uid: String,
    /// What is written on it.
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
    // It was told to end, by us or by somebody else, and cannot be told otherwise any more. Held, its end is waited for; then all that
    // is to be done stands in its pod and its claim, and whoever comes by its name takes part.
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
            "it is drained, but has not confirmed that it can read all of its volume".to_owned()
        }
        (Answer::Holds { blocks }, _) => {
            format!("it holds {}, or uncommitted messages", in_words(blocks))
        }
        (Answer::Gone | Answer::Away, _) => "it does not run".to_owned(),
        (Answer::Unknown, _) => "its version cannot drain".to_owned(),
        (Answer::Silent, _) => "it does not answer".to_owned(),
    };
    // Also of one that is empty: what cannot be carried out must not keep it from taking part for ever.
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

/// Nothing else is begun before the gateway takes part again: it is asked for as long as it is silent, and, once that is for long, until
/// something else is wanted of the gateways. One that does not run will, when it is started.
fn resuming(now: Moment, terms: Terms, written: &ReplacementStatus, seen: &Seen<'_>) -> Step {
    let is_over = written.state == DrainState::Resuming
        && now.seconds_since(Moment::of(&written.since)) >= f64::from(terms.timeout_seconds);
    match seen.answer {
        _ if is_over && !seen.may_go_on => Step::default(),
        Answer::Done | Answer::Damaged | Answer::Gone | Answer::Away | Answer::Unknown => Step::default(),
        Answer::Holds { .. } | Answer::Silent => {
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

/// What becomes of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate<'a> {
    /// It is not held, or is waited for.
    Wait,
    /// It has ended, and nothing was put on its volume: its claim is deleted, by this uid, and then it is let go of.
    Replace {
        /// The very claim.
        claim_uid: &'a str,
    },
    /// It is let go of, and its claim stays.
    LetGo,
}

/// Decides on a pod from what stands in it, and in the status: a request to hold it may arrive long after it was sent, when the gateway
/// was told to take part again. What it says then is of a time that is over.
pub fn fate<'a>(holder: &'a HolderSeen, written: Option<&ReplacementStatus>) -> Fate<'a> {
    let Some(emptied) = &holder.emptied else { return Fate::Wait };
    let is_of_now = written.is_some_and(|written| {
        written.state == DrainState::Draining
            && written.gateway == holder.ordinal
            && written.since.0.to_string() == emptied.since
    });
    let Some(late) = holder.late_for else {
        // Held and not told to end: the operator was cut off in between. It is asked again, and then told, or is to take part.
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
