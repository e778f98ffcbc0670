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
/// Reading a value twice at each level of nesting reads the bottom 2^depth times. Read it once and keep the result, or read it twice only
/// at the top.
#[derive(Debug, Clone, Copy, Default)]
pub enum Value<'a> {
    /// There is no value; also for `string_value_strindex`, which has a meaning only in profiles (opentelemetry-proto: "process the data
    /// as if this value were absent or empty").
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
    /// Reads the fields of an `AnyValue` that stands alone, as [`crate::put_value`] writes it.
    ///
    /// # Errors
    /// [`Malformed`], with the position in these bytes.
    pub fn read(any_value: &'a [u8]) -> Result<Self, Malformed> {
        let mut value = Value::Empty;
        value.merge(Reader::on(any_value, OtlpMessage::AnyValue), None)?;
        Ok(value)
    }

    /// Merges an `AnyValue` into this one: the last member of the `oneof` wins, and equal consecutive messages are merged. `parent` is
    /// the `KeyValue` from before it, which may contain more of the same; an element of an array has none.
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

    /// This value after the array or list of attributes with key `key`, and the reader behind it.
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
            // Arrays and lists have one field, with the same number.
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

    /// Another member of the `oneof` replaces this one, so the sink never sees it. Errors in it must be found now, as other protobuf
    /// readers would.
    #[inline(always)]
    fn replace(&mut self, member: Self) -> Result<(), Malformed> {
        if let Self::Array(_) | Self::KeyValues(_) = self {
            self.check()?;
        }
        *self = member;
        Ok(())
    }

    /// Reads everything in this value, at most [`crate::NESTING_DEPTH_MAX`] deep: for a sink that does not use it, but must reject what
    /// other readers would.
    #[cold]
    #[inline(never)]
    pub fn check(self) -> Result<(), Malformed> {
        match self {
            Self::Array(array) => array.iter().try_for_each(|element| element?.check()),
            Self::KeyValues(list) => list.check(),
            _ => Ok(()),
        }
    }
}

/// A value that is a single field, as in most attributes.
#[derive(Debug, Clone, Copy)]
pub enum Scalar<'a> {
    /// [`Value::String`].
    String(&'a [u8]),
    /// [`Value::Bool`].
    Bool(bool),
    /// [`Value::Int`].
    Int(i64),
    /// [`Value::Double`].
    Double(f64),
}

impl<'a> Scalar<'a> {
    /// Reads the scalar of an `AnyValue`; `None` for everything else, malformed or not.
    #[inline(always)]
    pub(crate) fn read(reader: &mut Reader<'a>) -> Option<Self> {
        let key = reader.key().ok()?;
        match key {
            any_value::STRING => reader.bytes(key).ok().map(Self::String),
            any_value::INT => reader.varint(key).ok().map(|number| Self::Int(number.cast_signed())),
            any_value::BOOL => reader.varint(key).ok().map(|number| Self::Bool(number != 0)),
            any_value::DOUBLE => reader.fixed64(key).ok().map(|bits| Self::Double(f64::from_bits(bits))),
            _ => None,
        }
    }
}

impl<'a> From<Scalar<'a>> for Value<'a> {
    #[inline(always)]
    fn from(scalar: Scalar<'a>) -> Self {
        match scalar {
            Scalar::String(text) => Self::String(text),
            Scalar::Bool(flag) => Self::Bool(flag),
            Scalar::Int(number) => Self::Int(number),
            Scalar::Double(number) => Self::Double(number),
        }
    }
}

/// The elements of an array.
#[derive(Debug, Clone, Copy, Default)]
pub struct Array<'a>(Repeated<'a>);

impl<'a> Array<'a> {
    /// Number of elements; costs nothing.
    #[inline]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no element.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    /// Reads the elements in wire order. After an error the iterator ends.
    #[inline]
    pub fn iter(&self) -> ArrayIter<'a> {
        ArrayIter(self.0.occurrences())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::malformed::Reason;
    use crate::repeated::SPAN_ATTRIBUTES;

