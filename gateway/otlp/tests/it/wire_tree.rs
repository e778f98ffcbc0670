//! A message as a tree of its fields, to rearrange it on the wire.

use prost::encoding::{WireType, decode_key, decode_varint, encode_varint};
use sluice_otlp::OtlpMessage;

use crate::rng::Rng;

/// Maximum number of copied fields in a rearranged message, so that a tree does not grow without end.
const COPIES_MAX: usize = 8;

#[derive(Clone)]
pub struct Tree {
    of: OtlpMessage,
    fields: Vec<Field>,
}

#[derive(Clone)]
struct Field {
    number: u32,
    /// Wire type; may be wrong for the number.
    wire_type: u8,
    value: Value,
}

#[derive(Clone)]
enum Value {
    Varint(u64),
    Raw(Vec<u8>),
    Bytes(Vec<u8>),
    Message(Tree),
}

/// The type of the message in a field, if it is one.
fn child(of: OtlpMessage, number: u32) -> Option<OtlpMessage> {
    use OtlpMessage as M;
    match (of, number) {
        (M::TracesData, 1) => Some(M::ResourceSpans),
        (M::ResourceSpans, 1) => Some(M::Resource),
        (M::ResourceSpans, 2) => Some(M::ScopeSpans),
        (M::Resource, 3) => Some(M::EntityRef),
        (M::ScopeSpans, 1) => Some(M::InstrumentationScope),
        (M::ScopeSpans, 2) => Some(M::Span),
        (M::Span, 11) => Some(M::Event),
        (M::Span, 13) => Some(M::Link),
        (M::Span, 15) => Some(M::Status),
        (M::Resource | M::KeyValueList, 1)
        | (M::InstrumentationScope | M::Event, 3)
        | (M::Link, 4)
        | (M::Span, 9) => Some(M::KeyValue),
        (M::KeyValue, 2) | (M::ArrayValue, 1) => Some(M::AnyValue),
        (M::AnyValue, 5) => Some(M::ArrayValue),
        (M::AnyValue, 6) => Some(M::KeyValueList),
        _ => None,
    }
}

/// A field with a value of bytes, as it stands on the wire.
pub fn length_delimited(number: u32, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    prost::encoding::encode_key(number, WireType::LengthDelimited, &mut bytes);
    encode_varint(value.len() as u64, &mut bytes);
    bytes.extend(value);
    bytes
}

impl Tree {
    /// Of bytes that prost wrote.
    pub fn parse(bytes: &[u8]) -> Self {
        Self::parse_message(bytes, OtlpMessage::TracesData)
    }

    fn parse_message(mut bytes: &[u8], of: OtlpMessage) -> Self {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let (number, wire_type) = decode_key(&mut bytes).unwrap();
            let value = match wire_type {
                WireType::Varint => Value::Varint(decode_varint(&mut bytes).unwrap()),
                WireType::SixtyFourBit => Value::Raw(bytes.split_off(..8).unwrap().to_vec()),
                WireType::ThirtyTwoBit => Value::Raw(bytes.split_off(..4).unwrap().to_vec()),
                WireType::LengthDelimited => {
                    let length = usize::try_from(decode_varint(&mut bytes).unwrap()).unwrap();
                    let content = bytes.split_off(..length).unwrap();
                    match child(of, number) {
                        Some(of) => Value::Message(Self::parse_message(content, of)),
                        None => Value::Bytes(content.to_vec()),
                    }
                }
                WireType::StartGroup | WireType::EndGroup => unreachable!("prost writes no group here"),
            };
            fields.push(Field { number, wire_type: wire_type as u8, value });
        }
        Self { of, fields }
    }

    /// An equivalent or similar message: fields in another order, some twice or with another value before or behind, messages in two
    /// pieces, unknown fields between.
    pub fn rearranged(&self, rng: &mut Rng) -> Self {
        let mut copies = 0;
        self.rearranged_with(rng, &mut copies)
    }

    fn rearranged_with(&self, rng: &mut Rng, copies: &mut usize) -> Self {
        let mut fields = Vec::new();
        for field in &self.fields {
            let Value::Message(message) = &field.value else {
                if *copies < COPIES_MAX && rng.one_in(8) {
                    *copies += 1;
                    fields.push(field.clone());
                }
                fields.push(field.clone());
                continue;
            };
            let message = message.rearranged_with(rng, copies);
            let piece = |value| Field { value: Value::Message(value), ..field.clone() };
            if *copies < COPIES_MAX && rng.one_in(8) {
                *copies += 1;
                fields.push(piece(message.clone()));
            }
            if rng.one_in(4) {
                let (one, other) = message.split(rng);
                fields.extend([piece(one), piece(other)]);
            } else {
                fields.push(piece(message));
            }
        }
        if rng.one_in(4) {
            fields.push(unknown(rng));
        }
        if rng.one_in(8) {
            fields.extend(rival(self.of, rng));
        }
        if rng.one_in(2) {
            rng.shuffle(&mut fields);
        }
        Self { of: self.of, fields }
    }

    fn split(self, rng: &mut Rng) -> (Self, Self) {
        let (one, other) = self.fields.into_iter().partition(|_| rng.one_in(2));
        (Self { of: self.of, fields: one }, Self { of: self.of, fields: other })
    }

    /// The message with a few keys changed, so that numbers or wire types are wrong.
    pub fn with_wrong_keys(mut self, rng: &mut Rng) -> Self {
        for field in &mut self.fields {
            if let Value::Message(message) = &mut field.value {
                *message = message.clone().with_wrong_keys(rng);
            }
            match rng.below(200) {
                0 => field.wire_type = u8::try_from(rng.below(8)).unwrap(),
                1 => field.number = u32::try_from(rng.below(18)).unwrap(),
                _ => {}
            }
        }
        self
    }

    pub fn encode(&self, rng: &mut Rng) -> Vec<u8> {
        let mut bytes = Vec::new();
        for field in &self.fields {
            let key = u64::from(field.number) << 3 | u64::from(field.wire_type);
            varint(key, 5, &mut bytes, rng);
            match &field.value {
                Value::Varint(value) => varint(*value, 10, &mut bytes, rng),
                Value::Raw(raw) => bytes.extend(raw),
                Value::Bytes(value) => {
                    varint(value.len() as u64, 10, &mut bytes, rng);
                    bytes.extend(value);
                }
                Value::Message(message) => {
                    let value = message.encode(rng);
                    varint(value.len() as u64, 10, &mut bytes, rng);
                    bytes.extend(value);
                }
            }
        }
        bytes
    }
}

