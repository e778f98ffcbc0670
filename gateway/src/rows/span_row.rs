//! One span, one row: the only file that knows both OTLP and the table.
//!
//! A [`SpanRows`] is the sink of a walk over one message. It writes rows of `otel_traces` in the order of
//! `sluice_clickhouse::column::TableColumns`, straight from the message's bytes into the row buffer.
//!
//! | column | from |
//! | --- | --- |
//! | Timestamp | `start_time_unix_nano`; see below |
//! | `TraceId`, `SpanId`, `ParentSpanId` | lower-case hex |
//! | `SpanKind` | `Unspecified`, `Internal`, `Server`, `Client`, `Producer`, `Consumer` |
//! | `ServiceName` | resource attribute `service.name` when it is a string |
//! | `ResourceAttributes`, `SpanAttributes`, `Events.Attributes`, `Links.Attributes` | [`crate::rows::attributes`] |
//! | Duration | end − start in ns, 0 when the end lies before the start |
//! | `StatusCode` | `Unset`, `Ok`, `Error` |
//!
//! A timestamp of zero, or one that `DateTime64(9)` cannot hold, would put the row into a partition of its own; the row
//! gets the Kafka message's timestamp (never the clock's, so that a second reading gives the same row) and the
//! original is kept in the attribute [`ORIGINAL_START`], or [`ORIGINAL_TIME`] for an event.
//!
//! What one `ResourceSpans` and one `ScopeSpans` have in common is encoded once and copied per row; a resource that was
//! seen a moment ago ([`crate::rows::resources`]) is not even encoded. Per span there is no allocation, no clock and no lock.
//!
//! **Cost** of a `rich` span: 466 bytes in, 931 out. More than half of these are one copy of what is shared; the rest is
//! about 45 small copies: 13 for the span's own columns, 4 for each of its 7.5 attributes. At 2 to 3 ns each that is
//! 110 ns, beside 55 ns of the walk to the span. Measured on 21 November 2026 on one of two shared EPYC cores, as `cargo bench -p
//! sluice-gateway --bench path -- --stage encode` does it but with 4,000 (loadgen 8,192) spans, which stay in the cache, the best of
//! 750 rounds; instructions as valgrind's callgrind counts them: 158 ns and 3,690 instructions a span, 66 ns and 1,670 one of the
//! load generator. What made the difference was to move nothing large right after it was written (a [`sluice_otlp::Value`], a JSON
//! object), since the load waits for the stores; to append what has a fixed size at a fixed size, since that takes no call; and to
//! have no call on the way of a usual attribute from the wire to the row (4,490 instructions before). What did not: texts of 8 to 32
//! bytes as two copies of a fixed size, one over the end of the other (9 % more instructions, 6 % more time).

mod ids;
mod words;

use crate::rows::attributes::{self, AttributeWriter, Elements, Set};
use crate::rows::raw_limit::{RawLimit, RawLimitPassed};
use crate::rows::resources::{self, EncodedResources};
use crate::rows::utf8::mended;
use sluice_clickhouse::{
    column::{AttributeColumns, TableColumns},
    frame::frame_bytes_max,
    groups, json_paths,
    room::{self, NoRoom},
    row_frames::{FRAME_RAW_BYTES, FrameStore, RowFrames},
    rowbinary::{put_datetime64, put_len, put_string, put_u64},
};
use sluice_gateway_config::budget::{ROW_BYTES_MAX, SCRATCH_BYTES};
use sluice_otlp::{Malformed, Resource, Scope, Span, SpanSink, is_utf8};

/// Attribute that keeps a span's start when the row's timestamp is not it.
pub const ORIGINAL_START: &[u8] = b"sluice.start_time_unix_nano";

/// Attribute that keeps an event's time when the row's is not it.
pub const ORIGINAL_TIME: &[u8] = b"sluice.time_unix_nano";

/// The largest time that `DateTime64(9)` holds without overflow in queries: 2262-04-11 23:47:16 UTC, the largest
/// `i64` of nanoseconds (ClickHouse documentation, `DateTime64`).
const TIME_MAX: u64 = i64::MAX.unsigned_abs();

