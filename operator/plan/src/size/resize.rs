//! More memory in place for gateways that were OOM-killed: which pod gets how much, and what the status and events say.
//!
//! A gateway divides its budget when it starts, from its config, and counts what it uses of it. A higher limit is room for memory that it
//! does not count: slack of the allocator, librdkafka, page tables. It helps only a gateway that was OOM-killed, whose container restarts
//! in the same pod. So each kill raises the limit once, by a third, up to [`TIMES_MAX`] times the spec's memory. A limit is never
//! lowered.
//!
//! ```text
//!  kill seen --> Asked (in the status) --> the API server is asked --> InProgress --> Done | Deferred | Infeasible
//!       `------> AtBound                            `--> Refused
//! ```
//!
//! The status has the request before the API server gets it. So an operator that restarts sends the same request, and does not count the
//! kill twice. A recreated pod begins with the spec's memory and has no entry.

use crate::{
    ground::{moment::Moment, quantity},
    observed::{GatewaySeen, Wait},
    scale::{KILL_SECONDS, memory_after_kill_mib},
};
use sluice_crds::{
    MEMORY_RESIZES_MAX, MemoryResize, MemoryResizeState as State, MemoryResizing, TracePipelineSpec,
};

/// A pod never gets more than this many times `gateway.resources.limits.memory`, so its cost is bounded. Chosen.
pub const TIMES_MAX: u64 = 2;
/// Pods that are asked for in one look: each takes a request, and the next look follows.
const ASKED_MAX: usize = 16;
/// Pods that are named to people.
const NAMED_MAX: usize = 3;
const MIB: u64 = 1 << 20;

/// A pod that the API server is to be asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// Its name.
    pub pod: String,
    /// Which of the pods that have had this name.
    pub uid: String,
    /// Memory, requested and limit.
    pub memory: String,
}

/// What is to be done, and what is to be said once it is done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// The requests to send now: the status already names them.
    pub ask: Vec<Ask>,
    /// What the status says next, without the answers.
    pub next: Vec<MemoryResize>,
}

/// What the API server said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It accepted the resize; the pod after it.
    Taken(Box<GatewaySeen>),
    /// It refused the resize; the reason.
    Refused(String),
    /// The pod is gone, or another client changed it at the same time: the next look decides.
    Unclear,
}

/// The next step for these gateways; `written` is what the status says.
pub fn step(
    spec: &TracePipelineSpec,
    gateways: &[GatewaySeen],
    written: &[MemoryResize],
    now: Moment,
) -> Step {
    let memory_mib = mib(&spec.gateway.resources.memory().text).filter(|_| is_wanted(spec));
    let bound_mib = memory_mib.map(|mib| mib.saturating_mul(TIMES_MAX));
    let mut next: Vec<MemoryResize> = kept(written, gateways)
        .map(|(entry, gateway)| {
            bound_mib
                .and_then(|bound| answer_to_kill(gateway, Some(entry), bound, now))
                .unwrap_or_else(|| followed(entry, gateway))
        })
        .filter(|entry| bound_mib.is_some() || entry.state != State::Asked)
        .collect();
    for gateway in gateways.iter().filter(|gateway| !gateway.is_leaving) {
        if next.len() >= MEMORY_RESIZES_MAX {
            break;
        }
        if written.iter().all(|entry| entry.uid != gateway.uid) {
            next.extend(bound_mib.and_then(|bound| answer_to_kill(gateway, None, bound, now)));
        }
    }
    let is_written = |entry: &&MemoryResize| entry.state == State::Asked && written.contains(entry);
    let ask = next.iter().filter(is_written).take(ASKED_MAX).map(|entry| Ask {
        pod: entry.pod.clone(),
        uid: entry.uid.clone(),
        memory: entry.memory.clone(),
    });
    Step { ask: ask.collect(), next }
}

/// Puts an answer into what is said.
pub fn answered(next: &mut [MemoryResize], ask: &Ask, answer: Answer) {
    let Some(entry) = next.iter_mut().find(|entry| entry.uid == ask.uid) else { return };
    match answer {
        Answer::Taken(pod) => {
            entry.state = State::InProgress;
            *entry = followed(entry, &pod);
        }
        Answer::Refused(why) => (entry.state, entry.message) = (State::Refused, why),
        Answer::Unclear => {}
    }
}

/// What the status keeps while the operator does not look: entries of pods that still exist.
pub(crate) fn still(written: &[MemoryResize], gateways: &[GatewaySeen]) -> Vec<MemoryResize> {
    kept(written, gateways).map(|(entry, _)| entry.clone()).collect()
}

/// Whether a request is about to be sent.
pub fn is_asking(resizes: &[MemoryResize]) -> bool {
    resizes.iter().any(|entry| entry.state == State::Asked)
}

