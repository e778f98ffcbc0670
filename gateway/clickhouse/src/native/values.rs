//! The values of a column, or of a part of one.
//!
//! Each value is appended from a row. Columns are written in two steps: first the *prefix* of the whole column, then its *data*.
//!
//! | type | prefix | data |
//! |---|---|---|
//! | fixed size, `String` | | the values, as in a row |
//! | `Nullable(T)` | of `T` | a flag each, then a value each, which is arbitrary if the flag is 1 |
//! | `Tuple(T, U)` | of `T`, of `U` | of `T`, then of `U` |
//! | `Array(T)`, `Map` | of `T` | `UInt64` each: elements up to its end; then all elements |
//! | `LowCardinality(String)` | [`super::dictionary`] | |
//! | `Dynamic` | [`super::dynamic`] | |
//! | `JSON` | [`super::objects`] | |

use super::Unfit;
use super::cursor::Cursor;
use super::dictionary::Dictionary;
use super::dynamic::Dynamic;
use super::kind::Kind;
use super::objects::Objects;
use super::stream::{Output, Stream};
use super::times::{Once, Times};
use crate::frame::FrameEncoder;

/// Maximum size of the placeholder for a null value.
const NULL_BYTES: usize = 8;

/// Values of one type.
#[derive(Debug)]
pub(super) enum Values {
    Fixed { width: usize, values: Stream },
    Text(Stream),
    LowCardinality(Box<Dictionary>),
    Nullable { flags: Stream, values: Box<Values> },
    Pair(Box<(Values, Values)>),
    Array { ends: Stream, elements: u64, values: Box<Values> },
    Dynamic(Box<Dynamic>),
    Json(Box<Objects>),
}

impl Values {
    /// No values yet.
    pub(super) fn new(kind: &Kind) -> Self {
        match kind {
            Kind::Fixed(width) => Self::Fixed { width: *width, values: Stream::default() },
            Kind::Text => Self::Text(Stream::default()),
            Kind::LowCardinality { nullable } => Self::LowCardinality(Box::new(Dictionary::new(*nullable))),
            Kind::Nullable(of) => {
                Self::Nullable { flags: Stream::default(), values: Box::new(Self::new(of)) }
            }
            Kind::Pair(of) => Self::Pair(Box::new((Self::new(&of.0), Self::new(&of.1)))),
            Kind::Array(of) => {
                Self::Array { ends: Stream::default(), elements: 0, values: Box::new(Self::new(of)) }
            }
            Kind::Dynamic => Self::Dynamic(Box::default()),
            Kind::Json(declared) => Self::Json(Box::new(Objects::new(declared))),
        }
    }

    /// Appends the row's next value `times` times, at least once. Its growth is recorded once.
    #[inline]
    pub(super) fn append(&mut self, cursor: &mut Cursor<'_>, times: impl Times) -> Result<(), Unfit> {
        match self {
            Self::Text(values) if cursor.is_short() => {
                let start = *cursor;
                cursor.text()?;
                let count = start.up_to(cursor).len();
                for _ in 0..times.count() {
                    values.put(start.rest(), count);
                }
                Ok(())
            }
            Self::Fixed { width: 8, values } => {
                let value = cursor.array::<8>()?;
                for _ in 0..times.count() {
                    values.put_array(value);
                }
                Ok(())
            }
            Self::Fixed { width: 1, values } => {
                let value = cursor.array::<1>()?;
                for _ in 0..times.count() {
                    values.put_array(value);
                }
                Ok(())
            }
            Self::LowCardinality(dictionary) => dictionary.append(cursor, times),
            Self::Array { ends, elements, .. } if cursor.rest().first() == Some(&0) => {
                cursor.byte()?;
                for _ in 0..times.count() {
                    ends.put_array(&elements.to_le_bytes());
                }
                Ok(())
            }
            _ => self.append_other(cursor, times),
        }
    }

    /// Like [`Self::append`], for types that take more than a few bytes, or are rare, including all types with inner values.
    #[inline(never)]
    fn append_other(&mut self, cursor: &mut Cursor<'_>, times: impl Times) -> Result<(), Unfit> {
        cursor.enter()?;
        match self {
            Self::Fixed { width, values } => {
                let value = cursor.take(*width)?;
                for _ in 0..times.count() {
                    values.raw().extend_from_slice(value);
                }
            }
            Self::Nullable { flags, values } => {
                let flag = cursor.byte()?;
                let len = flags.raw().len() + times.count();
                flags.raw().resize(len, flag);
                if flag == 0 {
                    values.append(cursor, times)?;
                } else {
                    cursor.grow(NULL_BYTES)?;
                    values.pad(times.count());
                }
            }
            Self::Pair(pair) => {
                pair.0.append(cursor, times)?;
                pair.1.append(cursor, times)?;
            }
            Self::Array { ends, elements, values } => {
                let start = *cursor;
                for _ in 0..times.count() {
                    *cursor = start;
                    let length = cursor.length()?;
                    for _ in 0..length {
                        values.append(cursor, Once)?;
                    }
                    *elements += length as u64;
                    ends.put_array(&elements.to_le_bytes());
                }
            }
            Self::Dynamic(dynamic) => {
                dynamic.read_type(cursor)?;
                dynamic.append(cursor, times)?;
            }
            Self::Json(objects) => objects.append(cursor, times)?,
            Self::Text(values) => {
                let start = *cursor;
                cursor.text()?;
                for _ in 0..times.count() {
                    values.raw().extend_from_slice(start.up_to(cursor));
                }
            }
            Self::LowCardinality(dictionary) => dictionary.append(cursor, times)?,
        }
        cursor.leave();
        Ok(())
    }

