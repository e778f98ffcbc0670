//! Inspects every assigned partition after each of librdkafka's statistics: which partitions make no progress, and how long Kafka's
//! retention leaves them.
//!
//! Place in the flow: the poll thread calls [`Inspection::inspect`], and applies the pauses and resumes that it returns. Owner: the poll
//! thread.
//!
//! ```text
//!  Assignment::known ---.
//!                       +--> Seen --> Watchdog --> resumed; still, for readiness and metrics
//!                       |                 `--> FetchErrors --> what is not fetched, for the state
//!  PartitionStats ------+
//!                       `--> Look --> Retention --> seconds left, for metrics
//!                       `--> OpenTransactions --> what waits behind them, for metrics
//!                       `--> overtaken: messages that are lost and not counted yet, for metrics
//! ```
//!
//! Limits: those of [`crate::group::watchdog`], [`crate::questions::retention`] and [`crate::group::open_transactions`].

use crate::{
    ground::clock,
    group::{
        assignment::Assignment,
        open_transactions::OpenTransactions,
        stats::{ConsumerStats, PartitionStats},
        turns::Change,
        watchdog::{AtWorker, Common, Reason, Seen, Still, Watchdog},
    },
    questions::{
        past::PastReader,
        retention::{Look, Retention},
        topic_limits::LimitsReader,
    },
};
use sluice_gateway_config::{Kafka, Sizing};
use sluice_ranges::PartitionId;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering,
    time::Instant,
};

/// What the poll thread knows of an assigned partition. There are no offsets for a partition that has not started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Known {
    /// The offset of the last confirmed commit.
    pub committed: Option<i64>,
    /// The offset up to which every row is settled.
    pub settled: Option<i64>,
    /// The end of the last range.
    pub tail: Option<i64>,
    /// The start of the first range that waits for a commit before it may be sent.
    pub unplanned: Option<i64>,
    /// Ranges that have ended and are not settled.
    pub unsettled: usize,
    /// Whether it has its turn.
    pub active: bool,
    /// Whether the last call for it was a pause rather than a resume.
    pub paused: bool,
    /// The partition's state at its worker.
    pub worker: AtWorker,
    /// Whether a block of it has refused rows and needs manual action.
    pub halted: bool,
    /// Messages that Kafka no longer had when the partition started. 0 once a commit has passed them and they are counted as lost.
    pub lost: u64,
}

impl Known {
    /// A partition that has not started.
    pub fn not_begun(worker: AtWorker) -> Self {
        Self { worker, ..Self::default() }
    }
}

/// State between two inspections.
pub struct Inspection {
    watchdog: Watchdog,
    retention: Retention,
    transactions: OpenTransactions,
    /// `None` if its thread could not be started.
    limits: Option<LimitsReader>,
    /// `None` if its thread could not be started.
    past: Option<PastReader>,
    /// Partitions whose lost messages were logged.
    overtaken: BTreeSet<PartitionId>,
    /// Reasons for stopped partitions that were logged.
    halted: BTreeSet<Reason>,
}

impl Inspection {
    /// A fresh state. Starts to read the topics' limits.
    pub fn start(kafka: &Kafka, sizing: Sizing) -> Self {
        let limits = LimitsReader::start(kafka.clone(), sizing).inspect_err(
            |error| tracing::warn!(%error, "cannot start the thread that reads the topics' limits"),
        );
        let past = PastReader::start(kafka.clone()).inspect_err(
            |error| tracing::warn!(%error, "cannot start the thread that asks for the age of messages"),
        );
        Self {
            watchdog: Watchdog::default(),
            retention: Retention::default(),
            transactions: OpenTransactions::default(),
            limits: limits.ok(),
            past: past.ok(),
            overtaken: BTreeSet::new(),
            halted: BTreeSet::new(),
        }
    }

    /// Inspects every partition and publishes the result. Returns the calls to make on the consumer now.
    pub fn inspect(&mut self, assignment: &Assignment, stats: &ConsumerStats) -> Change {
        if let Some(learned) = self.limits.as_ref().and_then(LimitsReader::learned) {
            self.retention.learn(learned);
            stats.is_topic_compacted.store(self.retention.is_any_compacted(), Ordering::Relaxed);
        }
        let known = assignment.known(clock::now());
        let common = Common {
            now: Instant::now(),
            round: assignment.turns.round(),
            blocks_in_flight: assignment.blocks_in_flight(),
        };
        self.look(common, &known, stats)
    }

