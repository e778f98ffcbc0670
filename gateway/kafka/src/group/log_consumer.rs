//! The poll thread of a gateway without Kafka: it reads logs of this process as partitions.
//!
//! All logs belong to this process from its start to its end. Everything else is as with Kafka: the [`Assignment`] hands logs to workers,
//! releases ranges and commits; a [`LogKeeper`] stores commits and makes the queues of messages.
//!
//! ```text
//!                    asked to drain                     nothing is accepted, what can be read is in
//!   AWAY --> MEMBER ----------------> DRAINING (reads) ------------------------------------------> AWAY
//!     ^         ^                        | asked to resume                                          |
//!     |         `------------------------'                                                          |
//!     `----------------------------- asked to resume -----------------------------------------------'
//! ```
//!
//! Owner: one thread, the one that calls [`LogConsumer::run`]. Limits: those of [`crate::group::consumer`].

use crate::{
    ground::wake::wake,
    group::{
        arrivals::{DestinationOf, Ready},
        assignment::{Assignment, Gone, OrderSink, Steps, Waits},
        committer::{Beginning, Committer},
        consumer::{Error, Inbox, LAST_COMMIT_WAIT, Limits, POLL_INTERVAL, REPORTS_MAX, how_left},
        membership::{Drain, Phase, Stop},
        partition::{LogMessages, PartitionQueue, Report},
        stats::{ConsumerStats, PartitionStats},
    },
};
use crossbeam_channel::{Sender, bounded};
use sluice_gateway_config::InitialOffset;
use sluice_ranges::{Commit, PartitionId};
use std::{
    cell::RefCell,
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

/// How often the numbers for metrics are taken. Chosen: as often as librdkafka's.
const STATS_INTERVAL: Duration = Duration::from_secs(1);

/// How often the log says what a drain waits for.
const SAY_INTERVAL: Duration = Duration::from_secs(5);

/// A log, as its keeper knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogState {
    pub id: PartitionId,
    /// The offset of its oldest message.
    pub start: i64,
    /// One past the offset of its last durable message.
    pub end: i64,
    /// How many of the offsets that are not committed no message has.
    pub absent: u64,
    /// Everything below was committed; `None` before the first commit.
    pub committed: Option<i64>,
    /// The offset behind the message that a worker polled last; less than any offset while no worker has the log.
    pub polled: i64,
    /// Whether it cannot be read now. Its messages stay where they are: neither a drain nor the end of the process waits for them.
    pub is_unreadable: bool,
}

impl LogState {
    /// Messages that are not committed.
    pub fn waiting(&self) -> u64 {
        let offsets = self.end.saturating_sub(self.committed.unwrap_or(self.start));
        u64::try_from(offsets).unwrap_or(0).saturating_sub(self.absent)
    }

    /// Those of them that can be read.
    fn left(&self) -> u64 {
        if self.is_unreadable { 0 } else { self.waiting() }
    }
}

/// Keeps the logs of this process.
pub trait LogKeeper: Send + Sync {
    /// Every log, also those that are only read until they are empty.
    fn logs(&self) -> Vec<LogState>;

    /// Where a log is committed, begins and ends.
    fn beginning(&self, id: &PartitionId) -> Beginning;

    /// Stores a commit durably, on the thread that commits. `false` if it may not be stored: the keeper then ends the process.
    fn commit(&self, id: &PartitionId, commit: &Commit) -> bool;

    /// The messages of a log from an offset on. `wake` is to be called when messages were appended.
    fn messages(
        &self,
        id: &PartitionId,
        position: i64,
        wake: Box<dyn Fn() + Send + Sync>,
    ) -> Box<dyn LogMessages>;

    /// Whether messages may still be appended: the source accepts requests, or some are under way.
    fn may_append(&self) -> bool;
}

/// Reads logs. It begins when it [runs](LogConsumer::run).
pub struct LogConsumer {
    keeper: Arc<dyn LogKeeper>,
    assignment: Assignment,
    stats: Arc<ConsumerStats>,
    reports: Sender<Report>,
    phase: Phase,
    counted: Instant,
    said: Instant,
}

