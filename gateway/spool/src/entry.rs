//! What the index keeps of a block: a fixed size, whatever the block's.

use crate::{
    format::{INDEX_BYTES_PER_BLOCK, RECORD_HEADER_BYTES},
    record::RecordHeader,
};
use std::sync::Arc;

/// Where a block is in the queue. Blocks are in the order of their ids, which is the order in which they were appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId {
    /// The sequence of its segment.
    pub segment: u64,
    /// Its place in the segment.
    pub ordinal: u32,
}

/// A partition of a topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionName {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
}

/// Whether a block may be in ClickHouse already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// It was never sent from here.
    Never,
    /// The same, and nobody else has it to send.
    Sole,
    /// It was first sent then, in ms since 1970.
    At(u64),
    /// Perhaps: one of its marks is not whole. To be counted as sent at an unknown time.
    Doubtful,
}

impl Sent {
    /// Whether it was sent from here, or may have been.
    pub fn is_marked(self) -> bool {
        matches!(self, Self::At(_) | Self::Doubtful)
    }
}

/// A block's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It can be read.
    Held,
    /// It cannot be read, and nobody has settled it yet.
    Lost,
    /// It is settled.
    Settled,
}

/// The offsets and rows of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coordinates {
    /// Of which partition.
    pub partition: Arc<PartitionName>,
    /// The first offset.
    pub first: i64,
    /// One past the last offset.
    pub next: i64,
    /// Rows.
    pub rows: u64,
}

/// A block in the index.
#[derive(Debug)]
pub struct Entry {
    /// Where its record begins.
    pub at: u64,
    /// Bytes of its body.
    pub body_bytes: u64,
    /// When it was appended, in ms since 1970.
    pub appended_ms: u64,
    /// What it covers; `None` when its header cannot be read.
    pub coordinates: Option<Coordinates>,
    /// Whether it may be in ClickHouse.
    pub sent: Sent,
    /// Set once it was found to be the only copy of its rows, but for so many that are elsewhere too.
    pub only_copy: Option<u64>,
    /// Its state.
    pub state: State,
}

const _: () =
    assert!(size_of::<Entry>() <= INDEX_BYTES_PER_BLOCK, "the index has the size that its limits say");

impl Entry {
    /// The entry of a block that can be read, at a position.
    pub fn held(header: &RecordHeader, at: u64, partition: Arc<PartitionName>) -> Self {
        let head = &header.head;
        let coordinates = Coordinates { partition, first: head.first, next: head.next, rows: head.rows };
        Self {
            at,
            body_bytes: header.body_bytes,
            appended_ms: header.appended_ms,
            coordinates: Some(coordinates),
            sent: head.first_sent_ms.map_or(Sent::Never, Sent::At),
            only_copy: None,
            state: State::Held,
        }
    }

    /// The entry of a block that was there, and of which nothing can be read.
    pub fn unreadable() -> Self {
        Self {
            at: 0,
            body_bytes: 0,
            appended_ms: 0,
            coordinates: None,
            sent: Sent::Doubtful,
            only_copy: None,
            state: State::Lost,
        }
    }

    /// Where its record ends.
    pub fn end(&self) -> u64 {
        self.at.saturating_add(RECORD_HEADER_BYTES as u64).saturating_add(self.body_bytes)
    }
}
