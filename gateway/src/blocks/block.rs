//! The block: what one insert sends, and which offsets it settles.
//!
//! A worker keeps one [`OpenBlock`] per partition it is reading. Sealed, it is a [`Block`]: immutable, sent as the same
//! rows under the same token on every try.

use crate::{
    blocks::{
        batch::{BlockAge, OpenCount},
        buffers::{Chunks, Pool, Purpose, StoreError},
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
    /// The rows that are not compressed yet.
    pub rows: RowFrames,
    /// The frames.
    pub chunks: Chunks,
    /// The rows, in the account.
    account: OpenRows,
    /// Which message they are of.
    messages: MessageRows,
    opened: Instant,
    /// The place of the shard that they go to, in the config.
    shard: usize,
    span_end_nanos_max: u64,
    /// Among the blocks that are open, until it is dropped.
    _counted: Option<OpenCount>,
}

/// A sealed block.
#[derive(Debug)]
pub struct Block {
    /// The partition that it was read from.
    pub id: PartitionId,
    /// Under which generation.
    pub generation: Generation,
    /// The offsets that it covers.
    pub range: OffsetRange,
    /// What the server knows it by: the same for the same messages at the same offsets, whoever sends them.
    pub token: Token,
    /// Rows; 0 when no message had a span.
    pub rows: u64,
    /// The rows, in the account: whoever ends the block says what became of them.
    pub account: RowsInFlight,
    /// Which message each row is of.
    pub messages: MessageRows,
    /// Bytes before compression.
    pub raw_bytes: u64,
    /// The frames, in order.
    pub frames: Vec<Bytes>,
    /// Bytes of the frames.
    pub bytes: usize,
    /// The latest end of a span, in ns since 1970; 0 without spans.
    pub span_end_nanos_max: u64,
    /// What the next run of this process must know of it to go on with it.
    pub spool_metadata: SpoolMetadata,
}

impl OpenBlock {
    /// An empty one with these row buffers.
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

    /// The same, of rows that go to this shard.
    #[must_use]
    pub fn of_shard(self, shard: usize) -> Self {
        Self { chunks: Chunks::of(shard), shard, ..self }
    }

    /// The same, counted among the blocks that are open.
    #[must_use]
    pub fn counted_by(self, age: &BlockAge) -> Self {
        Self { _counted: Some(age.open()), ..self }
    }

    /// Its shard, and how old it is.
    pub fn age(&self, now: Instant) -> (usize, Duration) {
        (self.shard, now.saturating_duration_since(self.opened))
    }

    /// Takes down that the rows of the message at this offset are in.
    pub fn add_message(&mut self, offset: i64, rows: u64, span_end_nanos_max: u64) {
        self.account.walked(rows);
        self.messages.add(offset, rows);
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

    /// Writes the last frame and makes it the block of this range; `self` is empty again afterwards. Without a chunk for the
    /// last frame nothing changes.
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
                // Delivery knows.
                is_enqueued: false,
            },
        })
    }

    /// Gives it up: its messages are read again.
    pub fn abandon(self) {
        self.account.abandon();
    }
}

/// Whose blocks they are.
#[derive(Debug, Clone)]
pub struct Place {
    /// The partition.
    pub id: PartitionId,
    /// Its generation.
    pub generation: Generation,
    /// The id of the Kafka cluster.
    pub cluster: Arc<str>,
}
