//! A commit: when one is wanted, what it says, and what became of it.
//!
//! One at a time is in flight, over all partitions of the consumer: commits that overtake each other would put an older plan
//! back.

#[cfg(doc)]
use super::METADATA_BYTES_MAX;
use super::{Now, PROOF_AGE_MAX, Ranges, Wait};
use crate::Generation;
use std::time::Duration;

/// How soon a commit is wanted.
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
    /// The offset.
    pub offset: i64,
    /// Its metadata, at most [`METADATA_BYTES_MAX`].
    pub metadata: String,
}

/// What became of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitOutcome {
    /// The coordinator stored it.
    Stored,
    /// It refused, or nobody knows. Another commit is made.
    Unknown,
    /// The group has gone on without this member.
    Fenced,
}

/// Whether the worker reads on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Worker {
    /// It does.
    Reads,
    /// It stands in front of what it cannot read.
    Stands,
}

/// The commit in flight.
#[derive(Debug)]
pub struct Pending {
    /// The offset.
    pub offset: i64,
    /// The plan's horizon.
    pub horizon: i64,
    /// When.
    pub begun: Duration,
    /// Whether it brings the rule that is wanted.
    pub switches: bool,
}

impl Ranges {
    /// How soon a commit is wanted; nothing while one is in flight.
    pub fn urgency(&self, now: Now) -> Urgency {
        if self.has_ended || self.pending.is_some() {
            return Urgency::None;
        }
        let wait = self.waits_for(now);
        let waits = matches!(wait, Some(Wait::PlanCommit | Wait::Horizon | Wait::Proof));
        if !self.is_planned || waits || self.can_switch() || self.partings.wait(self.offset()) {
            return Urgency::Now;
        }
        // What a range held back by another one behind it covers is committed with the regular one.
        let moved = self.kept != Some(self.offset());
        let promises_more = self.log_end > self.horizon && !self.switches() && self.worker == Worker::Reads;
        let runs_out = promises_more && self.pace.runs_out(self.horizon - self.tail);
        let takes_back = self.worker == Worker::Stands && self.horizon > self.horizon_least();
        let ages = !self.flight.is_empty() && now.steady.saturating_sub(self.proof) > PROOF_AGE_MAX / 2;
        if moved || runs_out || takes_back || ages { Urgency::Regular } else { Urgency::None }
    }

    /// Takes down whether the worker reads nothing more for now: it stands in front of what it cannot read. While it does, plans promise no
    /// ranges behind the last one: the next owner, which reads up to what was promised before anything ends by time, may not get there either, and
    /// then what it can read would never be inserted.
    pub fn stands(&mut self, generation: Generation, stands: bool) {
        if self.is_current(generation) {
            self.worker = if stands { Worker::Stands } else { Worker::Reads };
        }
    }

    /// The least that a plan may promise: up to where every range is known that was sent, or may be, by this owner or by one before.
    pub(super) fn horizon_least(&self) -> i64 {
        let decided = self.flight.iter().map(|range| range.decided).max();
        let least = self.tail.max(decided.unwrap_or(self.tail));
        if self.tail < self.inherited.horizon { least.max(self.horizon) } else { least }
    }

    /// Has the plan committed once more: the coordinator may have forgotten it, as it does with all of a topic that is deleted.
    pub fn recommit_plan(&mut self) {
        self.kept = None;
    }
}
