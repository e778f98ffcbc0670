//! Keeps what Kafka and the gateways said of pipelines whose number of gateways is decided here, and asks `sluice_plan::scale` for a
//! decision. Where nobody wants one it is kept all the same, as often as the pipeline is looked at, for what Prometheus is told. What lives
//! here is bounded by the pipelines there are; what must outlive the process stands in the status.
//!
//! A poll that brings nothing is a sample too, without partitions: it holds the decision, and never counts as "nothing to do".

use crate::{
    gateways::{
        commands::{Command, Commands},
        looks::{Look, Said},
    },
    memory::Key,
    observe::Facts,
    replacement,
    sample::{self, gateway::GatewayNumbers},
};
use k8s_openapi::jiff::Timestamp;
use sluice_crds::{DrainState, DrainStatus, Remembered, ScalingMode, TracePipeline};
use sluice_plan::{
    Intent, Moment, ScalingSeen, WorkloadSeen,
    drain::{
        Answer, Request, Seen, Step, empty,
        lifecycle::terms,
        membership::{is_within_session, may_last},
        request, step,
    },
    pods::ordinal,
    scale::{
        Decision, History, Mode, PartitionSample, PodSample, Policy, Sample, Samples, State, Watched,
        WorkloadSample, decide,
    },
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};
use tracing::{debug, info};

/// A pipeline whose number is decided here is looked at again after so many seconds.
pub const POLL_SECONDS: u64 = 15;
/// Reconciles come in bursts while pods roll; between two polls lie at least so many seconds.
const POLL_SECONDS_MIN: f64 = 10.0;
/// Gateways that did not answer for so many seconds are taken as they are: a poll without them. Chosen: several looks at a thousand that are
/// silent.
const LOOK_SECONDS_MAX: f64 = 60.0;
/// Nothing is decided before so many polls: rates need two, and what an earlier operator decided holds until then.
const POLLS_MIN: u32 = 2;

/// What was seen of one pipeline.
#[derive(Debug, Default)]
struct Course {
    topics: Vec<(String, u32)>,
    history: History,
    polled_at: Option<Moment>,
    /// When the gateways were asked for what was seen last.
    asked_at: Option<Moment>,
    polls: u32,
    state: Option<State>,
    decision: Option<Decision>,
    watched: Option<Watched>,
    /// Who decided when all of this was seen.
    mode: ScalingMode,
}

/// All pipelines that run.
#[derive(Debug)]
pub struct Scaling {
    clock: fn() -> Moment,
    courses: Mutex<HashMap<Key, Course>>,
}

impl Default for Scaling {
    fn default() -> Self {
        Self::by(now)
    }
}