/// A field that replaces another one of this message, or is merged with it.
fn rival(of: OtlpMessage, rng: &mut Rng) -> Option<Field> {
    let (number, wire_type, value) = match of {
        OtlpMessage::KeyValue if rng.one_in(2) => (1, 2, Value::Bytes(b"rival".to_vec())),
        OtlpMessage::KeyValue => (2, 2, Value::Message(any_value(rng))),
        OtlpMessage::AnyValue => return any_value(rng).fields.pop(),
        OtlpMessage::Status => (3, 0, Value::Varint(rng.next())),
        OtlpMessage::Span => (5, 2, Value::Bytes(b"rival".to_vec())),
        _ => return None,
    };
    Some(Field { number, wire_type, value })
}

/// A value of one member.
fn any_value(rng: &mut Rng) -> Tree {
    let (number, wire_type, value) = match rng.below(6) {
        0 => (1, 2, Value::Bytes(b"member".to_vec())),
        1 => (2, 0, Value::Varint(rng.next())),
        2 => (3, 0, Value::Varint(rng.next())),
        3 => (8, 0, Value::Varint(rng.next())),
        4 => (5, 2, Value::Message(list(OtlpMessage::ArrayValue, rng))),
        _ => (6, 2, Value::Message(list(OtlpMessage::KeyValueList, rng))),
    };
    Tree { of: OtlpMessage::AnyValue, fields: vec![Field { number, wire_type, value }] }
}

/// An array or a list of attributes, with few elements or none.
fn list(of: OtlpMessage, rng: &mut Rng) -> Tree {
    let element = |rng: &mut Rng| {
        let any_value = any_value(rng);
        if of == OtlpMessage::ArrayValue {
            return any_value;
        }
        let fields = vec![Field { number: 2, wire_type: 2, value: Value::Message(any_value) }];
        Tree { of: OtlpMessage::KeyValue, fields }
    };
    let elements = (0..rng.below(3)).map(|_| Value::Message(element(rng)));
    Tree { of, fields: elements.map(|value| Field { number: 1, wire_type: 2, value }).collect() }
}

/// A field that no OTLP message has, in any wire type.
fn unknown(rng: &mut Rng) -> Field {
    // Below 1000, which is a known field of ResourceSpans.
    let number = 17 + u32::try_from(rng.below(900)).unwrap();
    let (wire_type, value) = match rng.below(5) {
        0 => (0, Value::Varint(rng.next())),
        1 => (1, Value::Raw(vec![rng.byte(); 8])),
        2 => (2, Value::Bytes(vec![rng.byte(); rng.below(20)])),
        3 => (5, Value::Raw(vec![rng.byte(); 4])),
        _ => (3, Value::Raw(group(number))),
    };
    Field { number, wire_type, value }
}

/// The rest of a group: a field, a nested group, and its end.
fn group(number: u32) -> Vec<u8> {
    let mut bytes = vec![0x08, 0x01, 0x13, 0x14];
    prost::encoding::encode_key(number, WireType::EndGroup, &mut bytes);
    bytes
}

/// Writes a varint, sometimes longer than needed, of at most `length_max` bytes.
fn varint(value: u64, length_max: usize, bytes: &mut Vec<u8>, rng: &mut Rng) {
    let start = bytes.len();
    encode_varint(value, bytes);
    let spare = length_max - (bytes.len() - start);
    if spare > 0 && rng.one_in(16) {
        *bytes.last_mut().unwrap() |= 0x80;
        bytes.extend(vec![0x80; rng.below(spare)]);
        bytes.push(0);
    }
}
