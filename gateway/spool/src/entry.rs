//! A block's entry in the index: of fixed size, whatever the size of the block.

use crate::{
    format::{INDEX_BYTES_PER_BLOCK, RECORD_HEADER_BYTES},
    record::RecordHeader,
};
use std::sync::Arc;

/// The place of a block in the queue. Ids are in the order in which blocks were appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId {
    /// The sequence number of its segment.
    pub segment: u64,
    /// Its index in the segment.
    pub ordinal: u32,
}

/// A partition of a topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionName {
    pub topic: Arc<str>,
    pub partition: i32,
}

/// Whether a block may be in ClickHouse already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// This queue never sent it.
    Never,
    /// This queue never sent it, and no other process has it to send.
    Sole,
    /// It was first sent then, in ms since 1970.
    At(u64),
    /// Perhaps: one of its marks is damaged. Counts as sent at an unknown time.
    Doubtful,
}

impl Sent {
    /// Whether this queue sent it, or may have sent it.
    pub fn is_marked(self) -> bool {
        matches!(self, Self::At(_) | Self::Doubtful)
    }
}

/// A block's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It can be read.
    Held,
    /// It cannot be read, and is not settled.
    Lost,
    Settled,
}

/// The offsets and rows of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coordinates {
    pub partition: Arc<PartitionName>,
    /// The first offset.
    pub first: i64,
    /// One past the last offset.
    pub next: i64,
    /// Number of rows.
    pub rows: u64,
}

/// A block in the index.
#[derive(Debug)]
pub struct Entry {
    /// Where its record begins.
    pub at: u64,
    pub body_bytes: u64,
    /// When it was appended, in ms since 1970.
    pub appended_ms: u64,
    /// Its partition, offsets and rows; `None` if its header cannot be read.
    pub coordinates: Option<Coordinates>,
    /// Whether it may be in ClickHouse.
    pub sent: Sent,
    /// Set if it is the only copy of its rows; the number of rows that are stored elsewhere too.
    pub only_copy: Option<u64>,
    pub state: State,
}

const _: () =
    assert!(size_of::<Entry>() <= INDEX_BYTES_PER_BLOCK, "the index has the size that its limits say");

impl Entry {
    /// The entry of a readable block at this position.
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

    /// The entry of a block of which nothing can be read.
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

    /// The end of its record.
    pub fn end(&self) -> u64 {
        self.at.saturating_add(RECORD_HEADER_BYTES as u64).saturating_add(self.body_bytes)
    }
}