    /// Appends default values for rows without one.
    pub(super) fn pad(&mut self, count: usize) {
        match self {
            Self::Fixed { width, values } => {
                let len = values.raw().len() + count * *width;
                values.raw().resize(len, 0);
            }
            Self::Text(values) => {
                let len = values.raw().len() + count;
                values.raw().resize(len, 0);
            }
            Self::LowCardinality(dictionary) => dictionary.pad(count),
            Self::Nullable { flags, values } => {
                let len = flags.raw().len() + count;
                flags.raw().resize(len, 1);
                values.pad(count);
            }
            Self::Pair(pair) => {
                pair.0.pad(count);
                pair.1.pad(count);
            }
            Self::Array { ends, elements, .. } => {
                for _ in 0..count {
                    ends.put_array(&elements.to_le_bytes());
                }
            }
            Self::Dynamic(dynamic) => dynamic.pad(count),
            Self::Json(objects) => objects.pad(count),
        }
    }

    /// Compresses data that has become large.
    pub(super) fn spill(&mut self, encoder: &mut FrameEncoder) {
        match self {
            Self::Fixed { values, .. } | Self::Text(values) => values.spill(encoder),
            Self::LowCardinality(_) => {}
            Self::Nullable { flags, values } => {
                flags.spill(encoder);
                values.spill(encoder);
            }
            Self::Pair(pair) => {
                pair.0.spill(encoder);
                pair.1.spill(encoder);
            }
            Self::Array { ends, values, .. } => {
                ends.spill(encoder);
                values.spill(encoder);
            }
            Self::Dynamic(dynamic) => dynamic.spill(encoder),
            Self::Json(objects) => objects.spill(encoder),
        }
    }

    /// Memory in bytes, including the indexes that will be needed.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Fixed { values, .. } | Self::Text(values) => values.bytes(),
            Self::LowCardinality(dictionary) => dictionary.bytes(),
            Self::Nullable { flags, values } => flags.bytes() + values.bytes(),
            Self::Pair(pair) => pair.0.bytes() + pair.1.bytes(),
            Self::Array { ends, values, .. } => ends.bytes() + values.bytes(),
            Self::Dynamic(dynamic) => dynamic.bytes(),
            Self::Json(objects) => objects.bytes(),
        }
    }

    /// Paths of the `JSON` in them.
    pub(super) fn paths(&self) -> usize {
        match self {
            Self::Fixed { .. } | Self::Text(_) | Self::LowCardinality(_) => 0,
            Self::Nullable { values, .. } | Self::Array { values, .. } => values.paths(),
            Self::Pair(pair) => pair.0.paths() + pair.1.paths(),
            Self::Dynamic(dynamic) => dynamic.paths(),
            Self::Json(objects) => objects.paths(),
        }
    }

    /// The number of indexes that will be written for the `JSON` in them.
    pub(super) fn cells(&self) -> usize {
        match self {
            Self::Fixed { .. } | Self::Text(_) | Self::LowCardinality(_) => 0,
            Self::Nullable { values, .. } | Self::Array { values, .. } => values.cells(),
            Self::Pair(pair) => pair.0.cells() + pair.1.cells(),
            Self::Dynamic(dynamic) => dynamic.cells(),
            Self::Json(objects) => objects.cells(),
        }
    }

    /// Writes everything that precedes the data of the column.
    pub(super) fn put_prefix(&self, out: &mut Vec<u8>) {
        match self {
            Self::Fixed { .. } | Self::Text(_) => {}
            Self::LowCardinality(_) => Dictionary::put_prefix(out),
            Self::Nullable { values, .. } | Self::Array { values, .. } => values.put_prefix(out),
            Self::Pair(pair) => {
                pair.0.put_prefix(out);
                pair.1.put_prefix(out);
            }
            Self::Dynamic(dynamic) => dynamic.put_prefix(out),
            Self::Json(objects) => objects.put_prefix(out),
        }
    }

    /// Writes the values.
    pub(super) fn put_data(self, output: &mut Output) {
        match self {
            Self::Fixed { values, .. } | Self::Text(values) => output.stream(values),
            Self::LowCardinality(dictionary) => dictionary.put_data(output),
            Self::Nullable { flags, values } => {
                output.stream(flags);
                values.put_data(output);
            }
            Self::Pair(pair) => {
                pair.0.put_data(output);
                pair.1.put_data(output);
            }
            Self::Array { ends, values, .. } => {
                output.stream(ends);
                values.put_data(output);
            }
            Self::Dynamic(dynamic) => dynamic.put_data(output),
            Self::Json(objects) => objects.put_data(output),
        }
    }
}
