//! Protobuf wire format, writing side: just what OTLP traces need.
//!
//! Job: append fields to one growing byte buffer. Place in the flow: under every span shape. Single-threaded.
//! Limits: a nested message is moved once by up to four bytes when its length prefix needs more than one byte; bodies
//! nest five deep, so a byte is moved at most four times (measured as noise beside making the values).
//!
//! | wire type | number | used for |
//! | --- | --- | --- |
//! | varint | 0 | int, bool, enum |
//! | fixed 64 | 1 | times, double |
//! | length-delimited | 2 | text, bytes, messages |
//! | fixed 32 | 5 | flags |
//!
//! Source: <https://protobuf.dev/programming-guides/encoding/>.

use super::value::{Attribute, Value};

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH_DELIMITED: u32 = 2;
const FIXED32: u32 = 5;

/// Field numbers of `opentelemetry/proto/common/v1/common.proto`.
mod field {
    pub(super) const ATTRIBUTE_KEY: u32 = 1;
    pub(super) const ATTRIBUTE_VALUE: u32 = 2;
    pub(super) const VALUE_TEXT: u32 = 1;
    pub(super) const VALUE_BOOL: u32 = 2;
    pub(super) const VALUE_INT: u32 = 3;
    pub(super) const VALUE_DOUBLE: u32 = 4;
    pub(super) const VALUE_ARRAY: u32 = 5;
    pub(super) const VALUE_LIST: u32 = 6;
    pub(super) const VALUE_BYTES: u32 = 7;
    pub(super) const ARRAY_VALUES: u32 = 1;
    pub(super) const LIST_VALUES: u32 = 1;
}

/// A message being written.
#[derive(Debug, Default)]
pub(super) struct Wire {
    bytes: Vec<u8>,
}

impl Wire {
    /// Empties the message and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// What was written so far.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Appends fields that were encoded before.
    pub(super) fn encoded(&mut self, fields: &[u8]) {
        self.bytes.extend_from_slice(fields);
    }

    /// A varint field.
    pub(super) fn unsigned(&mut self, field: u32, value: u64) {
        self.tag(field, VARINT);
        self.varint(value);
    }

