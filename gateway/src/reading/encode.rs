//! Encodes one message into one block: all of its rows, or none.
//!
//! If a message turns out to be unreadable, or there is no room, everything that it has written is removed from the block. A message in
//! JSON is rewritten to protobuf before anything is written.
//!
//! Nearly every message is walked once, by the walk that expects resources and scopes in front of their spans. If that fails, the message
//! is walked again by the walk that also looks for them behind the spans, and the second result counts. Looking there costs 60 ns a span.
//! If the table has columns for schema URLs, which stand behind the spans in nearly all messages, only that walk is used.
//! The first walk decides if there is no room or the message is too large: a second walk would only write the same again. (A scope that is
//! named twice, the second time shorter, may be smaller behind its spans; no producer writes one.)
//!
//! Limits, for a block or for a message that fills a block: [`BLOCK_RAW_BYTES_MAX`] before compression, [`BLOCK_ROWS_MAX`], and
//! `budget::BLOCK_BYTES_MAX` compressed. A message has its own limit for what it writes: [`RawLimit`].

use crate::{
    blocks::{
        block::OpenBlock,
        buffers::{Pool, Purpose, StoreError},
        chunks::ChunkStore,
    },
    reading::{reader::Reader, reject::Reason},
    rows::{
        origin::{MessageHeaders, Origin, TakeHeader},
        raw_limit::{BLOCK_RAW_BYTES_MAX, RawLimit},
        span_row::{RowError, Scratch, SpanRows},
        span_times::{TimeCounts, message_nanos},
    },
    table::row_expiry::RowExpiry,
};
use sluice_clickhouse::{expiry::ExpiryRule, settings::BLOCK_ROWS_MAX};
use sluice_kafka::{Headers as _, Message};
use sluice_otlp::{walk, walk_in_order};
use std::time::{SystemTime, UNIX_EPOCH};

/// The result of encoding a message.
#[derive(Debug, PartialEq, Eq)]
pub enum Encoded {
    /// All of its rows are in the block.
    Whole {
        /// Spans, which are rows.
        spans: u64,
        /// The latest end of a span that has ended; 0 without one.
        end_nanos_max: u64,
        /// Rows with times that had to be corrected, and expired rows.
        times: TimeCounts,
        /// Whether headers of the message were too many or too long for its rows.
        headers_cut: bool,
    },
    /// The pool has no free chunk; no row is in the block.
    NoRoom,
    /// The block would be too large; no row is in it.
    BlockFull,
    /// The message cannot be read; no row is in the block.
    Rejected(Reason),
}

/// A message as Kafka delivers it.
#[derive(Clone, Copy)]
pub struct Payload<'a> {
    /// Its value.
    pub bytes: &'a [u8],
    /// Its timestamp in ns since 1970, for spans without a usable one.
    pub timestamp_nanos: i64,
    /// When it is read, in ns since 1970; used only for freshness.
    pub now_nanos: u64,
    /// Rows that the table's TTL deletes are counted as expired.
    pub expiry: ExpiryRule,
    /// Where it comes from, for tables that have columns for that.
    pub origin: Origin<'a>,
}

impl<M: Message> MessageHeaders for M {
    /// librdkafka parses the headers of a message when they are first asked for, and keeps a copy until the message is dropped.
    fn each(&self, take: &mut TakeHeader<'_>) {
        let headers = self.headers().into_iter().flat_map(|headers| headers.iter());
        for header in headers {
            if take(header.key, header.value).is_break() {
                return;
            }
        }
    }
}

impl<'a> Payload<'a> {
    /// The value of a message that is read now; `expiry` says which rows the table deletes.
    pub fn of(message: &'a impl Message, expiry: &RowExpiry) -> Self {
        let now_nanos = now_nanos();
        let timestamp_millis = message.timestamp().to_millis();
        Self {
            bytes: message.payload().unwrap_or_default(),
            timestamp_nanos: message_nanos(timestamp_millis),
            now_nanos,
            expiry: expiry.at(now_nanos),
            origin: Origin {
                topic: message.topic(),
                partition: message.partition(),
                offset: message.offset(),
                timestamp_millis,
                headers: Some(message),
            },
        }
    }
}

