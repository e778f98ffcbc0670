//! The columns of events and links: arrays with an element for each of them.

use super::{RowError, ids};
use crate::rows::attributes::{AttributeWriter, Elements, Set};
use crate::rows::carry::SetCarry;
use crate::rows::span_times::{ORIGINAL_TIME, usable};
use crate::rows::utf8::mended;
use sluice_clickhouse::{
    column::AttributeColumns,
    room,
    rowbinary::{put_datetime64, put_len, put_string},
};
use sluice_otlp::Span;

/// Buffers for the columns of events, which are written side by side so that events are read only once; and of links.
pub(super) struct Nested<'a> {
    pub columns: &'a AttributeColumns,
    pub carry: Option<SetCarry<'a>>,
    pub names: &'a mut Vec<u8>,
    pub elements: &'a mut Elements,
    pub writer: &'a mut AttributeWriter,
    /// Length beyond which writing fails.
    pub limit: usize,
}

/// Appends `Events.Timestamp`, `Events.Name`, and the columns of `Events.Attributes`: arrays of the same length. Returns the number of
/// replaced times.
pub(super) fn put_events<E>(
    row: &mut Vec<u8>,
    span: &Span<'_>,
    message_nanos: i64,
    scratch: Nested<'_>,
) -> Result<u64, RowError<E>> {
    if span.events.len() == 1 {
        return put_only_event(row, span, message_nanos, scratch);
    }
    let Nested { columns, carry, names, elements, writer, limit } = scratch;
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
        let originals = original.as_slice();
        let set = Set { columns, attributes: &event.attributes, originals, keys: false, carry };
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
    let Nested { columns, carry, elements, writer, limit, .. } = scratch;
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
        let originals = original.as_slice();
        let set = Set { columns, attributes: &event.attributes, originals, keys: false, carry };
        writer.write_only_element(row, elements, &set, limit)?;
    }
    Ok(replaced)
}

/// Appends `Links.TraceId`, `Links.SpanId`, `Links.TraceState`, and the columns of `Links.Attributes`: arrays of the same length. Links are
/// rare, so they are read once per column.
pub(super) fn put_links<E>(
    row: &mut Vec<u8>,
    span: &Span<'_>,
    scratch: Nested<'_>,
) -> Result<(), RowError<E>> {
    let Nested { columns, carry, elements, writer, limit, .. } = scratch;
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
        let set = Set { columns, attributes: &link?.attributes, originals: &[], keys: false, carry };
        writer.write_element(elements, &set, bytes_left)?;
    }
    Ok(elements.put(row, columns, (len, limit))?)
}