    fn text(value: Value<'_>) -> Result<String, Malformed> {
        Ok(match value {
            Value::Empty => "empty".to_owned(),
            Value::String(string) => format!("{:?}", string.escape_ascii().to_string()),
            Value::Bool(flag) => flag.to_string(),
            Value::Int(number) => number.to_string(),
            Value::Double(number) => format!("{number:?}"),
            Value::Bytes(bytes) => format!("{bytes:?}b"),
            Value::Array(array) => {
                let elements: Result<Vec<_>, _> = array.iter().map(|element| text(element?)).collect();
                format!("[{}]", elements?.join(" "))
            }
            Value::KeyValues(list) => {
                let attributes: Result<Vec<_>, _> = list
                    .iter()
                    .map(|attribute| {
                        let attribute = attribute?;
                        Ok(format!("{}={}", attribute.key.escape_ascii(), text(attribute.value)?))
                    })
                    .collect();
                format!("{{{}}}", attributes?.join(" "))
            }
        })
    }

    /// The value of an attribute whose `value` fields are these `AnyValue`s.
    fn attribute_value(any_values: &[&[u8]]) -> Result<String, Reason> {
        let mut key_value = Vec::new();
        for any_value in any_values {
            key_value.extend([0x12, u8::try_from(any_value.len()).unwrap()]);
            key_value.extend(*any_value);
        }
        let mut span = vec![0x4A, u8::try_from(key_value.len()).unwrap()];
        span.extend(&key_value);
        let mut attributes = Repeated::default();
        let from = Reader::on(&span, OtlpMessage::Span);
        let mut reader = from;
        reader.key().unwrap();
        attributes.note_run(&SPAN_ATTRIBUTES, from, &mut reader).unwrap();
        let attribute = Attributes(attributes).iter().next().unwrap();
        attribute.and_then(|attribute| text(attribute.value)).map_err(|malformed| malformed.reason())
    }

