//! Turns one span into one row: the only file that knows both OTLP and the table.
//!
//! A [`SpanRows`] is the sink of a walk over one message. It writes rows of `otel_traces` in the order of
//! `sluice_clickhouse::column::TableColumns`, straight from the message's bytes into the row buffer.
//!
//! | column | from |
//! | --- | --- |
//! | Timestamp, Duration | [`crate::rows::span_times`] |
//! | `TraceId`, `SpanId`, `ParentSpanId` | lower-case hex; empty for all zeros |
//! | `SpanKind` | `Unspecified`, `Internal`, `Server`, `Client`, `Producer`, `Consumer` |
//! | `ServiceName` | resource attribute `service.name`, as text |
//! | `ResourceAttributes`, `SpanAttributes`, `Events.Attributes`, `Links.Attributes` | [`crate::rows::attributes`] |
//! | `StatusCode` | `Unset`, `Ok`, `Error` |
//!
//! The common parts of one `ResourceSpans` and one `ScopeSpans` are encoded once and copied into each row. A recently seen resource comes
//! from a cache ([`crate::rows::resources`]). Per span there is no allocation, no clock and no lock.
//!
//! **Cost** of a `rich` span: 466 bytes in, 931 out. More than half of these are one copy of the common parts; the rest is about 45 small
//! copies: 13 for the span's own columns, 4 for each of its 7.5 attributes. At 2 to 3 ns each that is 110 ns, besides 55 ns of the walk to
//! the span. Measured on 21 November 2026 on one of two shared EPYC cores, like `cargo bench -p sluice-gateway --bench path -- --stage
//! encode` but with 4,000 (loadgen 8,192) spans, which stay in the cache, the best of 750 rounds; instructions as counted by valgrind's
//! callgrind: 158 ns and 3,690 instructions a span, 66 ns and 1,670 for one of the load generator.
//!
//! What helped: not moving large values right after they are written (a [`sluice_otlp::Value`], a JSON object), since the load waits for
//! the stores; appending values of fixed size at a fixed size, which takes no call; and no call on the path of a usual attribute from the
//! wire to the row (4,490 instructions before). What did not help: writing texts of 8 to 32 bytes as two overlapping copies of a fixed
//! size (9 % more instructions, 6 % more time).

mod ids;
mod row_error;
mod service;
mod words;

pub use row_error::RowError;

use crate::rows::attributes::{AttributeWriter, Elements, Set};
use crate::rows::raw_limit::RawLimit;
use crate::rows::resources::{self, EncodedResources};
use crate::rows::span_times::{ORIGINAL_TIME, Original, SpanTimes, TimeCounts, usable};
use crate::rows::utf8::mended;
use sluice_clickhouse::{
    column::{AttributeColumns, TableColumns},
    expiry::ExpiryRule,
    frame::frame_bytes_max,
    groups, json_paths, room,
    row_frames::{FRAME_RAW_BYTES, FrameStore, RowFrames},
    rowbinary::{put_datetime64, put_len, put_string, put_u64},
};
use sluice_gateway_config::budget::{ROW_BYTES_MAX, SCRATCH_BYTES};
use sluice_otlp::{Resource, Scope, Span, SpanSink, is_utf8};

/// [`ROW_BYTES_MAX`] as a length.
#[expect(clippy::cast_possible_truncation, reason = "4 MiB fit every address space")]
const ROW_LEN_MAX: usize = ROW_BYTES_MAX as usize;

/// Bytes of a row's columns of fixed size, of its words and of the lengths of its strings: 3 numbers of 8, 2 words of [`words::BYTES`],
/// 8 lengths of 5; and the counts of empty arrays.
const FIXED_BYTES: usize = 128;

/// Small buffers of a worker: 2 of [`Scratch`], 6 of events and links, 5 of the writers, 1 of groups. While a row is written, each may
/// become twice as large as the part that is kept of it.
const SMALL_BUFFERS: usize = 14;

