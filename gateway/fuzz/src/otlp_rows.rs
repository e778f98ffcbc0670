//! A message becomes rows, all or none, between two others; all where it is OTLP, whatever the table is like, and where they take no more
//! bytes than it may write.

use std::cell::RefCell;
use std::convert::Infallible;
use std::ops::Range;

use sluice_clickhouse::column::{Column, Layout, TableColumns};
use sluice_clickhouse::optional::OptionalColumns;
use sluice_clickhouse::row_frames::{FrameStore, RowFrames};
use sluice_otlp::{keys_read, validate, walk, walk_in_order};

use crate::reader::frames;
use crate::row;
use crate::rows::raw_limit::{BLOCK_RAW_BYTES_MAX, RawLimit};
use crate::rows::span_row::{RowError, Scratch, SpanRows};

/// Keys read per byte at the most. The gateway's sink reads attributes twice, links once a column, and what is in arrays and lists
/// once more for each, so this is a few times what [`crate::otlp_walk`] allows. Attributes of a scope are read like those of a resource
/// where the table has a column for them; keys are taken from the row, which reads nothing again.
const KEYS_READ_PER_BYTE_MAX: u64 = 24;

/// Timestamp of every message: 2020-09-13 12:26:40 UTC.
const TIMESTAMP_NANOS: i64 = 1_600_000_000_000_000_000;

/// A message of one span called `n`, with its ids and the attribute `k`, `v`.
pub(crate) const GOOD: &[u8] =
    b"\x0a\x2d\x12\x2b\x12\x29\x0a\x10trace id 16 long\x12\x08span id!\x2a\x01n\x4a\x08\x0a\x01k\x12\x03\x0a\x01v";

/// Every layout of attributes.
const LAYOUTS: [Layout; 3] = [Layout::Json, Layout::Map, Layout::Nested];

/// What a worker keeps from message to message, for a table of one layout: nothing of one message may show in the next.
pub(crate) struct Worker {
    columns: Vec<Column>,
    scratch: Scratch,
    rows: RowFrames,
}

impl Worker {
    pub(crate) fn new(columns: TableColumns) -> Self {
        Self { columns: columns.columns(), scratch: Scratch::new(columns), rows: RowFrames::new() }
    }

    /// The frames of the rows of those among these messages that have any.
    pub(crate) fn rows_of(&mut self, messages: &[&[u8]]) -> Vec<u8> {
        let mut store = Vec::new();
        for message in messages {
            add(&mut self.scratch, &mut self.rows, &mut store, message, limit(message)).ok();
        }
        let Ok(_) = self.rows.finish(&mut store);
        store
    }
}

thread_local! {
    static WORKERS: RefCell<Vec<Worker>> = RefCell::new(tables().map(Worker::new).collect());
}

/// A table of each layout, without optional columns and with all of them.
fn tables() -> impl Iterator<Item = TableColumns> {
    let plain = LAYOUTS.into_iter().map(TableColumns::of_layout);
    plain.clone().chain(plain.map(|columns| columns.with_optional(OptionalColumns::all())))
}

/// Encodes the bytes between two good messages, in every layout.
///
/// # Panics
/// When a promise is broken.
pub fn check(bytes: &[u8]) {
    WORKERS.with_borrow_mut(|workers| workers.iter_mut().for_each(|worker| check_layout(worker, bytes)));
}

fn check_layout(Worker { columns, scratch, rows }: &mut Worker, bytes: &[u8]) {
    let mut store = Vec::new();
    assert_eq!(add(scratch, rows, &mut store, GOOD, limit(GOOD)), Ok(1));
    let before = rows.totals().raw_bytes;
    keys_read::take();
    let added = add(scratch, rows, &mut store, bytes, limit(bytes));
    let (read, length) = (keys_read::take(), bytes.len() as u64);
    assert!(read <= length * KEYS_READ_PER_BYTE_MAX, "{read} keys were read in {length} bytes");
    if !matches!(added, Err(RowError::RowTooLarge(_) | RowError::MessageTooLarge)) {
        assert_eq!(added.is_ok(), validate(bytes).is_ok(), "{added:?}, whatever the table is like");
    }
    let mut spans = added.ok();
    let written = rows.totals().raw_bytes - before;
    assert!(written <= limit(bytes).bytes_left(), "{written} bytes are written for {length}");
    if let Some(less) = written.checked_sub(1) {
        // All of it may not be there once more.
        let again = add(scratch, rows, &mut store, bytes, RawLimit::of_bytes(less));
        assert_eq!(again, Err(RowError::MessageTooLarge));
        let again = add(scratch, rows, &mut store, bytes, RawLimit::of_bytes(BLOCK_RAW_BYTES_MAX));
        assert_eq!(again.ok(), spans, "a limit that is not reached changes nothing");
        spans = spans.map(|spans| 2 * spans);
    }
    assert_eq!(add(scratch, rows, &mut store, GOOD, limit(GOOD)), Ok(1));
    let Ok(totals) = rows.finish(&mut store);
    assert_eq!(totals.rows, 2 + spans.unwrap_or(0));
    let mut raw = Vec::new();
    frames::unpack(&store, &mut raw).expect("the frames are read by another reader");
    assert_eq!(totals.raw_bytes, raw.len() as u64);
    let mut rest = &raw[..];
    assert!(row::read(&mut rest, columns), "the first message is as it was");
    let good = &raw[..raw.len() - rest.len()];
    for _ in 0..spans.unwrap_or(0) {
        row::read(&mut rest, columns);
    }
    assert_eq!(rest, good, "the message behind is as it would be without the one between");
}

/// What a message may write.
fn limit(message: &[u8]) -> RawLimit {
    RawLimit::of_message(message.len())
}

/// Adds a message, or takes it back: what `sluice_gateway::reading::encode` does, with memory without limits.
fn add(
    scratch: &mut Scratch,
    rows: &mut RowFrames,
    store: &mut Vec<u8>,
    message: &[u8],
    limit: RawLimit,
) -> Result<u64, RowError<Infallible>> {
    let mark = rows.mark(store);
    if !scratch.has_schema_urls() {
        let mut sink = SpanRows::new(scratch, rows, Store(store), TIMESTAMP_NANOS, limit);
        let in_order = walk_in_order(message, &mut sink);
        if let Ok(Some(spans)) = in_order {
            return Ok(spans);
        }
        rows.rewind(store, mark).expect("a frame in memory is what was written there");
        if let Err(error @ RowError::MessageTooLarge) = in_order {
            return Err(error);
        }
    }
    let walked = walk(message, &mut SpanRows::new(scratch, rows, Store(store), TIMESTAMP_NANOS, limit));
    if walked.is_err() {
        rows.rewind(store, mark).expect("a frame in memory is what was written there");
    }
    walked
}

/// Memory that is borrowed for one message.
struct Store<'a>(&'a mut Vec<u8>);

impl FrameStore for Store<'_> {
    type Error = Infallible;

    fn append(&mut self, frame: &[u8]) -> Result<(), Infallible> {
        FrameStore::append(self.0, frame)
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    fn read(&self, range: Range<usize>, out: &mut Vec<u8>) {
        FrameStore::read(self.0, range, out);
    }
}
