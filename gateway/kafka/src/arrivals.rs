//! Partitions that the group has given us and that have not begun: first it is read where.
//!
//! Owner: the poll thread, as a part of [`crate::assignment`]. No worker has them, and librdkafka does not either.
//!
//! ```text
//!  assigned by the group --> arriving --(beginning is read)--> ready --> owned
//!                               |
//!                               `--(a plan of a newer version)--> halted
//! ```
//!
//! One that begins anew arrives again; librdkafka keeps it meanwhile, paused, unless Kafka does not have its next offset.
//!
//! Limits: beginnings are asked for at the most every [`READ_INTERVAL_MIN`].

use crate::{
    clock,
    committer::Beginning,
    partition::{Generation, OffsetRange, PartitionId},
    ranges::{Committed, Cutter, Destination, Found, Kept, Ranges, Settings},
    stats::ConsumerStats,
};
use sluice_gateway_config::InitialOffset;
use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

/// The least time between two attempts to read where partitions begin.
const READ_INTERVAL_MIN: Duration = Duration::from_millis(500);

/// A partition whose beginning is known: to be assigned in librdkafka there, and given to a worker.
pub struct Ready {
    /// Which one.
    pub id: PartitionId,
    /// Where it is read from.
    pub position: i64,
    /// Whether librdkafka has it, paused, and need only be told where to go on.
    pub is_kept: bool,
    /// What the worker needs.
    pub begun: Begun,
}

/// The worker's part of a generation that begins.
pub struct Begun {
    /// Under which it is read.
    pub generation: Generation,
    /// Says where its ranges end.
    pub cutter: Cutter,
    /// Where the log ended when its beginning was read.
    pub log_end: i64,
    /// The Kafka cluster's id.
    pub cluster: Arc<str>,
}

/// The poll thread's part.
pub struct Begins {
    /// Under which it is read.
    pub generation: Generation,
    /// Its ranges.
    pub ranges: Ranges,
    /// Those that an earlier run has kept and that are taken over, in the order of the log.
    pub taken: Vec<OffsetRange>,
    /// What Kafka no longer had, to be counted once a commit has passed it: until then the next owner finds it too.
    pub lost: Option<OffsetRange>,
}

/// What becomes of a partition whose beginning is known.
pub enum Outcome {
    /// It is ready, and its ranges are the poll thread's.
    Begins(Box<Begins>),
    /// It is not to be read. The generation is over that it would have begun with, and may have been told of ranges.
    Halted(Generation),
    /// Nothing: it was taken away while its beginning was read.
    Gone,
}

/// How partitions are read.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// How ranges are made.
    pub settings: Settings,
    /// Where a partition begins of which nothing is committed.
    pub initial_offset: InitialOffset,
    /// Partitions that may be read at the same time.
    pub active_max: usize,
}

/// Says which ranges of a partition, of the log of the cluster with this id, an earlier run has kept: in the order of the log. They
/// wait for the generation that begins.
pub type KeptRanges = Box<dyn Fn(&PartitionId, Generation, &str) -> Vec<Kept> + Send>;

/// Says where the ranges of a partition are sent by the routing of [`Policy::settings`].
pub type DestinationOf = Box<dyn Fn(&PartitionId) -> Destination + Send>;

/// The partitions that have not begun.
pub struct Arrivals {
    policy: Policy,
    generations: u64,
    /// Their beginning is not known yet. Those whose leader did not answer are behind the others.
    arriving: Vec<PartitionId>,
    /// Those of them that librdkafka has.
    kept: BTreeSet<PartitionId>,
    /// This program must not read them.
    halted: BTreeSet<PartitionId>,
    /// Partitions that begin with the next step.
    ready: Vec<Ready>,
    last_read: Option<Instant>,
    /// Whether none begins.
    is_over: bool,
    kept_ranges: Option<KeptRanges>,
    destination_of: Option<DestinationOf>,
}

