//! The block: what one insert sends, and which offsets it settles.
//!
//! A worker keeps one [`OpenBlock`] per partition that it reads. Sealing turns it into a [`Block`]: immutable, and sent as the same rows
//! under the same token at every try.

use crate::{
    blocks::{
        batch::{BlockAge, OpenCount},
        buffers::{Pool, Purpose, StoreError},
        chunks::Chunks,
        message_rows::MessageRows,
        spool_metadata::SpoolMetadata,
    },
    ground::account::{OpenRows, RowsInFlight},
};
use bytes::Bytes;
use sluice_clickhouse::row_frames::{RowFrames, RowMark};
use sluice_ranges::{Closed, Generation, OffsetRange, PartitionId, SpooledRange, Token};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Rows of one partition that are not sealed yet.
pub struct OpenBlock {
    /// The rows in the current frame, not compressed yet.
    pub rows: RowFrames,
    /// The frames.
    pub chunks: Chunks,
    /// Counts the rows.
    account: OpenRows,
    /// The message of each row.
    messages: MessageRows,
    opened: Instant,
    /// The position of its shard in the config.
    shard: usize,
    span_end_nanos_max: u64,
    /// Counts it as an open block.
    _counted: Option<OpenCount>,
}

/// A sealed block.
#[derive(Debug)]
pub struct Block {
    /// The partition that it was read from.
    pub id: PartitionId,
    /// The generation under which it was read.
    pub generation: Generation,
    /// The offsets that it covers.
    pub range: OffsetRange,
    /// The deduplication token: always the same for the same messages at the same offsets.
    pub token: Token,
    /// Number of rows; 0 if no message had a span.
    pub rows: u64,
    /// The guard of its rows, to which their result is reported.
    pub account: RowsInFlight,
    /// The message of each row.
    pub messages: MessageRows,
    /// Bytes before compression.
    pub raw_bytes: u64,
    /// The frames, in order.
    pub frames: Vec<Bytes>,
    /// Bytes of the frames.
    pub bytes: usize,
    /// The latest end of a span, in ns since 1970; 0 without spans.
    pub span_end_nanos_max: u64,
    /// What the next run of this process must know to take it over.
    pub spool_metadata: SpoolMetadata,
}

impl OpenBlock {
    /// An empty block with this row buffer.
    pub fn new(rows: RowFrames, account: OpenRows, now: Instant) -> Self {
        Self {
            rows,
            chunks: Chunks::default(),
            account,
            messages: MessageRows::default(),
            opened: now,
            shard: 0,
            span_end_nanos_max: 0,
            _counted: None,
        }
    }

    /// Sets its shard.
    #[must_use]
    pub fn of_shard(self, shard: usize) -> Self {
        Self { chunks: Chunks::of(shard), shard, ..self }
    }

    /// Counts it as an open block.
    #[must_use]
    pub fn counted_by(self, age: &BlockAge) -> Self {
        Self { _counted: Some(age.open()), ..self }
    }

    /// Its shard, and how old it is.
    pub fn age(&self, now: Instant) -> (usize, Duration) {
        (self.shard, now.saturating_duration_since(self.opened))
    }

    /// Adds the rows of the message at this offset.
    pub fn add_message(&mut self, offset: i64, rows: u64, span_end_nanos_max: u64) {
        self.account.walked(rows);
        self.messages.add(offset, rows);
        self.span_end_nanos_max = self.span_end_nanos_max.max(span_end_nanos_max);
    }

    /// The end of the last message's rows, for [`Self::rewind`].
    pub fn mark(&mut self, pool: &Pool) -> RowMark {
        self.rows.mark(&self.chunks.store(pool, Purpose::Fill))
    }

    /// Removes everything that was written since the mark.
    ///
    /// # Panics
    /// If the frames in memory are not what was written to them.
    pub fn rewind(&mut self, pool: &Pool, mark: RowMark) {
        let outcome = self.rows.rewind(&mut self.chunks.store(pool, Purpose::Fill), mark);
        outcome.expect("a frame in memory is what was written there");
    }

    /// Writes the last frame and returns the block of this range; `self` is then empty. Without a chunk for the last frame, nothing
    /// changes.
    pub fn seal(&mut self, pool: &Pool, place: &Place, closed: &Closed) -> Result<Block, StoreError> {
        let totals = self.rows.finish(&mut self.chunks.store(pool, Purpose::Seal))?;
        let chunks = std::mem::take(&mut self.chunks);
        let next = self.account.anew();
        Ok(Block {
            id: place.id.clone(),
            generation: place.generation,
            range: closed.range,
            token: Token::of(&place.cluster, &place.id, closed.range, closed.content),
            rows: totals.rows,
            account: std::mem::replace(&mut self.account, next).seal(totals.rows),
            messages: std::mem::take(&mut self.messages).finished(),
            raw_bytes: totals.raw_bytes,
            bytes: chunks.len(),
            frames: chunks.into_bytes(),
            span_end_nanos_max: std::mem::take(&mut self.span_end_nanos_max),
            spool_metadata: SpoolMetadata {
                cluster: place.cluster.clone(),
                kept: SpooledRange::of(closed),
                is_doubtful: closed.doubtful,
                // Delivery sets it.
                is_enqueued: false,
            },
        })
    }

    /// Gives it up: its messages are read again.
    pub fn abandon(self) {
        self.account.abandon();
    }
}

/// The partition of a block, and its generation and cluster.
#[derive(Debug, Clone)]
pub struct Place {
    /// The partition.
    pub id: PartitionId,
    pub generation: Generation,
    /// The id of the Kafka cluster.
    pub cluster: Arc<str>,
}
