//! A commit: when one is wanted, what it says, and what became of it.
//!
//! One at a time is in flight, over all partitions of the consumer: commits that overtake each other would put an older plan
//! back.

#[cfg(doc)]
use super::METADATA_BYTES_MAX;
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
