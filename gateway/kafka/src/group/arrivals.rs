//! Partitions that the group assigned to this process and that are not read yet: the commit thread first finds out
//! where they start.
//!
//! Owner: the poll thread, as a part of [`crate::group::assignment`]. Neither a worker nor librdkafka has these partitions.
//!
//! ```text
//!  assigned by the group --> arriving --(beginning is read)--> ready --> owned
//!                               |
//!                               `--(a plan of a newer version)--> halted
//! ```
//!
//! A partition that restarts arrives again. Meanwhile librdkafka keeps it, paused, unless Kafka does not have its
//! next offset.
//!
//! Limits: start offsets are requested at most every [`READ_INTERVAL_MIN`].

use crate::{
    ground::{clock, cluster::UNNAMED},
    group::{committer::Beginning, stats::ConsumerStats},
};
use sluice_gateway_config::InitialOffset;
use sluice_ranges::{
    ClusterNumber, Cutter, Destination, Found, Generation, OffsetRange, PartitionId, Ranges, Renamed,
    Settings, SpooledRange,
};
use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

/// The least time between two requests for start offsets.
const READ_INTERVAL_MIN: Duration = Duration::from_millis(500);

/// A partition whose start offset is known. It is assigned in librdkafka at that offset, and given to a worker.
pub struct Ready {
    /// Which one.
    pub id: PartitionId,
    /// The offset from which it is read.
    pub position: i64,
    /// Whether librdkafka still has the partition, paused, and only needs the start offset.
    pub is_kept: bool,
    /// What the worker receives.
    pub begun: Begun,
}

/// What a worker receives of a generation that begins.
pub struct Begun {
    /// The generation under which it is read.
    pub generation: Generation,
    /// Decides where its ranges end.
    pub cutter: Cutter,
    /// The end of the log when the start offset was read.
    pub log_end: i64,
    /// The Kafka cluster's id.
    pub cluster: Arc<str>,
}

/// What the poll thread keeps of a generation that begins.
pub struct Begins {
    /// The generation under which it is read.
    pub generation: Generation,
    pub ranges: Ranges,
    /// Ranges of an earlier run whose blocks are on the queue volume and that are taken over, in the order of the
    /// log.
    pub taken: Vec<OffsetRange>,
    /// Offsets that Kafka no longer had. They are counted as lost once a commit has passed them: until then the next
    /// owner finds them too.
    pub lost: Option<OffsetRange>,
}

/// What happens to a partition once its start offset is known.
pub enum Outcome {
    /// It is ready; the poll thread keeps its ranges.
    Begins(Box<Begins>),
    /// It must not be read. Its new generation is over; spooled ranges may already be reserved for it.
    Halted(Generation),
    /// Nothing: the group revoked it while its start offset was read.
    Gone,
}

/// How partitions are read.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// How ranges are cut.
    pub settings: Settings,
    /// Where a partition without a committed offset starts.
    pub initial_offset: InitialOffset,
    /// Maximum number of partitions that are read at the same time.
    pub active_max: usize,
}

/// Returns the ranges of a partition that an earlier run left on the queue volume, in the order of the log of the
/// cluster with this id, or with this [former](Beginning::former_cluster) one. They wait for the generation that begins.
pub type KeptRanges =
    Box<dyn Fn(&PartitionId, Generation, (&str, Option<ClusterNumber>)) -> Vec<SpooledRange> + Send>;

/// Says where the ranges of a partition are sent by the routing of [`Policy::settings`].
pub type DestinationOf = Arc<dyn Fn(&PartitionId) -> Destination + Send + Sync>;

/// How this process makes ranges, of any partition.
#[derive(Clone)]
pub struct Wanted {
    settings: Settings,
    destination_of: Option<DestinationOf>,
}

