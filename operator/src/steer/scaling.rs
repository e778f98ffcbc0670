//! Samples Kafka and the gateways, or with `source.otlp` the gateways alone, and asks `sluice_plan::scale` for a decision. Modes without a
//! decision are sampled in the same way, for the
//! metrics. The samples are in the memory of the pipeline. What must outlive the process is in the status.
//!
//! A poll without an answer is a sample without partitions: it holds the number of gateways, and never counts as "nothing to do".

use crate::{
    read::{
        gateways::{
            looks::{Look, Said},
            sample::gateway::GatewayNumbers,
        },
        kafka::sample,
        observe::Facts,
    },
    world::{
        World,
        memory::{Key, ScalingMemory},
        status,
    },
};
use sluice_crds::{DrainState, Remembered, ScalingMode, TracePipeline};
use sluice_plan::{
    Intent, Moment, ScalingSeen,
    scale::{
        GatewayLogs, History, Load, LogTotals, Mode, PartitionSample, PodSample, Policy, Sample, Samples,
        Standing, State, Watched, WorkloadSample, decide,
    },
};
use tracing::{debug, info};

/// In the modes `Auto` and `Recommend`, the next reconcile is due after this many seconds.
pub const POLL_SECONDS: u64 = 15;
/// Shortest time between two polls in seconds: a rollout causes many reconciles.
const POLL_SECONDS_MIN: f64 = 10.0;
/// If gateways have not answered for this many seconds, the poll does without them. Chosen: several looks at a thousand silent gateways.
const LOOK_SECONDS_MAX: f64 = 60.0;
/// Polls before the first decision: a rate needs two. Until then the number stays that an earlier operator decided.
const POLLS_MIN: u32 = 2;

/// The last decision, or a new one if a poll is due.
pub fn look(pipeline: &TracePipeline, key: &Key, facts: &Facts, world: &World) -> ScalingSeen {
    let now = world.now();
    world.shared.memory.with(key, |memory| look_at(pipeline, (key, &mut memory.scaling), facts, now))
}

fn look_at(
    pipeline: &TracePipeline,
    (key, memory): (&Key, &mut ScalingMemory),
    facts: &Facts,
    now: Moment,
) -> ScalingSeen {
    let drain = status::drain(pipeline).cloned();
    if Intent::of(pipeline) != Intent::Run {
        // Older samples say nothing about the time after this.
        *memory = ScalingMemory::default();
        return ScalingSeen { drain, ..ScalingSeen::default() };
    }
    let mode = pipeline.spec.scaling.mode;
    // The plan reports what is wrong with the spec.
    let Ok(policy) = Policy::of(&pipeline.spec).map(|policy| watching(mode, policy)) else {
        *memory = ScalingMemory::default();
        return ScalingSeen { drain, ..ScalingSeen::default() };
    };
    if memory.mode != mode {
        *memory = ScalingMemory { mode, ..ScalingMemory::default() };
    }
    let staying = staying(pipeline);
    if is_due(memory, now)
        && let Some(poll) = next_poll(memory, facts, (policy.load, staying, active(pipeline)), now)
    {
        let workload = workload(pipeline, facts, &policy, staying);
        add(memory, poll, now);
        if memory.polls >= POLLS_MIN {
            decide_now(pipeline, (key, memory), &policy, (workload, now));
        }
    }
    let decision = memory.decision.clone().filter(|_| decides(mode));
    let (watched, standing) = (memory.watched.clone(), memory.standing.clone());
    ScalingSeen { decision, watched, standing, drain, replica_conflict: None }
}

/// What one poll brings; `None` while the gateways are being asked.
fn next_poll(
    memory: &mut ScalingMemory,
    facts: &Facts,
    (load, staying, active): (Load, u32, u32),
    now: Moment,
) -> Option<Poll> {
    let is_overdue = || memory.polled_at.is_some_and(|at| now.seconds_since(at) >= LOOK_SECONDS_MAX);
    let look = match facts.look.as_deref() {
        Some(look) if memory.asked_at != Some(look.at) => Due::Look(look),
        _ if facts.gateways.is_empty() || is_overdue() => Due::Nothing,
        _ => Due::Later,
    };
    match load {
        Load::Partitions => poll(facts, &look, (staying, active), now),
        Load::Requests => poll_logs(&mut memory.logs, facts, &look, (staying, now)),
    }
}

