//! Writes attributes into the columns of their set, in any layout.
//!
//! Place in the flow: [`crate::rows::span_row`] calls [`AttributeWriter::write`] for the attributes of resources and spans, and
//! [`AttributeWriter::write_element`] for those of each event and link. The layout is the table's
//! (`sluice_clickhouse::column`) and does not change while the process runs; it costs one branch per set. Owner: a worker.
//!
//! | layout | how values are written |
//! | --- | --- |
//! | `JSON` | [`json`] |
//! | `Map` of text | [`map`] |
//! | typed groups | [`nested`] |
//!
//! In all layouts, the first of two equal keys is kept; in `JSON`, the first of two equal paths. If the table has a column for the keys, it
//! gets those that are in the set's columns: paths in `JSON`, else keys. What a config does with
//! attributes ([`crate::rows::carry`]) is done before that.
//!
//! Limits: the caller says how long the buffer may become, which is what the row may still have. Every writer requests room before it
//! writes a key and its value ([`sluice_clickhouse::room`]); without room, it fails and the row is rejected. Scratch memory of a huge
//! value is freed as soon as the value is in the row.

pub mod json;
pub mod map;
pub mod nested;

use crate::rows::{
    carry::{LIST_BYTES_MAX, SetCarry},
    span_times::Original,
    value_text,
};
use sluice_clickhouse::{
    column::{AttributeColumns, Group},
    groups::Groups,
    json::{JSON_PATHS_MAX, JsonSummary},
    room::{self, AROUND_BYTES, NoRoom, let_go},
    rowbinary::{VARUINT_BYTES_MAX, put_len, put_string},
};
use sluice_gateway_config::budget::ROW_BYTES_MAX;
use sluice_otlp::{Attributes, Malformed, Scalar, Value};

/// Why attributes could not be written.
#[derive(Debug, PartialEq, Eq)]
pub enum Error {
    /// They are not OTLP.
    Malformed(Malformed),
    /// They are too many or too long.
    RowTooLarge(RowLimit),
}

/// The limit that a span passes, in words that follow "one of its spans".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RowLimit {
    /// The bytes of a row.
    #[error("makes a row of more than {} MiB", ROW_BYTES_MAX >> 20)]
    Bytes,
    /// The attributes of one object.
    #[error("has more than {JSON_PATHS_MAX} attributes in one object and in the objects that contain it")]
    Attributes,
    /// What is written again, or hashed, as rules say.
    #[error("has a list, an array or a key of more than {} KiB to which attributes.rules apply", LIST_BYTES_MAX >> 10)]
    Ruled,
}

impl From<Malformed> for Error {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl From<NoRoom> for Error {
    fn from(NoRoom: NoRoom) -> Self {
        Self::RowTooLarge(RowLimit::Bytes)
    }
}

/// One set of attributes to write.
#[derive(Clone, Copy)]
pub struct Set<'a> {
    /// Its columns in the table.
    pub columns: &'a AttributeColumns,
    pub attributes: &'a Attributes<'a>,
    /// Times that the row does not show. They are written last, unless an attribute has their key.
    pub originals: &'a [Original],
    /// Whether a column with the keys follows: an array, sorted, of what the set's columns have.
    pub keys: bool,
    /// What a config does with them; `None` if they are written as they are.
    pub carry: Option<SetCarry<'a>>,
}

/// Bytes of a value in a buffer, without the bytes around it; 0 for arrays and lists, which request room themselves.
fn value_bytes(value: &Value<'_>) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Bytes(bytes) => value_text::base64_bytes(bytes),
        Value::Empty
        | Value::Bool(_)
        | Value::Int(_)
        | Value::Double(_)
        | Value::Array(_)
        | Value::KeyValues(_) => 0,
    }
}

/// Bytes of a scalar value, without the bytes around it.
#[inline]
fn scalar_bytes(scalar: &Scalar<'_>) -> usize {
    match scalar {
        Scalar::String(text) => text.len(),
        Scalar::Bool(_) | Scalar::Int(_) | Scalar::Double(_) => 0,
    }
}

/// A row must have all of its attributes. Attributes beyond the limit of an object therefore reject the row; it is not stored without them.
fn all_stored(summary: JsonSummary) -> Result<(), Error> {
    if summary.over_limit > 0 { Err(Error::RowTooLarge(RowLimit::Attributes)) } else { Ok(()) }
}

/// Writes attributes; reuses its buffers.
#[derive(Default)]
pub struct AttributeWriter {
    json: json::JsonWriter,
    map: map::MapWriter,
    groups: Groups,
    text: Vec<u8>,
}

impl AttributeWriter {
    /// Frees the memory of a huge row.
    pub fn let_go(&mut self) {
        self.json.let_go();
        self.map.let_go();
        self.groups.let_go();
        let_go(&mut self.text);
    }

    /// Memory in use, in bytes, for the budget.
    pub fn memory_bytes(&self) -> usize {
        self.json.memory_bytes() + self.map.memory_bytes() + self.groups.memory_bytes() + self.text.capacity()
    }