const _: () = assert!(
    (json_paths::MEMORY_BYTES_MAX
        + groups::ENTRIES_BYTES_MAX
        + 2 * json_paths::KEPT_MEMORY_BYTES_MAX
        + SMALL_BUFFERS * 2 * room::KEPT_BYTES_MAX
        + resources::MEMORY_BYTES_MAX
        + frame_bytes_max(FRAME_RAW_BYTES + 1)) as u64
        <= SCRATCH_BYTES,
    "a worker needs more than the budget counts"
);

/// Buffers that a worker reuses for all messages.
#[derive(Default)]
pub struct Scratch {
    /// The layout of attributes in the table.
    columns: TableColumns,
    /// `ServiceName`, `ResourceAttributes`, `ScopeName`, `ScopeVersion`: adjacent in the row, and equal for all spans of a scope.
    shared: Vec<u8>,
    /// Where the scope starts in `shared`.
    scope_at: usize,
    /// `ServiceName` and `ResourceAttributes` of recently seen resources.
    resources: EncodedResources,
    event_names: Vec<u8>,
    elements: Elements,
    writer: AttributeWriter,
}

impl Scratch {
    /// Empty buffers, for a table with these columns.
    pub fn new(columns: TableColumns) -> Self {
        Self { columns, ..Self::default() }
    }

    /// Memory in use, in bytes, for the budget.
    pub fn memory_bytes(&self) -> usize {
        let Self { columns: _, shared, scope_at: _, resources, event_names, elements, writer } = self;
        shared.capacity()
            + resources.memory_bytes()
            + event_names.capacity()
            + elements.memory_bytes()
            + writer.memory_bytes()
    }

    /// Frees the memory of a huge row.
    fn let_go(&mut self) {
        room::let_go(&mut self.shared);
        room::let_go(&mut self.event_names);
        self.elements.let_go();
        self.writer.let_go();
    }
}

/// The sink of a walk over one message.
pub struct SpanRows<'a, S> {
    scratch: &'a mut Scratch,
    rows: &'a mut RowFrames,
    store: S,
    /// Kafka's timestamp of the message in ns, for spans without a usable one.
    message_nanos: i64,
    /// The bytes that the message may still write: rows, and the common parts of a resource's spans.
    raw: RawLimit,
    /// The time of reading. Freshness cannot be measured from spans that end later.
    now_nanos: u64,
    /// Which rows had been expired by the table's TTL before they were encoded.
    expiry: ExpiryRule,
    end_nanos_max: u64,
    counts: TimeCounts,
}

impl<'a, S: FrameStore> SpanRows<'a, S> {
    /// A sink that appends to `rows`, whose frames go to `store`.
    pub fn new(
        scratch: &'a mut Scratch,
        rows: &'a mut RowFrames,
        store: S,
        message_nanos: i64,
        raw: RawLimit,
    ) -> Self {
        scratch.let_go();
        Self {
            scratch,
            rows,
            store,
            message_nanos,
            raw,
            now_nanos: u64::MAX,
            expiry: ExpiryRule::NEVER,
            end_nanos_max: 0,
            counts: TimeCounts::default(),
        }
    }

    /// Excludes spans that end later than now from [`Self::end_nanos_max`]: one clock that is ahead would hide the freshness of all others.
    #[must_use]
    pub fn read_at(mut self, now_nanos: u64) -> Self {
        self.now_nanos = now_nanos;
        self
    }

    /// Counts rows that the table's TTL has expired.
    #[must_use]
    pub fn expiring(mut self, expiry: ExpiryRule) -> Self {
        self.expiry = expiry;
        self
    }

    /// The buffer that the rows are appended to, for callers that need them before they are in frames.
    pub fn rows(&mut self) -> &mut RowFrames {
        self.rows
    }

    /// The latest end of a span that has ended, for the freshness of the block; 0 without one.
    pub fn end_nanos_max(&self) -> u64 {
        self.end_nanos_max
    }

