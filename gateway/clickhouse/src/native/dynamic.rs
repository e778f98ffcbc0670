//! `Dynamic`, flattened: values with their types, grouped by type.
//!
//! | bytes | meaning |
//! |---|---|
//! | prefix: `UInt64` | 3: flattened |
//! | varuint, strings | the types |
//! | | the prefix of each type |
//! | data: a byte each | the index of the value's type; the number of types if there is no value |
//! | | the values of each type |

use super::cursor::Cursor;
use super::kind::Kind;
use super::stream::Output;
use super::times::Times;
use super::values::Values;
use super::{TYPES_MAX, Unfit};
use crate::frame::FrameEncoder;
use crate::rowbinary::{put_len, put_string, put_u64, tag};

/// The version of flattened `Dynamic` and `JSON`.
pub(super) const FLATTENED: u64 = 3;

/// Consecutive values of one type.
#[derive(Debug, Clone, Copy, Default)]
struct Run {
    /// The number of the first one.
    start: u32,
    len: u32,
    index: u8,
}

/// Indexes that are written at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Memory of a type besides its values.
const TYPE_BYTES: usize = 256;

/// Values of any type.
#[derive(Debug, Default)]
pub(super) struct Dynamic {
    /// Number of values, present or not: a path has one or none per row.
    len: u32,
    /// Which of them are present. As runs, so that a path in few rows takes no memory for the others.
    runs: Vec<Run>,
    /// The last run, which is not in `runs` yet.
    open: Run,
    types: Vec<OfType>,
    /// The type of the next value; none if it is absent.
    current: Option<u8>,
}

/// The values of one type.
#[derive(Debug)]
struct OfType {
    /// Its encoding, which is not the prefix of any other type's.
    tag: Box<[u8]>,
    name: String,
    values: Values,
}

impl Dynamic {
    /// Values appended and padded.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// Reads the type of the next value.
    pub(super) fn read_type(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Unfit> {
        let number = match self.types.iter().position(|of_type| cursor.rest().starts_with(&of_type.tag)) {
            Some(number) => {
                cursor.take(self.types[number].tag.len())?;
                number
            }
            None if cursor.rest().first() == Some(&tag::NOTHING) => {
                cursor.byte()?;
                self.current = None;
                return Ok(());
            }
            None => self.add_type(cursor)?,
        };
        self.current = Some(u8::try_from(number).map_err(|_| Unfit::Types)?);
        Ok(())
    }

    /// Appends a value of the type that was read last, `times` times.
    #[inline]
    pub(super) fn append(&mut self, cursor: &mut Cursor<'_>, times: impl Times) -> Result<(), Unfit> {
        let Some(index) = self.current else {
            self.pad(times.count());
            return Ok(());
        };
        let run = Run { start: self.len, len: values_count(times.count()), index };
        if self.open.index == index && self.open.start + self.open.len == self.len {
            self.open.len += run.len;
        } else {
            self.begin(run);
        }
        self.len += run.len;
        self.types[usize::from(index)].values.append(cursor, times)
    }

    #[inline(never)]
    fn begin(&mut self, run: Run) {
        if self.open.len > 0 {
            self.runs.push(self.open);
        }
        self.open = run;
    }

    #[cold]
    fn add_type(&mut self, cursor: &mut Cursor<'_>) -> Result<usize, Unfit> {
        if self.types.len() == TYPES_MAX {
            return Err(Unfit::Types);
        }
        let start = cursor.rest();
        let (kind, name) = Kind::read(cursor, 0)?;
        let tag = start[..start.len() - cursor.rest().len()].into();
        self.types.push(OfType { tag, name, values: Values::new(&kind) });
        Ok(self.types.len() - 1)
    }

    /// Appends absent values.
    pub(super) fn pad(&mut self, count: usize) {
        self.len += values_count(count);
    }

    pub(super) fn spill(&mut self, encoder: &mut FrameEncoder) {
        for of_type in &mut self.types {
            of_type.values.spill(encoder);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let values = self.types.iter().map(|of_type| TYPE_BYTES + of_type.values.bytes()).sum::<usize>();
        self.runs.capacity() * size_of::<Run>() + values
    }

    pub(super) fn paths(&self) -> usize {
        self.types.iter().map(|of_type| of_type.values.paths()).sum()
    }

    /// The number of indexes that will be written for its values.
    pub(super) fn cells(&self) -> usize {
        self.types.iter().map(|of_type| of_type.values.cells()).sum()
    }

    pub(super) fn put_prefix(&self, out: &mut Vec<u8>) {
        put_u64(out, FLATTENED);
        put_len(out, self.types.len());
        for of_type in &self.types {
            put_string(out, of_type.name.as_bytes());
        }
        for of_type in &self.types {
            of_type.values.put_prefix(out);
        }
    }

    pub(super) fn put_data(self, output: &mut Output) {
        let none = u8::try_from(self.types.len()).expect("types are fewer than a byte has values");
        let mut written = 0;
        for run in self.runs.iter().chain([&self.open]) {
            put_indexes(output, none, run.start - written);
            put_indexes(output, run.index, run.len);
            written = run.start + run.len;
        }
        put_indexes(output, none, self.len - written);
        for of_type in self.types {
            of_type.values.put_data(output);
        }
    }
}

#[inline]
fn values_count(count: usize) -> u32 {
    u32::try_from(count).expect("a block has fewer than 2^32 values of a path")
}

/// Writes an index several times.
fn put_indexes(output: &mut Output, index: u8, count: u32) {
    let mut left = count as usize;
    while left > 0 {
        let piece = left.min(PIECE_BYTES);
        let len = output.raw().len();
        output.raw().resize(len + piece, index);
        output.cut_full();
        left -= piece;
    }
}
