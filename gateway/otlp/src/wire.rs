//! The protobuf wire format: keys, varints, fixed-size values, length-delimited values, and skipping.
//!
//! ```text
//! message  = { key value }
//! key      = varint, number << 3 | wire type      (1 byte up to field 15)
//! varint   = 1..10 bytes, 7 bits each, low bits first, the top bit set on all but the last
//! value    = varint | 8 bytes | varint length, bytes | group start .. group end | 4 bytes
//! ```
//!
//! Source: <https://protobuf.dev/programming-guides/encoding/>. Groups are obsolete and no field of OTLP uses them, but they may occur as
//! unknown fields.
//!
//! Methods that read are small and inlined. Rare cases are out of line and take their reader by value, because a reference would force
//! the compiler to keep the reader in memory on the hot path.

use crate::fields::{
    EIGHT_BYTES, FOUR_BYTES, GROUP_END, GROUP_START, LENGTH_DELIMITED, OtlpMessage, VARINT, field_number,
    resource_spans, wire_type,
};
use crate::malformed::{Malformed, Reason};

/// Maximum nesting of messages and groups: the outermost one is at depth 0, and one at depth 100 may not contain another. An `AnyValue`
/// of a span is at depth 5, so about 47 arrays or 31 lists of attributes can be nested. Chosen: the limit of prost and of protobuf's own
/// implementations, so that no message that others read is rejected.
pub const NESTING_DEPTH_MAX: u8 = 100;

/// The key in errors before any key was read.
const NO_KEY: u32 = 0;

/// The unread part of one protobuf message. A copy of a reader is a bookmark.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    /// Where `rest` ends, in bytes from the start of the outermost message; used for positions of errors.
    end: usize,
    /// Number of messages that contain this one.
    depth: u8,
    of: OtlpMessage,
}

impl<'a> Reader<'a> {
    /// Starts on the outermost message.
    pub(crate) const fn new(message: &'a [u8]) -> Self {
        Self { rest: message, end: message.len(), depth: 0, of: OtlpMessage::TracesData }
    }

    /// Starts on a single message of the type `of`.
    pub(crate) const fn on(message: &'a [u8], of: OtlpMessage) -> Self {
        Self { of, ..Self::new(message) }
    }

    /// Starts on a part of an outermost message: `rest` ends `end` bytes from its start.
    #[inline(always)]
    pub(crate) const fn within(rest: &'a [u8], end: usize, depth: u8, of: OtlpMessage) -> Self {
        Self { rest, end, depth, of }
    }

    /// The same reader, moved forward. `position` lies between its own and its end.
    pub(crate) fn skipped_to(self, position: usize) -> Self {
        let rest = self.rest.get(position.saturating_sub(self.position())..).unwrap_or_default();
        Self { rest, ..self }
    }

    /// The same reader with an earlier end. `end` lies between this reader's position and its end.
    #[inline(always)]
    pub(crate) fn ended_at(self, end: usize) -> Self {
        let rest = self.rest.get(..end.saturating_sub(self.position())).unwrap_or_default();
        Self { rest, end, ..self }
    }

    /// The same bytes as (part of) another message.
    pub(crate) const fn renamed(self, depth: u8, of: OtlpMessage) -> Self {
        Self { depth, of, ..self }
    }

    /// Whether the next key is this one, of one byte.
    #[inline(always)]
    pub(crate) fn next_is(&self, key: u32) -> bool {
        self.rest.first().is_some_and(|byte| u32::from(*byte) == key)
    }

