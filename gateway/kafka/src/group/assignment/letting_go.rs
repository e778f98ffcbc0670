//! Partitions that this process lets go: their workers release them, what is in flight is settled, and what is settled is committed.
//!
//! Owner: the poll thread, as for all of [`Assignment`].

use super::Assignment;
use crate::group::stats::ConsumerStats;
use sluice_ranges::PartitionId;
use std::time::Instant;

/// Time limits for releasing partitions.
#[derive(Debug, Clone, Copy)]
pub struct Waits {
    /// For their workers and their ranges in flight.
    pub drained_by: Instant,
    /// For a commit in flight, and for the last commit.
    pub committed_by: Instant,
}

/// The result of releasing partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone {
    /// Partitions that still had ranges in flight.
    pub undrained: usize,
    /// Offsets of ranges that had ended and were not committed.
    pub uncommitted: u64,
    /// Those of them that a commit would have passed, because everything below was settled.
    pub committable: u64,
}

impl Assignment {
    /// Takes partitions back from their workers, waits until their ranges in flight are settled, commits, and ends their generation. Neither
    /// wait exceeds the shutdown deadline: a commit without an answer by then is given up.
    pub fn let_go(
        &mut self,
        ids: &[PartitionId],
        waits: Waits,
        commits: bool,
        stats: &ConsumerStats,
    ) -> Gone {
        self.leave(ids);
        self.recall(ids, false);
        let Waits { drained_by, committed_by } = waits;
        self.tend_until(drained_by, stats, |assignment| assignment.undrained(ids) == 0);
        let undrained = self.undrained(ids);
        if commits {
            self.commit_last(ids, committed_by, stats);
        } else {
            self.resolve(committed_by, stats);
        }
        let (uncommitted, committable) = (self.uncommitted(ids), self.committable(ids));
        let gone = Gone { undrained, uncommitted, committable };
        // The last commit came after the step that counted last, and a process that ends takes no further step.
        self.count_uncommitted(stats);
        self.lose(ids);
        gone
    }
}