/// One clock read per message: tens of ns, compared with hundreds for each of its spans.
fn now_nanos() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Encodes a message into a block, whole or not at all.
pub fn encode(
    pool: &Pool,
    reader: &mut Reader,
    scratch: &mut Scratch,
    block: &mut OpenBlock,
    message: Payload<'_>,
) -> Encoded {
    let message = match reader.wire(message.bytes) {
        Ok(bytes) => Payload { bytes, ..message },
        Err(reason) => return Encoded::Rejected(reason),
    };
    let mark = block.mark(pool);
    let in_order =
        if scratch.has_schema_urls() { None } else { encoded_in_order(pool, scratch, block, message) };
    let encoded = in_order.unwrap_or_else(|| {
        block.rewind(pool, mark);
        encoded_in_any_order(pool, scratch, block, message)
    });
    let encoded = within_block(block, encoded);
    if !matches!(encoded, Encoded::Whole { .. }) {
        block.rewind(pool, mark);
    }
    encoded
}

/// Encodes a message by the walk that reads it once. `None`: the other walk decides.
fn encoded_in_order(
    pool: &Pool,
    scratch: &mut Scratch,
    block: &mut OpenBlock,
    message: Payload<'_>,
) -> Option<Encoded> {
    let mut rows = rows_of(pool, scratch, block, message);
    match walk_in_order(message.bytes, &mut rows) {
        Ok(Some(spans)) => Some(whole(spans, &rows)),
        Err(error @ (RowError::Store(_) | RowError::MessageTooLarge)) => Some(not_encoded(&error)),
        Ok(None) | Err(RowError::Malformed(_) | RowError::RowTooLarge(_)) => None,
    }
}

/// Encodes a message by the walk that finds resources, scopes and schema URLs wherever they are.
fn encoded_in_any_order(
    pool: &Pool,
    scratch: &mut Scratch,
    block: &mut OpenBlock,
    message: Payload<'_>,
) -> Encoded {
    let mut rows = rows_of(pool, scratch, block, message);
    match walk(message.bytes, &mut rows) {
        Ok(spans) => whole(spans, &rows),
        Err(error) => not_encoded(&error),
    }
}

/// Corrects the result if the block, or the message alone, has more than one INSERT may have.
fn within_block(block: &OpenBlock, encoded: Encoded) -> Encoded {
    let Encoded::Whole { spans, .. } = encoded else { return encoded };
    let totals = block.rows.totals();
    if spans > BLOCK_ROWS_MAX.into() {
        Encoded::Rejected(Reason::MessageTooLarge)
    } else if totals.rows > BLOCK_ROWS_MAX.into() || totals.raw_bytes > BLOCK_RAW_BYTES_MAX {
        Encoded::BlockFull
    } else {
        encoded
    }
}

fn rows_of<'a>(
    pool: &'a Pool,
    scratch: &'a mut Scratch,
    block: &'a mut OpenBlock,
    message: Payload<'_>,
) -> SpanRows<'a, ChunkStore<'a>> {
    let store = block.chunks.store(pool, Purpose::Fill);
    let limit = RawLimit::of_message(message.bytes.len());
    SpanRows::new(scratch, &mut block.rows, store, message.timestamp_nanos, limit)
        .of_origin(&message.origin)
        .read_at(message.now_nanos)
        .expiring(message.expiry)
}

fn whole(spans: u64, rows: &SpanRows<'_, ChunkStore<'_>>) -> Encoded {
    Encoded::Whole {
        spans,
        end_nanos_max: rows.end_nanos_max(),
        times: rows.time_counts(),
        headers_cut: rows.headers_cut(),
    }
}

fn not_encoded(error: &RowError<StoreError>) -> Encoded {
    match error {
        RowError::Store(StoreError::PoolEmpty) => Encoded::NoRoom,
        RowError::Store(StoreError::BlockFull) => Encoded::BlockFull,
        RowError::Malformed(malformed) => Encoded::Rejected(Reason::Malformed(*malformed)),
        RowError::RowTooLarge(limit) => Encoded::Rejected(Reason::RowTooLarge(*limit)),
        RowError::MessageTooLarge => Encoded::Rejected(Reason::MessageTooLarge),
    }
}