impl LogConsumer {
    /// Creates a consumer for these workers.
    ///
    /// # Panics
    /// If there is no worker.
    pub fn new(
        keeper: Arc<dyn LogKeeper>,
        inboxes: Vec<Inbox>,
        orders: OrderSink,
        limits: Limits,
    ) -> Result<Self, Error> {
        assert!(!inboxes.is_empty(), "a consumer without workers reads nothing");
        let (reports, reports_in) = bounded(REPORTS_MAX);
        // Logs take no turns: there are few.
        let policy = limits.policy(InitialOffset::Earliest, keeper.logs().len());
        let mut assignment = Assignment::new(inboxes, reports_in, orders, policy);
        let committer = Committer::of_logs(keeper.clone()).map_err(|source| Error::Committer { source })?;
        assignment.committer = Some(committer);
        let now = Instant::now();
        let stats = Arc::default();
        Ok(Self { keeper, assignment, stats, reports, phase: Phase::Away, counted: now, said: now })
    }

    /// Sets where the ranges of a log are sent. Must be called before [`run`](Self::run).
    pub fn sends_to(&mut self, destination_of: DestinationOf) {
        self.assignment.arrivals.sends_to(destination_of);
    }

    /// Where workers and delivery send their reports.
    pub fn reports(&self) -> Sender<Report> {
        self.reports.clone()
    }

    /// The numbers for metrics.
    pub fn stats(&self) -> Arc<ConsumerStats> {
        self.stats.clone()
    }

    /// Reads the logs until `stop` is requested. Then it reads on until they are empty, or time is short; takes every log back from the workers,
    /// waits for blocks in flight, and commits. What is left stays in the logs, for the next start.
    pub fn run(mut self, stop: &Stop, drain: &Drain) -> Result<(), Error> {
        self.assignment.stop = stop.clone();
        // Also if the end is asked for already: what is in the logs is inserted as far as there is time.
        self.follow(drain);
        while !stop.is_requested() {
            self.tend(Instant::now() + POLL_INTERVAL);
            self.follow(drain);
        }
        self.leave(stop)
    }

    /// Moves to the next phase if it is due.
    fn follow(&mut self, drain: &Drain) {
        match (self.phase, drain.is_requested()) {
            (Phase::Away, false) => self.begin(Phase::Member),
            // It was asked to drain before it read anything.
            (Phase::Away, true) if !self.is_empty() => self.begin(Phase::Draining),
            (Phase::Member, true) => {
                tracing::info!(
                    messages = self.left(),
                    "draining: no request is accepted, and the logs are read to their end"
                );
                self.enter(Phase::Draining);
            }
            (Phase::Draining, false) => {
                tracing::info!(messages = self.left(), "drain canceled: requests are accepted again");
                self.enter(Phase::Member);
            }
            (Phase::Draining, true) if self.is_empty() => {
                self.give_back();
                self.enter(Phase::Away);
                let logs = self.keeper.logs();
                let unreadable: u64 =
                    logs.iter().filter(|log| log.is_unreadable).map(LogState::waiting).sum();
                tracing::info!(unreadable, "drained: the logs that can be read are empty");
            }
            (Phase::Draining, true) if self.said.elapsed() >= SAY_INTERVAL => {
                self.said = Instant::now();
                tracing::info!(messages = self.left(), "draining: messages are not inserted yet");
            }
            _ => {}
        }
    }

    /// Begins to read every log.
    fn begin(&mut self, phase: Phase) {
        self.assignment.resume();
        let all = self.keeper.logs().into_iter().map(|log| log.id);
        let new = all.filter(|id| !self.assignment.owns(id)).collect::<Vec<_>>();
        tracing::info!(logs = new.len(), messages = self.left(), "reading the logs of the queue volume");
        self.assignment.arrivals.arrive(new);
        self.enter(phase);
    }

    fn enter(&mut self, phase: Phase) {
        self.stats.joined.store(phase != Phase::Away, Ordering::Release);
        self.stats.enter(phase);
        (self.phase, self.said) = (phase, Instant::now());
    }

    /// Takes empty logs back from their workers.
    fn give_back(&mut self) {
        self.assignment.drain();
        let owned = self.assignment.owned();
        let now = Instant::now();
        let waits = Waits { drained_by: now + LAST_COMMIT_WAIT, committed_by: now + LAST_COMMIT_WAIT };
        self.assignment.let_go(&owned, waits, true, &self.stats);
    }