    fn look(
        &mut self,
        common: Common,
        known: &BTreeMap<PartitionId, Known>,
        stats: &ConsumerStats,
    ) -> Change {
        let of_all = stats.partitions();
        let numbers = |id| of_all.get(id).copied().unwrap_or_default();
        let looks = known.iter().filter_map(|(id, known)| Some((id.clone(), look_of(known, numbers(id))?)));
        let looks = looks.collect();
        if let Some(past) = &mut self.past {
            self.retention.learn_past(past.take());
        }
        let left = self.retention.look(common.now, &looks, |id| known.contains_key(id));
        if let Some(past) = &mut self.past {
            past.ask(self.retention.wants_past(common.now, &looks), common.now);
        }
        let seconds = left.into_iter().filter_map(|(id, left)| Some((id, left.seconds?)));
        stats.publish_seconds_left(seconds.collect());
        let overtaken = known.iter().map(|(id, known)| (id.clone(), overtaken_of(known, numbers(id))));
        let overtaken = overtaken.filter(|(_, messages)| *messages > 0).collect();
        self.say_overtaken(&overtaken);
        stats.publish_overtaken(overtaken);
        let assigned = known.keys().map(|id| (id.clone(), numbers(id)));
        stats.publish_open_transactions(self.transactions.look(common.now, assigned));

        let seen = known.iter().map(|(id, known)| (id.clone(), seen_of(known, numbers(id)))).collect();
        let check = self.watchdog.check(common, &seen);
        let due = self.watchdog.due(common, &seen);
        let unfetched = stats.fetch_errors().unfetched(&due, &of_all);
        stats.publish_unfetched(unfetched);
        for still in check.still.iter().filter(|still| check.resume.contains(&still.id)) {
            tracing::warn!("{still}; resuming it");
        }
        self.say_still(&check.still);
        let is_anew = |id: &&PartitionId| {
            // Resuming alone changes nothing for a partition that is not paused.
            check.still.iter().any(|still| still.id == **id && still.reason != Reason::PausedThoughActive)
        };
        let pause = check.resume.iter().filter(is_anew).cloned().collect();
        stats.publish_still(check.still.clone());
        Change { pause, resume: check.resume }
    }

    /// Logs each reason for stopped partitions once, until it is over. Resumed partitions have a log line of their own. One line per
    /// reason, because what stops one partition often stops all of them.
    fn say_still(&mut self, still: &[Still]) {
        let halted = still.iter().filter(|still| still.reason.is_halt() && !still.reason.is_resumed());
        let mut by_reason = BTreeMap::<Reason, (&Still, usize)>::new();
        for still in halted {
            by_reason.entry(still.reason).or_insert((still, 0)).1 += 1;
        }
        self.halted.retain(|reason| by_reason.contains_key(reason));
        for (reason, (first, partitions)) in by_reason {
            if self.halted.insert(reason) {
                tracing::warn!(reason = reason.label(), partitions, "{first}");
            }
        }
    }

    /// Logs once per partition that retention deleted unread messages, until that is over.
    fn say_overtaken(&mut self, overtaken: &BTreeMap<PartitionId, u64>) {
        self.overtaken.retain(|id| overtaken.contains_key(id));
        for (id, messages) in overtaken {
            if self.overtaken.insert(id.clone()) {
                tracing::error!(
                    partition = %id,
                    messages,
                    "Kafka's retention deleted messages before they were read: they are lost"
                );
            }
        }
    }
}

/// Messages of a partition that Kafka deleted before they were read, and that are not counted as lost yet.
fn overtaken_of(known: &Known, numbers: PartitionStats) -> u64 {
    if known.lost > 0 {
        return known.lost;
    }
    // Better too few for a moment than to count offsets without a message, which only the position passes, or messages that are already
    // in the partition's queue. A pause discards that queue.
    let queued = numbers.fetched_offset.filter(|_| !known.paused);
    let read = known.tail.map(|tail| tail.max(numbers.position.max(queued).unwrap_or(tail)));
    let overtaken = numbers.log_start_offset.zip(read).map(|(start, read)| start.saturating_sub(read));
    overtaken.and_then(|messages| u64::try_from(messages).ok()).unwrap_or(0)
}

/// The watchdog's view of a partition.
fn seen_of(known: &Known, numbers: PartitionStats) -> Seen {
    let position = match known.worker {
        AtWorker::Reads => numbers.position,
        // Messages that librdkafka handed out behind the last range were not taken: they are read again, have no room, or cannot be read.
        _ => known.tail,
    };
    Seen {
        committed: known.committed,
        settled: known.settled,
        unplanned: known.unplanned,
        position,
        end: numbers.end_offset,
        active: known.active,
        paused: known.paused,
        worker: known.worker,
        halted: known.halted,
    }
}

/// Retention's view of a partition. `None` if the log's bounds are unknown or the partition has not started.
fn look_of(known: &Known, numbers: PartitionStats) -> Option<Look> {
    Some(Look {
        log_start: numbers.log_start_offset?,
        // Includes open transactions: retention deletes their messages like any others.
        end: numbers.end_offset.max(numbers.high_watermark)?,
        position: known.settled?,
        // Known from earlier ends of the log, or from the brokers.
        age: None,
    })
}

#[cfg(test)]
#[path = "inspection_tests.rs"]
mod tests;