    /// Appends the columns of a set to a row; fails beyond the length `limit`. The room that the row last requested must include half of
    /// [`AROUND_BYTES`], since a set without attributes requests nothing.
    #[inline]
    pub fn write(&mut self, out: &mut Vec<u8>, set: &Set<'_>, limit: usize) -> Result<(), Error> {
        match set.columns {
            AttributeColumns::Json(column) => self.json.write(out, column, set, limit),
            AttributeColumns::Map => self.map.write(out, set, limit),
            AttributeColumns::Nested => {
                self.collect(set, limit.saturating_sub(out.len()))?;
                self.groups.put_columns(out, limit)?;
                if set.keys {
                    self.groups.put_keys(out, limit)?;
                }
                self.let_go_of_groups();
                Ok(())
            }
        }
    }

    /// Appends the columns of a set with one element to a row, like [`AttributeWriter::write`].
    #[inline]
    pub fn write_only_element(
        &mut self,
        row: &mut Vec<u8>,
        elements: &mut Elements,
        set: &Set<'_>,
        limit: usize,
    ) -> Result<(), Error> {
        match set.columns {
            AttributeColumns::Json(_) | AttributeColumns::Map => {
                put_len(row, 1);
                self.write(row, set, limit)
            }
            AttributeColumns::Nested => {
                elements.clear();
                self.write_element(elements, set, limit.saturating_sub(row.len()))?;
                elements.put(row, set.columns, (1, limit))
            }
        }
    }

    /// Appends the attributes of one event or link to the elements of the set's columns, at most `bytes`.
    pub fn write_element(
        &mut self,
        elements: &mut Elements,
        set: &Set<'_>,
        bytes: usize,
    ) -> Result<(), Error> {
        match set.columns {
            AttributeColumns::Json(_) | AttributeColumns::Map => {
                let limit = elements.single.len().saturating_add(bytes);
                room::make(&mut elements.single, 0, limit)?;
                self.write(&mut elements.single, set, limit)
            }
            AttributeColumns::Nested => {
                self.collect(set, bytes)?;
                let limit = elements.bytes().saturating_add(bytes);
                self.groups.put_pairs(&mut elements.groups, limit)?;
                self.let_go_of_groups();
                Ok(())
            }
        }
    }

    /// Appends the text of a value ([`value_text`]) as a string; fails beyond the length `limit`.
    pub fn write_text(&mut self, out: &mut Vec<u8>, value: Value<'_>, limit: usize) -> Result<(), Error> {
        let text = &mut self.text;
        text.clear();
        value_text::put(text, value, limit.saturating_sub(out.len()))?;
        room::make(out, text.len(), limit)?;
        put_string(out, text);
        if text.capacity() > room::KEPT_BYTES_MAX {
            let_go(text);
        }
        Ok(())
    }

    fn collect(&mut self, set: &Set<'_>, bytes: usize) -> Result<(), Error> {
        nested::collect(&mut self.groups, &mut self.text, set, bytes)
    }

    #[inline]
    fn let_go_of_groups(&mut self) {
        if self.groups.bytes() > room::KEPT_BYTES_MAX {
            self.groups.let_go();
        }
    }
}

/// The elements of a repeated set's columns. They are written side by side, so that events and links are read only once.
#[derive(Default)]
pub struct Elements {
    /// The elements of the single column of `JSON` or `Map`.
    single: Vec<u8>,
    /// The elements of each group's column.
    groups: [Vec<u8>; Group::ALL.len()],
}

impl Elements {
    /// Frees the memory of a huge row.
    pub fn let_go(&mut self) {
        let_go(&mut self.single);
        self.groups.iter_mut().for_each(let_go);
    }

    /// Removes all elements.
    pub fn clear(&mut self) {
        self.single.clear();
        self.groups.iter_mut().for_each(Vec::clear);
    }

    /// Bytes of all elements.
    pub fn bytes(&self) -> usize {
        self.single.len() + self.groups.iter().map(Vec::len).sum::<usize>()
    }

    /// Memory in use, in bytes, for the budget.
    pub fn memory_bytes(&self) -> usize {
        self.single.capacity() + self.groups.iter().map(Vec::capacity).sum::<usize>()
    }

    /// Appends the set's columns to a row: arrays of `len` elements. Fails beyond the length `limit`.
    pub fn put(
        &mut self,
        row: &mut Vec<u8>,
        columns: &AttributeColumns,
        (len, limit): (usize, usize),
    ) -> Result<(), Error> {
        const { assert!(AROUND_BYTES >= Group::ALL.len() * VARUINT_BYTES_MAX, "a length for each column") };
        room::make(row, self.bytes(), limit)?;
        let columns = match columns {
            AttributeColumns::Json(_) | AttributeColumns::Map => std::slice::from_ref(&self.single),
            AttributeColumns::Nested => &self.groups,
        };
        for elements in columns {
            put_len(row, len);
            row.extend_from_slice(elements);
        }
        if self.bytes() > room::KEPT_BYTES_MAX {
            self.let_go();
        }
        Ok(())
    }

    /// Appends empty arrays for the set's columns, for a span without events or links.
    pub fn put_none(row: &mut Vec<u8>, columns: &AttributeColumns) {
        match columns {
            AttributeColumns::Json(_) | AttributeColumns::Map => row.push(0),
            AttributeColumns::Nested => row.extend_from_slice(&[0; Group::ALL.len()]),
        }
    }
}