impl Wanted {
    /// The settings for a partition that starts.
    pub fn of(&self, id: &PartitionId, beginning: &Beginning) -> Settings {
        Settings {
            destination: self.destination_of.as_ref().map(|of| of(id)),
            topic_id: beginning.topic_id,
            cluster: Some(ClusterNumber::of(&beginning.cluster)),
            ..self.settings
        }
    }
}

/// Partitions whose start offset is not known or not used yet.
pub struct Arrivals {
    policy: Policy,
    generations: u64,
    /// Partitions whose start offset is not known. Those whose leader did not answer are at the back.
    arriving: Vec<PartitionId>,
    /// Those of them that librdkafka has assigned, paused.
    kept: BTreeSet<PartitionId>,
    /// Partitions that this version must not read.
    halted: BTreeSet<PartitionId>,
    /// Partitions that start with the next step.
    ready: Vec<Ready>,
    last_read: Option<Instant>,
    /// Whether no more partitions may start.
    is_over: bool,
    kept_ranges: Option<KeptRanges>,
    wanted: Wanted,
}

impl Arrivals {
    /// Without partitions.
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
            wanted: Wanted { settings: policy.settings, destination_of: None },
        }
    }

    /// Sets how plans find out where ranges are sent.
    pub fn sends_to(&mut self, destination_of: DestinationOf) {
        self.wanted.destination_of = Some(destination_of);
    }

    /// How this process makes ranges.
    pub fn wanted(&self) -> Wanted {
        self.wanted.clone()
    }

    /// Sets which ranges of an earlier run are taken over.
    pub fn keeps(&mut self, kept_ranges: KeptRanges) {
        self.kept_ranges = Some(kept_ranges);
    }

    /// Adds partitions that the group assigned. They start once their start offset is known.
    pub fn arrive(&mut self, ids: Vec<PartitionId>) {
        if !ids.is_empty() {
            self.last_read = None;
        }
        for id in ids {
            self.retry_arrival(id);
        }
    }

    /// Adds partitions that restart; librdkafka keeps them paused until then.
    pub fn arrive_anew(&mut self, ids: Vec<PartitionId>) {
        self.kept.extend(ids.iter().cloned());
        self.arrive(ids);
    }

    /// Starts no more partitions: this process leaves the group.
    pub fn end(&mut self) {
        self.is_over = true;
    }

    /// Starts partitions again, after leaving was canceled or completed.
    pub fn go_on(&mut self) {
        self.is_over = false;
        self.last_read = None;
    }

    /// Moves a partition to the back, because its leader did not answer: the others are asked first.
    pub fn postpone(&mut self, id: &PartitionId) {
        if self.remove(id) {
            self.arriving.push(id.clone());
        }
    }

    fn remove(&mut self, id: &PartitionId) -> bool {
        let place = self.arriving.iter().position(|arriving| arriving == id);
        place.map(|place| self.arriving.remove(place)).is_some()
    }

    /// Removes partitions that the group revoked before they started, or that must not be read. Returns those that librdkafka does not
    /// have.
    pub fn cancel_arrival(&mut self, ids: &[PartitionId]) -> Vec<PartitionId> {
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

    /// Adds a partition that could not be assigned; librdkafka does not have it.
    pub fn retry_arrival(&mut self, id: PartitionId) {
        if !self.arriving.contains(&id) {
            self.arriving.push(id);
        }
    }

    /// Partitions whose start offset is not known yet.
    pub fn arriving(&self) -> impl Iterator<Item = &PartitionId> {
        self.arriving.iter()
    }

    /// Partitions that this version must not read.
    pub fn halted(&self) -> impl Iterator<Item = &PartitionId> {
        self.halted.iter()
    }

    /// The partitions whose start offsets are to be read now, among those that may start; records the attempt.
    pub fn due(&mut self, may_begin: impl Fn(&PartitionId) -> bool) -> Option<Vec<PartitionId>> {
        let is_soon = self.last_read.is_some_and(|last| last.elapsed() < READ_INTERVAL_MIN);
        let due: Vec<_> = self.arriving.iter().filter(|id| may_begin(id)).cloned().collect();
        if due.is_empty() || is_soon || self.is_over {
            return None;
        }
        self.last_read = Some(Instant::now());
        Some(due)
    }

    /// Partitions that start with the next step.
    pub fn take_ready(&mut self) -> Vec<Ready> {
        std::mem::take(&mut self.ready)
    }

    /// Handles the start offset of a partition.
    pub fn begin(&mut self, id: &PartitionId, beginning: &Beginning, stats: &ConsumerStats) -> Outcome {
        if self.is_over || !self.remove(id) {
            return Outcome::Gone;
        }
        let Beginning { log, cluster, .. } = beginning;
        let committed = beginning.committed(self.policy.initial_offset);
        self.generations += 1;
        let generation = Generation(self.generations);
        let settings = self.wanted.of(id, beginning);
        let clusters = (&**cluster, beginning.former_cluster(&settings));
        let kept = self.kept_ranges.as_ref().map(|of| of(id, generation, clusters)).unwrap_or_default();
        match Ranges::assigned_with(generation, &committed, settings, clock::now(), &kept) {
            Ok((ranges, cutter, found, taken)) => {
                if !kept.is_empty() {
                    let (found, taken) = (kept.len(), taken.len());
                    tracing::info!(partition = %id, found, taken, "taking over blocks of an earlier run from the queue volume");
                }
                say_found(id, &found, stats);
                let position = cutter.position();
                if let Some(renamed) = found.renamed.filter(|renamed| position < renamed.doubtful.next) {
                    say_renamed(id, renamed, (clusters.0, position));
                }
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
                tracing::error!(partition = %id, reason = %halt, "the partition is not read: roll forward to the newer version");
                self.halted.insert(id.clone());
                stats.partitions_halted.store(self.halted.len() as u64, Ordering::Relaxed);
                Outcome::Halted(generation)
            }
        }
    }
}

