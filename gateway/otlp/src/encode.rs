//! Values and fields written back to the wire, for the few callers that change a message.
//!
//! Job: makes a message of what was read of one. A value that came in pieces is written in one piece, and of members that replace each
//! other only the last is written: what is read from the result is what was read before. Limits: the caller bounds what it writes. Each
//! level of nesting, [`crate::NESTING_DEPTH_MAX`] at most, copies what is inside of it once.

use crate::any_value::Value;
use crate::fields::{any_value, array_value, key_value, key_value_list};
use crate::malformed::Malformed;

/// Why a value was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutError {
    /// It cannot be read to its end.
    Malformed(Malformed),
    /// It has more bytes than it may have.
    TooLong,
}

impl From<Malformed> for PutError {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

/// Appends the fields of an `AnyValue`, none for an empty value; fails if one of its texts, arrays or lists has more than `bytes_max`.
///
/// # Errors
/// [`PutError`], after which the end of `out` is not a value.
pub fn put_value(out: &mut Vec<u8>, value: Value<'_>, bytes_max: usize) -> Result<(), PutError> {
    match value {
        Value::Empty => {}
        Value::String(text) => put_field(out, any_value::STRING, within(text, bytes_max)?),
        Value::Bytes(bytes) => put_field(out, any_value::BYTES, within(bytes, bytes_max)?),
        Value::Bool(value) => put_number(out, any_value::BOOL, u64::from(value)),
        Value::Int(value) => put_number(out, any_value::INT, value.cast_unsigned()),
        Value::Double(value) => {
            put_varint(out, u64::from(any_value::DOUBLE));
            out.extend_from_slice(&value.to_bits().to_le_bytes());
        }
        Value::Array(array) => {
            let mut elements = Vec::new();
            for element in &array {
                let mut content = Vec::new();
                // All open levels together have at most `bytes_max`.
                put_value(&mut content, element?, bytes_max.saturating_sub(elements.len()))?;
                put_field(&mut elements, array_value::VALUES, &content);
                within(&elements, bytes_max)?;
            }
            put_field(out, any_value::ARRAY, &elements);
        }
        Value::KeyValues(list) => {
            let mut members = Vec::new();
            for member in &list {
                let member = member?;
                let mut content = Vec::new();
                put_value(&mut content, member.value, bytes_max.saturating_sub(members.len()))?;
                put_member(&mut members, within(member.key, bytes_max)?, &content);
                within(&members, bytes_max)?;
            }
            put_list(out, &members);
        }
    }
    Ok(())
}

/// These bytes, if they are not too many.
fn within(bytes: &[u8], bytes_max: usize) -> Result<&[u8], PutError> {
    if bytes.len() > bytes_max { Err(PutError::TooLong) } else { Ok(bytes) }
}

/// Appends a member to those of a list: its key, and the fields of its `AnyValue`.
pub fn put_member(members: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    put_field(members, key_value_list::VALUES, &key_and_value(key, value));
}

/// Appends the field of an `AnyValue` that is a list of these members.
pub fn put_list(out: &mut Vec<u8>, members: &[u8]) {
    put_field(out, any_value::KVLIST, members);
}

/// The fields of a `KeyValue`.
pub(crate) fn key_and_value(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut fields = Vec::new();
    put_field(&mut fields, key_value::KEY, key);
    put_field(&mut fields, key_value::VALUE, value);
    fields
}

/// Appends a length-delimited field.
pub(crate) fn put_field(out: &mut Vec<u8>, key: u32, bytes: &[u8]) {
    put_varint(out, u64::from(key));
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a field that is a varint.
fn put_number(out: &mut Vec<u8>, key: u32, value: u64) {
    put_varint(out, u64::from(key));
    put_varint(out, value);
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let [low, ..] = value.to_le_bytes();
        value = value.wrapping_shr(7);
        if value == 0 {
            out.push(low & 0x7F);
            return;
        }
        out.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_was_read() {
        #[rustfmt::skip]
        let table: &[&[u8]] = &[
            &[],                                                        // empty
            &[0x0A, 1, b's'],                                           // a string
            &[0x0A, 0],                                                 // an empty one
            &[0x10, 1],                                                 // true
            &[0x18, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01], // -1
            &[0x21, 0, 0, 0, 0, 0, 0, 0xF8, 0x7F],                      // NaN
            &[0x3A, 2, 0, 0xFF],                                        // bytes
            &[0x2A, 6, 0x0A, 2, 0x18, 1, 0x0A, 0],                      // an array
            &[0x32, 9, 0x0A, 7, 0x0A, 1, b'k', 0x12, 2, 0x18, 1],       // a list
        ];
        for bytes in table {
            let mut written = Vec::new();
            put_value(&mut written, Value::read(bytes).unwrap(), 100).unwrap();
            assert_eq!(written, *bytes);
        }
    }

    #[test]
    fn only_the_last_member_is_written_and_pieces_become_one() {
        let mut written = Vec::new();
        let pieces = [0x0A, 1, b's', 0x2A, 4, 0x0A, 2, 0x18, 1, 0x2A, 4, 0x0A, 2, 0x18, 2];
        put_value(&mut written, Value::read(&pieces).unwrap(), 100).unwrap();
        assert_eq!(written, [0x2A, 8, 0x0A, 2, 0x18, 1, 0x0A, 2, 0x18, 2]);
        let cut = [0x2A, 3, 0x0A, 1, 0x18];
        let refused = |bytes: &[u8], bytes_max| {
            put_value(&mut Vec::new(), Value::read(bytes).unwrap(), bytes_max).unwrap_err()
        };
        assert!(matches!(refused(&cut, 100), PutError::Malformed(_)));
        for too_long in [&[0x0A, 3, b's', b's', b's'][..], &pieces, &[0x32, 5, 0x0A, 3, 0x0A, 1, b'k']] {
            assert_eq!(refused(too_long, 2), PutError::TooLong, "{too_long:02X?}");
        }
    }
}
