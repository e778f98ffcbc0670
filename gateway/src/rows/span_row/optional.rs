//! The columns that a table need not have: written next to those that are equal for many rows, and behind the others.
//!
//! A table without them costs two comparisons per span: whether keys follow the attributes, and whether anything follows the links.

use super::{ROW_LEN_MAX, RowError};
use crate::rows::{
    attributes::{AttributeWriter, Set},
    carry::SetCarry,
    utf8::mended,
};
use sluice_clickhouse::{
    column::TableColumns,
    optional::{OptionalColumn, OptionalColumns},
    room::{self, NoRoom},
    rowbinary::{put_string, put_u32},
};
use sluice_otlp::{Resource, Scope, Span};

/// Columns behind the links: the span's own numbers, and what Kafka says of the message.
pub(super) const BEHIND_LINKS: OptionalColumns = OptionalColumns::of(&[
    OptionalColumn::TraceFlags,
    OptionalColumn::DroppedAttributesCount,
    OptionalColumn::DroppedEventsCount,
    OptionalColumn::DroppedLinksCount,
    OptionalColumn::KafkaTopic,
    OptionalColumn::KafkaPartition,
    OptionalColumn::KafkaOffset,
    OptionalColumn::KafkaTimestamp,
    OptionalColumn::KafkaHeaders,
]);

/// Columns with a schema URL, which stands behind the spans on the wire.
pub(super) const SCHEMA_URLS: OptionalColumns =
    OptionalColumns::of(&[OptionalColumn::ResourceSchemaUrl, OptionalColumn::ScopeSchemaUrl]);

/// Bytes of the span's own numbers.
const NUMBERS_BYTES: usize = 4 * size_of::<u32>();

/// Appends a string that may not be UTF-8.
pub(super) fn put_text(out: &mut Vec<u8>, text: &[u8]) -> Result<(), NoRoom> {
    let text = mended(text, ROW_LEN_MAX.saturating_sub(out.len()))?;
    room::make(out, text.len(), ROW_LEN_MAX)?;
    put_string(out, &text);
    Ok(())
}

/// Appends `ResourceDroppedAttributesCount`, which belongs to the resource's message.
pub(super) fn put_resource_count(shared: &mut Vec<u8>, optional: OptionalColumns, resource: &Resource<'_>) {
    if optional.has(OptionalColumn::ResourceDroppedAttributesCount) {
        put_u32(shared, resource.dropped_attributes_count);
    }
}

/// Appends `ResourceSchemaUrl`, which belongs to the `ResourceSpans`.
pub(super) fn put_resource_url(
    shared: &mut Vec<u8>,
    optional: OptionalColumns,
    resource: &Resource<'_>,
) -> Result<(), NoRoom> {
    if optional.has(OptionalColumn::ResourceSchemaUrl) {
        put_text(shared, resource.schema_url)
    } else {
        Ok(())
    }
}

/// Appends the columns of a scope. Its attributes are checked if the table has no column for them: whether a message is malformed must not
/// depend on that. Returns the bytes written for attributes, which may be many more than they have in the message.
pub(super) fn put_scope<E>(
    shared: &mut Vec<u8>,
    columns: &TableColumns,
    scope: &Scope<'_>,
    (writer, carry): (&mut AttributeWriter, Option<SetCarry<'_>>),
) -> Result<usize, RowError<E>> {
    let optional = columns.optional;
    let before = shared.len();
    if optional.has(OptionalColumn::ScopeAttributes) {
        let keys = optional.has(OptionalColumn::ScopeAttributesKeys);
        let attributes = &scope.attributes;
        let set = Set { columns: &columns.scope, attributes, originals: &[], keys, carry };
        writer.write(shared, &set, ROW_LEN_MAX)?;
    } else {
        scope.attributes.check()?;
    }
    let attributes_bytes = shared.len() - before;
    if optional.has(OptionalColumn::ScopeDroppedAttributesCount) {
        room::make(shared, size_of::<u32>(), ROW_LEN_MAX)?;
        put_u32(shared, scope.dropped_attributes_count);
    }
    if optional.has(OptionalColumn::ScopeSchemaUrl) {
        put_text(shared, scope.schema_url)?;
    }
    Ok(attributes_bytes)
}

/// Appends the columns behind the links; `message` are those of the message.
#[inline(never)]
pub(super) fn put_behind_links(
    row: &mut Vec<u8>,
    optional: OptionalColumns,
    span: &Span<'_>,
    (message, limit): (&[u8], usize),
) -> Result<(), NoRoom> {
    room::make(row, NUMBERS_BYTES + message.len(), limit)?;
    for (column, number) in [
        (OptionalColumn::TraceFlags, span.flags),
        (OptionalColumn::DroppedAttributesCount, span.dropped_attributes_count),
        (OptionalColumn::DroppedEventsCount, span.dropped_events_count),
        (OptionalColumn::DroppedLinksCount, span.dropped_links_count),
    ] {
        if optional.has(column) {
            put_u32(row, number);
        }
    }
    row.extend_from_slice(message);
    Ok(())
}