/// Logs and counts what an earlier owner left.
fn say_found(id: &PartitionId, found: &Found, stats: &ConsumerStats) {
    if let Some(fresh) = found.fresh.filter(|fresh| fresh.is_doubtful()) {
        stats.fresh_starts.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(
            partition = %id,
            reason = %fresh,
            "the committed offset has no usable plan of ranges (see reason), so the ranges of an earlier owner are not known. Nothing is \
             lost. Rows that ClickHouse has under another token may be inserted twice; rows that it has under the same token are dropped, \
             even if they were deleted since"
        );
    }
    if let Some(overtaken) = found.overtaken {
        tracing::error!(
            partition = %id,
            first = overtaken.lost.first,
            next = overtaken.lost.next,
            "Kafka deleted messages before their offset was committed: they are lost, unless an earlier owner of the partition inserted them"
        );
    }
    if let Some(cut_off) = found.cut_off {
        tracing::error!(
            partition = %id,
            end = cut_off.first,
            read_up_to = cut_off.next,
            "the log became shorter: brokers lost its end, for example by an unclean leader election. Inserted rows stay; \
             rows of messages between the committed offset and the new end may be inserted twice (doubtful_ranges_total, \
             possible_duplicate_rows_total)"
        );
    }
}

/// Logs that the cluster has another id than when the plan was made. What lies below the position is on the queue volume, with its tokens.
fn say_renamed(id: &PartitionId, Renamed { then, doubtful }: Renamed, (now, position): (&str, i64)) {
    let former = if then == ClusterNumber::of(UNNAMED) {
        UNNAMED.to_owned()
    } else {
        format!("an id with the number {}", then.number())
    };
    tracing::warn!(
        partition = %id,
        %former,
        now,
        first = doubtful.first.max(position),
        next = doubtful.next,
        "the Kafka cluster had the id `former` when the ranges in flight were planned, and has the id `now` (unnamed: the brokers report \
         none). The deduplication token of a range contains the id: rows of these ranges that are in ClickHouse already are inserted twice, \
         and all of their rows count in possible_duplicate_rows_total"
    );
}
