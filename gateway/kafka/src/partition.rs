//! What passes between the poll thread and the workers: partitions, and what became of the messages in them.

use crate::rebalancing::Rebalancing;
use std::{fmt, sync::Arc};

/// The messages of one partition. Only the worker that owns the partition polls it.
pub type PartitionQueue = rdkafka::consumer::base_consumer::PartitionQueue<Rebalancing>;

/// A partition of a topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition's number in it.
    pub partition: i32,
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic, self.partition)
    }
}

/// One ownership period of a partition in this process. Whatever arrives under an older one is dropped: the partition
/// has had another owner since, whose commits must not be overtaken.
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

/// A partition that a worker now owns.
pub struct Partition {
    /// Which one.
    pub id: PartitionId,
    /// Under which generation.
    pub generation: Generation,
    /// Its messages.
    pub queue: PartitionQueue,
}

/// What the poll thread tells a worker.
pub enum Ownership {
    /// Read this partition.
    Gained(Partition),
    /// Seal what is open of this partition, let its queue go, and answer with [`Report::Released`].
    Lost(PartitionId, Generation),
}

/// What workers and delivery tell the poll thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// Every row of a range is in ClickHouse, or accounted for otherwise.
    Settled {
        /// Of which partition.
        id: PartitionId,
        /// Read under which generation.
        generation: Generation,
        /// The range's place among the ranges of this generation: 0, 1, 2, …
        ordinal: u64,
        /// The offsets.
        range: OffsetRange,
    },
    /// Nothing of a partition can be read any more before someone acts: it is paused, and others have its turn.
    Stopped {
        /// Which one.
        id: PartitionId,
        /// Under which generation it was read.
        generation: Generation,
    },
    /// A worker has let a partition go.
    Released {
        /// Which one.
        id: PartitionId,
        /// Under which generation it was read.
        generation: Generation,
        /// How many ranges were made of it in this generation.
        ranges: u64,
    },
}
