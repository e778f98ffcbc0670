//! Who has which partition, which of its ranges may be sent, what is committed, and what came back.
//!
//! Owner: the poll thread. The rebalance callbacks run on it too, so that the lock around this is never waited for. Nothing here
//! calls the consumer: what is to be done with it comes out as [`Steps`].
//!
//! ```text
//!  assigned by the group --> arriving --(beginning is read)--> owned --(revoked)--> gone
//!                               ^                                |
//!                               `---(renewed: settled, committed)'
//! ```

mod commits;
mod known;
mod logs;
mod quarantine;
mod reports;
mod topics;

pub use topics::TopicMadeAnew;

use crate::{
    arrivals::{self, Arrivals, Begins, Begun, Policy, Ready},
    clock,
    committer::{BeforeBegin, Beginning, Committer},
    consumer::Inbox,
    log_reader::LogReader,
    membership::Stop,
    partition::{Order, Ownership, Partition, PartitionQueue, PlanStored, Renew, Report},
    stats::ConsumerStats,
    turns::{Change, Turns},
    watchdog::AtWorker,
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

/// Takes an order for delivery, or gives it back when there is no room for it now.
pub type OrderSink = Box<dyn Fn(Order) -> Result<(), Order> + Send>;

/// What is to be done with the consumer.
#[derive(Default)]
pub struct Steps {
    /// Partitions that stopped or begin anew, to be paused, and who has their turn.
    pub change: Change,
    /// Partitions that begin anew, and in which librdkafka has stopped: to be unassigned until they do.
    pub unassign: Vec<PartitionId>,
    /// Partitions that begin.
    pub assign: Vec<Ready>,
}

/// What the callbacks and the poll thread share.
pub struct Assignment {
    /// Which partitions are read now.
    pub turns: Turns,
    /// Which partitions have not begun.
    pub arrivals: Arrivals,
    /// There from the consumer's start on.
    pub committer: Option<Committer>,
    /// What is asked before a partition begins.
    pub before_begin: Option<BeforeBegin>,
    /// There from the consumer's start until the group is left; `None` too when its thread could not be started.
    pub logs: Option<LogReader>,
    /// Until when anything may be waited for.
    pub stop: Stop,
    /// Whether what is on its way was waited for already, as long as that may take.
    pub has_waited: bool,
    owned: BTreeMap<PartitionId, Owned>,
    /// Partitions that were lost while a worker had them, which it has not let go: it may hang at a block for as long as a sink is away,
    /// and reads on in their queues before it hears of it. What it read there would be missed by the next generation.
    unreleased: BTreeMap<PartitionId, Generation>,
    inboxes: Vec<Inbox>,
    next_inbox: usize,
    reports: Receiver<Report>,
    orders: OrderSink,
    /// Orders for which there was no room. At most one per range in flight.
    orders_waiting: VecDeque<Order>,
    /// Partitions that stopped or are held back, and are not paused yet. One may be lost and gained again before: a callback takes reports too.
    stopped: Vec<(PartitionId, Generation)>,
    last_commit: Instant,
    /// Why the last commit was refused; `None` when it was not.
    last_refusal: Option<RDKafkaErrorCode>,
    /// When that was last told.
    refusal_told: Option<Instant>,
    /// When brokers were asked last which topics these are, and the one that is another now.
    last_identified: Instant,
    made_anew: Option<TopicMadeAnew>,
    /// Whether the last request was to read beginnings.
    has_read: bool,
    /// Whether every partition is to be let go: none begins.
    drains: bool,
}

/// What is left of a membership that ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remaining {
    /// Partitions that the group has given us.
    pub partitions: usize,
    /// Those of them that a worker has.
    pub reading: usize,
    /// Ranges that have ended and are not settled.
    pub ranges: usize,
    /// Offsets of ranges that have ended and are not committed.
    pub uncommitted: u64,
}

/// A partition that is owned.
struct Owned {
    generation: Generation,
    ranges: Ranges,
    /// The worker that has it, or had it.
    worker: usize,
    /// Whether the worker has let it go.
    is_released: bool,
    /// Whether it begins anew once it is at rest.
    renew: Option<Renew>,
    /// How its worker is doing with it, as far as it has said so.
    worker_says: AtWorker,
    /// Whether it was paused last, rather than resumed.
    is_paused: bool,
    /// Who is told when parts of a range are written down, by its first offset.
    noted: BTreeMap<i64, PlanStored>,
    /// Ranges whose blocks wait for someone to act, by where they begin.
    halted: BTreeSet<i64>,
    quarantine: Quarantine,
    /// What Kafka no longer had when it began, until a commit has passed it.
    lost: Option<OffsetRange>,
    /// Whether it begins anew where it is committed, whatever is on its way.
    reads_again: bool,
    /// The last proof of membership that delivery was told of, and what was committed then.
    proof_told: Duration,
    offset_told: i64,
}

impl Assignment {
    /// Nothing is owned yet.
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

    /// Takes every partition back from its worker, which seals what it has read, and begins none. To be said when no partition is
    /// about to begin: after [`Self::steps`], and before anything else.
    pub fn drain(&mut self) {
        self.drains = true;
        self.arrivals.end();
        self.recall(&self.owned(), true);
    }

    /// Partitions that were taken back begin anew once what was read of them is settled and committed, and others begin.
    pub fn resume(&mut self) {
        (self.drains, self.has_waited) = (false, false);
        self.arrivals.go_on();
    }

    /// Lets the workers end. Nothing may begin any more.
    pub fn close_inboxes(&mut self) {
        self.inboxes.clear();
    }

    /// What keeps this process from having left: what it holds, and what it has not committed.
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

