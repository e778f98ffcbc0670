//! What was seen of a pipeline at one moment: offsets from Kafka, seconds and bytes from the gateways' own metrics.
//!
//! Job: the facts that a scaling decision is made from. Place in the flow: the operator reads them, `window` compares them.
//! Counters are as the gateways export them and only ever compared; a counter that went back is a pod that began anew.

use super::{logs::GatewayLogs, merges::MergesBehind};
use crate::ground::moment::Moment;
use std::collections::{BTreeMap, VecDeque};

/// Samples that are kept: eight minutes, with one every 15 s. The longest window needs three minutes. At 1,000 partitions of 40 bytes they are
/// 1.3 MB.
pub const SAMPLES_MAX: usize = 32;

/// A sample that is older than the one before by more seconds is of a clock that went back, which may take hours to come as far
/// again: what it saw until then would hold as the newest for as long. Chosen: answers of Kafka that are used again are ten seconds old.
const BACK_SECONDS_MAX: f64 = 30.0;

/// Everything that a decision is made from.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Samples {
    /// The present `StatefulSet`.
    pub workload: WorkloadSample,
    /// What was sampled, oldest first.
    pub history: History,
    /// Topics with their partitions, in the order of [`Sample::partitions`]; only for messages.
    pub topics: Vec<(String, u32)>,
}

impl Samples {
    /// A partition by its place among those of all topics, as people know it.
    pub(super) fn partition_name(&self, place: usize) -> String {
        let mut number = place;
        for (topic, partitions) in &self.topics {
            let partitions = usize::try_from(*partitions).unwrap_or(usize::MAX);
            if number < partitions {
                return format!("{topic}/{number}");
            }
            number -= partitions;
        }
        place.to_string()
    }
}

/// The `StatefulSet` of the gateways, as the API server returns it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkloadSample {
    /// `spec.replicas`.
    pub desired: u32,
    /// Pods that are ready.
    pub ready: u32,
    /// Pods that a node has taken and that are not ready, by their numbers, with since when.
    pub unready_since: BTreeMap<u32, Moment>,
    /// Pods that no node takes.
    pub unschedulable: u32,
    /// Of these, the ones with the highest numbers: those that go when fewer are wanted, before any other does.
    pub unschedulable_last: u32,
    /// Whether pods are being replaced by ones of a new template.
    pub rolling: bool,
    /// The pods' template by its hash: what was learned of other pods does not hold for these.
    pub revision: String,
    /// When a pod was killed for its memory the last time, as far as the pods that there are tell.
    pub killed_at: Option<Moment>,
}

/// Samples in the order of their moments, at most [`SAMPLES_MAX`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History(VecDeque<Sample>);

impl History {
    /// Adds the newest sample and drops the oldest when there are too many. One that is not newer is dropped itself, since rates against
    /// it would be negative; one that is older by more than [`BACK_SECONDS_MAX`] clears the history.
    pub fn push(&mut self, sample: Sample) {
        if let Some(last) = self.0.back().filter(|last| sample.at <= last.at) {
            if last.at.seconds_since(sample.at) <= BACK_SECONDS_MAX {
                return;
            }
            self.0.clear();
        }
        if self.0.len() == SAMPLES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(sample);
    }

    /// The newest.
    pub fn last(&self) -> Option<&Sample> {
        self.0.back()
    }

    /// The newest that is at least so many seconds older than the last one, else the oldest of all.
    pub(super) fn before(&self, seconds: u32) -> Option<&Sample> {
        let last = self.last()?;
        let older = self.0.iter().rev().skip(1);
        let far = older.clone().find(|sample| last.at.seconds_since(sample.at) >= f64::from(seconds));
        far.or_else(|| older.last())
    }

    /// Those that are at least so many seconds older than the last one, the newest first.
    pub(super) fn older(&self, seconds: u32) -> impl Iterator<Item = &Sample> {
        let last = self.last().map(|last| last.at).unwrap_or_default();
        let is_older = move |sample: &&Sample| last.seconds_since(sample.at) >= f64::from(seconds);
        self.0.iter().rev().filter(is_older)
    }

    pub(super) fn before_that(&self, sample: &Sample) -> Option<&Sample> {
        self.0.iter().rev().find(|older| older.at < sample.at)
    }

    /// Those of the last so many seconds, the newest first.
    pub(super) fn within(&self, seconds: u32) -> impl Iterator<Item = &Sample> {
        let last = self.last().map(|last| last.at).unwrap_or_default();
        let is_within = move |sample: &&Sample| last.seconds_since(sample.at) <= f64::from(seconds);
        self.0.iter().rev().take_while(is_within)
    }

    /// The same without what these gateways said.
    pub(super) fn without(&self, ordinals: &[u32]) -> Self {
        let without = |sample: &Sample| {
            let mut sample = sample.clone();
            sample.pods.retain(|pod| !ordinals.contains(&pod.ordinal));
            sample
        };
        Self(self.0.iter().map(without).collect())
    }