    /// A fixed 64-bit field.
    pub(super) fn fixed64(&mut self, field: u32, value: u64) {
        self.tag(field, FIXED64);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// A fixed 32-bit field.
    pub(super) fn fixed32(&mut self, field: u32, value: u32) {
        self.tag(field, FIXED32);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// A bytes field; text is bytes too.
    pub(super) fn bytes(&mut self, field: u32, value: &[u8]) {
        self.tag(field, LENGTH_DELIMITED);
        self.varint(value.len() as u64);
        self.bytes.extend_from_slice(value);
    }

    /// A text field.
    pub(super) fn text(&mut self, field: u32, value: &str) {
        self.bytes(field, value.as_bytes());
    }

    /// A text field that proto3 leaves out when it is empty.
    pub(super) fn text_unless_empty(&mut self, field: u32, value: &str) {
        if !value.is_empty() {
            self.text(field, value);
        }
    }

    /// A message field whose fields `body` writes.
    pub(super) fn nested(&mut self, field: u32, body: impl FnOnce(&mut Wire)) {
        self.tag(field, LENGTH_DELIMITED);
        let prefix = self.bytes.len();
        // One byte is room for a length to 127, which most attributes fit; longer bodies are moved up below.
        self.bytes.push(0);
        body(self);
        let length = self.bytes.len() - prefix - 1;
        self.fill_prefix(prefix, length);
    }

    fn fill_prefix(&mut self, prefix: usize, length: usize) {
        let mut encoded = [0_u8; 10];
        let width = encode_varint(length as u64, &mut encoded);
        if width > 1 {
            let end = self.bytes.len();
            self.bytes.resize(end + width - 1, 0);
            self.bytes.copy_within(prefix + 1..end, prefix + width);
        }
        self.bytes[prefix..prefix + width].copy_from_slice(&encoded[..width]);
    }

    /// `KeyValue` fields in a field called `field`.
    pub(super) fn attributes(&mut self, field: u32, attributes: &[Attribute]) {
        for attribute in attributes {
            self.nested(field, |w| w.attribute(attribute));
        }
    }

    /// An attribute whose value is text.
    pub(super) fn text_attribute(&mut self, field: u32, key: &str, value: &str) {
        self.attribute_of(field, key, |w| w.text(field::VALUE_TEXT, value));
    }

    /// An attribute whose value is an int.
    pub(super) fn int_attribute(&mut self, field: u32, key: &str, value: i64) {
        self.attribute_of(field, key, |w| w.unsigned(field::VALUE_INT, value.cast_unsigned()));
    }

    /// An attribute whose value is a bool.
    pub(super) fn bool_attribute(&mut self, field: u32, key: &str, value: bool) {
        self.attribute_of(field, key, |w| w.unsigned(field::VALUE_BOOL, value.into()));
    }

    fn attribute_of(&mut self, field: u32, key: &str, value: impl FnOnce(&mut Wire)) {
        self.nested(field, |w| {
            w.text(field::ATTRIBUTE_KEY, key);
            w.nested(field::ATTRIBUTE_VALUE, value);
        });
    }

    fn attribute(&mut self, attribute: &Attribute) {
        self.text_unless_empty(field::ATTRIBUTE_KEY, &attribute.key);
        self.nested(field::ATTRIBUTE_VALUE, |w| w.value(&attribute.value));
    }

    /// The fields of an `AnyValue`. Its values are a oneof, so zero and false are written, unlike plain fields.
    fn value(&mut self, value: &Value) {
        match value {
            Value::Empty => {}
            Value::Text(text) => self.text(field::VALUE_TEXT, text),
            Value::Bool(flag) => self.unsigned(field::VALUE_BOOL, (*flag).into()),
            Value::Int(number) => self.unsigned(field::VALUE_INT, number.cast_unsigned()),
            Value::Double(number) => self.fixed64(field::VALUE_DOUBLE, number.to_bits()),
            Value::Bytes(bytes) => self.bytes(field::VALUE_BYTES, bytes),
            Value::Array(values) => self.nested(field::VALUE_ARRAY, |w| {
                for value in values {
                    w.nested(field::ARRAY_VALUES, |w| w.value(value));
                }
            }),
            Value::List(attributes) => {
                self.nested(field::VALUE_LIST, |w| w.attributes(field::LIST_VALUES, attributes));
            }
        }
    }

    fn tag(&mut self, field: u32, wire_type: u32) {
        self.varint(u64::from(field << 3 | wire_type));
    }

    fn varint(&mut self, value: u64) {
        let mut encoded = [0_u8; 10];
        let width = encode_varint(value, &mut encoded);
        self.bytes.extend_from_slice(&encoded[..width]);
    }
}

/// Writes `value` as a varint to the front of `out`; returns its width, 1 to 10 bytes.
fn encode_varint(mut value: u64, out: &mut [u8; 10]) -> usize {
    let mut width = 0;
    while value >= 0x80 {
        out[width] = value.to_le_bytes()[0] | 0x80;
        value >>= 7;
        width += 1;
    }
    out[width] = value.to_le_bytes()[0];
    width + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_have_seven_bits_a_byte() {
        for (value, bytes) in [
            (0_u64, &[0x00][..]),
            (127, &[0x7f]),
            (128, &[0x80, 0x01]),
            (300, &[0xac, 0x02]),
            (u64::MAX, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]),
        ] {
            let mut wire = Wire::default();
            wire.varint(value);
            assert_eq!(wire.as_bytes(), bytes, "{value}");
        }
    }

    #[test]
    fn a_nested_length_grows_with_its_body() {
        for length in [0, 1, 127, 128, 16_383, 16_384, 3_000_000_usize] {
            let mut wire = Wire::default();
            let body = vec![0x55; length];
            wire.nested(2, |w| w.encoded(&body));
            let mut expected = Wire::default();
            expected.bytes(2, &body);
            assert_eq!(wire.as_bytes(), expected.as_bytes(), "{length}");
        }
    }
}