/// The same as a length.
#[expect(clippy::cast_possible_truncation, reason = "4 MiB fit every address space")]
const ROW_LEN_MAX: usize = ROW_BYTES_MAX as usize;

/// Bytes of a row's columns of fixed size, of its words and of the lengths of its strings: 3 numbers of 8, 2 words of
/// [`words::BYTES`], 8 lengths of 5; and the counts of empty arrays.
const FIXED_BYTES: usize = 128;

/// Small buffers of a worker: of [`Scratch`] 2, of events and links 6, of the writers 5, of groups 1. Each may become twice as large
/// as what is kept of it while a row is written.
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

/// Why a message gave no rows.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError<E> {
    /// It is not OTLP.
    #[error("{0}")]
    Malformed(Malformed),
    /// One of its spans makes a row that is too large.
    #[error("a span makes a row of more than {ROW_BYTES_MAX} bytes")]
    RowTooLarge,
    /// Its rows together take more bytes than the message may write.
    #[error("the spans make rows of more bytes than the message may write")]
    MessageTooLarge,
    /// The rows could not be kept.
    #[error("the rows cannot be kept")]
    Store(E),
}

impl<E> From<Malformed> for RowError<E> {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl<E> From<NoRoom> for RowError<E> {
    fn from(NoRoom: NoRoom) -> Self {
        Self::RowTooLarge
    }
}

impl<E> From<RawLimitPassed> for RowError<E> {
    fn from(RawLimitPassed: RawLimitPassed) -> Self {
        Self::MessageTooLarge
    }
}

impl<E> From<attributes::Error> for RowError<E> {
    fn from(error: attributes::Error) -> Self {
        match error {
            attributes::Error::Malformed(malformed) => Self::Malformed(malformed),
            attributes::Error::RowTooLarge => Self::RowTooLarge,
        }
    }
}

/// Buffers that a worker keeps between messages.
#[derive(Default)]
pub struct Scratch {
    /// How attributes lie in the table.
    columns: TableColumns,
    /// `ServiceName`, `ResourceAttributes`, `ScopeName`, `ScopeVersion`: neighbours in the row, alike for every span of a scope.
    shared: Vec<u8>,
    /// Where the scope begins in `shared`.
    scope_at: usize,
    /// `ServiceName` and `ResourceAttributes` of the resources that were seen last.
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

    /// Memory held, in bytes: for the budget.
    pub fn memory_bytes(&self) -> usize {
        let Self { columns: _, shared, scope_at: _, resources, event_names, elements, writer } = self;
        shared.capacity()
            + resources.memory_bytes()
            + event_names.capacity()
            + elements.memory_bytes()
            + writer.memory_bytes()
    }

    /// Gives back what a huge row took.
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
    fallback_nanos: i64,
    /// What the message may still write: rows, and what the spans of a resource share.
    raw: RawLimit,
    /// Spans that end later have ended at no time that anybody can measure freshness from.
    now_nanos: u64,
    end_nanos_max: u64,
}

impl<'a, S: FrameStore> SpanRows<'a, S> {
    /// A sink that appends to `rows`, whose frames go to `store`.
    pub fn new(
        scratch: &'a mut Scratch,
        rows: &'a mut RowFrames,
        store: S,
        fallback_nanos: i64,
        raw: RawLimit,
    ) -> Self {
        scratch.let_go();
        Self { scratch, rows, store, fallback_nanos, raw, now_nanos: u64::MAX, end_nanos_max: 0 }
    }

    /// Leaves spans that end later than now out of [`Self::end_nanos_max`]: one clock that is ahead would hide the freshness of all others.
    #[must_use]
    pub fn read_at(mut self, now_nanos: u64) -> Self {
        self.now_nanos = now_nanos;
        self
    }

    /// What the rows are appended to; for whoever wants them back before they are in frames.
    pub fn rows(&mut self) -> &mut RowFrames {
        self.rows
    }

    /// The latest end of a span that has ended, for the freshness of the block; 0 without one.
    pub fn end_nanos_max(&self) -> u64 {
        self.end_nanos_max
    }
}

impl<S: FrameStore> SpanSink for SpanRows<'_, S> {
    type Error = RowError<S::Error>;

