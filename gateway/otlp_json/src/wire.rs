//! The protobuf wire format, writing side: only what OTLP traces need.
//!
//! **The protobuf message is never longer than the text.** Let J be the bytes of an object in JSON and W those of its fields on the wire.
//! Then W ≤ J − 2, by induction over nesting. The braces take 2. In JSON a field takes its quoted name of at least 3 characters and a
//! colon, 6 bytes, and a value. On the wire it takes a key of 1 byte (flags: 2, counted below), and:
//!
//! | value | in JSON, at least | on the wire, at most |
//! | --- | --- | --- |
//! | string of n bytes | 8 + n, more with escapes | 5 + n |
//! | id of n bytes, base64 of n bytes | 8 + 2n, 8 + 4n/3 | 5 + n |
//! | enumeration | 7 (`"kind":1`: 8), 15 when above 2^28 or negative as written here in 5 bytes: 9 | 2; 6 |
//! | `fixed64`, `double` | 15 (`"timeUnixNano":1`) | 9 |
//! | `int64` | 11 (`"intValue":1`), 12 when negative; as a double 13 (`0.5`, `1e9` is whole) | 2; 11; 9 |
//! | `bool` | 15 | 2 |
//! | count (`"droppedLinksCount":1`) | 21, and a byte for each further digit | 2, up to 6 with 10 digits |
//! | flags (`"flags":0`) | 9 | 6, with a key of two bytes |
//! | message | 6 + J | 5 + W ≤ 3 + J |
//! | list of n messages | 7 + (n + 1) + ΣJ | Σ(5 + W), see below |
//!
//! So each field that is written leaves 2 bytes or more. An element of a list takes J and its comma or bracket, and on the wire a key, a
//! length and W: 1 + 1 + W ≤ J when it is short. A longer element has a length of up to 4 bytes (no message is longer than
//! [`MESSAGE_BYTES_MAX`]). It has 128 bytes or more, so it has at least one field. That field has left 2 bytes, which with the comma make up
//! for the longer length. Lengths are padded only before 128 bytes or more.
//!
//! Open messages need additional room for their lengths: [`RESERVED_BYTES_MAX`].

use sluice_otlp::{NESTING_DEPTH_MAX, OtlpMessage};

/// Maximum size of a message, bytes: the largest length that fits a varint of 4 bytes. The largest record batch that a gateway can be
/// configured to read is one byte longer.
pub const MESSAGE_BYTES_MAX: usize = (1 << 28) - 1;

/// Bytes of the longest length.
const LENGTH_BYTES_MAX: usize = 4;

/// Bytes that open messages need beyond the size of the text: a key and a length each.
pub const RESERVED_BYTES_MAX: usize = (1 + LENGTH_BYTES_MAX) * (NESTING_DEPTH_MAX as usize);

/// Lengths below this one take one byte.
const SHORT: usize = 0x80;

/// A message being written.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    bytes: Vec<u8>,
    /// Number of open messages.
    depth: u8,
}

/// An open message: the position of its length, and the bytes reserved for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Open {
    at: usize,
    room: usize,
}

impl Wire {
    /// Starts a new message, with room for a text of this many bytes.
    pub(crate) fn begin(&mut self, text_bytes: usize) {
        self.depth = 0;
        self.bytes.clear();
        let capacity = text_bytes + RESERVED_BYTES_MAX;
        if self.bytes.capacity() < capacity {
            // Freed first: both buffers together would exceed the limit.
            self.bytes = Vec::new();
            self.bytes.reserve_exact(capacity);
        }
    }

    /// Bytes of memory.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// The bytes written so far.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Starts a message in a field; `None` if messages nest too deep.
    pub(crate) fn open(&mut self, key: u8, of: OtlpMessage) -> Option<Open> {
        if self.depth == NESTING_DEPTH_MAX {
            return None;
        }
        self.depth += 1;
        let room = room(of);
        self.bytes.push(key);
        let at = self.bytes.len();
        self.bytes.resize(at + room, 0);
        Some(Open { at, room })
    }

    /// The fields of a message that is not closed yet.
    pub(crate) fn since(&self, open: &Open) -> &[u8] {
        self.bytes.get(open.at + open.room..).unwrap_or_default()
    }