    /// Rows with times that had to be corrected, and expired rows.
    pub fn time_counts(&self) -> TimeCounts {
        self.counts
    }
}

impl<S: FrameStore> SpanSink for SpanRows<'_, S> {
    type Error = RowError<S::Error>;

    fn resource(&mut self, resource: &Resource<'_>) -> Result<(), Self::Error> {
        let Scratch { columns, shared, scope_at, resources, writer, .. } = &mut *self.scratch;
        shared.clear();
        if !resources.recall(resource.message, shared) {
            service::put_name(shared, resource, writer)?;
            let set = Set { columns: &columns.resource, attributes: &resource.attributes, originals: &[] };
            writer.write(shared, &set, ROW_LEN_MAX)?;
            resources.keep(resource.message, shared);
        }
        *scope_at = shared.len();
        Ok(self.raw.write(shared.len())?)
    }

    fn scope(&mut self, scope: &Scope<'_>) -> Result<(), Self::Error> {
        let Scratch { shared, scope_at, .. } = &mut *self.scratch;
        shared.truncate(*scope_at);
        for text in [scope.name, scope.version] {
            let text = mended(text, ROW_LEN_MAX.saturating_sub(shared.len()))?;
            room::make(shared, text.len(), ROW_LEN_MAX)?;
            put_string(shared, &text);
        }
        // The table has no column for them, but they are checked: whether a message is malformed must not depend on that.
        Ok(scope.attributes.check()?)
    }

    fn span(&mut self, span: &Span<'_>) -> Result<(), Self::Error> {
        if is_utf8(span.name) && is_utf8(span.trace_state) && is_utf8(span.status_message) {
            self.row(span)
        } else {
            self.mended_row(span)
        }
    }
}

impl<S: FrameStore> SpanRows<'_, S> {
    /// Writes the row of a span whose own strings are not all UTF-8.
    #[cold]
    fn mended_row(&mut self, span: &Span<'_>) -> Result<(), RowError<S::Error>> {
        let name = mended(span.name, ROW_LEN_MAX)?;
        let trace_state = mended(span.trace_state, ROW_LEN_MAX.saturating_sub(name.len()))?;
        let bytes_left = ROW_LEN_MAX.saturating_sub(name.len() + trace_state.len());
        let status_message = mended(span.status_message, bytes_left)?;
        let (name, trace_state, status_message) = (&*name, &*trace_state, &*status_message);
        self.row(&Span { name, trace_state, status_message, ..*span })
    }

    /// Writes the row of a span whose own strings are UTF-8; those of its attributes, events and links need not be.
    fn row(&mut self, span: &Span<'_>) -> Result<(), RowError<S::Error>> {
        let Scratch { columns, shared, event_names, elements, writer, .. } = &mut *self.scratch;
        let row = self.rows.row();
        let start_at = row.len();
        let limit = start_at + ROW_LEN_MAX;
        let times = SpanTimes::of(span.start_time_unix_nano, span.end_time_unix_nano, self.message_nanos);
        let mut kept = [NO_ORIGINAL; 2];
        let originals = if times.are_replaced() { keep(&times, &mut kept, &mut self.counts) } else { &[] };
        self.counts.expired += u64::from(self.expiry.has_expired(times.start_nanos));
        room::make(row, FIXED_BYTES + plain_bytes(span) + shared.len(), limit)?;
        put_datetime64(row, times.start_nanos);
        ids::put(row, span);
        put_seldom(row, span.trace_state);
        put_string(row, span.name);
        words::put(row, words::kind(span.kind));
        row.extend_from_slice(shared);
        writer.write(row, &Set { columns: &columns.span, attributes: &span.attributes, originals }, limit)?;
        if !span.status_message.is_empty() {
            room::make(row, span.status_message.len(), limit)?;
        }
        put_u64(row, times.duration_nanos);
        words::put(row, words::status(span.status_code));
        put_seldom(row, span.status_message);
        if span.events.is_empty() {
            row.extend_from_slice(&[0; 2]);
            Elements::put_none(row, &columns.event);
        } else {
            let scratch = Nested { columns: &columns.event, names: event_names, elements, writer, limit };
            self.counts.events_replaced += put_events(row, span, self.message_nanos, scratch)?;
        }
        if span.links.is_empty() {
            row.extend_from_slice(&[0; 3]);
            Elements::put_none(row, &columns.link);
        } else {
            let scratch = Nested { columns: &columns.link, names: event_names, elements, writer, limit };
            put_links(row, span, scratch)?;
        }
        self.raw.write(within_limit(row, start_at)?)?;
        if span.end_time_unix_nano <= self.now_nanos {
            self.end_nanos_max = self.end_nanos_max.max(span.end_time_unix_nano);
        }
        self.rows.end_row(&mut self.store).map_err(RowError::Store)
    }
}

