//! Which worker has which partition, which of its ranges may be sent, what is committed, and what workers and
//! delivery reported.
//!
//! Owner: the poll thread. Rebalance callbacks run on it too, so the lock around this type is never contended.
//! Nothing here calls the consumer: the calls to make are returned as [`Steps`].
//!
//! ```text
//!  assigned by the group --> arriving --(beginning is read)--> owned --(revoked)--> gone
//!                               ^                                |
//!                               `---(renewed: settled, committed)'
//! ```

mod commits;
mod known;
mod letting_go;
mod logs;
mod quarantine;
mod reports;
mod topics;

pub use letting_go::{Gone, Waits};
pub use topics::TopicMadeAnew;

use crate::{
    ground::clock,
    ground::wake::wake,
    group::{
        arrivals::{self, Arrivals, Begins, Begun, Policy, Ready},
        committer::{BeforeBegin, Beginning, Committer},
        consumer::Inbox,
        log_reader::LogReader,
        membership::Stop,
        partition::{Order, Ownership, Partition, PartitionQueue, PlanStored, Renew, Report},
        stats::ConsumerStats,
        turns::{Change, Turns},
        watchdog::AtWorker,
    },
};
use crossbeam_channel::{Receiver, Sender};
use quarantine::Quarantine;
use rdkafka::error::RDKafkaErrorCode;
use sluice_ranges::{Generation, OffsetRange, PartitionId, Ranges};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

/// Sends an order to delivery, or returns it when there is no room now.
pub type OrderSink = Box<dyn Fn(Order) -> Result<(), Order> + Send>;

/// The calls to make on the consumer.
#[derive(Default)]
pub struct Steps {
    /// Partitions to pause because they stopped or restart, and partitions whose turn begins or ends.
    pub change: Change,
    /// Partitions that restart and in which librdkafka has stopped: unassigned until they start again.
    pub unassign: Vec<PartitionId>,
    /// Partitions that start.
    pub assign: Vec<Ready>,
}

/// The state that rebalance callbacks and the poll thread share.
pub struct Assignment {
    /// Which partitions are read now.
    pub turns: Turns,
    /// Partitions that have not started.
    pub arrivals: Arrivals,
    /// Set when the consumer starts.
    pub committer: Option<Committer>,
    /// Called before a partition starts.
    pub before_begin: Option<BeforeBegin>,
    /// Set from the consumer's start until it leaves the group. `None` if its thread could not be started.
    pub logs: Option<LogReader>,
    /// The shutdown request with its deadline, which bounds every wait.
    pub stop: Stop,
    /// Whether the full time for blocks in flight was already spent.
    pub has_waited: bool,
    owned: BTreeMap<PartitionId, Owned>,
    /// Lost partitions that their worker has not released. A worker can hang at a block for as long as ClickHouse is
    /// away, and keeps reading from the partition's queue until it receives the message. The next generation would
    /// miss what it read there.
    unreleased: BTreeMap<PartitionId, Generation>,
    inboxes: Vec<Inbox>,
    next_inbox: usize,
    reports: Receiver<Report>,
    orders: OrderSink,
    /// Orders that delivery had no room for. At most one per range in flight.
    orders_waiting: VecDeque<Order>,
    /// Partitions that stopped or are quarantined, and are not paused yet. The generation is kept because a partition
    /// can be lost and gained again before the pause: callbacks take reports too.
    stopped: Vec<(PartitionId, Generation)>,
    last_commit: Instant,
    /// Why the last commit was refused; `None` if it was stored.
    last_refusal: Option<RDKafkaErrorCode>,
    /// When that refusal was last logged.
    refusal_told: Option<Instant>,
    /// When brokers were last asked for the topic ids, and the topic that was found to have a new id.
    last_identified: Instant,
    made_anew: Option<TopicMadeAnew>,
    /// Whether the last request was for start offsets.
    has_read: bool,
    /// Whether this process drains: every partition is released and none starts.
    drains: bool,
}

/// What a membership that ends still holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remaining {
    /// Partitions that the group has assigned.
    pub partitions: usize,
    /// Partitions that a worker has.
    pub reading: usize,
    /// Ranges that have ended and are not settled.
    pub ranges: usize,
    /// Offsets of ranges that have ended and are not committed.
    pub uncommitted: u64,
}