fn is_due(memory: &ScalingMemory, now: Moment) -> bool {
    memory.polled_at.is_none_or(|at| now < at || now.seconds_since(at) >= POLL_SECONDS_MIN)
}

fn decide_now(
    pipeline: &TracePipeline,
    (key, memory): (&Key, &mut ScalingMemory),
    policy: &Policy,
    (workload, now): (WorkloadSample, Moment),
) {
    let state = memory.state.take().unwrap_or_else(|| resumed(pipeline, now));
    let (history, topics) = (std::mem::take(&mut memory.history), memory.topics.clone());
    let samples = Samples { workload, history, topics };
    let decision = decide(now, policy, &state, &samples);
    if decides(memory.mode) && decision.replicas != samples.workload.desired {
        info!(
            namespace = %key.namespace, pipeline = %key.name, from = samples.workload.desired,
            to = decision.replicas, cause = decision.cause.word(), reason = %decision.reason, "rescale"
        );
    }
    memory.watched = Watched::of(policy, &decision, &samples.history);
    // A poll without an answer changes nothing of what was seen before.
    memory.standing = Standing::of(&samples.history).or(memory.standing.take());
    memory.history = samples.history;
    memory.state = Some(decision.next.clone());
    memory.decision = Some(decision);
}

/// Adds a poll to the memory.
fn add(memory: &mut ScalingMemory, poll: Poll, now: Moment) {
    memory.polled_at = Some(now);
    memory.asked_at = poll.asked_at.or(memory.asked_at);
    memory.polls = memory.polls.saturating_add(1);
    if let Some(topics) = poll.topics
        && topics != memory.topics
    {
        // Partitions are known by their number over all topics, which means something else now.
        memory.history = History::default();
        memory.topics = topics;
    }
    memory.history.push(poll.sample);
}

/// Whether the mode has decisions.
fn decides(mode: ScalingMode) -> bool {
    matches!(mode, ScalingMode::Auto | ScalingMode::Recommend)
}

/// The policy for the samples: modes without decisions are sampled as `Recommend`.
fn watching(mode: ScalingMode, policy: Policy) -> Policy {
    if decides(mode) { policy } else { Policy { mode: Mode::Recommend, ..policy } }
}

/// What one poll brought.
#[derive(Debug, Default)]
struct Poll {
    /// Topics with their partitions, when Kafka answered.
    topics: Option<Vec<(String, u32)>>,
    /// When the gateways were asked; `None` when they were not.
    asked_at: Option<Moment>,
    sample: Sample,
}

/// Whether what gateways say is to be taken now, and what they say.
enum Due<'a> {
    /// This, which was not seen before.
    Look(&'a Look),
    /// They are being asked, and it is waited for.
    Later,
    /// Nothing: there are none, or they have taken too long.
    Nothing,
}