    #[inline(always)]
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline(always)]
    pub(crate) const fn end(&self) -> usize {
        self.end
    }

    #[inline(always)]
    pub(crate) const fn depth(&self) -> u8 {
        self.depth
    }

    #[inline(always)]
    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The message that is read.
    pub(crate) const fn of(&self) -> OtlpMessage {
        self.of
    }

    /// Bytes from the start of the outermost message. `rest` lies inside of it, so this does not saturate.
    #[inline(always)]
    pub(crate) const fn position(&self) -> usize {
        self.end.saturating_sub(self.rest.len())
    }

    #[inline]
    fn malformed(&self, reason: Reason, key: u32) -> Malformed {
        malformed(self.position(), reason, self.of, key)
    }

    /// Reads the key of the next field. It may be invalid; [`Self::pass`] detects that, because such a key equals none that the caller
    /// looks for.
    #[inline(always)]
    pub(crate) fn key(&mut self) -> Result<u32, Malformed> {
        #[cfg(any(test, feature = "keys-read"))]
        keys_read::count();
        if let [byte @ ..=0x7F, rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(u32::from(*byte));
        }
        let start = self.position();
        let key = self.varint(NO_KEY)?;
        u32::try_from(key).map_err(|_| malformed(start, Reason::KeyTooLong, self.of, NO_KEY))
    }

    /// Reads a varint. `key` is that of the field being read, here and below only for errors.
    #[inline(always)]
    pub(crate) fn varint(&mut self, key: u32) -> Result<u64, Malformed> {
        match self.rest {
            [byte @ ..=0x7F, rest @ ..] => {
                self.rest = rest;
                Ok(u64::from(*byte))
            }
            // Most spans, and many strings, are 128 bytes to 16 KiB long.
            [low, high @ ..=0x7F, rest @ ..] => {
                self.rest = rest;
                Ok(u64::from(low & 0x7F) | u64::from(*high).wrapping_shl(7))
            }
            _ => {
                let (value, rest) = long_varint(self.rest).map_err(|reason| self.malformed(reason, key))?;
                self.rest = rest;
                Ok(value)
            }
        }
    }

    /// Reads an `int32` or an enumeration: the low 32 bits of the varint, whatever the others are.
    #[inline(always)]
    pub(crate) fn int32(&mut self, key: u32) -> Result<i32, Malformed> {
        let [a, b, c, d, ..] = self.varint(key)?.to_le_bytes();
        Ok(i32::from_le_bytes([a, b, c, d]))
    }

    /// Reads a `fixed64` or the bits of a `double`.
    #[inline(always)]
    pub(crate) fn fixed64(&mut self, key: u32) -> Result<u64, Malformed> {
        let Some((bytes, rest)) = self.rest.split_first_chunk() else {
            return Err(self.malformed(Reason::Truncated, key));
        };
        self.rest = rest;
        Ok(u64::from_le_bytes(*bytes))
    }

    /// Reads a `uint32`: the low 32 bits of the varint, whatever the others are.
    #[inline(always)]
    pub(crate) fn uint32(&mut self, key: u32) -> Result<u32, Malformed> {
        let [a, b, c, d, ..] = self.varint(key)?.to_le_bytes();
        Ok(u32::from_le_bytes([a, b, c, d]))
    }

    /// Reads a `fixed32`.
    #[inline(always)]
    pub(crate) fn fixed32(&mut self, key: u32) -> Result<u32, Malformed> {
        let Some((bytes, rest)) = self.rest.split_first_chunk() else {
            return Err(self.malformed(Reason::Truncated, key));
        };
        self.rest = rest;
        Ok(u32::from_le_bytes(*bytes))
    }

    /// Reads a length-delimited value.
    #[inline(always)]
    pub(crate) fn bytes(&mut self, key: u32) -> Result<&'a [u8], Malformed> {
        let length = self.varint(key)?;
        let split = usize::try_from(length).ok().and_then(|length| self.rest.split_at_checked(length));
        let Some((bytes, rest)) = split else {
            return Err(self.malformed(Reason::Truncated, key));
        };
        self.rest = rest;
        Ok(bytes)
    }

    /// Reads a length-delimited value that is a message of the type `of`.
    #[inline(always)]
    pub(crate) fn message(&mut self, key: u32, of: OtlpMessage) -> Result<Self, Malformed> {
        let depth = self.deeper(key)?;
        let rest = self.bytes(key)?;
        Ok(Self { rest, end: self.position(), depth, of })
    }

    /// Skips a field that the caller does not read. The field is malformed if the schema gives it another wire type, or if it contains
    /// spans that would be lost.
    #[inline]
    pub(crate) fn pass(&mut self, key: u32) -> Result<(), Malformed> {
        *self = self.past(key)?;
        Ok(())
    }

    /// Skips the rest.
    pub(crate) fn pass_all(mut self) -> Result<(), Malformed> {
        while !self.is_empty() {
            let key = self.key()?;
            self.pass(key)?;
        }
        Ok(())
    }

    /// The reader behind the value of an unused field.
    fn past(self, key: u32) -> Result<Self, Malformed> {
        match self.of.known_key(field_number(key)) {
            Some(known) if known != key => Err(self.malformed(Reason::WireTypeWrong, key)),
            // Skipping it would silently lose its spans.
            Some(resource_spans::INSTRUMENTATION_LIBRARY_SPANS) if self.of == OtlpMessage::ResourceSpans => {
                Err(self.malformed(Reason::Superseded, key))
            }
            Some(_) => self.past_value(key),
            None => self.past_unknown(key),
        }
    }

    /// The reader behind the value of an unknown field, of any wire type. Values count as one level deeper, as in prost.
    fn past_unknown(self, key: u32) -> Result<Self, Malformed> {
        if field_number(key) == 0 {
            return Err(self.malformed(Reason::FieldNumberZero, key));
        }
        let depth = self.deeper(key)?;
        if wire_type(key) == GROUP_START {
            let after = Self { depth, ..self }.past_group(key)?;
            return Ok(Self { depth: self.depth, ..after });
        }
        self.past_value(key)
    }

    fn past_value(mut self, key: u32) -> Result<Self, Malformed> {
        match wire_type(key) {
            VARINT => self.varint(key).map(|_| self),
            EIGHT_BYTES => self.fixed64(key).map(|_| self),
            LENGTH_DELIMITED => self.bytes(key).map(|_| self),
            FOUR_BYTES => self.fixed32(key).map(|_| self),
            GROUP_END => Err(self.malformed(Reason::GroupNotOpen, key)),
            _ => Err(self.malformed(Reason::WireTypeUnknown, key)),
        }
    }

    /// The reader behind the end of the group that `start` opened. Recurses into groups, [`NESTING_DEPTH_MAX`] deep.
    fn past_group(mut self, start: u32) -> Result<Self, Malformed> {
        while !self.is_empty() {
            let key = self.key()?;
            if wire_type(key) != GROUP_END {
                self = self.past_unknown(key)?;
            } else if field_number(key) == field_number(start) {
                return Ok(self);
            } else {
                return Err(self.malformed(Reason::GroupNotOpen, key));
            }
        }
        Err(self.malformed(Reason::Truncated, start))
    }

    /// The depth of messages inside this one, if it is allowed.
    #[inline(always)]
    fn deeper(&self, key: u32) -> Result<u8, Malformed> {
        match self.depth.checked_add(1) {
            Some(depth) if depth <= NESTING_DEPTH_MAX => Ok(depth),
            _ => Err(self.malformed(Reason::NestedTooDeep, key)),
        }
    }
}