/// An owned partition.
struct Owned {
    generation: Generation,
    ranges: Ranges,
    /// The worker that reads it, or read it last.
    worker: usize,
    /// Whether the worker has released it.
    is_released: bool,
    /// Whether, and why, it restarts once all its ranges are settled and committed.
    renew: Option<Renew>,
    /// The partition's state as its worker last reported it.
    worker_says: AtWorker,
    /// Whether the last call for it was a pause rather than a resume.
    is_paused: bool,
    /// Notified when the parts of a range are in a stored plan, by the range's first offset.
    noted: BTreeMap<i64, PlanStored>,
    /// Ranges whose blocks have refused rows and need manual action, by first offset.
    halted: BTreeSet<i64>,
    quarantine: Quarantine,
    /// Offsets that Kafka no longer had at the start, until a commit has passed them.
    lost: Option<OffsetRange>,
    /// Whether it restarts at its committed offset without waiting for ranges in flight.
    reads_again: bool,
    /// The last proof of membership that was sent to delivery, and the committed offset at that time.
    proof_told: Duration,
    offset_told: i64,
}

impl Assignment {
    /// Without partitions.
    pub fn new(inboxes: Vec<Inbox>, reports: Receiver<Report>, orders: OrderSink, policy: Policy) -> Self {
        Self {
            turns: Turns::new(policy.active_max),
            arrivals: Arrivals::new(policy),
            committer: None,
            before_begin: None,
            logs: None,
            stop: Stop::default(),
            has_waited: false,
            owned: BTreeMap::new(),
            unreleased: BTreeMap::new(),
            inboxes,
            next_inbox: 0,
            reports,
            orders,
            orders_waiting: VecDeque::new(),
            stopped: Vec::new(),
            last_commit: Instant::now(),
            last_refusal: None,
            refusal_told: None,
            last_identified: Instant::now(),
            made_anew: None,
            has_read: false,
            drains: false,
        }
    }

    /// Takes every partition back from its worker, which seals what it has read, and starts no other. Must be called
    /// when no partition is about to start: right after [`Self::steps`].
    pub fn drain(&mut self) {
        self.drains = true;
        self.arrivals.end();
        self.recall(&self.owned(), true);
    }

    /// Starts partitions again. Those that were taken back restart once what was read of them is settled and
    /// committed.
    pub fn resume(&mut self) {
        (self.drains, self.has_waited) = (false, false);
        self.arrivals.go_on();
    }

    /// Closes the workers' inboxes so that they end. No partition may start afterwards.
    pub fn close_inboxes(&mut self) {
        self.inboxes.clear();
    }

    /// What this process still holds or has not committed, and which keeps it from leaving.
    pub fn left(&self) -> Remaining {
        let arriving = self.arrivals.arriving().chain(self.arrivals.halted()).count();
        let owned = || self.owned.values();
        Remaining {
            partitions: self.owned.len() + arriving,
            reading: owned().filter(|owned| !owned.is_released).count(),
            ranges: owned().map(|owned| owned.ranges.unsettled()).sum(),
            uncommitted: owned().map(|owned| owned.ranges.uncommitted()).sum(),
        }
    }

    /// Offsets of ranges of these partitions that have ended and are not committed.
    pub fn uncommitted(&self, ids: &[PartitionId]) -> u64 {
        ids.iter().filter_map(|id| self.owned.get(id)).map(|owned| owned.ranges.uncommitted()).sum()
    }

    /// Those of them that a commit would pass, because everything below is settled.
    pub fn committable(&self, ids: &[PartitionId]) -> u64 {
        ids.iter().filter_map(|id| self.owned.get(id)).map(|owned| owned.ranges.committable()).sum()
    }

    /// One sender per worker, which wakes it.
    pub fn wakes(&self) -> Vec<Sender<()>> {
        self.inboxes.iter().map(|inbox| inbox.wake.clone()).collect()
    }

    /// Every partition that is owned.
    pub fn owned(&self) -> Vec<PartitionId> {
        self.owned.keys().cloned().collect()
    }

    /// Whether a partition is owned.
    pub fn owns(&self, id: &PartitionId) -> bool {
        self.owned.contains_key(id)
    }

    /// Records that partitions were paused or resumed.
    pub fn was_paused(&mut self, ids: &[PartitionId], paused: bool) {
        for id in ids {
            if let Some(owned) = self.owned.get_mut(id) {
                owned.is_paused = paused;
            }
        }
    }

    /// Records the end offset of a log.
    pub fn log_ends(&mut self, id: &PartitionId, offset: i64) {
        if let Some(owned) = self.owned.get_mut(id) {
            owned.ranges.log_ends(offset);
        }
    }

    /// Periodic work: takes reports and outcomes, releases ranges, commits, requests start offsets.
    pub fn tend(&mut self, stats: &ConsumerStats) {
        self.take_reports(stats);
        self.take_outcome(Instant::now(), stats);
        self.hold_back();
        self.release();
        self.request();
        self.count_uncommitted(stats);
    }

