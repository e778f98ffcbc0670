//! `AnyValue`: the value of an attribute, or of an element of an array.

use crate::attributes::Attributes;
use crate::fields::{OtlpMessage, any_value, array_value};
use crate::malformed::Malformed;
use crate::repeated::{
    ARRAY_OF_ATTRIBUTE, ARRAY_OF_ELEMENT, LIST_OF_ATTRIBUTE, LIST_OF_ELEMENT, Repeated, RepeatedIter,
};
use crate::wire::Reader;

/// The value of an attribute, or of an element of an array.
///
/// A value that is read twice at each level of nesting is read 2^depth times at the bottom, so read it once and keep
/// what you need, or read it twice at the top only.
#[derive(Debug, Clone, Copy, Default)]
pub enum Value<'a> {
    /// There is none; also for `string_value_strindex`, which means nothing outside of profiles (opentelemetry-proto:
    /// "process the data as if this value were absent or empty").
    #[default]
    Empty,
    /// Bytes that should be UTF-8 but are not checked.
    String(&'a [u8]),
    /// True for any varint but 0.
    Bool(bool),
    /// A signed number.
    Int(i64),
    /// Any bits: NaN and the infinities too.
    Double(f64),
    /// Opaque bytes.
    Bytes(&'a [u8]),
    /// Elements, which may be of different kinds.
    Array(Array<'a>),
    /// A list of attributes, in which keys may repeat.
    KeyValues(Attributes<'a>),
}

impl<'a> Value<'a> {
    /// Merges an `AnyValue` into this one: the last member of the `oneof` wins, and of equal neighbours the messages
    /// are merged. `parent` is the `KeyValue` from before it, where more of the same may stand; an element of an array has none.
    #[inline(always)]
    pub(crate) fn merge(
        &mut self,
        mut reader: Reader<'a>,
        parent: Option<Reader<'a>>,
    ) -> Result<(), Malformed> {
        while !reader.is_empty() {
            let key = reader.key()?;
            match key {
                any_value::STRING => self.replace(Self::String(reader.bytes(key)?))?,
                any_value::BOOL => self.replace(Self::Bool(reader.varint(key)? != 0))?,
                any_value::INT => self.replace(Self::Int(reader.varint(key)?.cast_signed()))?,
                any_value::DOUBLE => self.replace(Self::Double(f64::from_bits(reader.fixed64(key)?)))?,
                any_value::BYTES => self.replace(Self::Bytes(reader.bytes(key)?))?,
                any_value::STRING_STRINDEX => {
                    reader.varint(key)?;
                    self.replace(Self::Empty)?;
                }
                any_value::ARRAY | any_value::KVLIST => {
                    (*self, reader) = self.merged_with_messages(reader, key, parent)?;
                }
                _ => reader.pass(key)?,
            }
        }
        Ok(())
    }

    /// Reads a scalar that `AnyValue`s often hold; `None` is for all else, malformed or not.
    #[inline(always)]
    pub(crate) fn read_scalar(reader: &mut Reader<'a>) -> Option<Self> {
        let key = reader.key().ok()?;
        match key {
            any_value::STRING => reader.bytes(key).ok().map(Self::String),
            any_value::INT => reader.varint(key).ok().map(|number| Self::Int(number.cast_signed())),
            any_value::BOOL => reader.varint(key).ok().map(|number| Self::Bool(number != 0)),
            any_value::DOUBLE => reader.fixed64(key).ok().map(|bits| Self::Double(f64::from_bits(bits))),
            _ => None,
        }
    }

    /// This value after the array or the list of attributes that `key` announces, and the reader behind it.
    #[inline(never)]
    fn merged_with_messages(
        self,
        mut reader: Reader<'a>,
        key: u32,
        parent: Option<Reader<'a>>,
    ) -> Result<(Self, Reader<'a>), Malformed> {
        let outermost = parent.unwrap_or(reader);
        let is_array = key == any_value::ARRAY;
        let mut found = match self {
            Self::Array(Array(run)) if is_array => run,
            Self::KeyValues(Attributes(run)) if !is_array => run,
            _ => {
                self.check()?;
                Repeated::default()
            }
        };
        let (place, of) = match (is_array, parent) {
            (true, Some(_)) => (&ARRAY_OF_ATTRIBUTE, OtlpMessage::ArrayValue),
            (true, None) => (&ARRAY_OF_ELEMENT, OtlpMessage::ArrayValue),
            (false, Some(_)) => (&LIST_OF_ATTRIBUTE, OtlpMessage::KeyValueList),
            (false, None) => (&LIST_OF_ELEMENT, OtlpMessage::KeyValueList),
        };
        let mut holder = reader.message(key, of)?;
        while !holder.is_empty() {
            let from = holder;
            let key = holder.key()?;
            // Arrays and lists have this one field, under the same number.
            if key == array_value::VALUES {
                holder.bytes(key)?;
                found.note_spread(place, from, reader.end(), outermost);
            } else {
                holder.pass(key)?;
            }
        }
        let merged = if is_array { Self::Array(Array(found)) } else { Self::KeyValues(Attributes(found)) };
        Ok((merged, reader))
    }

    /// Another member of the `oneof` takes the place of this one, so nobody will see it: what is malformed in it must
    /// be found now, as other readers of protobuf would.
    #[inline(always)]
    fn replace(&mut self, member: Self) -> Result<(), Malformed> {
        if let Self::Array(_) | Self::KeyValues(_) = self {
            self.check()?;
        }
        *self = member;
        Ok(())
    }

    /// Reads all that is in this value, at most [`crate::NESTING_DEPTH_MAX`] deep.
    #[cold]
    #[inline(never)]
    pub(crate) fn check(self) -> Result<(), Malformed> {
        match self {
            Self::Array(array) => array.iter().try_for_each(|element| element?.check()),
            Self::KeyValues(list) => list.check(),
            _ => Ok(()),
        }
    }
}

/// The elements of an array.
#[derive(Debug, Clone, Copy, Default)]
pub struct Array<'a>(Repeated<'a>);

impl<'a> Array<'a> {
    /// How many elements there are; costs nothing.
    #[inline]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no element.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    /// Reads the elements in wire order. After an error there is nothing more.
    #[inline]
    pub fn iter(&self) -> ArrayIter<'a> {
        ArrayIter(self.0.iter())
    }
}

impl<'a> IntoIterator for &Array<'a> {
    type Item = Result<Value<'a>, Malformed>;
    type IntoIter = ArrayIter<'a>;

    fn into_iter(self) -> ArrayIter<'a> {
        self.iter()
    }
}

/// Reads the elements of an array.
#[derive(Debug, Clone)]
pub struct ArrayIter<'a>(RepeatedIter<'a>);

impl<'a> ArrayIter<'a> {
    #[inline]
    fn read(&mut self) -> Result<Option<Value<'a>>, Malformed> {
        let Some(reader) = self.0.read(OtlpMessage::AnyValue)? else {
            return Ok(None);
        };
        let mut value = Value::Empty;
        value.merge(reader, None)?;
        Ok(Some(value))
    }
}

impl<'a> Iterator for ArrayIter<'a> {
    type Item = Result<Value<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.read().inspect_err(|_| self.0.stop()).transpose()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.0.remaining()))
    }
}
