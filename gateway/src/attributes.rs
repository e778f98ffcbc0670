//! Attributes into the columns of their set, whatever their layout.
//!
//! Place in the flow: [`crate::span_row`] calls [`AttributeWriter::write`] for the attributes of resources and spans, and
//! [`AttributeWriter::write_element`] for those of each event and link. The layout is the table's
//! (`sluice_clickhouse::column`) and does not change while the process runs; it costs one branch per set. Owner: a worker.
//!
//! | layout | how values are written |
//! | --- | --- |
//! | `JSON` | [`json`] |
//! | `Map` of text | [`map`] |
//! | typed groups | [`nested`] |
//!
//! In all of them the first of two equal keys wins.

pub mod json;
pub mod map;
pub mod nested;

use sluice_clickhouse::{
    column::{AttributeColumns, Group},
    groups::Groups,
    json::JsonSummary,
    rowbinary::put_len,
};
use sluice_gateway_config::budget::ROW_BYTES_MAX;
use sluice_otlp::{Attributes, Malformed};

/// Why attributes could not be written.
#[derive(Debug, PartialEq, Eq)]
pub enum Error {
    /// They are not OTLP.
    Malformed(Malformed),
    /// They are too many or too long.
    RowTooLarge,
}

impl From<Malformed> for Error {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

/// Bytes of scratch that a buffer keeps between messages. Chosen: far above what spans carry; the scratch of a row near
/// [`ROW_BYTES_MAX`] must not stay behind in every worker.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// Empties scratch, and gives back what a huge row took.
pub(crate) fn let_go(scratch: &mut Vec<u8>) {
    if scratch.capacity() > KEPT_BYTES_MAX {
        scratch.clear();
        scratch.shrink_to(KEPT_BYTES_MAX);
    }
}

/// Length of a buffer at which the row is given up.
fn row_limit(out: &[u8]) -> usize {
    out.len().saturating_add(usize::try_from(ROW_BYTES_MAX).unwrap_or(usize::MAX))
}

/// A row has all of its attributes, or there is none: those beyond the limit of an object are a reason to reject it, not to store
/// the others without them.
fn all_stored(summary: JsonSummary) -> Result<(), Error> {
    if summary.over_limit > 0 { Err(Error::RowTooLarge) } else { Ok(()) }
}

/// Writes attributes; keeps its buffers from call to call.
#[derive(Default)]
pub struct AttributeWriter {
    json: json::JsonWriter,
    map: map::MapWriter,
    groups: Groups,
    text: Vec<u8>,
}

impl AttributeWriter {
    /// Gives back what a huge row took.
    pub fn let_go(&mut self) {
        self.json.let_go();
        self.map.let_go();
        let_go(&mut self.text);
    }

    /// Appends the columns of a set to a row. `extra` is written last, unless the attributes have its key.
    #[inline]
    pub fn write(
        &mut self,
        out: &mut Vec<u8>,
        columns: &AttributeColumns,
        attributes: &Attributes<'_>,
        extra: Option<(&[u8], u64)>,
    ) -> Result<(), Error> {
        match columns {
            AttributeColumns::Json(column) => self.json.write(out, column, attributes, extra),
            AttributeColumns::Map => self.map.write(out, attributes, extra),
            AttributeColumns::Nested => {
                nested::collect(&mut self.groups, &mut self.text, attributes, extra)?;
                self.groups.put_columns(out);
                Ok(())
            }
        }
    }

    /// Appends the columns of a set that has one element to a row.
    #[inline]
    pub fn write_only_element(
        &mut self,
        row: &mut Vec<u8>,
        elements: &mut Elements,
        (columns, attributes): (&AttributeColumns, &Attributes<'_>),
        extra: Option<(&[u8], u64)>,
    ) -> Result<(), Error> {
        match columns {
            AttributeColumns::Json(_) | AttributeColumns::Map => {
                put_len(row, 1);
                self.write(row, columns, attributes, extra)
            }
            AttributeColumns::Nested => {
                elements.clear();
                self.write_element(elements, columns, attributes, extra)?;
                elements.put(row, columns, 1);
                Ok(())
            }
        }
    }

    /// Appends one event's or link's attributes to the elements of the set's columns.
    pub fn write_element(
        &mut self,
        elements: &mut Elements,
        columns: &AttributeColumns,
        attributes: &Attributes<'_>,
        extra: Option<(&[u8], u64)>,
    ) -> Result<(), Error> {
        match columns {
            AttributeColumns::Json(_) | AttributeColumns::Map => {
                self.write(&mut elements.single, columns, attributes, extra)
            }
            AttributeColumns::Nested => {
                nested::collect(&mut self.groups, &mut self.text, attributes, extra)?;
                self.groups.put_pairs(&mut elements.groups);
                Ok(())
            }
        }
    }
}

/// The elements of a repeated set's columns, which are written side by side while events or links are read once.
#[derive(Default)]
pub struct Elements {
    /// Of the one column of `JSON` or `Map`.
    single: Vec<u8>,
    /// Of the column of each group.
    groups: [Vec<u8>; Group::ALL.len()],
}

impl Elements {
    /// Gives back what a huge row took.
    pub fn let_go(&mut self) {
        let_go(&mut self.single);
        self.groups.iter_mut().for_each(let_go);
    }

    /// Forgets all elements.
    pub fn clear(&mut self) {
        self.single.clear();
        self.groups.iter_mut().for_each(Vec::clear);
    }

    /// Bytes of all elements.
    pub fn bytes(&self) -> usize {
        self.single.len() + self.groups.iter().map(Vec::len).sum::<usize>()
    }

    /// Appends the set's columns to a row: arrays of `len` elements.
    pub fn put(&self, row: &mut Vec<u8>, columns: &AttributeColumns, len: usize) {
        let columns = match columns {
            AttributeColumns::Json(_) | AttributeColumns::Map => std::slice::from_ref(&self.single),
            AttributeColumns::Nested => &self.groups,
        };
        for elements in columns {
            put_len(row, len);
            row.extend_from_slice(elements);
        }
    }

    /// Appends the set's columns of a span without events or links to a row: empty arrays.
    pub fn put_none(row: &mut Vec<u8>, columns: &AttributeColumns) {
        match columns {
            AttributeColumns::Json(_) | AttributeColumns::Map => row.push(0),
            AttributeColumns::Nested => row.extend_from_slice(&[0; Group::ALL.len()]),
        }
    }
}
