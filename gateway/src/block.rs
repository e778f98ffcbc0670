//! The block: what one insert sends, and which offsets it settles.
//!
//! A worker keeps one [`OpenBlock`] per partition it is reading. Sealed, it is a [`Block`]: immutable, sent as the same
//! bytes under the same token on every try.

use crate::buffers::{Chunks, Pool, Purpose, StoreError};
use bytes::Bytes;
use sluice_clickhouse::row_frames::{RowFrames, RowMark};
use sluice_kafka::{Generation, OffsetRange, PartitionId};
use std::time::Instant;

/// Rows of one partition that are not sealed yet.
pub struct OpenBlock {
    /// The rows that are not compressed yet.
    pub rows: RowFrames,
    /// The frames.
    pub chunks: Chunks,
    /// The offsets of its messages; `None` while there is none.
    range: Option<OffsetRange>,
    opened: Instant,
    message_bytes: u64,
    span_end_nanos_max: u64,
}

/// A sealed block.
#[derive(Debug)]
pub struct Block {
    /// The partition that it was read from.
    pub id: PartitionId,
    /// Under which generation.
    pub generation: Generation,
    /// Its place among the blocks of this generation.
    pub ordinal: u64,
    /// The offsets that it covers.
    pub range: OffsetRange,
    /// Rows; 0 when no message had a span.
    pub rows: u64,
    /// Bytes before compression.
    pub raw_bytes: u64,
    /// The frames, in order.
    pub frames: Vec<Bytes>,
    /// Bytes of the frames.
    pub bytes: usize,
    /// The frames' checksums, folded into one.
    pub checksum: u128,
    /// The latest end of a span, in ns since 1970; 0 without spans.
    pub span_end_nanos_max: u64,
}

impl OpenBlock {
    /// An empty one with these row buffers.
    pub fn new(rows: RowFrames, now: Instant) -> Self {
        Self {
            rows,
            chunks: Chunks::default(),
            range: None,
            opened: now,
            message_bytes: 0,
            span_end_nanos_max: 0,
        }
    }

    /// Whether it covers no message.
    pub fn is_empty(&self) -> bool {
        self.range.is_none()
    }

    /// When its first message came.
    pub fn opened(&self) -> Instant {
        self.opened
    }

    /// Bytes of its messages as they were read.
    pub fn message_bytes(&self) -> u64 {
        self.message_bytes
    }

    /// Takes down that a message is in: its rows, or that it has none.
    pub fn add_message(&mut self, offset: i64, bytes: usize, span_end_nanos_max: u64, now: Instant) {
        // The next offset is the first one that this block does not cover.
        let next = offset + 1;
        if let Some(range) = &mut self.range {
            range.next = next;
        } else {
            self.opened = now;
            self.range = Some(OffsetRange { first: offset, next });
        }
        self.message_bytes += bytes as u64;
        self.span_end_nanos_max = self.span_end_nanos_max.max(span_end_nanos_max);
    }

    /// The end of the last message's rows, to go back to.
    pub fn mark(&mut self, pool: &Pool) -> RowMark {
        self.rows.mark(&self.chunks.store(pool, Purpose::Fill))
    }

    /// Takes back what was written since the mark.
    ///
    /// # Panics
    /// When the frames in memory are not what was written to them.
    pub fn rewind(&mut self, pool: &Pool, mark: RowMark) {
        let outcome = self.rows.rewind(&mut self.chunks.store(pool, Purpose::Fill), mark);
        outcome.expect("a frame in memory is what was written there");
    }

    /// Writes the last frame and makes it a block with these coordinates; `self` is empty again afterwards. Without a
    /// chunk for the last frame nothing changes.
    ///
    /// # Panics
    /// When it covers no message.
    pub fn seal(&mut self, pool: &Pool, place: Place) -> Result<Block, StoreError> {
        let totals = self.rows.finish(&mut self.chunks.store(pool, Purpose::Seal))?;
        let chunks = std::mem::take(&mut self.chunks);
        let block = Block {
            id: place.id,
            generation: place.generation,
            ordinal: place.ordinal,
            range: self.range.take().expect("only a block that covers messages is sealed"),
            rows: totals.rows,
            raw_bytes: totals.raw_bytes,
            bytes: chunks.len(),
            checksum: chunks.checksum(),
            frames: chunks.into_bytes(),
            span_end_nanos_max: self.span_end_nanos_max,
        };
        self.message_bytes = 0;
        self.span_end_nanos_max = 0;
        Ok(block)
    }
}

/// Coordinates of a block.
#[derive(Debug, Clone)]
pub struct Place {
    /// The partition.
    pub id: PartitionId,
    /// Its generation.
    pub generation: Generation,
    /// The block's number in it.
    pub ordinal: u64,
}

impl Block {
    /// The deduplication token: partition, offsets, and the checksum of the rows. The same rows always have the same
    /// token; other rows at the same offsets (of a topic that was made anew) have another.
    pub fn token(&self) -> String {
        let PartitionId { topic, partition } = &self.id;
        let OffsetRange { first, next } = self.range;
        format!("{topic}-{partition}-{first}-{next}-{:032x}", self.checksum)
    }
}