    /// Messages that can be read and are not committed.
    fn left(&self) -> u64 {
        self.keeper.logs().iter().map(LogState::left).sum()
    }

    /// Whether nothing is left, and nothing can be added. The order matters: what was appended before the answer is seen.
    fn is_empty(&self) -> bool {
        !self.keeper.may_append() && self.left() == 0
    }

    /// Takes reports, releases ranges, commits, and begins logs, up to a time.
    fn tend(&mut self, until: Instant) {
        self.assignment.tend_until(until, &self.stats, |_| false);
        // Logs are neither paused nor unassigned: a queue takes no memory between two polls.
        let Steps { assign, .. } = self.assignment.steps();
        for Ready { id, position, begun, .. } in assign {
            let wakes = self.assignment.wakes();
            let messages = self.keeper.messages(&id, position, Box::new(move || wakes.iter().for_each(wake)));
            self.assignment.turns.gained(std::slice::from_ref(&id));
            self.assignment.hand_to_worker(id, begun, PartitionQueue::Log(RefCell::new(messages)));
        }
        let logs = self.keeper.logs();
        for log in &logs {
            self.assignment.log_ends(&log.id, log.end);
        }
        self.stats.uncommitted.store(logs.iter().map(LogState::left).sum(), Ordering::Relaxed);
        if self.counted.elapsed() >= STATS_INTERVAL {
            self.counted = Instant::now();
            self.count(&logs);
        }
    }

    /// Whether workers have polled everything, and nothing can be added.
    fn is_polled(&self) -> bool {
        !self.keeper.may_append()
            && self.keeper.logs().iter().all(|log| log.is_unreadable || log.polled >= log.end)
    }

    /// Has the workers end what is open: nothing else will, until it is old enough. If there was no room for a message, the log is read again
    /// from there.
    fn seal(&mut self, until: Instant) {
        self.assignment.drain();
        let is_settled =
            |assignment: &Assignment| assignment.unfinished() == 0 && assignment.left().uncommitted == 0;
        self.assignment.tend_until(until, &self.stats, is_settled);
        if !self.is_empty() {
            self.assignment.resume();
        }
    }

    fn count(&self, logs: &[LogState]) {
        let owned = i64::try_from(self.assignment.owned().len()).unwrap_or(i64::MAX);
        self.stats.partitions_owned.store(owned, Ordering::Relaxed);
        let numbers = |log: &LogState| PartitionStats {
            lag_messages: i64::try_from(log.waiting()).ok(),
            end_offset: Some(log.end),
            log_start_offset: Some(log.start),
            committed_offset: log.committed,
            ..PartitionStats::default()
        };
        let partitions: BTreeMap<_, _> = logs.iter().map(|log| (log.id.clone(), numbers(log))).collect();
        self.stats.replace(partitions);
    }

    /// Reads on while there is time, and ends. All of it ends by the deadline of `stop`.
    fn leave(mut self, stop: &Stop) -> Result<(), Error> {
        let deadline = stop.deadline().unwrap_or_else(Instant::now);
        let left = deadline.saturating_duration_since(Instant::now());
        let drained_by = deadline.checked_sub(LAST_COMMIT_WAIT.min(left / 4)).unwrap_or(deadline);
        // Blocks that are sealed late must be inserted, too.
        let read_by = drained_by.checked_sub(LAST_COMMIT_WAIT.min(left / 4)).unwrap_or(drained_by);
        while Instant::now() < read_by && !self.is_empty() {
            self.tend(read_by.min(Instant::now() + POLL_INTERVAL));
            if self.is_polled() {
                self.seal(read_by);
            }
        }
        self.assignment.drain();
        let owned = self.assignment.owned();
        self.assignment.tend_until(drained_by, &self.stats, |assignment| assignment.unfinished() == 0);
        let unfinished = self.assignment.unfinished();
        let waits = Waits { drained_by: Instant::now(), committed_by: deadline };
        let Gone { committable, .. } = self.assignment.let_go(&owned, waits, true, &self.stats);
        self.assignment.close_inboxes();
        // What is not inserted is in the logs.
        how_left(unfinished, true, committable)
    }
}

#[cfg(test)]
#[path = "log_consumer_tests.rs"]
mod tests;