/// Bytes of a span's own strings before its attributes.
#[inline]
fn plain_bytes(span: &Span<'_>) -> usize {
    ids::BYTES_MAX + span.trace_state.len() + span.name.len()
}

/// The length of the row, if it is within the limit: capacity left from an earlier row must not hide that it is exceeded.
fn within_limit<E>(row: &[u8], start_at: usize) -> Result<usize, RowError<E>> {
    let bytes = row.len() - start_at;
    if bytes > ROW_LEN_MAX { Err(RowError::RowTooLarge) } else { Ok(bytes) }
}

/// Buffers for the columns of events, which are written side by side so that events are read only once; and of links.
struct Nested<'a> {
    columns: &'a AttributeColumns,
    names: &'a mut Vec<u8>,
    elements: &'a mut Elements,
    writer: &'a mut AttributeWriter,
    /// Length beyond which writing fails.
    limit: usize,
}

/// Appends `Events.Timestamp`, `Events.Name`, and the columns of `Events.Attributes`: arrays of the same length. Returns the number of
/// replaced times.
fn put_events<E>(
    row: &mut Vec<u8>,
    span: &Span<'_>,
    message_nanos: i64,
    scratch: Nested<'_>,
) -> Result<u64, RowError<E>> {
    if span.events.len() == 1 {
        return put_only_event(row, span, message_nanos, scratch);
    }
    let Nested { columns, names, elements, writer, limit } = scratch;
    names.clear();
    elements.clear();
    let mut replaced = 0;
    put_len(row, span.events.len());
    for event in &span.events {
        let event = event?;
        let (nanos, original) = usable(event.time_unix_nano, message_nanos);
        replaced += u64::from(original.is_some());
        room::make(row, size_of::<i64>(), limit)?;
        put_datetime64(row, nanos);
        let bytes_left = limit.saturating_sub(row.len() + names.len() + elements.bytes());
        let name = mended(event.name, bytes_left)?;
        room::make(names, name.len(), names.len().saturating_add(bytes_left))?;
        put_string(names, &name);
        let original = original.map(|value| (ORIGINAL_TIME, value));
        let set = Set { columns, attributes: &event.attributes, originals: original.as_slice() };
        writer.write_element(elements, &set, bytes_left.saturating_sub(name.len()))?;
    }
    room::make(row, names.len(), limit)?;
    put_len(row, span.events.len());
    row.extend_from_slice(names);
    if names.len() > room::KEPT_BYTES_MAX {
        room::let_go(names);
    }
    elements.put(row, columns, (span.events.len(), limit))?;
    Ok(replaced)
}

/// Appends the columns of a single event in the order of its fields, without intermediate buffers. Nearly all spans that have events have
/// one.
fn put_only_event<E>(
    row: &mut Vec<u8>,
    span: &Span<'_>,
    message_nanos: i64,
    scratch: Nested<'_>,
) -> Result<u64, RowError<E>> {
    let Nested { columns, elements, writer, limit, .. } = scratch;
    let mut replaced = 0;
    for event in &span.events {
        let event = event?;
        let (nanos, original) = usable(event.time_unix_nano, message_nanos);
        replaced += u64::from(original.is_some());
        let name = mended(event.name, limit.saturating_sub(row.len()))?;
        room::make(row, name.len(), limit)?;
        put_len(row, 1);
        put_datetime64(row, nanos);
        put_len(row, 1);
        put_string(row, &name);
        let original = original.map(|value| (ORIGINAL_TIME, value));
        let set = Set { columns, attributes: &event.attributes, originals: original.as_slice() };
        writer.write_only_element(row, elements, &set, limit)?;
    }
    Ok(replaced)
}