    #[test]
    fn every_member_is_read_from_its_bytes() {
        let table: &[(&[u8], &str)] = &[
            (&[], "empty"),
            (&[0x0A, 2, b'h', b'i'], r#""hi""#), // field 1, string
            (&[0x0A, 1, 0xFF], r#""\\xff""#),    // field 1, not UTF-8
            (&[0x10, 1], "true"),                // field 2, varint
            (&[0x10, 0], "false"),
            (&[0x10, 0x80, 0x02], "true"), // 256: any number but 0
            (&[0x18, 5], "5"),             // field 3, varint in two's complement
            (&[0x18, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01], "-1"),
            (&[0x21, 0, 0, 0, 0, 0, 0, 0xF0, 0x3F], "1.0"), // field 4, eight bytes
            (&[0x21, 0, 0, 0, 0, 0, 0, 0xF8, 0x7F], "NaN"),
            (&[0x2A, 0], "[]"), // field 5, an array without elements
            (&[0x2A, 6, 0x0A, 2, 0x18, 1, 0x0A, 0], "[1 empty]"), // elements are field 1, AnyValue
            (&[0x32, 0], "{}"), // field 6, a list of attributes
            (&[0x32, 9, 0x0A, 7, 0x0A, 1, b'k', 0x12, 2, 0x18, 1], "{k=1}"), // field 1, KeyValue
            (&[0x3A, 2, 0, 0xFF], "[0, 255]b"), // field 7, bytes
            (&[0x40, 9], "empty"), // field 8, string_value_strindex
            (&[0x78, 9], "empty"), // field 15: unknown
        ];
        for (any_value, expected) in table {
            assert_eq!(attribute_value(&[any_value]).as_deref(), Ok(*expected), "{any_value:02X?}");
        }
    }

    /// An array with one number.
    const A1: &[u8] = &[0x2A, 4, 0x0A, 2, 0x18, 1];
    const A2: &[u8] = &[0x2A, 4, 0x0A, 2, 0x18, 2];
    const A3: &[u8] = &[0x2A, 4, 0x0A, 2, 0x18, 3];
    /// An array without elements.
    const A0: &[u8] = &[0x2A, 0];
    /// A list with one empty attribute.
    const L: &[u8] = &[0x32, 2, 0x0A, 0];
    const STRING: &[u8] = &[0x0A, 1, b's'];
    /// Of field 15.
    const UNKNOWN: &[u8] = &[0x78, 1];

    #[test]
    fn the_last_member_wins_and_a_run_of_messages_is_merged() {
        // Each inner list is one AnyValue; the fields `value` of the attribute are merged.
        let table: &[(&[&[&[u8]]], &str)] = &[
            (&[&[STRING, A1]], "[1]"),
            (&[&[A1, STRING]], r#""s""#),
            (&[&[A1, A2]], "[1 2]"),
            (&[&[A1], &[A2]], "[1 2]"),
            (&[&[A1, STRING, A2]], "[2]"),
            (&[&[A1, STRING], &[A2]], "[2]"),
            (&[&[A1], &[STRING, A2]], "[2]"),
            (&[&[A1, STRING, A2], &[A3]], "[2 3]"),
            (&[&[A1], &[STRING], &[A2], &[], &[A3]], "[2 3]"),
            (&[&[A1, L, A2]], "[2]"),
            (&[&[A1, L]], "{=empty}"),
            (&[&[L], &[L, L]], "{=empty =empty =empty}"),
            (&[&[A0, A1], &[A0], &[A2, A0], &[A0]], "[1 2]"),
            (&[&[UNKNOWN, A1, UNKNOWN], &[UNKNOWN, A2, UNKNOWN]], "[1 2]"),
            (&[&[A1, UNKNOWN, A1, STRING, A2, UNKNOWN, A2, STRING]], r#""s""#),
            (&[&[STRING], &[]], r#""s""#),
            (&[&[STRING, &[0x40, 0]]], "empty"),
        ];
        for (any_values, expected) in table {
            let any_values: Vec<Vec<u8>> = any_values.iter().map(|fields| fields.concat()).collect();
            let any_values: Vec<&[u8]> = any_values.iter().map(Vec::as_slice).collect();
            assert_eq!(attribute_value(&any_values).as_deref(), Ok(*expected), "{any_values:02X?}");
        }
    }

    #[test]
    fn a_value_that_is_replaced_must_not_be_malformed_either() {
        let malformed_element: &[u8] = &[0x2A, 3, 0x0A, 1, 0x18]; // an array of a number without its varint
        assert_eq!(attribute_value(&[malformed_element]), Err(Reason::Truncated));
        assert_eq!(attribute_value(&[malformed_element, STRING]), Err(Reason::Truncated));
        assert_eq!(attribute_value(&[malformed_element, L]), Err(Reason::Truncated));
        let malformed_attribute: &[u8] = &[0x32, 3, 0x0A, 1, 0x08]; // a list of an attribute whose key is a varint
        assert_eq!(attribute_value(&[malformed_attribute, A1]), Err(Reason::WireTypeWrong));
    }

    #[test]
    fn what_cannot_be_read_is_malformed() {
        let table: &[(&str, &[u8], Reason)] = &[
            ("a string as a varint", &[0x08, 1], Reason::WireTypeWrong),
            ("a bool as bytes", &[0x12, 0], Reason::WireTypeWrong),
            ("an array as eight bytes", &[0x29, 0, 0, 0, 0, 0, 0, 0, 0], Reason::WireTypeWrong),
            ("a string that is too long", &[0x0A, 2, b'a'], Reason::Truncated),
            ("half a double", &[0x21, 0, 0, 0], Reason::Truncated),
            ("an array that is too long", &[0x2A, 1], Reason::Truncated),
            ("an element that is too long", &[0x2A, 2, 0x0A, 1], Reason::Truncated),
            ("an element as a varint", &[0x2A, 2, 0x08, 1], Reason::WireTypeWrong),
            ("the index of a string as bytes", &[0x42, 0], Reason::WireTypeWrong),
        ];
        for (what, any_value, reason) in table {
            assert_eq!(attribute_value(&[any_value]), Err(*reason), "{what}");
        }
    }

    #[test]
    fn nothing_follows_a_malformed_element() {
        let bytes = [0x2A, 8, 0x0A, 2, 0x18, 1, 0x0A, 2, 0x18, 0x80]; // [1, a varint that is cut short]
        let mut value = Value::Empty;
        value.merge(Reader::on(&bytes, OtlpMessage::AnyValue), None).unwrap();
        let Value::Array(array) = value else { panic!("not an array: {value:?}") };
        let mut elements = array.iter();
        assert!(matches!(elements.next(), Some(Ok(Value::Int(1)))));
        assert!(matches!(elements.next(), Some(Err(_))));
        assert!(elements.next().is_none());
    }
}