/// Puts the answers of all gateways that run beside Kafka's. Also of those that are not ready: one of whose partitions a single one has
/// stopped reads the others. `None` while the gateways are being asked.
fn poll(facts: &Facts, look: &Due<'_>, (staying, active): (u32, u32), now: Moment) -> Option<Poll> {
    // An answer that is older than the last poll is no news, and was seen then.
    let age_ms = |kafka: &sample::Sample| {
        let age = kafka.answered?.elapsed();
        u64::try_from(age.as_millis()).ok().filter(|_| age.as_secs_f64() < POLL_SECONDS_MIN)
    };
    let kafka = facts.kafka.as_ref().filter(|kafka| kafka.missing.is_empty());
    let Some((kafka, age_ms)) = kafka.and_then(|kafka| Some((kafka, age_ms(kafka)?))) else {
        return Some(Poll { topics: None, asked_at: None, sample: Sample { at: now, ..Sample::default() } });
    };
    let (said, asked_at) = match look {
        Due::Look(look) => (&look.said[..], Some(look.at)),
        Due::Later => return None,
        Due::Nothing => (&[][..], None),
    };
    let said = said
        .iter()
        .filter(|said| facts.gateways.iter().any(|gateway| gateway.is_same_process(&said.gateway)));
    let answers: Vec<GatewayNumbers> =
        said.filter_map(|said| numbers(said, asked_at?, &kafka.topics)).collect();
    let is_silent = |ordinal| !answers.iter().any(|numbers| numbers.sample.ordinal == ordinal);
    let ready = facts.gateways.iter().filter(|gateway| gateway.is_ready && gateway.ordinal < staying);
    let silent = ready.filter(|gateway| is_silent(gateway.ordinal)).count();
    // A silent gateway may own any partition. `silent` holds the decision.
    let group_stable = silent > 0 || is_settled(&answers, staying, kafka.partitions.len());
    let silent = u32::try_from(silent).unwrap_or(u32::MAX);
    let mut partitions = kafka.partitions.clone();
    place_positions(&answers, &mut partitions);
    let pods = answers.into_iter().map(|numbers| PodSample { partitions_active: active, ..numbers.sample });
    let pods = pods.filter(|pod| pod.ordinal < staying).collect();
    let at = Moment(now.0.saturating_sub(age_ms));
    let sample = Sample { at, group_stable, partitions, pods, silent };
    Some(Poll { topics: Some(kafka.topics.clone()), asked_at, sample })
}

/// The same for gateways that accept OTLP: no broker is asked, and all logs together count as one partition.
fn poll_logs(
    totals: &mut LogTotals,
    facts: &Facts,
    look: &Due<'_>,
    (staying, now): (u32, Moment),
) -> Option<Poll> {
    let look = match look {
        Due::Look(look) => look,
        Due::Later => return None,
        Due::Nothing => {
            return Some(Poll { sample: Sample { at: now, ..Sample::default() }, ..Poll::default() });
        }
    };
    let said = look
        .said
        .iter()
        .filter(|said| facts.gateways.iter().any(|gateway| gateway.is_same_process(&said.gateway)));
    let answers: Vec<(PodSample, GatewayLogs)> =
        said.filter_map(|said| Some((numbers(said, look.at, &[])?.sample, logs(said)?))).collect();
    let is_silent = |ordinal| !answers.iter().any(|(pod, _)| pod.ordinal == ordinal);
    let ready = facts.gateways.iter().filter(|gateway| gateway.is_ready && gateway.ordinal < staying);
    let silent = ready.filter(|gateway| is_silent(gateway.ordinal)).count();
    // Without all answers nothing is known of the logs together: what a silent one has appended would come all at once when it answers.
    let is_known = silent == 0 && !answers.is_empty();
    let partitions = if is_known {
        vec![Some(totals.look(answers.iter().map(|(pod, logs)| (pod.ordinal, *logs))))]
    } else {
        Vec::new()
    };
    let pods = answers.into_iter().map(|(pod, logs)| PodSample { logs: Some(logs), ..pod });
    let pods = pods.filter(|pod| pod.ordinal < staying).collect();
    let silent = u32::try_from(silent).unwrap_or(u32::MAX);
    // No group divides anything.
    let sample = Sample { at: look.at, group_stable: true, partitions, pods, silent };
    Some(Poll { topics: None, asked_at: Some(look.at), sample })
}

fn logs(said: &Said) -> Option<GatewayLogs> {
    said.report.as_ref().ok()?.numbers.as_ref().ok()?.logs()
}

/// How far gateways have read, beside Kafka's offsets. Most were asked after Kafka: who has read behind the end that Kafka told has
/// read to that end, and has not read another topic of that name.
fn place_positions(answers: &[GatewayNumbers], partitions: &mut [Option<PartitionSample>]) {
    for (place, position) in answers.iter().flat_map(|numbers| &numbers.positions) {
        let place = usize::try_from(*place).ok();
        if let Some(Some(partition)) = place.and_then(|place| partitions.get_mut(place)) {
            partition.position = partition.position.max(Some((*position).min(partition.end)));
        }
    }
}