    fn resource(&mut self, resource: &Resource<'_>) -> Result<(), Self::Error> {
        let Scratch { columns, shared, scope_at, resources, writer, .. } = &mut *self.scratch;
        shared.clear();
        if !resources.recall(resource.message, shared) {
            let name = mended(service_name(resource)?, ROW_LEN_MAX)?;
            room::make(shared, name.len(), ROW_LEN_MAX)?;
            put_string(shared, &name);
            let set = Set { columns: &columns.resource, attributes: &resource.attributes, extra: None };
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
        // The table has no column for them, but a message is malformed wherever it is.
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
    /// The row of a span whose own strings are not all UTF-8.
    #[cold]
    fn mended_row(&mut self, span: &Span<'_>) -> Result<(), RowError<S::Error>> {
        let name = mended(span.name, ROW_LEN_MAX)?;
        let trace_state = mended(span.trace_state, ROW_LEN_MAX.saturating_sub(name.len()))?;
        let bytes_left = ROW_LEN_MAX.saturating_sub(name.len() + trace_state.len());
        let status_message = mended(span.status_message, bytes_left)?;
        let (name, trace_state, status_message) = (&*name, &*trace_state, &*status_message);
        self.row(&Span { name, trace_state, status_message, ..*span })
    }

    /// The row of a span whose own strings are UTF-8; those of its attributes, events and links need not be.
    fn row(&mut self, span: &Span<'_>) -> Result<(), RowError<S::Error>> {
        let Scratch { columns, shared, event_names, elements, writer, .. } = &mut *self.scratch;
        let row = self.rows.row();
        let start_at = row.len();
        let limit = start_at + ROW_LEN_MAX;
        let (nanos, original) = usable(span.start_time_unix_nano, self.fallback_nanos);
        room::make(row, FIXED_BYTES + plain_bytes(span) + shared.len(), limit)?;
        put_datetime64(row, nanos);
        ids::put(row, span);
        put_seldom(row, span.trace_state);
        put_string(row, span.name);
        words::put(row, words::kind(span.kind));
        row.extend_from_slice(shared);
        let extra = original.map(|value| (ORIGINAL_START, value));
        writer.write(row, &Set { columns: &columns.span, attributes: &span.attributes, extra }, limit)?;
        if !span.status_message.is_empty() {
            room::make(row, span.status_message.len(), limit)?;
        }
        put_u64(row, span.end_time_unix_nano.saturating_sub(span.start_time_unix_nano));
        words::put(row, words::status(span.status_code));
        put_seldom(row, span.status_message);
        if span.events.is_empty() {
            row.extend_from_slice(&[0; 2]);
            Elements::put_none(row, &columns.event);
        } else {
            let scratch = Nested { columns: &columns.event, names: event_names, elements, writer, limit };
            put_events(row, span, self.fallback_nanos, scratch)?;
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

/// Bytes of the row, if it may be kept: a buffer that has room from before says nothing of the limit.
fn within_limit<E>(row: &[u8], start_at: usize) -> Result<usize, RowError<E>> {
    let bytes = row.len() - start_at;
    if bytes > ROW_LEN_MAX { Err(RowError::RowTooLarge) } else { Ok(bytes) }
}

/// Buffers for the columns of events, which are written side by side while the events are read once; and of links.
struct Nested<'a> {
    columns: &'a AttributeColumns,
    names: &'a mut Vec<u8>,
    elements: &'a mut Elements,
    writer: &'a mut AttributeWriter,
    /// Length beyond which the row is given up.
    limit: usize,
}

/// `Events.Timestamp`, `Events.Name`, and the columns of `Events.Attributes`: arrays of the same length.
fn put_events<E>(
    row: &mut Vec<u8>,
    span: &Span<'_>,
    fallback_nanos: i64,
    scratch: Nested<'_>,
) -> Result<(), RowError<E>> {
    if span.events.len() == 1 {
        return put_only_event(row, span, fallback_nanos, scratch);
    }
    let Nested { columns, names, elements, writer, limit } = scratch;
    names.clear();
    elements.clear();
    put_len(row, span.events.len());
    for event in &span.events {
        let event = event?;
        let (nanos, original) = usable(event.time_unix_nano, fallback_nanos);
        room::make(row, size_of::<i64>(), limit)?;
        put_datetime64(row, nanos);
        let bytes_left = limit.saturating_sub(row.len() + names.len() + elements.bytes());
        let name = mended(event.name, bytes_left)?;
        room::make(names, name.len(), names.len().saturating_add(bytes_left))?;
        put_string(names, &name);
        let extra = original.map(|value| (ORIGINAL_TIME, value));
        let set = Set { columns, attributes: &event.attributes, extra };
        writer.write_element(elements, &set, bytes_left.saturating_sub(name.len()))?;
    }
    room::make(row, names.len(), limit)?;
    put_len(row, span.events.len());
    row.extend_from_slice(names);
    if names.len() > room::KEPT_BYTES_MAX {
        room::let_go(names);
    }
    Ok(elements.put(row, columns, (span.events.len(), limit))?)
}

/// Arrays of one element stand in the row in the order of the event's fields, so that nothing needs to be kept aside.
/// Nearly all spans that have events have one.
fn put_only_event<E>(
    row: &mut Vec<u8>,
    span: &Span<'_>,
    fallback_nanos: i64,
    scratch: Nested<'_>,
) -> Result<(), RowError<E>> {
    let Nested { columns, elements, writer, limit, .. } = scratch;
    for event in &span.events {
        let event = event?;
        let (nanos, original) = usable(event.time_unix_nano, fallback_nanos);
        let name = mended(event.name, limit.saturating_sub(row.len()))?;
        room::make(row, name.len(), limit)?;
        put_len(row, 1);
        put_datetime64(row, nanos);
        put_len(row, 1);
        put_string(row, &name);
        let extra = original.map(|value| (ORIGINAL_TIME, value));
        let set = Set { columns, attributes: &event.attributes, extra };
        writer.write_only_element(row, elements, &set, limit)?;
    }
    Ok(())
}

/// `Links.TraceId`, `Links.SpanId`, `Links.TraceState`, and the columns of `Links.Attributes`: arrays of the same length. Links
/// are rare, so they are read once per column.
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
        let set = Set { columns, attributes: &link?.attributes, extra: None };
        writer.write_element(elements, &set, bytes_left)?;
    }
    Ok(elements.put(row, columns, (len, limit))?)
}

/// The time of rows whose spans have no usable one: the timestamp of their Kafka message, in ms, in ns. A message may have none, which
/// makes 1970, or any number that its producer wrote: what `DateTime64(9)` cannot hold becomes the nearest time that it can.
pub(crate) fn fallback_nanos(message_millis: Option<i64>) -> i64 {
    const LATEST: i64 = i64::MAX - 1;
    const { assert!(LATEST.unsigned_abs() < TIME_MAX, "it is usable itself") };
    message_millis.unwrap_or(0).saturating_mul(1_000_000).clamp(0, LATEST)
}

/// The time for the row, and the original when it is another one.
pub(crate) fn usable(nanos: u64, fallback_nanos: i64) -> (i64, Option<u64>) {
    match i64::try_from(nanos) {
        Ok(fits) if nanos > 0 && nanos < TIME_MAX => (fits, None),
        _ => (fallback_nanos, Some(nanos)),
    }
}

fn service_name<'a>(resource: &Resource<'a>) -> Result<&'a [u8], Malformed> {
    for attribute in &resource.attributes {
        let attribute = attribute?;
        if let (b"service.name", sluice_otlp::Value::String(name)) = (attribute.key, attribute.value) {
            return Ok(name);
        }
    }
    Ok(b"")
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
    fn the_timestamp_of_a_message_becomes_a_time_that_the_column_holds() {
        assert_eq!(fallback_nanos(None), 0);
        assert_eq!(fallback_nanos(Some(1_600_000_000_000)), 1_600_000_000_000_000_000);
        for (millis, nanos) in [(i64::MIN, 0), (-1, 0), (i64::MAX, i64::MAX - 1), (1 << 60, i64::MAX - 1)] {
            assert_eq!(fallback_nanos(Some(millis)), nanos);
            assert!(nanos == 0 || usable(nanos.unsigned_abs(), 7) == (nanos, None), "{millis}");
        }
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