#[cold]
#[inline(never)]
fn malformed(position: usize, reason: Reason, message: OtlpMessage, key: u32) -> Malformed {
    Malformed::new(position, reason, message, field_number(key))
}

/// A varint of any length, and the bytes behind it.
#[inline(never)]
fn long_varint(mut rest: &[u8]) -> Result<(u64, &[u8]), Reason> {
    let mut value = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let [byte, after @ ..] = rest else {
            return Err(Reason::Truncated);
        };
        // Nine bytes hold 63 bits; the tenth has one bit left, and must be the last.
        if shift == 63 && *byte > 1 {
            return Err(Reason::VarintTooLong);
        }
        value |= u64::from(byte & 0x7F).wrapping_shl(shift);
        rest = after;
        if *byte <= 0x7F {
            return Ok((value, rest));
        }
    }
    Err(Reason::VarintTooLong)
}

/// Number of keys that this thread has read: the test and the fuzz target use it to check that the walk is linear.
#[cfg(any(test, feature = "keys-read"))]
pub mod keys_read {
    use std::cell::Cell;

    thread_local!(static KEYS_READ: Cell<u64> = const { Cell::new(0) });

    pub(crate) fn count() {
        KEYS_READ.set(KEYS_READ.get().saturating_add(1));
    }

    /// The count since the last call.
    pub fn take() -> u64 {
        KEYS_READ.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::{span, traces_data};
    use proptest::prelude::*;

    const KEY: u32 = traces_data::RESOURCE_SPANS;

    fn varint(bytes: &[u8]) -> Result<u64, Reason> {
        Reader::new(bytes).varint(KEY).map_err(|malformed| malformed.reason())
    }

    #[test]
    fn varints_are_read_up_to_64_bits() {
        let table: &[(&[u8], Result<u64, Reason>)] = &[
            (&[0x00], Ok(0)),
            (&[0x7F], Ok(127)),
            (&[0x80, 0x01], Ok(128)),
            (&[0xAC, 0x02], Ok(300)),
            (&[0xFF, 0x7F], Ok(16_383)),
            (&[0x80, 0x80, 0x01], Ok(16_384)),
            (&[0x80, 0x00], Ok(0)),             // longer than needed, still a number
            (&[0x81, 0x80, 0x80, 0x00], Ok(1)), // the same in four bytes
            (&[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F], Ok(u64::MAX >> 1)),
            (&[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01], Ok(u64::MAX)),
            (&[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x02], Err(Reason::VarintTooLong)),
            (&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00], Err(Reason::VarintTooLong)),
            (&[], Err(Reason::Truncated)),
            (&[0x80], Err(Reason::Truncated)),
            (&[0xFF, 0xFF, 0xFF], Err(Reason::Truncated)),
        ];
        for (bytes, expected) in table {
            assert_eq!(varint(bytes), *expected, "{bytes:02X?}");
        }
    }