/// The system's time.
pub fn now() -> Moment {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Moment(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// As Kubernetes writes times.
pub fn timestamp(Moment(milliseconds): Moment) -> Timestamp {
    let milliseconds = i64::try_from(milliseconds).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(milliseconds).unwrap_or(Timestamp::MAX)
}

impl Scaling {
    /// By another clock than the system's, as in tests.
    pub fn by(clock: fn() -> Moment) -> Self {
        Self { clock, courses: Mutex::default() }
    }

    /// What scaling comes to now: the last decision, or a new one when a poll is due.
    pub fn look(&self, pipeline: &TracePipeline, key: &Key, facts: &Facts) -> ScalingSeen {
        let drain = written(pipeline).cloned();
        if Intent::of(pipeline) != Intent::Run {
            // Nothing is decided, and what was seen before is no guide for afterwards.
            self.forget(key);
            return ScalingSeen { drain, ..ScalingSeen::default() };
        }
        let mode = pipeline.spec.scaling.mode;
        // What is wrong with the spec is said by the plan.
        let Ok(policy) = Policy::of(&pipeline.spec).map(|policy| watching(mode, policy)) else {
            self.forget(key);
            return ScalingSeen { drain, ..ScalingSeen::default() };
        };
        let now = (self.clock)();
        if self.courses().get(key).is_some_and(|course| course.mode != mode) {
            self.forget(key);
        }
        let staying = staying(pipeline);
        if self.is_due(key, now)
            && let Some(poll) = self.poll(key, facts, (staying, active(pipeline)), now)
        {
            let workload = workload(pipeline, facts, &policy, staying);
            self.decide(pipeline, key, &policy, (poll, workload, now));
        }
        let courses = self.courses();
        let course = courses.get(key);
        let decision = course.and_then(|course| course.decision.clone()).filter(|_| decides(mode));
        ScalingSeen { decision, watched: course.and_then(|course| course.watched), drain, contested: None }
    }

    /// Carries on with gateways on their way out: asks them what the status says that they are asked for, and says what is next, and
    /// which of them are empty.
    pub async fn drain_step(
        &self,
        pipeline: &TracePipeline,
        (workload, wanted): (&WorkloadSeen, u32),
        facts: &Facts,
        commands: &Commands,
    ) -> (Step, Vec<u32>) {
        let written = written(pipeline);
        let Some(terms) = terms(pipeline) else {
            // What is wrong with the spec is said by the plan, which is none then.
            return (Step { replicas: workload.wanted, next: written.cloned() }, Vec::new());
        };
        let mut answers = match (request(written), written) {
            (Some((request, ordinals)), Some(DrainStatus { since, .. })) => {
                let command = Command { request, since: since.clone() };
                commands.tell(&Key::of(pipeline), &command, ordinals, &facts.gateways).await
            }
            _ => BTreeMap::new(),
        };
        // Where all leave, nobody waits for the partitions of any of them.
        let stays_some = wanted > 0;
        let away = if stays_some { self.away(facts) } else { Vec::new() };
        if let Some((Request::Drain, _)) = request(written)
            && stays_some
        {
            self.keep_members(written, facts, &away, &mut answers);
        }
        let running = facts.gateways.iter().map(|gateway| gateway.ordinal).collect();
        let empty = empty(written, &answers);
        let seen = Seen { current: workload.wanted, wanted, running, away, answers };
        (step((self.clock)(), terms, written, &seen), empty)
    }

    /// Gateways whose pods are there, do not run, and may still be members of the group.
    fn away(&self, facts: &Facts) -> Vec<u32> {
        let now = timestamp(self.now());
        facts.pods.iter().filter(|pod| may_last(pod, now)).filter_map(ordinal).collect()
    }

    /// Has gateways that leave count as gone only once the group has forgotten them. A pod that is not there at all is about to be made again:
    /// a session after gateways were told to leave, its own is over.
    fn keep_members(
        &self,
        written: Option<&DrainStatus>,
        facts: &Facts,
        away: &[u32],
        answers: &mut BTreeMap<u32, Answer>,
    ) {
        let is_early = written.is_some_and(|drain| is_within_session(drain.since.0, timestamp(self.now())));
        for (one, answer) in answers.iter_mut().filter(|(_, answer)| **answer == Answer::Gone) {
            let has_pod = facts.pods.iter().filter_map(ordinal).any(|ordinal| ordinal == *one);
            if away.contains(one) || (!has_pod && is_early) {
                *answer = Answer::Away;
            }
        }
    }

    /// Forgets a pipeline that is gone, or whose number is not decided here any more.
    pub fn forget(&self, key: &Key) {
        self.courses().remove(key);
    }

    /// The moment by this clock.
    pub fn now(&self) -> Moment {
        (self.clock)()
    }

    /// What one poll brings; `None` while the gateways are being asked.
    fn poll(&self, key: &Key, facts: &Facts, of: (u32, u32), now: Moment) -> Option<Poll> {
        let (asked_at, polled_at) =
            self.courses().get(key).map(|course| (course.asked_at, course.polled_at)).unwrap_or_default();
        let is_overdue = || polled_at.is_some_and(|at| now.seconds_since(at) >= LOOK_SECONDS_MAX);
        let look = match facts.look.as_deref() {
            Some(look) if asked_at != Some(look.at) => Due::Look(look),
            _ if facts.gateways.is_empty() || is_overdue() => Due::Nothing,
            _ => Due::Later,
        };
        poll(facts, &look, of, now)
    }

    fn is_due(&self, key: &Key, now: Moment) -> bool {
        let courses = self.courses();
        let polled_at = courses.get(key).and_then(|course| course.polled_at);
        polled_at.is_none_or(|at| now < at || now.seconds_since(at) >= POLL_SECONDS_MIN)
    }

    fn decide(
        &self,
        pipeline: &TracePipeline,
        key: &Key,
        policy: &Policy,
        (poll, workload, now): (Poll, WorkloadSample, Moment),
    ) {
        let mut courses = self.courses();
        let course = courses.entry(key.clone()).or_default();
        course.mode = pipeline.spec.scaling.mode;
        course.see(poll, now);
        if course.polls < POLLS_MIN {
            return;
        }
        let state = course.state.take().unwrap_or_else(|| resumed(pipeline, now));
        let (history, topics) = (std::mem::take(&mut course.history), course.topics.clone());
        let samples = Samples { workload, history, topics };
        let decision = decide(now, policy, &state, &samples);
        if decides(course.mode) && decision.replicas != samples.workload.desired {
            info!(
                namespace = %key.namespace, pipeline = %key.name, from = samples.workload.desired,
                to = decision.replicas, cause = decision.cause.word(), reason = %decision.reason, "rescale"
            );
        }
        course.watched = Watched::of(policy, &decision, &samples.history);
        course.history = samples.history;
        course.state = Some(decision.next.clone());
        course.decision = Some(decision);
    }

    fn courses(&self) -> MutexGuard<'_, HashMap<Key, Course>> {
        // Whatever the thread that held it died of: at worst a course has no history, which is a course that begins.
        self.courses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Course {
    fn see(&mut self, poll: Poll, now: Moment) {
        self.polled_at = Some(now);
        self.asked_at = poll.asked_at.or(self.asked_at);
        self.polls = self.polls.saturating_add(1);
        if let Some(topics) = poll.topics
            && topics != self.topics
        {
            // Partitions are known by their number over all topics, which means something else now.
            self.history = History::default();
            self.topics = topics;
        }
        self.history.push(poll.sample);
    }
}

/// Whether anybody wants a decision.
fn decides(mode: ScalingMode) -> bool {
    matches!(mode, ScalingMode::Auto | ScalingMode::Recommend)
}

/// The rules for what is found out: where nobody wants a decision, as if one were only recommended.
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
    // While some are silent, nobody knows who has what; that they are silent holds the decision.
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

/// The workload; before there is one, as many gateways as partitions make are on their way.
fn workload(pipeline: &TracePipeline, facts: &Facts, policy: &Policy, staying: u32) -> WorkloadSample {
    if let Some(seen) = &facts.observed.workload {
        let mut sample = WorkloadSample::of(seen, &facts.pods, staying);
        if let Some(replacing) = replacement::written(pipeline) {
            // However long it takes, one that gets a new volume is on its way, and is done with sooner while nothing else changes.
            sample.unready_since.remove(&replacing.gateway);
        }
        return sample;
    }
    let topics = facts.kafka.as_ref().map_or(&[][..], |kafka| &kafka.topics);
    let partitions = topics.iter().fold(0_u32, |sum, (_, count)| sum.saturating_add(*count));
    let desired = partitions.div_ceil(policy.partitions_per_replica.max(1));
    WorkloadSample { desired, ..WorkloadSample::default() }
}

/// Gateways with a lower ordinal stay; the others are on their way out.
fn staying(pipeline: &TracePipeline) -> u32 {
    let drain = written(pipeline).filter(|drain| drain.state == DrainState::Draining);
    drain.map_or(u32::MAX, |drain| drain.target)
}

/// Partitions that each gateway reads at the same time, as its config was derived last; 0 before it was.
fn active(pipeline: &TracePipeline) -> u32 {
    let derived = pipeline.status.as_ref().and_then(|status| status.derived.as_ref());
    derived.map_or(0, |derived| derived.partitions_active_per_gateway)
}

/// Gateways on their way out, as the status says: what is not written there has not begun.
pub fn written(pipeline: &TracePipeline) -> Option<&DrainStatus> {
    pipeline.status.as_ref()?.scaling.as_ref()?.drain.as_ref()
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
        // The first is of two gateways while it goes from one to the other; of the third, nobody says anything.
        let answers = [gateway(&[(0, 20), (1, 60)]), gateway(&[(0, 30), (3, 7), (9, 7)])];
        let mut partitions = [partition(None), partition(None), partition(None), None];
        place_positions(&answers, &mut partitions);
        assert_eq!(partitions, [partition(Some(30)), partition(Some(50)), partition(None), None]);
    }
}
