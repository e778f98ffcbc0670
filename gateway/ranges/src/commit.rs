//! A commit: when it is needed, its content, and its outcome.
//!
//! One is in flight at a time, over all partitions of the consumer: commits that overtake each other would restore an older plan.

#[cfg(doc)]
use super::METADATA_BYTES_MAX;
use super::{Now, PROOF_AGE_MAX, Ranges, Wait};
use crate::Generation;
use std::time::Duration;

/// How soon a commit is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// There is nothing to commit.
    None,
    /// With the regular commit.
    Regular,
    /// A range waits for it.
    Now,
}

/// A commit to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    pub offset: i64,
    /// Its metadata, at most [`METADATA_BYTES_MAX`].
    pub metadata: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitOutcome {
    /// The coordinator stored it.
    Stored,
    /// It was refused, or the outcome is unknown. Another commit is made.
    Unknown,
    /// The group has continued without this member.
    Fenced,
}

/// Whether the worker reads on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Worker {
    /// It reads on.
    Reads,
    /// The next message cannot be read.
    Stands,
}

/// The commit in flight.
#[derive(Debug)]
pub struct Pending {
    pub offset: i64,
    /// The plan's horizon.
    pub horizon: i64,
    /// When it was started.
    pub begun: Duration,
    /// Whether it brings the wanted rule into force.
    pub switches: bool,
}

impl Ranges {
    /// How soon a commit is needed; [`Urgency::None`] while one is in flight.
    pub fn urgency(&self, now: Now) -> Urgency {
        if self.has_ended || self.pending.is_some() {
            return Urgency::None;
        }
        let wait = self.waits_for(now);
        let waits = matches!(wait, Some(Wait::PlanCommit | Wait::Horizon | Wait::Proof));
        if !self.is_planned || waits || self.can_switch() || self.partings.wait(self.offset()) {
            return Urgency::Now;
        }
        // No range waits for a commit now: changes go into the regular one.
        let moved = self.kept != Some(self.offset());
        let promises_more = self.log_end > self.horizon && !self.switches() && !self.promises_nothing();
        let runs_out = promises_more && self.pace.runs_out(self.horizon - self.tail);
        let takes_back = self.promises_nothing() && self.horizon > self.horizon_least();
        let ages = !self.flight.is_empty() && now.steady.saturating_sub(self.proof) > PROOF_AGE_MAX / 2;
        if moved || runs_out || takes_back || ages { Urgency::Regular } else { Urgency::None }
    }

    /// Records whether the worker has stopped because it cannot read the next message. While it has, plans promise no ranges behind the
    /// last one. The next owner must read up to the promised offset before a range may end by time. It may not get that far either, and
    /// the messages that it can read would never be inserted.
    pub fn stands(&mut self, generation: Generation, stands: bool) {
        if self.is_current(generation) {
            self.worker = if stands { Worker::Stands } else { Worker::Reads };
        }
    }

    /// Whether no further range is sent for now: the worker stands, or the partition is being given back.
    pub(super) fn promises_nothing(&self) -> bool {
        self.worker == Worker::Stands || self.is_leaving
    }

    /// The lowest possible horizon: every range that this owner or an earlier one sent, or may send, is known up to there.
    pub(super) fn horizon_least(&self) -> i64 {
        let decided = self.flight.iter().map(|range| range.decided).max();
        let least = self.tail.max(decided.unwrap_or(self.tail));
        if self.tail < self.inherited.horizon { least.max(self.horizon) } else { least }
    }

    /// Commits the plan once more: the coordinator may have deleted it, as it does for a topic that is deleted.
    pub fn recommit_plan(&mut self) {
        self.kept = None;
    }

    /// Offsets of ranges that have ended and are not committed.
    pub fn uncommitted(&self) -> u64 {
        self.not_committed(self.tail)
    }

    /// Those of them that a commit would pass: everything below is settled.
    pub fn committable(&self) -> u64 {
        self.not_committed(self.offset())
    }

    /// Before the first commit of this generation is stored, nothing of it is committed.
    fn not_committed(&self, up_to: i64) -> u64 {
        let from = self.committed.unwrap_or(self.begun);
        u64::try_from(up_to.saturating_sub(from)).unwrap_or(0)
    }
}