    proptest! {
        #[test]
        fn every_varint_of_prost_is_read_and_nothing_behind_it(value: u64, behind: Vec<u8>) {
            let mut bytes = Vec::new();
            prost::encoding::encode_varint(value, &mut bytes);
            let length = bytes.len();
            bytes.extend(&behind);
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(reader.varint(KEY), Ok(value));
            prop_assert_eq!(reader.position(), length);
        }
    }

    #[test]
    fn int32_is_the_low_half_of_the_varint() {
        let int32 = |value: u64| {
            let mut bytes = Vec::new();
            prost::encoding::encode_varint(value, &mut bytes);
            Reader::new(&bytes).int32(KEY)
        };
        assert_eq!(int32(5), Ok(5));
        assert_eq!(int32(u64::MAX), Ok(-1));
        assert_eq!(int32(0x7_0000_0002), Ok(2));
    }

    /// The result of `pass_all` for these bytes as fields of a span: position and reason.
    fn passed(bytes: &[u8]) -> Result<(), (usize, Reason)> {
        Reader::on(bytes, OtlpMessage::Span)
            .pass_all()
            .map_err(|malformed| (malformed.position(), malformed.reason()))
    }

    #[test]
    fn unknown_fields_are_passed_in_every_wire_type() {
        let table: &[(&str, &[u8])] = &[
            ("nothing", &[]),
            ("field 100, varint", &[0xA0, 0x06, 0x96, 0x01]),
            ("field 100, eight bytes", &[0xA1, 0x06, 1, 2, 3, 4, 5, 6, 7, 8]),
            ("field 100, three bytes", &[0xA2, 0x06, 0x03, 1, 2, 3]),
            ("field 100, four bytes", &[0xA5, 0x06, 1, 2, 3, 4]),
            ("field 100, an empty group", &[0xA3, 0x06, 0xA4, 0x06]),
            // A group may hold any number of any field, also those that the span knows in another wire type.
            ("field 100, a group of a group", &[0xA3, 0x06, 0x0B, 0x08, 0x01, 0x0C, 0x08, 0x02, 0xA4, 0x06]),
            ("name, whose key is one byte longer than needed", &[0xAA, 0x00, 0x01, b'n']),
        ];
        for (what, bytes) in table {
            assert_eq!(passed(bytes), Ok(()), "{what}");
        }
    }

