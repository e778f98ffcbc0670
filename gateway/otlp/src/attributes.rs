//! Attributes: lists of keys and values, of a resource, a scope, a span, an event, a link or inside a value.

use crate::any_value::Value;
use crate::fields::{OtlpMessage, key_value};
use crate::malformed::Malformed;
use crate::repeated::{Repeated, RepeatedIter};
use crate::wire::Reader;

/// A list of attributes. Keys may repeat: OTLP forbids it, the wire does not.
///
/// What is inside an attribute is read when the iterator comes to it, so it may be malformed only then.
#[derive(Debug, Clone, Copy, Default)]
pub struct Attributes<'a>(pub(crate) Repeated<'a>);

impl<'a> Attributes<'a> {
    /// How many attributes there are, repeated keys included; costs nothing.
    #[inline]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no attribute.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    /// Reads the attributes in wire order. After an error there is nothing more.
    #[inline]
    pub fn iter(&self) -> AttributesIter<'a> {
        AttributesIter(self.0.occurrences())
    }

    /// Reads all that is in these attributes.
    pub(crate) fn check(&self) -> Result<(), Malformed> {
        self.iter().try_for_each(|attribute| attribute?.value.check())
    }
}

impl<'a> IntoIterator for &Attributes<'a> {
    type Item = Result<KeyValue<'a>, Malformed>;
    type IntoIter = AttributesIter<'a>;

    fn into_iter(self) -> AttributesIter<'a> {
        self.iter()
    }
}

/// One attribute.
#[derive(Debug, Clone, Copy, Default)]
pub struct KeyValue<'a> {
    /// Bytes that should be UTF-8 but are not checked; may be empty.
    pub key: &'a [u8],
    /// Empty if the attribute has none.
    pub value: Value<'a>,
}

impl<'a> KeyValue<'a> {
    /// Reads an attribute as nearly every SDK writes it: a key, then a scalar. Without the loops that any order and
    /// repetition need, this takes a third less time. `None` is for all else, malformed or not.
    #[inline(always)]
    fn read_usual(mut reader: Reader<'a>) -> Option<Self> {
        if !reader.next_is(key_value::KEY) {
            return None;
        }
        let key = reader.key().and_then(|key| reader.bytes(key)).ok()?;
        if !reader.next_is(key_value::VALUE) {
            return None;
        }
        let mut value = reader.key().and_then(|key| reader.message(key, OtlpMessage::AnyValue)).ok()?;
        if !reader.is_empty() || value.is_empty() {
            return None;
        }
        let scalar = Value::read_scalar(&mut value)?;
        value.is_empty().then_some(Self { key, value: scalar })
    }

    #[inline(always)]
    fn merge(&mut self, mut reader: Reader<'a>) -> Result<(), Malformed> {
        while !reader.is_empty() {
            let from = reader;
            let key = reader.key()?;
            match key {
                key_value::KEY => self.key = reader.bytes(key)?,
                key_value::VALUE => {
                    let value = reader.message(key, OtlpMessage::AnyValue)?;
                    self.value.merge(value, Some(from))?;
                }
                _ => reader.pass(key)?,
            }
        }
        Ok(())
    }
}

/// Reads a list of attributes.
#[derive(Debug, Clone)]
pub struct AttributesIter<'a>(RepeatedIter<'a>);

impl<'a> AttributesIter<'a> {
    #[inline(always)]
    fn read(&mut self) -> Result<Option<KeyValue<'a>>, Malformed> {
        let Some(reader) = self.0.read(OtlpMessage::KeyValue)? else {
            return Ok(None);
        };
        if let Some(attribute) = KeyValue::read_usual(reader) {
            return Ok(Some(attribute));
        }
        let mut attribute = KeyValue::default();
        attribute.merge(reader)?;
        Ok(Some(attribute))
    }
}

impl<'a> Iterator for AttributesIter<'a> {
    type Item = Result<KeyValue<'a>, Malformed>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        self.read().inspect_err(|_| self.0.stop()).transpose()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.0.remaining()))
    }
}
