//! A look at every partition that is assigned, after each of librdkafka's statistics: which of them stand still, and how long
//! Kafka's retention leaves them.
//!
//! Place in the flow: the poll thread calls [`Inspection::inspect`], and resumes what comes out. Owner: the poll thread.
//!
//! ```text
//!  Assignment::known ---.
//!                       +--> Seen --> Watchdog --> resumed; still, for readiness and metrics
//!  PartitionStats ------+
//!                       `--> Look --> Retention --> seconds left, for metrics
//! ```
//!
//! Limits: those of [`crate::watchdog`] and [`crate::retention`].

use crate::{
    assignment::Assignment,
    clock,
    partition::PartitionId,
    retention::{Look, Retention},
    stats::{ConsumerStats, PartitionStats},
    topic_limits::LimitsReader,
    turns::Change,
    watchdog::{AtWorker, Common, Reason, Seen, Watchdog},
};
use sluice_gateway_config::Kafka;
use std::{collections::BTreeMap, sync::atomic::Ordering, time::Instant};

/// What the poll thread knows of a partition that is assigned. Of one that has not begun there are no offsets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Known {
    /// The offset that the group has confirmed last.
    pub committed: Option<i64>,
    /// Up to where every row is settled.
    pub settled: Option<i64>,
    /// Where the last range ends.
    pub tail: Option<i64>,
    /// Where the first range begins that waits for a commit before it may be sent.
    pub unplanned: Option<i64>,
    /// Ranges that were ended and are not settled.
    pub unsettled: usize,
    /// It has its turn.
    pub active: bool,
    /// It was paused last, rather than resumed.
    pub paused: bool,
    /// How its worker is doing with it.
    pub worker: AtWorker,
    /// A block of it waits for someone to act on rows that are refused.
    pub halted: bool,
}

impl Known {
    /// A partition that has not begun.
    pub fn not_begun(worker: AtWorker) -> Self {
        Self { worker, ..Self::default() }
    }
}

/// What is remembered between two looks.
pub struct Inspection {
    watchdog: Watchdog,
    retention: Retention,
    /// `None` when its thread could not be started.
    limits: Option<LimitsReader>,
}

impl Inspection {
    /// Nothing was looked at yet. Begins to learn the topics' limits.
    pub fn start(kafka: &Kafka) -> Self {
        let limits = LimitsReader::start(kafka.clone()).inspect_err(
            |error| tracing::warn!(%error, "the thread that learns the topics' limits could not be started"),
        );
        Self { watchdog: Watchdog::default(), retention: Retention::default(), limits: limits.ok() }
    }

    /// Looks at every partition and publishes what is found. What comes out is to be done with the consumer now.
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
        let numbers = stats.partitions();
        let numbers = |id| numbers.get(id).copied().unwrap_or_default();
        let looks = known.iter().filter_map(|(id, known)| Some((id.clone(), look_of(known, numbers(id))?)));
        let left = self.retention.look(common.now, &looks.collect());
        let seconds = left.into_iter().filter_map(|(id, left)| Some((id, left.seconds?)));
        stats.publish_seconds_left(seconds.collect());

        let seen = known.iter().map(|(id, known)| (id.clone(), seen_of(known, numbers(id)))).collect();
        let check = self.watchdog.check(common, &seen);
        for still in check.still.iter().filter(|still| check.resume.contains(&still.id)) {
            tracing::warn!("{still}; it is resumed");
        }
        let is_anew = |id: &&PartitionId| {
            // Resuming alone changes nothing where nothing is paused.
            check.still.iter().any(|still| still.id == **id && still.reason != Reason::PausedThoughActive)
        };
        let pause = check.resume.iter().filter(is_anew).cloned().collect();
        stats.publish_still(check.still.clone());
        Change { pause, resume: check.resume }
    }
}

/// What the watchdog is told of a partition.
fn seen_of(known: &Known, numbers: PartitionStats) -> Seen {
    let position = match known.worker {
        AtWorker::Reads => numbers.position,
        // What librdkafka has handed out beyond the last range was not taken in: it is read again, or has no room, or cannot be read.
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

/// What retention is told of a partition. `None` while Kafka has not said where its log begins and ends, or it has not begun.
fn look_of(known: &Known, numbers: PartitionStats) -> Option<Look> {
    Some(Look {
        log_start: numbers.log_start_offset?,
        end: numbers.end_offset?,
        position: known.settled?,
        // Where the log ended before tells.
        age: None,
    })
}

#[cfg(test)]
#[path = "inspection_tests.rs"]
mod tests;