    #[test]
    fn what_is_no_field_is_malformed_with_its_position() {
        let table: &[(&str, &[u8], usize, Reason)] = &[
            ("field 0", &[0x02, 0x00], 1, Reason::FieldNumberZero),
            ("a varint that ends early", &[0xA0, 0x06, 0x96], 2, Reason::Truncated),
            ("seven of eight bytes", &[0xA1, 0x06, 1, 2, 3, 4, 5, 6, 7], 2, Reason::Truncated),
            ("two of three bytes", &[0xA2, 0x06, 0x03, 1, 2], 3, Reason::Truncated),
            ("three of four bytes", &[0xA5, 0x06, 1, 2, 3], 2, Reason::Truncated),
            ("no length", &[0xA2, 0x06], 2, Reason::Truncated),
            (
                "a length of u64::MAX",
                &[0x2A, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01],
                11,
                Reason::Truncated,
            ),
            ("half a key", &[0xA0], 0, Reason::Truncated),
            ("a key of 33 bits", &[0xF8, 0xFF, 0xFF, 0xFF, 0x1F, 0x00], 0, Reason::KeyTooLong),
            ("wire type 6", &[0xA6, 0x06], 2, Reason::WireTypeUnknown),
            ("wire type 7", &[0xA7, 0x06], 2, Reason::WireTypeUnknown),
            ("the end of a group", &[0xA4, 0x06], 2, Reason::GroupNotOpen),
            ("a group without end", &[0xA3, 0x06, 0x08, 0x01], 4, Reason::Truncated),
            ("the end of another group", &[0xA3, 0x06, 0x0C], 3, Reason::GroupNotOpen),
            ("name as a varint", &[0x28, 0x05], 1, Reason::WireTypeWrong),
            ("name as a group", &[0x2B, 0x2C], 1, Reason::WireTypeWrong),
            ("dropped_links_count as bytes", &[0x72, 0x00], 1, Reason::WireTypeWrong),
        ];
        for (what, bytes, position, reason) in table {
            assert_eq!(passed(bytes), Err((*position, *reason)), "{what}");
        }
    }

    #[test]
    fn groups_nest_to_the_limit_and_no_deeper() {
        let nested = |depth: u8| {
            let depth = usize::from(depth);
            [vec![0x0B; depth], vec![0x0C; depth]].concat() // field 1: group starts, group ends
        };
        // All inside field 100, so that field 1 of the span is not affected.
        let in_field_100 = |inner: Vec<u8>| [vec![0xA3, 0x06], inner, vec![0xA4, 0x06]].concat();
        assert_eq!(passed(&in_field_100(nested(NESTING_DEPTH_MAX - 1))), Ok(()));
        assert_eq!(passed(&in_field_100(nested(NESTING_DEPTH_MAX))), Err((102, Reason::NestedTooDeep)));
    }

    #[test]
    fn positions_count_from_the_start_of_the_outermost_message() {
        let bytes = [0x0A, 0x05, 0x12, 0x03, 0x1A, 0x05, b'x']; // the innermost length, 5, is one more than there is
        let mut outer = Reader::new(&bytes);
        let key = outer.key().unwrap();
        let mut middle = outer.message(key, OtlpMessage::ResourceSpans).unwrap();
        let key = middle.key().unwrap();
        let mut inner = middle.message(key, OtlpMessage::ScopeSpans).unwrap();
        let key = inner.key().unwrap();
        let expected = Malformed::new(6, Reason::Truncated, OtlpMessage::ScopeSpans, 3);
        assert_eq!(inner.bytes(key), Err(expected));
        assert!(outer.is_empty());
    }

    #[test]
    fn a_key_of_two_bytes_is_read() {
        let mut reader = Reader::on(&[0x85, 0x01, 1, 0, 0, 0], OtlpMessage::Span);
        assert_eq!(reader.key(), Ok(span::FLAGS));
        assert_eq!(reader.fixed32(span::FLAGS), Ok(1));
        assert!(reader.is_empty());
    }
}