    /// Counts what is not committed now.
    pub fn count_uncommitted(&self, stats: &ConsumerStats) {
        stats.uncommitted.store(self.left().uncommitted, Ordering::Relaxed);
    }

    /// The calls to make on the consumer now.
    pub fn steps(&mut self) -> Steps {
        let (pause, unassign) = self.renew();
        let mut change = self.pause_stopped();
        change.resume.extend(self.turns.lost(&unassign).resume);
        change.resume.extend(self.turns.lost(&pause).resume);
        // A partition that had its turn only for a moment must not be read.
        change.resume.retain(|id| !pause.contains(id) && !unassign.contains(id));
        change.pause.extend(pause);
        Steps { change, unassign, assign: self.arrivals.take_ready() }
    }

    /// Ends the turn of the partitions that are read.
    pub fn next_turn(&mut self) -> Change {
        let Self { turns, owned, .. } = self;
        turns.next(|id| owned.get(id).is_some_and(|owned| !owned.is_released && owned.ranges.is_replaying()))
    }

    /// Tends until a condition holds, until `deadline`, or until the shutdown deadline.
    pub fn tend_until(
        &mut self,
        deadline: Instant,
        stats: &ConsumerStats,
        mut holds: impl FnMut(&Self) -> bool,
    ) {
        let deadline = self.stop.deadline().map_or(deadline, |end| deadline.min(end));
        loop {
            self.tend(stats);
            stats.polled();
            if holds(self) {
                return;
            }
            // An outcome or the next commit may become due without a report.
            let soon = Instant::now() + Duration::from_millis(5);
            match self.reports.recv_deadline(soon.min(deadline)) {
                Ok(report) => self.take_report(&report, stats),
                Err(_) if Instant::now() >= deadline => return,
                Err(_) => {}
            }
        }
    }

    /// How many of these partitions are still with a worker or have ranges in flight. For a partition that leaves,
    /// ranges that were not sent do not count.
    pub fn undrained(&self, ids: &[PartitionId]) -> usize {
        ids.iter()
            .filter_map(|id| self.owned.get(id))
            .filter(|owned| !owned.is_released || !owned.ranges.is_drained())
            .count()
    }

    /// How many partitions are still with a worker or have ranges that are not settled.
    pub fn unfinished(&self) -> usize {
        self.owned.values().filter(|owned| !owned.is_released || owned.ranges.unsettled() > 0).count()
    }

    /// Stops releasing ranges of these partitions.
    pub fn leave(&mut self, ids: &[PartitionId]) {
        for id in ids {
            if let Some(owned) = self.owned.get_mut(id) {
                owned.ranges.leave();
            }
        }
    }

    /// Ends the ownership of partitions.
    pub fn lose(&mut self, ids: &[PartitionId]) {
        // A process that shuts down may return as the same member and keeps its queue volume's blocks. One that
        // drains leaves its partitions to others, and must leave nothing on its volume.
        let is_leaving = self.stop.is_requested();
        for id in ids {
            if let Some(mut owned) = self.owned.remove(id) {
                owned.ranges.lost();
                if !owned.is_released && owned.quarantine != Quarantine::NotGiven {
                    self.unreleased.insert(id.clone(), owned.generation);
                }
                let forget = Order::Forget { id: id.clone(), generation: owned.generation, is_leaving };
                self.orders_waiting.push_back(forget);
            }
        }
        self.hand_over_orders();
    }

    /// Gives a partition to the worker with the fewest partitions.
    pub fn hand_to_worker(&mut self, id: PartitionId, begun: Begun, queue: PartitionQueue) {
        let Some(owned) = self.owned.get_mut(&id) else { return };
        owned.quarantine = Quarantine::No;
        let worker = owned.worker;
        let Begun { generation, cutter, log_end, cluster } = begun;
        let partition = Partition { id, generation, queue, cutter, log_end, cluster };
        self.tell(worker, Ownership::Gained(Box::new(partition)));
    }

    /// Returns a partition that could not be assigned to the arriving ones.
    pub fn retry_arrival(&mut self, id: PartitionId) {
        self.owned.remove(&id);
        self.arrivals.retry_arrival(id);
    }

    /// Tells the workers that own these partitions to release them.
    pub fn recall(&mut self, ids: &[PartitionId], seal: bool) {
        for id in ids {
            if let Some(owned) = self.owned.get(id).filter(|owned| !owned.is_released) {
                let lost = Ownership::Lost { id: id.clone(), generation: owned.generation, seal };
                self.tell(owned.worker, lost);
            }
        }
    }