    /// Ends the message.
    pub(crate) fn close(&mut self, Open { at, room }: Open) {
        self.depth -= 1;
        let from = at + room;
        let end = self.bytes.len();
        let length = end - from;
        let wanted = if length < SHORT { 1 } else { length_bytes(length).max(room) };
        if wanted > room {
            self.bytes.resize(end + wanted - room, 0);
        }
        if wanted != room {
            self.bytes.copy_within(from..end, at + wanted);
            self.bytes.truncate(at + wanted + length);
        }
        if let Some(room) = self.bytes.get_mut(at..at + wanted) {
            write_padded(room, length);
        }
    }

    /// A varint field.
    #[inline]
    pub(crate) fn varint(&mut self, key: u8, value: u64) {
        self.bytes.push(key);
        self.put_varint(value);
    }

    /// A `fixed64` field, or the bits of a `double`.
    #[inline]
    pub(crate) fn fixed64(&mut self, key: u8, value: u64) {
        self.bytes.push(key);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// A `fixed32` field.
    pub(crate) fn fixed32(&mut self, key: u8, value: u32) {
        // The only field of this type is number 16, whose key takes two bytes.
        self.put_varint(key.into());
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// A field of bytes.
    #[inline]
    pub(crate) fn bytes(&mut self, key: u8, value: &[u8]) {
        self.bytes.push(key);
        self.put_varint(value.len() as u64);
        self.bytes.extend_from_slice(value);
    }

    /// A field of `length` bytes that `fill` writes; `false` if `fill` fails.
    pub(crate) fn filled(&mut self, key: u8, length: usize, fill: impl FnOnce(&mut [u8]) -> bool) -> bool {
        self.bytes.push(key);
        self.put_varint(length as u64);
        let from = self.bytes.len();
        self.bytes.resize(from + length, 0);
        self.bytes.get_mut(from..).is_some_and(fill)
    }

    fn put_varint(&mut self, mut value: u64) {
        while value >= SHORT as u64 {
            self.bytes.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.bytes.push(value.to_le_bytes()[0]);
    }
}

/// Bytes to reserve for the length of a message. A wrong guess costs a move of the message: so the usual size for small ones, and the
/// maximum for those that contain all spans.
const fn room(of: OtlpMessage) -> usize {
    match of {
        OtlpMessage::ResourceSpans | OtlpMessage::ScopeSpans => LENGTH_BYTES_MAX,
        OtlpMessage::Span => 2,
        _ => 1,
    }
}

/// Bytes of a length as a varint.
const fn length_bytes(length: usize) -> usize {
    match length {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        _ => LENGTH_BYTES_MAX,
    }
}

/// Writes a length as a varint that fills `out`.
fn write_padded(out: &mut [u8], mut length: usize) {
    for byte in &mut *out {
        *byte = length.to_le_bytes()[0] | 0x80;
        length >>= 7;
    }
    if let Some(last) = out.last_mut() {
        *last &= 0x7F;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_fits_its_message() {
        // Bytes of the length by that of the message; the outer ones are padded once they are not short.
        let table: &[(OtlpMessage, usize, &[u8])] = &[
            (OtlpMessage::KeyValue, 0, &[0]),
            (OtlpMessage::KeyValue, 127, &[127]),
            (OtlpMessage::KeyValue, 128, &[0x80, 0x01]),
            (OtlpMessage::KeyValue, 16_384, &[0x80, 0x80, 0x01]),
            (OtlpMessage::Span, 5, &[5]),
            (OtlpMessage::Span, 300, &[0xAC, 0x02]),
            (OtlpMessage::Span, 16_384, &[0x80, 0x80, 0x01]),
            (OtlpMessage::Span, 0x20_0000, &[0x80, 0x80, 0x80, 0x01]),
            (OtlpMessage::ScopeSpans, 127, &[127]),
            (OtlpMessage::ScopeSpans, 128, &[0x80, 0x81, 0x80, 0x00]),
            (OtlpMessage::ResourceSpans, 0x20_0000, &[0x80, 0x80, 0x80, 0x01]),
        ];
        for (of, length, expected) in table {
            let mut wire = Wire::default();
            wire.begin(*length);
            let open = wire.open(0x0A, *of).unwrap();
            wire.bytes.resize(wire.bytes.len() + length, 0x55);
            wire.close(open);
            let content = vec![0x55; *length];
            assert_eq!(wire.as_bytes(), [&[0x0A], *expected, &content].concat(), "{of:?} {length}");
        }
    }

    #[test]
    fn the_buffer_is_made_in_one_piece() {
        let mut wire = Wire::default();
        wire.begin(100);
        let capacity = wire.bytes.capacity();
        assert_eq!(capacity, 100 + RESERVED_BYTES_MAX);
        wire.begin(10);
        assert_eq!(wire.bytes.capacity(), capacity);
    }
}
