//! Writes a value as JSON text: for values deeper than [`crate::rows::attributes::json::DEPTH_MAX`], and for arrays and lists if a column
//! holds text.
//!
//! The walk limits the depth: it rejects messages that nest deeper than protobuf's own limit. An escape may turn one byte into six, and a
//! byte that is not UTF-8 becomes three, so writing fails before the piece that would exceed the limit.

use crate::rows::{attributes::Error, utf8::REPLACEMENT, value_text};
use sluice_clickhouse::room;
use sluice_otlp::{KeyValue, Value};

/// Appends the JSON text of a value, at most `bytes`. Bytes are base64; NaN and infinities are strings, as in OTLP's JSON encoding; bytes
/// that are not UTF-8 become replacement characters, because JSON allows only UTF-8.
pub fn put(out: &mut Vec<u8>, value: Value<'_>, bytes: usize) -> Result<(), Error> {
    let limit = out.len().saturating_add(bytes);
    Text { out, limit }.value(value)
}

/// A text that is being written.
struct Text<'a> {
    out: &'a mut Vec<u8>,
    /// Length at which writing fails.
    limit: usize,
}

impl Text<'_> {
    fn value(&mut self, value: Value<'_>) -> Result<(), Error> {
        // A JSON number has at most 24 characters; they fit into the margin around the requested bytes.
        room::make(self.out, 0, self.limit)?;
        match value {
            Value::Empty => self.out.extend_from_slice(b"null"),
            Value::String(text) => self.string(text)?,
            Value::Bool(value) => self.out.extend_from_slice(if value { b"true" } else { b"false" }),
            Value::Int(value) => value_text::put_int(self.out, value),
            Value::Double(value) if value.is_finite() => value_text::put_finite(self.out, value),
            Value::Double(value) if value.is_nan() => self.out.extend_from_slice(b"\"NaN\""),
            Value::Double(value) => {
                self.out.extend_from_slice(if value > 0.0 { b"\"Infinity\"" } else { b"\"-Infinity\"" });
            }
            Value::Bytes(bytes) => {
                room::make(self.out, value_text::base64_bytes(bytes), self.limit)?;
                self.out.push(b'"');
                value_text::put_base64(self.out, bytes);
                self.out.push(b'"');
            }
            Value::Array(array) => {
                self.out.push(b'[');
                for (index, element) in array.iter().enumerate() {
                    self.separate(index);
                    self.value(element?)?;
                }
                self.close(b']')?;
            }
            Value::KeyValues(list) => {
                self.out.push(b'{');
                for (index, member) in list.iter().enumerate() {
                    let KeyValue { key, value } = member?;
                    self.separate(index);
                    self.string(key)?;
                    self.out.push(b':');
                    self.value(value)?;
                }
                self.close(b'}')?;
            }
        }
        Ok(())
    }

    /// Ends a list. A hundred lists may end at once, so each requests room.
    fn close(&mut self, bracket: u8) -> Result<(), Error> {
        room::make(self.out, 0, self.limit)?;
        self.out.push(bracket);
        Ok(())
    }

    fn separate(&mut self, index: usize) {
        if index > 0 {
            self.out.push(b',');
        }
    }

    fn string(&mut self, text: &[u8]) -> Result<(), Error> {
        // JSON text is never shorter than its source, so a source that is too long fails before it is written.
        room::make(self.out, text.len(), self.limit)?;
        self.out.push(b'"');
        for chunk in text.utf8_chunks() {
            self.escaped(chunk.valid().as_bytes())?;
            if !chunk.invalid().is_empty() {
                room::append(self.out, REPLACEMENT, self.limit)?;
            }
        }
        self.out.push(b'"');
        Ok(())
    }

    /// Appends characters, and escapes those that JSON requires to be escaped (RFC 8259, 7).
    fn escaped(&mut self, mut text: &[u8]) -> Result<(), Error> {
        let is_escaped = |byte: &u8| *byte < b' ' || *byte == b'"' || *byte == b'\\';
        while let Some(plain) = text.iter().position(is_escaped) {
            let (before, rest) = text.split_at(plain);
            room::append(self.out, before, self.limit)?;
            let (escape, bytes) = escape(rest[0]);
            room::append(self.out, &escape[..bytes], self.limit)?;
            text = &rest[1..];
        }
        Ok(room::append(self.out, text, self.limit)?)
    }
}

/// The escape of one of the 34 characters that need one, and its length.
fn escape(byte: u8) -> ([u8; 6], usize) {
    let digit = |number: u8| number + if number < 10 { b'0' } else { b'a' - 10 };
    let letter = match byte {
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        0x08 => b'b',
        0x0c => b'f',
        b'"' | b'\\' => byte,
        other => return ([b'\\', b'u', b'0', b'0', digit(other >> 4), digit(other & 15)], 6),
    };
    ([b'\\', letter, 0, 0, 0, 0], 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::attributes::RowLimit;

    #[test]
    fn a_text_that_no_row_can_hold_is_given_up_before_it_is_written() {
        let text = vec![1; 1 << 20];
        let mut out = Vec::new();
        assert_eq!(
            put(&mut out, Value::String(&text), text.len() - 1),
            Err(Error::RowTooLarge(RowLimit::Bytes))
        );
        assert!(out.is_empty());
        assert_eq!(
            put(&mut out, Value::String(&text), 2 * text.len()),
            Err(Error::RowTooLarge(RowLimit::Bytes))
        );
        assert!(out.capacity() <= 2 * text.len() + room::AROUND_BYTES, "escapes are six bytes of one");
        out.clear();
        put(&mut out, Value::String(&text[..2]), 100).unwrap();
        assert_eq!(out, br#""\u0001\u0001""#);
    }

    #[test]
    fn strings_are_escaped_as_another_writer_of_json_does() {
        let every: String = (0..=0x2ff).filter_map(char::from_u32).collect();
        for text in ["", "plain", "\"", "\\\n", "a\u{1f}b\u{7f}é\u{10ffff}", &every] {
            let mut out = Vec::new();
            put(&mut out, Value::String(text.as_bytes()), usize::MAX).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), serde_json::to_string(text).unwrap());
        }
        for broken in [&b"\xff"[..], b"a\xe2\x82b", b"\xf0\x9f\x92", b"\"\xc0\x80"] {
            let mut out = Vec::new();
            put(&mut out, Value::String(broken), usize::MAX).unwrap();
            let text = String::from_utf8_lossy(broken);
            assert_eq!(String::from_utf8(out).unwrap(), serde_json::to_string(&text).unwrap());
        }
    }
}