    fn tell(&self, index: usize, ownership: Ownership) {
        let inbox = &self.inboxes[index];
        // A worker that has ended accepts no partitions; the process is ending too.
        #[expect(
            clippy::disallowed_methods,
            reason = "a partition must reach its worker; there is room for more than a pod reads"
        )]
        let sent = inbox.ownership.send(ownership);
        if sent.is_ok() {
            wake(&inbox.wake);
        }
    }

    /// Handles the start offset of a partition.
    pub(crate) fn begin(&mut self, id: PartitionId, beginning: &Beginning, stats: &ConsumerStats) {
        let Begins { generation, ranges, taken, lost } = match self.arrivals.begin(&id, beginning, stats) {
            arrivals::Outcome::Begins(begins) => *begins,
            arrivals::Outcome::Halted(generation) => {
                // Releases the spooled ranges that were reserved for this generation.
                self.orders_waiting.push_back(Order::Forget { id, generation, is_leaving: false });
                return;
            }
            arrivals::Outcome::Gone => return,
        };
        let order = Order::TakeOver { id: id.clone(), generation, ranges: taken };
        self.orders_waiting.push_back(order);
        let worker = self.next_worker();
        let owned = Owned {
            generation,
            ranges,
            worker,
            is_released: false,
            renew: None,
            worker_says: AtWorker::Reads,
            is_paused: false,
            noted: BTreeMap::new(),
            halted: BTreeSet::new(),
            quarantine: Quarantine::NotGiven,
            lost,
            reads_again: false,
            proof_told: Duration::ZERO,
            offset_told: i64::MIN,
        };
        self.owned.insert(id, owned);
    }

    fn next_worker(&mut self) -> usize {
        let load = |index: usize| self.owned.values().filter(|owned| owned.worker == index).count();
        let workers = self.inboxes.len();
        let order = (0..workers).map(|step| (self.next_inbox + step) % workers);
        let index = order.min_by_key(|index| load(*index)).expect("there is at least one worker");
        self.next_inbox = (index + 1) % workers;
        index
    }

    fn release(&mut self) {
        let now = clock::now();
        for (id, owned) in &mut self.owned {
            let generation = owned.generation;
            let send = |release| Order::Send { id: id.clone(), generation, release };
            self.orders_waiting.extend(owned.ranges.release(now).into_iter().map(send));
        }
        self.hand_over_orders();
    }

    fn hand_over_orders(&mut self) {
        while let Some(order) = self.orders_waiting.pop_front() {
            if let Err(order) = (self.orders)(order) {
                self.orders_waiting.push_front(order);
                return;
            }
        }
    }

    /// Restarts partitions that are at rest or whose blocks are gone: those that a worker released on its own, those
    /// released for a drain that was canceled, and those that were [quarantined](Self::hold_back). Returns the
    /// partitions that librdkafka keeps, and those that must be unassigned: librdkafka has stopped in a partition
    /// whose next offset Kafka does not have, and may have skipped a batch that it could not read.
    fn renew(&mut self) -> (Vec<PartitionId>, Vec<PartitionId>) {
        let (mut keep, mut unassign) = (Vec::new(), Vec::new());
        let is_left = |owned: &Owned| owned.is_released && (owned.renew.is_some() || !self.drains);
        let rests = |owned: &Owned| {
            is_left(owned) && (owned.ranges.is_at_rest() || (owned.reads_again && !self.drains))
        };
        for (id, why) in self.owned.iter().filter(|(_, owned)| rests(owned)).map(|(id, o)| (id, o.renew)) {
            tracing::info!(partition = %id, ?why, "restarting the partition at its committed offset");
            match why {
                Some(Renew::OutOfRange | Renew::Batch) => unassign.push(id.clone()),
                None | Some(Renew::Rule | Renew::Memory | Renew::Letter) => keep.push(id.clone()),
            }
        }
        self.lose(&keep);
        self.lose(&unassign);
        self.arrivals.arrive_anew(keep.clone());
        self.arrivals.arrive(unassign.clone());
        (keep, unassign)
    }

    /// Partitions to pause because they stopped, and the changes of turns that follow.
    fn pause_stopped(&mut self) -> Change {
        let mut stopped = std::mem::take(&mut self.stopped);
        stopped.retain(|(id, generation)| self.owned.get(id).is_some_and(|o| o.generation == *generation));
        let stopped: Vec<PartitionId> = stopped.into_iter().map(|(id, _)| id).collect();
        let mut change = self.turns.lost(&stopped);
        change.pause = stopped;
        change
    }
}

#[cfg(test)]
#[path = "assignment_tests.rs"]
mod tests;