/// The numbers of one that answered.
fn numbers(said: &Said, asked_at: Moment, topics: &[(String, u32)]) -> Option<GatewayNumbers> {
    let ordinal = said.gateway.ordinal;
    let report = match &said.report {
        Ok(report) => report,
        Err(error) => {
            debug!(ordinal, %error, "a gateway does not say how it is");
            return None;
        }
    };
    let at = Moment(asked_at.0.saturating_add(u64::try_from(said.after.as_millis()).unwrap_or(0)));
    let numbers = report.numbers.as_ref();
    let numbers = numbers.inspect_err(|missing| debug!(ordinal, %missing, "a gateway says too little"));
    Some(numbers.ok()?.placed(ordinal, at, topics))
}

/// Whether those who stay have all partitions between them. Counted from what gateways say, not from the group's state: the
/// two protocols of Kafka's groups have different ways to ask for that.
fn is_settled(answers: &[GatewayNumbers], staying: u32, partitions: usize) -> bool {
    let owned = |stays: bool| {
        let those = answers.iter().filter(|numbers| (numbers.sample.ordinal < staying) == stays);
        those.map(|numbers| numbers.partitions_owned).fold(0, u64::saturating_add)
    };
    u64::try_from(partitions) == Ok(owned(true)) && owned(false) == 0
}

/// The workload. Before it exists, the number is that of the gateways about to start: from the partitions, or the first number of a pipeline
/// without Kafka.
fn workload(pipeline: &TracePipeline, facts: &Facts, policy: &Policy, staying: u32) -> WorkloadSample {
    if let Some(seen) = &facts.observed.workload {
        let mut sample = WorkloadSample::of(seen, &facts.pods, staying);
        if let Some(replacing) = status::replacement(pipeline) {
            // However long it takes, one that gets a new volume is on its way, and is done with sooner while nothing else changes.
            sample.unready_since.remove(&replacing.gateway);
        }
        return sample;
    }
    let topics = facts.kafka.as_ref().map_or(&[][..], |kafka| &kafka.topics);
    let partitions = topics.iter().fold(0_u32, |sum, (_, count)| sum.saturating_add(*count));
    let desired = match policy.load {
        Load::Partitions => partitions.div_ceil(policy.partitions_per_replica.max(1)),
        Load::Requests => policy.replicas_at_first(0).unwrap_or(1),
    };
    WorkloadSample { desired, ..WorkloadSample::default() }
}

/// Gateways with a lower ordinal stay; the others are on their way out.
fn staying(pipeline: &TracePipeline) -> u32 {
    let drain = status::drain(pipeline).filter(|drain| drain.state == DrainState::Draining);
    drain.map_or(u32::MAX, |drain| drain.target)
}

/// Partitions that each gateway reads at the same time, as its config was derived last; 0 before it was.
fn active(pipeline: &TracePipeline) -> u32 {
    let derived = pipeline.status.as_ref().and_then(|status| status.derived.as_ref());
    derived.map_or(0, |derived| derived.partitions_active_per_gateway)
}

fn resumed(pipeline: &TracePipeline, now: Moment) -> State {
    let scaling = pipeline.status.as_ref().and_then(|status| status.scaling.as_ref());
    scaling.map_or_else(
        || State::resumed(&Remembered::default(), now),
        |scaling| State::resumed(&scaling.remembered, now),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_stand_beside_the_offsets_of_their_partitions_and_not_behind_their_ends() {
        let partition = |position| Some(PartitionSample { end: 50, position, ..PartitionSample::default() });
        let gateway = |positions: &[(u32, u64)]| GatewayNumbers {
            positions: positions.to_vec(),
            ..GatewayNumbers::default()
        };
        // The first partition is moving, so two gateways report it. No gateway reports the third.
        let answers = [gateway(&[(0, 20), (1, 60)]), gateway(&[(0, 30), (3, 7), (9, 7)])];
        let mut partitions = [partition(None), partition(None), partition(None), None];
        place_positions(&answers, &mut partitions);
        assert_eq!(partitions, [partition(Some(30)), partition(Some(50)), partition(None), None]);
    }
}