    /// Those of them that could be: everything below is settled.
    pub fn committable(&self, ids: &[PartitionId]) -> u64 {
        ids.iter().filter_map(|id| self.owned.get(id)).map(|owned| owned.ranges.committable()).sum()
    }

    /// A sender per worker that wakes it.
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

    /// Takes down that partitions were paused, or resumed.
    pub fn was_paused(&mut self, ids: &[PartitionId], paused: bool) {
        for id in ids {
            if let Some(owned) = self.owned.get_mut(id) {
                owned.is_paused = paused;
            }
        }
    }

    /// Takes down where a log ends.
    pub fn log_ends(&mut self, id: &PartitionId, offset: i64) {
        if let Some(owned) = self.owned.get_mut(id) {
            owned.ranges.log_ends(offset);
        }
    }

    /// Everything that happens by itself: takes reports and outcomes, releases ranges, commits, reads beginnings.
    pub fn tend(&mut self, stats: &ConsumerStats) {
        self.take_reports(stats);
        self.take_outcome(Instant::now(), stats);
        self.hold_back();
        self.release();
        self.request();
        stats.uncommitted.store(self.left().uncommitted, Ordering::Relaxed);
    }

    /// What is to be done with the consumer now.
    pub fn steps(&mut self) -> Steps {
        let (pause, unassign) = self.renew();
        let mut change = self.pause_stopped();
        change.resume.extend(self.turns.lost(&unassign).resume);
        change.resume.extend(self.turns.lost(&pause).resume);
        // One that had its turn for a moment must not be read.
        change.resume.retain(|id| !pause.contains(id) && !unassign.contains(id));
        change.pause.extend(pause);
        Steps { change, unassign, assign: self.arrivals.take_ready() }
    }

    /// Ends the turn of the partitions that are read.
    pub fn next_turn(&mut self) -> Change {
        let Self { turns, owned, .. } = self;
        turns.next(|id| owned.get(id).is_some_and(|owned| !owned.is_released && owned.ranges.is_replaying()))
    }

    /// Tends until a condition holds, or until `deadline`, or until this process is to have ended.
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
            // An outcome or a chance to commit may come without a report.
            let soon = Instant::now() + Duration::from_millis(5);
            match self.reports.recv_deadline(soon.min(deadline)) {
                Ok(report) => self.take_report(&report, stats),
                Err(_) if Instant::now() >= deadline => return,
                Err(_) => {}
            }
        }
    }

    /// How many of these partitions a worker still has, or have ranges on their way. Ranges that were not sent do not count for one
    /// that leaves.
    pub fn undrained(&self, ids: &[PartitionId]) -> usize {
        ids.iter()
            .filter_map(|id| self.owned.get(id))
            .filter(|owned| !owned.is_released || !owned.ranges.is_drained())
            .count()
    }

    /// How many partitions a worker still has, or have ranges that are not settled.
    pub fn unfinished(&self) -> usize {
        self.owned.values().filter(|owned| !owned.is_released || owned.ranges.unsettled() > 0).count()
    }

    /// Releases no more ranges of these partitions.
    pub fn leave(&mut self, ids: &[PartitionId]) {
        for id in ids {
            if let Some(owned) = self.owned.get_mut(id) {
                owned.ranges.leave();
            }
        }
    }

    /// Ends the ownership of partitions.
    pub fn lose(&mut self, ids: &[PartitionId]) {
        // Of a process that ends. One that drains leaves its partitions to others, and must leave nothing behind on its volume.
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

    /// Gives a partition that has begun to the worker that has the fewest.
    pub fn hand_to_worker(&mut self, id: PartitionId, begun: Begun, queue: PartitionQueue) {
        let Some(owned) = self.owned.get_mut(&id) else { return };
        owned.quarantine = Quarantine::No;
        let worker = owned.worker;
        let Begun { generation, cutter, log_end, cluster } = begun;
        let partition = Partition { id, generation, queue, cutter, log_end, cluster };
        self.tell(worker, Ownership::Gained(Box::new(partition)));
    }

    /// Takes back a partition that could not be assigned.
    pub fn retry_arrival(&mut self, id: PartitionId) {
        self.owned.remove(&id);
        self.arrivals.retry_arrival(id);
    }

    /// Tells the workers that own these partitions to let them go.
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
        // A worker that has ended takes no partitions; the process is ending with it.
        #[expect(
            clippy::disallowed_methods,
            reason = "a partition must reach its worker; there is room for more than a pod reads"
        )]
        let sent = inbox.ownership.send(ownership);
        if sent.is_ok() {
            wake(&inbox.wake);
        }
    }

    /// A partition's beginning is known.
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

    /// Lets partitions begin anew that are at rest, or whose blocks are gone: those that a worker has let go unasked, and those that it
    /// was asked to when the group was to be left, which it is not, or when they were [held back](Self::hold_back). Returns those that librdkafka keeps, and those that it must be rid
    /// of: in a partition of which Kafka does not have the next offset it has stopped, and one whose next batch it could not read it may
    /// have passed over.
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

    /// What is to be paused because it stopped, and who has its turn.
    fn pause_stopped(&mut self) -> Change {
        let mut stopped = std::mem::take(&mut self.stopped);
        stopped.retain(|(id, generation)| self.owned.get(id).is_some_and(|o| o.generation == *generation));
        let stopped: Vec<PartitionId> = stopped.into_iter().map(|(id, _)| id).collect();
        let mut change = self.turns.lost(&stopped);
        change.pause = stopped;
        change
    }
}

/// Wakes a worker.
pub fn wake(sender: &Sender<()>) {
    if sender.try_send(()).is_err() {
        // A full channel holds a token already, and a closed one belongs to a worker that has ended.
    }
}

#[cfg(test)]
#[path = "assignment_tests.rs"]
mod tests;
