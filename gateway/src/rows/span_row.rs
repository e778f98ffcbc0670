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
//! | columns that the table need not have | [`optional`], [`crate::rows::origin`] |
//!
//! The common parts of one `ResourceSpans` and one `ScopeSpans` are encoded once and copied into each row. A recently seen resource comes
//! from a cache ([`crate::rows::resources`]). Per span there is no allocation, no clock and no lock.
//!
//! **Cost** of a `rich` span: 466 bytes in, 931 out. More than half of these are one copy of the common parts; the rest is about 45 small
//! copies: 13 for the span's own columns, 4 for each of its 7.5 attributes. At 2 to 3 ns each that is 110 ns, besides 55 ns of the walk to
//! the span. Measured on 21 November 2026 on one of two shared EPYC cores, the best of 750 rounds. The program was like `cargo bench -p
//! sluice-gateway --bench path -- --stage encode`, but with 4,000 (loadgen 8,192) spans, which stay in the cache. A `rich` span takes 158 ns
//! and 3,690 instructions, one of the load generator 66 ns and 1,670. Valgrind's callgrind counted the instructions.
//!
//! What helped:
//! - Large values (a [`sluice_otlp::Value`], a JSON object) are not moved right after they are written: the load would wait for the stores.
//! - Values of fixed size are appended at a fixed size, which takes no call.
//! - There is no call on the path of a usual attribute from the wire to the row (4,490 instructions before).
//!
//! What did not help: writing texts of 8 to 32 bytes as two overlapping copies of a fixed size (9 % more instructions, 6 % more time).

mod ids;
mod nested;
mod optional;
mod row_error;
mod service;
mod words;

pub use ids::stored as stored_id;
pub use row_error::RowError;

use nested::{Nested, put_events, put_links};

use crate::rows::attributes::{AttributeWriter, Elements, RowLimit, Set};
use crate::rows::carry::{Carry, SetCarry};
use crate::rows::origin::{self, Origin};
use crate::rows::raw_limit::RawLimit;
use crate::rows::resources::{self, EncodedResources};
use crate::rows::services::{self, ServiceTally};
use crate::rows::span_times::{Original, SpanTimes, TimeCounts};
use crate::rows::utf8::mended;
use sluice_clickhouse::{
    column::TableColumns,
    expiry::ExpiryRule,
    frame::frame_bytes_max,
    groups, json_paths,
    optional::OptionalColumn,
    room,
    row_frames::{FRAME_RAW_BYTES, FrameStore, RowFrames, RowTotals},
    rowbinary::{put_datetime64, put_string, put_u64},
};
use sluice_gateway_config::AttributesOf;
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
        + origin::BYTES_MAX
        + services::TALLY_BYTES_MAX
        + frame_bytes_max(FRAME_RAW_BYTES + 1)) as u64
        <= SCRATCH_BYTES,
    "a worker needs more than the budget counts"
);

/// Buffers that a worker reuses for all messages.
#[derive(Default)]
pub struct Scratch {
    /// The layout of attributes in the table.
    columns: TableColumns,
    /// What a config does with attributes.
    carry: Option<Carry>,
    /// Counts rows by service.
    tally: Option<ServiceTally>,
    /// `ServiceName`, `ResourceAttributes`, `ScopeName`, `ScopeVersion`, and optional columns between and behind them: adjacent in the
    /// row, and equal for all spans of a scope.
    shared: Vec<u8>,
    /// Where the scope starts in `shared`.
    scope_at: usize,
    /// The columns of the message, equal for all of its spans; empty unless the table has such columns.
    message: Vec<u8>,
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

    /// The same, with what a config does with attributes.
    #[must_use]
    pub fn carrying(self, carry: Option<Carry>) -> Self {
        Self { carry, ..self }
    }

    /// The same, with counts of rows by service.
    #[must_use]
    pub fn tallying(self, tally: ServiceTally) -> Self {
        Self { tally: Some(tally), ..self }
    }

    /// Counts the last message, which is whole, by service; `totals` are those of its block.
    pub fn commit_services(&mut self, totals: RowTotals) {
        if let Some(tally) = &mut self.tally {
            tally.commit(totals);
        }
    }

    /// What was done with the attributes of the last message.
    pub fn carry(&self) -> Option<&Carry> {
        self.carry.as_ref()
    }

    /// Memory in use, in bytes, for the budget.
    pub fn memory_bytes(&self) -> usize {
        let Self { shared, message, resources, event_names, elements, writer, tally, .. } = self;
        shared.capacity()
            + message.capacity()
            + tally.as_ref().map_or(0, |_| services::TALLY_BYTES_MAX)
            + resources.memory_bytes()
            + event_names.capacity()
            + elements.memory_bytes()
            + writer.memory_bytes()
    }

    /// Whether rows have schema URLs, which only the walk in any order hands over.
    pub fn has_schema_urls(&self) -> bool {
        self.columns.optional.has_any_of(optional::SCHEMA_URLS)
    }