fn is_wanted(spec: &TracePipelineSpec) -> bool {
    match spec.gateway.resources.resize {
        MemoryResizing::InPlace => true,
        MemoryResizing::None => false,
    }
}

fn kept<'a>(
    written: &'a [MemoryResize],
    gateways: &'a [GatewaySeen],
) -> impl Iterator<Item = (&'a MemoryResize, &'a GatewaySeen)> {
    written.iter().filter_map(|entry| {
        let gateway = gateways.iter().find(|gateway| gateway.uid == entry.uid && !gateway.is_leaving)?;
        Some((entry, gateway))
    })
}

/// The answer to a kill that has none yet; `None` when there is no such kill.
fn answer_to_kill(
    gateway: &GatewaySeen,
    before: Option<&MemoryResize>,
    bound_mib: u64,
    now: Moment,
) -> Option<MemoryResize> {
    let killed_at = gateway.memory.killed_at?;
    let is_late = now.seconds_since(Moment::of_timestamp(killed_at)) > KILL_SECONDS;
    if is_late || before.is_some_and(|before| gateway.ends <= before.ends) {
        return None;
    }
    let limit_bytes = gateway.memory.limit_bytes?;
    let limit_mib = limit_bytes.div_ceil(MIB);
    let wanted_mib = memory_after_kill_mib(limit_bytes)?.min(bound_mib);
    let (mib, state) =
        if wanted_mib > limit_mib { (wanted_mib, State::Asked) } else { (limit_mib, State::AtBound) };
    Some(MemoryResize {
        pod: gateway.name.clone(),
        uid: gateway.uid.clone(),
        memory: format!("{mib}Mi"),
        ends: gateway.ends,
        state,
        message: String::new(),
    })
}

/// How far it is, by what the pod says now.
fn followed(entry: &MemoryResize, gateway: &GatewaySeen) -> MemoryResize {
    let memory = &gateway.memory;
    let wanted = quantity::bytes(&entry.memory);
    let has = |limit: Option<u64>| limit.is_some() && limit >= wanted;
    // Before the pod requests it, or after another client lowered it, there is nothing to follow.
    if matches!(entry.state, State::Refused | State::AtBound) || !has(memory.limit_bytes) {
        return entry.clone();
    }
    let (state, message) = match &memory.wait {
        Some(Wait::Deferred(why)) => (State::Deferred, why.as_str()),
        Some(Wait::Infeasible(why)) => (State::Infeasible, why.as_str()),
        _ if has(memory.given_bytes) => (State::Done, ""),
        Some(Wait::InProgress(why)) => (State::InProgress, why.as_str()),
        None => (State::InProgress, ""),
    };
    if state == entry.state && !entry.message.is_empty() {
        // The kubelet's figures move with the other pods of the node, and are no news.
        return entry.clone();
    }
    MemoryResize { state, message: message.to_owned(), ..entry.clone() }
}

fn mib(quantity: &str) -> Option<u64> {
    Some(quantity::bytes(quantity)?.div_ceil(MIB))
}

/// One of them in words, with what would help.
pub fn told(entry: &MemoryResize) -> String {
    let MemoryResize { pod, memory, message, .. } = entry;
    let why = if message.is_empty() { String::new() } else { format!(" ({message})") };
    match entry.state {
        State::Asked => {
            format!("{pod} was OOM-killed; the operator is about to resize it to {memory} in place")
        }
        State::InProgress => format!("{pod} is being resized to {memory} in place{why}"),
        State::Done => format!("{pod} was resized to {memory} in place"),
        State::Deferred => format!("{pod} waits for {memory}, which its node does not have free now{why}"),
        State::Infeasible => {
            format!(
                "{pod} cannot have {memory} on its node{why}; set gateway.resources.limits.memory: {memory} to move it to another node"
            )
        }
        State::Refused => format!("{pod} was not resized to {memory} in place{why}"),
        State::AtBound => {
            format!(
                "{pod} was OOM-killed with {memory}; resizes in place end at {TIMES_MAX} times gateway.resources.limits.memory: increase that \
                 field"
            )
        }
    }
}

/// All of them in words; `None` for none.
pub fn words(resizes: &[MemoryResize]) -> Option<String> {
    let more = resizes.len().saturating_sub(NAMED_MAX);
    let others = (more > 0).then(|| format!("and {more} more"));
    let given = resizes.iter().filter(|entry| matches!(entry.state, State::Done | State::InProgress));
    let most = given.filter_map(|entry| mib(&entry.memory)).max();
    let keep = most.map(|most| format!("set gateway.resources.limits.memory: {most}Mi to keep it"));
    let parts = resizes.iter().take(NAMED_MAX).map(told).chain(others).chain(keep);
    (!resizes.is_empty()).then(|| parts.collect::<Vec<_>>().join("; "))
}