    /// Seconds between the oldest and the newest.
    pub(super) fn span_seconds(&self) -> f64 {
        match (self.0.front(), self.0.back()) {
            (Some(first), Some(last)) => last.at.seconds_since(first.at),
            _ => 0.0,
        }
    }
}

/// What one poll saw.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample {
    /// When.
    pub at: Moment,
    /// Whether the group's members and partitions are settled.
    pub group_stable: bool,
    /// Partitions by number, all topics one after another; `None` where Kafka did not answer.
    pub partitions: Vec<Option<PartitionSample>>,
    /// Gateways that answered.
    pub pods: Vec<PodSample>,
    /// Gateways that are ready and did not answer.
    pub silent: u32,
}

/// Offsets of one partition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PartitionSample {
    /// The oldest message that is kept.
    pub log_start: u64,
    /// Behind the newest message.
    pub end: u64,
    /// What the group has committed.
    pub committed: Option<u64>,
    /// How far a gateway has read, from its metrics: moves also when commits are rare. At most [`PartitionSample::end`].
    pub position: Option<u64>,
}

impl PartitionSample {
    /// How far it was read: committed, or in a gateway's hands.
    pub(super) fn read(&self) -> Option<u64> {
        let read = self.committed.max(self.position)?;
        Some(read.max(self.log_start))
    }
}

/// One gateway's metrics; seconds are sums over its workers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodSample {
    /// The pod's number.
    pub ordinal: u32,
    /// When it answered: seconds are compared with the time between its own answers, not between polls.
    pub at: Moment,
    /// Threads that walk and encode, at least 1.
    pub workers: u32,
    /// Walking, encoding, compressing: `worker_seconds_total{state="busy"}`.
    pub busy_seconds: f64,
    /// Waiting for messages: `worker_seconds_total{state="source"}`.
    pub source_seconds: f64,
    /// Messages read.
    pub messages: u64,
    /// Bytes of messages read.
    pub message_bytes: u64,
    /// Inserts that failed and say something of the server, not of the rows.
    pub insert_failures: u64,
    /// OTLP requests that it refused for want of memory, room or time.
    pub requests_refused: u64,
    /// Resident memory.
    pub memory_bytes: u64,
    /// The memory limit; 0 when it is not known.
    pub memory_limit_bytes: u64,
    /// Rows that were read and are not settled: in open blocks, on their way to `ClickHouse`, on the queue volume. 0 of a gateway whose
    /// version does not say it.
    pub rows_in_flight: u64,
    /// Blocks on the queue volume that are not inserted. Not bytes: files stay for a while, and damaged ones for good, when nothing in
    /// them is to be inserted.
    pub spool_blocks: u64,
    /// Whether sealed blocks wait for ClickHouse, in memory or on the queue volume, which hide that from the workers.
    pub sink_behind: bool,
    /// The parts of its table, while it says that merges of ClickHouse are behind. `None` of a gateway whose version does not say it.
    pub merges: Option<MergesBehind>,
    /// Partitions it reads, by their place in [`Sample::partitions`].
    pub partitions: Vec<u32>,
    /// Those of them that stand still, as it says itself, for a reason of their own. It says so after a minute and a round of turns.
    pub still: Vec<u32>,
    /// Partitions that it reads at the same time; more take turns. 0 when that is not known.
    pub partitions_active: u32,
    /// What is in its logs, with `source.otlp`. Only it inserts that.
    pub logs: Option<GatewayLogs>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Sample {
        Sample { at: Moment(seconds * 1_000), ..Sample::default() }
    }

    #[test]
    fn history_is_bounded_and_ordered() {
        let mut history = History::default();
        for second in [0, 15, 30, 20, 30, 45] {
            history.push(at(second));
        }
        let seconds: Vec<_> = history.0.iter().map(|sample| sample.at.0 / 1_000).collect();
        assert_eq!(seconds, [0, 15, 30, 45], "a sample that is not newer than the last is dropped");
        for second in 0..1_000 {
            history.push(at(100 + second));
        }
        assert_eq!(history.0.len(), SAMPLES_MAX);
        history.push(at(0));
        assert_eq!(history.0.len(), 1, "the clock went back by far: what was seen before is no guide");
    }

    #[test]
    fn a_partition_is_named_by_its_topic() {
        let samples = Samples { topics: vec![("a".into(), 2), ("b".into(), 8)], ..Samples::default() };
        let names: Vec<_> = [0, 1, 2, 9, 10].map(|place| samples.partition_name(place)).into();
        assert_eq!(names, ["a/0", "a/1", "b/0", "b/7", "10"]);
    }

    #[test]
    fn before_takes_the_newest_that_is_old_enough() {
        let mut history = History::default();
        assert_eq!(history.before(60), None);
        for second in (0..=240).step_by(15) {
            history.push(at(second));
        }
        for (seconds, expected) in [(1, 225), (15, 225), (16, 210), (60, 180), (180, 60), (900, 0)] {
            assert_eq!(history.before(seconds).map(|s| s.at.0 / 1_000), Some(expected), "{seconds}");
        }
    }
}
