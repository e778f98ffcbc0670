//! `Dynamic`, flattened: values that carry their type, told apart by type.
//!
//! | bytes | meaning |
//! |---|---|
//! | prefix: `UInt64` | 3: flattened |
//! | varuint, strings | the types |
//! | | the prefix of each type |
//! | data: a byte each | which type the value has; the number of types for none |
//! | | the values of each type |

use super::cursor::Cursor;
use super::kind::Kind;
use super::stream::Output;
use super::values::Values;
use super::{TYPES_MAX, Unfit};
use crate::frame::FrameEncoder;
use crate::rowbinary::{put_len, put_string, put_u64, tag};

/// The version of flattened `Dynamic` and `JSON`.
pub(super) const FLATTENED: u64 = 3;

/// Stands for no value until the number of types is known.
const NONE: u8 = u8::MAX;

const _: () = assert!(TYPES_MAX < NONE as usize, "an index of a type is none of no value");

/// What a type takes beside its values.
const TYPE_BYTES: usize = 256;

/// Values of any type.
#[derive(Debug, Default)]
pub(super) struct Dynamic {
    indexes: Vec<u8>,
    types: Vec<OfType>,
}

/// The values of one type.
#[derive(Debug)]
struct OfType {
    /// Its encoding, which begins no other type's.
    tag: Box<[u8]>,
    name: String,
    values: Values,
}

impl Dynamic {
    /// Values appended and padded.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.indexes.len()
    }

    #[inline]
    pub(super) fn append(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Unfit> {
        let number = match self.types.iter().position(|of_type| cursor.rest().starts_with(&of_type.tag)) {
            Some(number) => {
                cursor.take(self.types[number].tag.len())?;
                number
            }
            None if cursor.rest().first() == Some(&tag::NOTHING) => {
                cursor.byte()?;
                self.indexes.push(NONE);
                return Ok(());
            }
            None => self.add_type(cursor)?,
        };
        self.indexes.push(u8::try_from(number).map_err(|_| Unfit::Types)?);
        self.types[number].values.append(cursor)
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

    /// Appends so many times no value.
    pub(super) fn pad(&mut self, count: usize) {
        self.indexes.resize(self.indexes.len() + count, NONE);
    }

    pub(super) fn spill(&mut self, encoder: &mut FrameEncoder) {
        for of_type in &mut self.types {
            of_type.values.spill(encoder);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let values = self.types.iter().map(|of_type| TYPE_BYTES + of_type.values.bytes()).sum::<usize>();
        self.indexes.capacity() + values
    }

    pub(super) fn paths(&self) -> usize {
        self.types.iter().map(|of_type| of_type.values.paths()).sum()
    }

    pub(super) fn put_prefix(&mut self, out: &mut Vec<u8>) {
        put_u64(out, FLATTENED);
        put_len(out, self.types.len());
        for of_type in &self.types {
            put_string(out, of_type.name.as_bytes());
        }
        for of_type in &mut self.types {
            of_type.values.put_prefix(out);
        }
    }

    pub(super) fn put_data(mut self, output: &mut Output) {
        let none = u8::try_from(self.types.len()).expect("types are fewer than a byte has values");
        for index in &mut self.indexes {
            if *index == NONE {
                *index = none;
            }
        }
        output.bytes(&self.indexes);
        for of_type in self.types {
            of_type.values.put_data(output);
        }
    }
}
