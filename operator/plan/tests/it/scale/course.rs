//! A pipeline over time, as a decision sees it: every 15 s one sample, and the decision that follows from it.

use sluice_plan::{
    Moment,
    scale::{
        Decision, Mode, PartitionSample, PodSample, Policy, Sample, Samples, State, WorkloadSample, decide,
    },
};

pub const POLL_SECONDS: u64 = 15;
/// Messages a second of a gateway.
pub const CAPACITY: u64 = 1_000;

/// What changes from poll to poll.
pub struct Course {
    pub policy: Policy,
    pub state: State,
    pub samples: Samples,
    pub now: Moment,
    /// Messages a second that arrive at each partition.
    pub arrivals: Vec<u64>,
    /// Messages a second that `ClickHouse` takes.
    pub sink: u64,
    /// Whether queue volumes take what `ClickHouse` does not: gateways read on then.
    pub volumes: bool,
    /// A partition that stands.
    pub stuck: Option<usize>,
    /// Whether all gateways work on the one partition, which stands for the logs of all of them.
    pub is_shared: bool,
    offsets: Vec<PartitionSample>,
    pods: Vec<PodSample>,
}

impl Course {
    /// This many partitions with this many messages a second each, and this many gateways.
    pub fn new(partitions: usize, arrival: u64, replicas: u32) -> Self {
        let workload = WorkloadSample { desired: replicas, ready: replicas, ..WorkloadSample::default() };
        let offset = PartitionSample { committed: Some(0), ..PartitionSample::default() };
        Self {
            policy: Policy { mode: Mode::Auto, ..Policy::default() },
            state: State::default(),
            samples: Samples { workload, ..Samples::default() },
            now: Moment(1_000_000),
            arrivals: vec![arrival; partitions],
            sink: u64::MAX,
            volumes: false,
            stuck: None,
            is_shared: false,
            offsets: vec![offset; partitions],
            pods: Vec::new(),
        }
    }

    /// A poll's worth of time, without a sample of it.
    pub fn pass(&mut self) -> Sample {
        self.now = self.now.plus_seconds(u32::try_from(POLL_SECONDS).unwrap());
        let replicas = usize::try_from(self.samples.workload.ready.max(1)).unwrap();
        self.pods.truncate(replicas);
        for (offset, arrival) in self.offsets.iter_mut().zip(&self.arrivals) {
            offset.end += arrival * POLL_SECONDS;
        }
        for pod in 0..replicas {
            if self.pods.len() <= pod {
                self.pods.push(PodSample {
                    workers: 1,
                    partitions_active: 8,
                    ordinal: u32::try_from(pod).unwrap(),
                    ..PodSample::default()
                });
            }
            self.work(pod, replicas);
        }
        let partitions = self.offsets.iter().copied().map(Some).collect();
        Sample { at: self.now, group_stable: true, partitions, pods: self.pods.clone(), silent: 0 }
    }

    fn work(&mut self, pod: usize, replicas: usize) {
        let own: Vec<_> =
            if self.is_shared { vec![0] } else { (pod..self.offsets.len()).step_by(replicas).collect() };
        let possible = CAPACITY * POLL_SECONDS;
        let share = self.sink.saturating_mul(POLL_SECONDS) / replicas as u64;
        let waiting: u64 = own.iter().filter(|one| Some(**one) != self.stuck).map(|one| self.lag(*one)).sum();
        // Of what is left, the same part for each of those that come.
        let waiting = if self.is_shared { waiting.div_ceil((replicas - pod) as u64) } else { waiting };
        let room = if self.volumes { u64::MAX } else { share };
        let done = waiting.min(possible).min(room);
        let mut left = done;
        for one in own.iter().copied().filter(|one| Some(*one) != self.stuck) {
            // Rounded up, so that a small lag goes too; never more than is left.
            let whole = if self.is_shared { done } else { (self.lag(one) * done).div_ceil(waiting.max(1)) };
            let part = whole.min(left);
            left -= part;
            let offset = &mut self.offsets[one];
            if self.volumes {
                offset.position = Some(read(offset) + part);
            } else {
                *offset.committed.get_or_insert(0) += part;
            }
        }
        let busy = f64::from(u32::try_from(done).unwrap()) / f64::from(u32::try_from(possible).unwrap());
        let seconds = f64::from(u32::try_from(POLL_SECONDS).unwrap());
        let sample = &mut self.pods[pod];
        sample.at = self.now;
        sample.busy_seconds += busy * seconds;
        sample.messages += done;
        sample.message_bytes += done * 100;
        let named = own.iter().filter(|_| !self.is_shared);
        sample.partitions = named.map(|one| u32::try_from(*one).unwrap()).collect();
        if room > waiting.min(possible) {
            sample.source_seconds += (1.0 - busy) * seconds;
        }
        if self.volumes {
            self.insert(pod, &own, share);
        }
    }

    /// Inserts as much of what was read as is taken.
    fn insert(&mut self, pod: usize, own: &[usize], mut left: u64) {
        let mut held = 0;
        for one in own {
            let offset = &mut self.offsets[*one];
            let committed = offset.committed.unwrap_or(0);
            let part = (read(offset) - committed).min(left);
            left -= part;
            offset.committed = Some(committed + part);
            held += read(offset) - committed - part;
        }
        let sample = &mut self.pods[pod];
        (sample.sink_behind, sample.spool_blocks) = (held > 0, held.div_ceil(1_000));
    }

    fn lag(&self, partition: usize) -> u64 {
        self.offsets[partition].end - read(&self.offsets[partition])
    }

    /// Decides and follows, with gateways that are ready at once.
    pub fn decide(&mut self) -> Decision {
        let decision = decide(self.now, &self.policy, &self.state, &self.samples);
        self.state = decision.next.clone();
        decision
    }

    /// The moment of the poll that comes next.
    pub fn next(&self) -> Moment {
        Moment(self.now.0 + POLL_SECONDS * 1_000)
    }

    /// A poll and its decision, followed.
    pub fn step(&mut self) -> Decision {
        self.step_with(|_| {})
    }

    /// The same with a sample that is changed before anybody sees it.
    pub fn step_with(&mut self, change: impl Fn(&mut Sample)) -> Decision {
        let mut sample = self.pass();
        change(&mut sample);
        self.samples.history.push(sample);
        let decision = self.decide();
        (self.samples.workload.desired, self.samples.workload.ready) = (decision.replicas, decision.replicas);
        decision
    }

    /// This many seconds of it; the last decision.
    pub fn run(&mut self, seconds: u64) -> Decision {
        let mut last = self.step();
        for _ in 1..seconds / POLL_SECONDS {
            last = self.step();
        }
        last
    }

    /// Gateways now.
    pub fn replicas(&self) -> u32 {
        self.samples.workload.desired
    }
}

/// How far a partition was read.
fn read(offset: &PartitionSample) -> u64 {
    offset.committed.max(offset.position).unwrap_or(0)
}
