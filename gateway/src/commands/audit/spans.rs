//! Reads the spans of a message like the gateway: encodes it like a worker to learn whether it is rejected, and walks it again for the
//! keys.
//!
//! Encoding costs three times as much as the walk. It makes the audit's verdict the same as the gateway's: a span with an unreadable
//! attribute, or a row that is too large, rejects the whole message.
//!
//! Owner: the audit's thread. Limits: one block of the gateway's largest size, [`POOL_BYTES`], which is emptied after every message.

use super::{chunk::Chunk, letters::Letters, report::Totals};
use crate::{
    blocks::{
        block::OpenBlock,
        buffers::{CHUNK_BYTES, Pool},
    },
    ground::account::RowAccount,
    reading::{
        encode::{Encoded, Payload, encode},
        reader::Reader,
    },
    rows::{
        carry::{Carry, Carrying},
        span_row::{Scratch, stored_id},
        span_times::SpanTimes,
    },
    table::row_expiry::RowExpiry,
};
use sluice_clickhouse::{column::TableColumns, row_frames::RowFrames};
use sluice_gateway_config::{GatewayConfig, budget::BLOCK_BYTES_MAX};
use sluice_kafka::Message;
use sluice_otlp::{Malformed, Resource, Scope, Span, SpanSink, walk};
use std::time::Instant;

/// Memory for one block, and the reserve that sealing would need.
pub const POOL_BYTES: u64 = BLOCK_BYTES_MAX + 8 * CHUNK_BYTES as u64;

/// Reads messages.
pub struct SpanReader {
    reader: Reader,
    scratch: Scratch,
    pool: Pool,
    block: OpenBlock,
}

impl SpanReader {
    /// Reads messages as a gateway of this config does, for a table with these columns.
    pub fn new(config: &GatewayConfig, columns: TableColumns) -> Self {
        let reading = config.reading();
        // Without an attribute, a row may be small enough.
        let carry = Carrying::of(&config.attributes).map(Carry::new);
        Self {
            reader: Reader::new(reading.format, reading.message_bytes_max),
            scratch: Scratch::new(columns).carrying(carry),
            pool: Pool::new(POOL_BYTES, 1, 1),
            block: OpenBlock::new(RowFrames::new(), RowAccount::default().open(), Instant::now()),
        }
    }

    /// Adds the spans of a message that must have a row to `chunk`, and counts the message in `totals`.
    pub fn read(
        &mut self,
        message: &impl Message,
        letters: &Letters,
        chunk: &mut Chunk,
        totals: &mut Totals,
    ) {
        let (partition, offset) = (message.partition(), message.offset());
        totals.messages += 1;
        let is_lettered = letters.has_message(partition, offset);
        totals.dead_lettered_messages += u64::from(is_lettered);
        let payload = Payload::of(message, &RowExpiry::default());
        if !self.gives_rows(payload) {
            totals.rejected_messages += 1;
            return;
        }
        if is_lettered {
            return;
        }
        let wire = self.reader.wire(payload.bytes).expect("a message that gives rows can be read");
        let mut sink = KeySink { payload, offset, row: 0, partition, letters, chunk, totals };
        walk(wire, &mut sink).expect("a message that gives rows can be walked");
    }

    /// Whether the gateway makes rows of the message.
    fn gives_rows(&mut self, payload: Payload<'_>) -> bool {
        let Self { reader, scratch, pool, block } = self;
        let mark = block.mark(pool);
        match encode(pool, reader, scratch, block, payload) {
            Encoded::Whole { .. } => {
                block.rewind(pool, mark);
                true
            }
            Encoded::Rejected(_) | Encoded::BlockFull => false,
            Encoded::NoRoom => unreachable!("the pool holds the largest block"),
        }
    }
}

/// A sink that collects the keys.
struct KeySink<'a> {
    payload: Payload<'a>,
    partition: i32,
    offset: i64,
    row: u32,
    letters: &'a Letters,
    chunk: &'a mut Chunk,
    totals: &'a mut Totals,
}

impl SpanSink for KeySink<'_> {
    type Error = Malformed;

    fn resource(&mut self, _: &Resource<'_>) -> Result<(), Malformed> {
        Ok(())
    }

    fn scope(&mut self, _: &Scope<'_>) -> Result<(), Malformed> {
        Ok(())
    }

    fn span(&mut self, span: &Span<'_>) -> Result<(), Malformed> {
        let row = self.row;
        self.row = self.row.saturating_add(1);
        if self.letters.has_span(self.partition, self.offset, row) {
            self.totals.dead_lettered_spans += 1;
            return Ok(());
        }
        let (start, end) = (span.start_time_unix_nano, span.end_time_unix_nano);
        let SpanTimes { start_nanos, .. } = SpanTimes::of(start, end, self.payload.timestamp_nanos);
        self.totals.spans += 1;
        let ids = (stored_id(span.trace_id), stored_id(span.span_id));
        self.chunk.add((self.offset, row), ids, start_nanos);
        Ok(())
    }
}