    /// Makes the columns of a message. Returns whether headers were left out.
    fn begin_message(&mut self, origin: &Origin<'_>) -> bool {
        let columns = self.columns.optional;
        self.message.clear();
        columns.has_any_of(optional::BEHIND_LINKS) && origin::put(&mut self.message, columns, origin)
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
    headers_cut: bool,
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
        scratch.begin_message(&Origin::default());
        if let Some(carry) = &mut scratch.carry {
            carry.begin();
        }
        if let Some(tally) = &mut scratch.tally {
            tally.begin();
        }
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
            headers_cut: false,
        }
    }

    /// Fills the columns of a message that comes from there.
    #[must_use]
    pub fn of_origin(mut self, origin: &Origin<'_>) -> Self {
        self.headers_cut = self.scratch.begin_message(origin);
        self
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

    /// Whether headers of the message were left out of its rows.
    pub fn headers_cut(&self) -> bool {
        self.headers_cut
    }

    /// Rows with times that had to be corrected, and expired rows.
    pub fn time_counts(&self) -> TimeCounts {
        self.counts
    }
}

impl<S: FrameStore> SpanSink for SpanRows<'_, S> {
    type Error = RowError<S::Error>;

    fn resource(&mut self, resource: &Resource<'_>) -> Result<(), Self::Error> {
        let Scratch { columns, carry, tally, shared, scope_at, resources, writer, .. } = &mut *self.scratch;
        shared.clear();
        if !resources.recall(resource.message, shared) {
            let carry = carried(carry.as_ref(), AttributesOf::Resource);
            let keys = columns.optional.has(OptionalColumn::ResourceAttributesKeys);
            let attributes = &resource.attributes;
            let set = Set { columns: &columns.resource, attributes, originals: &[], keys, carry };
            service::put_name(shared, &set, writer)?;
            writer.write(shared, &set, ROW_LEN_MAX)?;
            optional::put_resource_count(shared, columns.optional, resource);
            resources.keep(resource.message, shared);
        }
        optional::put_resource_url(shared, columns.optional, resource)?;
        *scope_at = shared.len();
        if let Some(tally) = tally {
            tally.resource(service::name_in(shared), self.rows.totals());
        }
        Ok(self.raw.write(shared.len())?)
    }

    fn scope(&mut self, scope: &Scope<'_>) -> Result<(), Self::Error> {
        let Scratch { columns, carry, shared, scope_at, writer, .. } = &mut *self.scratch;
        let carry = carried(carry.as_ref(), AttributesOf::Scope);
        shared.truncate(*scope_at);
        for text in [scope.name, scope.version] {
            optional::put_text(shared, text)?;
        }
        let attributes_bytes = optional::put_scope(shared, columns, scope, (writer, carry))?;
        // Like a resource: a scope without spans must not write without limit.
        Ok(self.raw.write(attributes_bytes)?)
    }

    fn span(&mut self, span: &Span<'_>) -> Result<(), Self::Error> {
        // Most spans do not have the latter two.
        let is_utf8_or_empty = |text: &[u8]| text.is_empty() || is_utf8(text);
        if is_utf8(span.name) && is_utf8_or_empty(span.trace_state) && is_utf8_or_empty(span.status_message) {
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
    #[expect(
        clippy::inline_always,
        reason = "out of line, the walk writes each field of a span to memory: 1 % of a gateway's time"
    )]
    #[inline(always)]
    fn row(&mut self, span: &Span<'_>) -> Result<(), RowError<S::Error>> {
        let Scratch { columns, carry, shared, message, event_names, elements, writer, .. } =
            &mut *self.scratch;
        let carry = carry.as_ref();
        let extra = columns.optional;
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
        let keys = extra.has(OptionalColumn::SpanAttributesKeys);
        let carry_span = carried(carry, AttributesOf::Span);
        let attributes = &span.attributes;
        let set = Set { columns: &columns.span, attributes, originals, keys, carry: carry_span };
        writer.write(row, &set, limit)?;
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
            let carry = carried(carry, AttributesOf::Event);
            let scratch =
                Nested { columns: &columns.event, carry, names: event_names, elements, writer, limit };
            self.counts.events_replaced += put_events(row, span, self.message_nanos, scratch)?;
        }
        if span.links.is_empty() {
            row.extend_from_slice(&[0; 3]);
            Elements::put_none(row, &columns.link);
        } else {
            let carry = carried(carry, AttributesOf::Link);
            let scratch =
                Nested { columns: &columns.link, carry, names: event_names, elements, writer, limit };
            put_links(row, span, scratch)?;
        }
        if extra.has_any_of(optional::BEHIND_LINKS) {
            optional::put_behind_links(row, extra, span, (message, limit))?;
        }
        self.raw.write(within_limit(row, start_at)?)?;
        if span.end_time_unix_nano <= self.now_nanos {
            self.end_nanos_max = self.end_nanos_max.max(span.end_time_unix_nano);
        }
        self.rows.end_row(&mut self.store).map_err(RowError::Store)
    }
}

/// What a config does with the attributes of a set.
#[inline]
fn carried(carry: Option<&Carry>, set: AttributesOf) -> Option<SetCarry<'_>> {
    carry.and_then(|carry| carry.set(set))
}

/// Bytes of a span's own strings before its attributes.
#[inline]
fn plain_bytes(span: &Span<'_>) -> usize {
    ids::BYTES_MAX + span.trace_state.len() + span.name.len()
}

/// The length of the row, if it is within the limit: capacity left from an earlier row must not hide that it is exceeded.
fn within_limit<E>(row: &[u8], start_at: usize) -> Result<usize, RowError<E>> {
    let bytes = row.len() - start_at;
    if bytes > ROW_LEN_MAX { Err(RowError::RowTooLarge(RowLimit::Bytes)) } else { Ok(bytes) }
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
mod tests;