impl Arrivals {
    /// Nothing was assigned yet.
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            generations: 0,
            arriving: Vec::new(),
            kept: BTreeSet::new(),
            halted: BTreeSet::new(),
            ready: Vec::new(),
            last_read: None,
            is_over: false,
            kept_ranges: None,
            destination_of: None,
        }
    }

    /// Plans say where ranges are sent.
    pub fn sends_to(&mut self, destination_of: DestinationOf) {
        self.destination_of = Some(destination_of);
    }

    /// Ranges that an earlier run has kept are taken over.
    pub fn keeps(&mut self, kept_ranges: KeptRanges) {
        self.kept_ranges = Some(kept_ranges);
    }

    /// The group has given us partitions. They begin once it is known where.
    pub fn arrive(&mut self, ids: Vec<PartitionId>) {
        if !ids.is_empty() {
            self.last_read = None;
        }
        for id in ids {
            self.take_back(id);
        }
    }

    /// Partitions begin anew, and librdkafka keeps them paused until they do.
    pub fn arrive_anew(&mut self, ids: Vec<PartitionId>) {
        self.kept.extend(ids.iter().cloned());
        self.arrive(ids);
    }

    /// None begins: this process leaves the group.
    pub fn end(&mut self) {
        self.is_over = true;
    }

    /// It does not, or is back.
    pub fn go_on(&mut self) {
        self.is_over = false;
        self.last_read = None;
    }

    /// Nobody said where a partition begins: the others are asked first.
    pub fn postpone(&mut self, id: &PartitionId) {
        if self.remove(id) {
            self.arriving.push(id.clone());
        }
    }

    fn remove(&mut self, id: &PartitionId) -> bool {
        let place = self.arriving.iter().position(|arriving| arriving == id);
        place.map(|place| self.arriving.remove(place)).is_some()
    }

    /// The group takes partitions that have not begun, or were not to be read: they are nobody's. Returns those that librdkafka does
    /// not have.
    pub fn turn_away(&mut self, ids: &[PartitionId]) -> Vec<PartitionId> {
        let mut missing = Vec::new();
        for id in ids {
            let has_not_begun = self.remove(id) | self.halted.remove(id);
            if !self.kept.remove(id) && has_not_begun {
                missing.push(id.clone());
            }
        }
        let turned = self.ready.extract_if(.., |ready| ids.contains(&ready.id));
        missing.extend(turned.filter(|ready| !ready.is_kept).map(|ready| ready.id));
        missing
    }

    /// A partition that could not be assigned arrives again; librdkafka does not have it.
    pub fn take_back(&mut self, id: PartitionId) {
        if !self.arriving.contains(&id) {
            self.arriving.push(id);
        }
    }

    /// Partitions whose beginning is not known yet.
    pub fn arriving(&self) -> impl Iterator<Item = &PartitionId> {
        self.arriving.iter()
    }

    /// Partitions that this program must not read.
    pub fn halted(&self) -> impl Iterator<Item = &PartitionId> {
        self.halted.iter()
    }

    /// The partitions whose beginnings are to be read now, of those that may begin; the attempt is taken down.
    pub fn due(&mut self, may_begin: impl Fn(&PartitionId) -> bool) -> Option<Vec<PartitionId>> {
        let is_soon = self.last_read.is_some_and(|last| last.elapsed() < READ_INTERVAL_MIN);
        let due: Vec<_> = self.arriving.iter().filter(|id| may_begin(id)).cloned().collect();
        if due.is_empty() || is_soon || self.is_over {
            return None;
        }
        self.last_read = Some(Instant::now());
        Some(due)
    }

    /// What begins with the next step.
    pub fn take_ready(&mut self) -> Vec<Ready> {
        std::mem::take(&mut self.ready)
    }

    /// A partition's beginning is known.
    pub fn begin(&mut self, id: &PartitionId, beginning: &Beginning, stats: &ConsumerStats) -> Outcome {
        if self.is_over || !self.remove(id) {
            return Outcome::Gone;
        }
        let Beginning { commit, log, cluster, topic_id, .. } = beginning;
        let at_oldest = beginning.begins_at_oldest(self.policy.initial_offset);
        let default = if at_oldest { log.start } else { log.end };
        let commit = commit.as_ref().map(|(offset, metadata)| (*offset, metadata.as_str()));
        let committed = Committed { commit, begin: default, log: *log };
        self.generations += 1;
        let generation = Generation(self.generations);
        let kept = self.kept_ranges.as_ref().map(|of| of(id, generation, cluster)).unwrap_or_default();
        let destination = self.destination_of.as_ref().map(|of| of(id));
        let settings = Settings { topic_id: *topic_id, destination, ..self.policy.settings };
        match Ranges::assigned_with(generation, &committed, settings, clock::now(), &kept) {
            Ok((ranges, cutter, found, taken)) => {
                if !kept.is_empty() {
                    let (found, taken) = (kept.len(), taken.len());
                    tracing::info!(partition = %id, found, taken, "blocks of an earlier run are taken over");
                }
                say_found(id, &found, stats);
                let position = cutter.position();
                let begun = Begun { generation, cutter, log_end: log.end, cluster: cluster.clone() };
                let is_kept = self.kept.remove(id);
                self.ready.push(Ready { id: id.clone(), position, is_kept, begun });
                let taken = taken.iter().map(|kept| kept.range).collect();
                Outcome::Begins(Box::new(Begins {
                    generation,
                    ranges,
                    taken,
                    lost: found.overtaken.map(|overtaken| overtaken.lost),
                }))
            }
            Err(halt) => {
                tracing::error!(partition = %id, reason = %halt, "the partition is not read: roll forward to that version");
                self.halted.insert(id.clone());
                stats.partitions_halted.store(self.halted.len() as u64, Ordering::Relaxed);
                Outcome::Halted(generation)
            }
        }
    }
}

/// What an owner before left, in the log and in the numbers.
fn say_found(id: &PartitionId, found: &Found, stats: &ConsumerStats) {
    if let Some(fresh) = found.fresh.filter(|fresh| fresh.is_doubtful()) {
        stats.fresh_starts.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(
            partition = %id,
            ?fresh,
            "the committed offset has no plan of ranges, as after a reset of the group's offsets: rows that ClickHouse has under another token \
             may be doubled once; rows that it has under the same token are dropped, also if they were deleted since"
        );
    }
    if let Some(overtaken) = found.overtaken {
        tracing::error!(
            partition = %id,
            first = overtaken.lost.first,
            next = overtaken.lost.next,
            "Kafka deleted messages before they were read: they are lost"
        );
    }
    if let Some(cut_off) = found.cut_off {
        tracing::error!(
            partition = %id,
            end = cut_off.first,
            read_up_to = cut_off.next,
            "the log is shorter than it was: brokers have lost its end, as an unclean leader election does. What was inserted stays; \
             rows of messages in front of the end may be doubled once (doubtful_ranges_total)"
        );
    }
}