/// Appends `Links.TraceId`, `Links.SpanId`, `Links.TraceState`, and the columns of `Links.Attributes`: arrays of the same length. Links are
/// rare, so they are read once per column.
fn put_links<E>(row: &mut Vec<u8>, span: &Span<'_>, scratch: Nested<'_>) -> Result<(), RowError<E>> {
    let Nested { columns, elements, writer, limit, .. } = scratch;
    elements.clear();
    let len = span.links.len();
    put_len(row, len);
    for link in &span.links {
        room::make(row, ids::BYTES_MAX, limit)?;
        ids::put_hex(row, link?.trace_id);
    }
    put_len(row, len);
    for link in &span.links {
        room::make(row, ids::BYTES_MAX, limit)?;
        ids::put_hex(row, link?.span_id);
    }
    put_len(row, len);
    for link in &span.links {
        let trace_state = mended(link?.trace_state, limit.saturating_sub(row.len()))?;
        room::make(row, trace_state.len(), limit)?;
        put_string(row, &trace_state);
    }
    for link in &span.links {
        let bytes_left = limit.saturating_sub(row.len() + elements.bytes());
        let set = Set { columns, attributes: &link?.attributes, originals: &[] };
        writer.write_element(elements, &set, bytes_left)?;
    }
    Ok(elements.put(row, columns, (len, limit))?)
}

/// The value if there is no original.
const NO_ORIGINAL: Original = (b"", 0);

/// The original times to store in a row's attributes; counts them.
#[cold]
fn keep<'a>(times: &SpanTimes, kept: &'a mut [Original; 2], counts: &mut TimeCounts) -> &'a [Original] {
    counts.count(times);
    let mut len = 0;
    for (slot, original) in kept.iter_mut().zip(times.originals()) {
        *slot = original;
        len += 1;
    }
    &kept[..len]
}

/// Appends a string that most spans do not have.
#[inline]
fn put_seldom(row: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.is_empty() {
        row.push(0);
    } else {
        put_string(row, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_row_leaves_no_scratch_behind() {
        let mut scratch = Scratch::default();
        scratch.shared.resize(8 << 20, 0);
        scratch.event_names.resize(8 << 20, 0);
        let mut rows = RowFrames::new();
        drop(SpanRows::new(&mut scratch, &mut rows, Vec::new(), 0, RawLimit::of_message(0)));
        assert!(scratch.shared.capacity() + scratch.event_names.capacity() <= 1 << 20);
    }

    #[test]
    fn an_end_in_the_future_says_nothing_of_freshness() {
        let (mut scratch, mut rows) = (Scratch::default(), RowFrames::new());
        let limit = RawLimit::of_message(0);
        let mut sink = SpanRows::new(&mut scratch, &mut rows, Vec::new(), 0, limit).read_at(100);
        // TracesData { resource_spans { scope_spans { spans { trace_id span_id end_time_unix_nano } } } }, the end a fixed64.
        for end in [99, 101, u64::MAX, 40] {
            let ids = [&[0x0A, 16][..], &[1; 16], &[0x12, 8], &[2; 8]].concat();
            let span = [&ids[..], &[0x41], &u64::to_le_bytes(end)].concat();
            let message = [&[0x0A, 41, 0x12, 39, 0x12, 37][..], &span].concat();
            assert_eq!(sluice_otlp::walk(&message, &mut sink), Ok(1));
        }
        assert_eq!(sink.end_nanos_max(), 99);
    }
}
