//! The partition of a range, and one period of owning it.

use std::{fmt, sync::Arc};

/// A partition of a topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId {
    pub topic: Arc<str>,
    /// The partition's number in it.
    pub partition: i32,
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic, self.partition)
    }
}

/// One ownership period of a partition in this process. Reports of an older generation are dropped: the partition may have had another
/// owner since, whose commits must not be overtaken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

/// Offsets that one block covers: from `first`, up to but without `next`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffsetRange {
    /// The first offset.
    pub first: i64,
    /// One past the last offset: where the next range begins, and what is committed once this one is settled.
    pub next: i64,
}

/// Whether a report was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It was recorded.
    Recorded,
    /// It belongs to a generation that is over, or to a partition that is not owned.
    Stale,
}
