//! Attributes: lists of keys and values, of a resource, a scope, a span, an event, a link or inside a value.

use crate::any_value::{Scalar, Value};
use crate::fields::{OtlpMessage, key_value};
use crate::malformed::Malformed;
use crate::repeated::{Repeated, RepeatedIter};
use crate::utf8::{is_ascii, is_utf8};
use crate::wire::Reader;

/// A list of attributes. Keys may repeat: OTLP forbids it, the wire does not.
///
/// The content of an attribute is read only when the iterator reaches it, so an error in it appears only then.
#[derive(Debug, Clone, Copy, Default)]
pub struct Attributes<'a>(pub(crate) Repeated<'a>);

impl<'a> Attributes<'a> {
    /// Number of attributes, including repeated keys; costs nothing.
    #[inline]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no attribute.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    /// Reads the attributes in wire order. After an error the iterator ends.
    #[inline]
    pub fn iter(&self) -> AttributesIter<'a> {
        AttributesIter(self.0.occurrences())
    }

    /// Reads everything in these attributes: for a sink that does not use them, but must reject what other readers would.
    pub fn check(&self) -> Result<(), Malformed> {
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
    /// Reads an attribute in the usual form of SDKs: a key, then a scalar, in UTF-8. This saves the loops for other orders and
    /// repetition; the whole walk takes a sixth less time. `None` for everything else, malformed or not.
    #[inline(always)]
    fn read_usual(mut reader: Reader<'a>) -> Option<(&'a [u8], Scalar<'a>)> {
        let whole = reader.rest();
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
        let scalar = Scalar::read(&mut value)?;
        let is_text = match scalar {
            // Field keys and short lengths are ASCII too, so one check covers all of it.
            Scalar::String(text) => is_ascii(whole) || (is_utf8(key) && is_utf8(text)),
            Scalar::Bool(_) | Scalar::Int(_) | Scalar::Double(_) => is_utf8(key),
        };
        (is_text && value.is_empty()).then_some((key, scalar))
    }

    /// Reads an attribute that the reader stands on.
    pub(crate) fn read(reader: Reader<'a>) -> Result<Self, Malformed> {
        let mut attribute = Self::default();
        attribute.merge(reader)?;
        Ok(attribute)
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
    /// The next attribute, if it has the usual form of SDKs: a key, then a scalar, both UTF-8. Otherwise `None`, and nothing is read: the
    /// iterator then returns the attribute, an error, or the end.
    ///
    /// For callers who count nanoseconds: a [`Value`] is large, and moving it costs more than reading a scalar.
    #[inline(always)]
    pub fn next_usual(&mut self) -> Option<(&'a [u8], Scalar<'a>)> {
        let (attribute, behind) = self.0.look(OtlpMessage::KeyValue)?;
        let usual = KeyValue::read_usual(attribute)?;
        self.0.read_to(behind);
        Some(usual)
    }

    #[inline(always)]
    fn read(&mut self) -> Result<Option<KeyValue<'a>>, Malformed> {
        let Some(reader) = self.0.read(OtlpMessage::KeyValue)? else {
            return Ok(None);
        };
        if let Some((key, scalar)) = KeyValue::read_usual(reader) {
            return Ok(Some(KeyValue { key, value: scalar.into() }));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::malformed::Reason;
    use crate::repeated::RESOURCE_ATTRIBUTES;

    /// Key and value, in debug's words, of a `KeyValue` of these bytes.
    fn read(key_value: &[u8]) -> Result<(String, String), Reason> {
        let mut resource = vec![0x0A, u8::try_from(key_value.len()).unwrap()];
        resource.extend(key_value);
        let holder = Reader::on(&resource, OtlpMessage::Resource);
        let mut attributes = Attributes::default();
        attributes.0.note_spread(&RESOURCE_ATTRIBUTES, holder, holder.end(), holder);
        let attribute = attributes.iter().next().unwrap().map_err(|malformed| malformed.reason())?;
        Ok((attribute.key.escape_ascii().to_string(), format!("{:?}", attribute.value)))
    }

    #[test]
    fn key_and_value_are_read_in_any_order_and_number() {
        let table: &[(&str, &[u8], &str, &str)] = &[
            ("the usual", &[0x0A, 1, b'k', 0x12, 2, 0x18, 7], "k", "Int(7)"),
            ("nothing", &[], "", "Empty"),
            ("no value", &[0x0A, 1, b'k'], "k", "Empty"),
            ("an empty value", &[0x0A, 1, b'k', 0x12, 0], "k", "Empty"),
            ("no key", &[0x12, 2, 0x18, 7], "", "Int(7)"),
            ("an empty key", &[0x0A, 0, 0x12, 2, 0x18, 7], "", "Int(7)"),
            ("the value first", &[0x12, 2, 0x18, 7, 0x0A, 1, b'k'], "k", "Int(7)"),
            ("two keys", &[0x0A, 1, b'j', 0x0A, 1, b'k', 0x12, 2, 0x18, 7], "k", "Int(7)"),
            ("a key behind", &[0x0A, 1, b'j', 0x12, 2, 0x18, 7, 0x0A, 1, b'k'], "k", "Int(7)"),
            ("two values", &[0x0A, 1, b'k', 0x12, 2, 0x18, 6, 0x12, 2, 0x10, 1], "k", "Bool(true)"),
            ("an empty value behind", &[0x0A, 1, b'k', 0x12, 2, 0x18, 7, 0x12, 0], "k", "Int(7)"),
            ("two members", &[0x0A, 1, b'k', 0x12, 4, 0x18, 6, 0x18, 7], "k", "Int(7)"),
            ("an index for a key", &[0x0A, 1, b'k', 0x12, 2, 0x18, 7, 0x18, 9], "k", "Int(7)"),
            ("an unknown field between", &[0x0A, 1, b'k', 0x78, 9, 0x12, 2, 0x18, 7], "k", "Int(7)"),
            ("a key of two bytes", &[0x8A, 0, 1, b'k', 0x12, 2, 0x18, 7], "k", "Int(7)"),
        ];
        for (what, bytes, key, value) in table {
            assert_eq!(read(bytes), Ok(((*key).to_owned(), (*value).to_owned())), "{what}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_malformed() {
        let table: &[(&str, &[u8], Reason)] = &[
            ("a key as a varint", &[0x08, 1], Reason::WireTypeWrong),
            ("a value as a varint", &[0x10, 1], Reason::WireTypeWrong),
            ("the index as bytes", &[0x1A, 0], Reason::WireTypeWrong),
            ("a key that is too long", &[0x0A, 2, b'k'], Reason::Truncated),
            ("a value that is too long", &[0x0A, 1, b'k', 0x12, 3, 0x18, 7], Reason::Truncated),
            ("a string that is too long", &[0x0A, 1, b'k', 0x12, 3, 0x0A, 2, b'a'], Reason::Truncated),
            ("a number cut short", &[0x0A, 1, b'k', 0x12, 2, 0x18, 0x80], Reason::Truncated),
            ("half a key behind", &[0x0A, 1, b'k', 0x12, 2, 0x18, 7, 0x0A], Reason::Truncated),
            ("half a member behind", &[0x0A, 1, b'k', 0x12, 3, 0x18, 7, 0x18], Reason::Truncated),
        ];
        for (what, bytes, reason) in table {
            assert_eq!(read(bytes), Err(*reason), "{what}");
        }
    }
}
