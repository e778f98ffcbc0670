//! A value as JSON text: for what lies deeper than [`crate::attributes::json::DEPTH_MAX`], and for arrays and lists where
//! a column holds text.
//!
//! The depth is bounded by the walk, which refuses messages that nest deeper than protobuf's own limit. Escapes may make six
//! bytes of one: a text that no row can hold is given up, before the next string at the latest.

use crate::attributes::Error;
use crate::value_text;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use sluice_gateway_config::budget::ROW_BYTES_MAX;
use sluice_otlp::{KeyValue, Value};

/// Appends the JSON text of a value. Bytes are base64; NaN and infinities are strings, as in OTLP's JSON encoding; bytes
/// that are not UTF-8 become replacement characters, since JSON has no others.
pub fn put(out: &mut Vec<u8>, value: Value<'_>) -> Result<(), Error> {
    match value {
        Value::Empty => out.extend_from_slice(b"null"),
        Value::String(text) => put_string(out, text)?,
        Value::Bool(value) => out.extend_from_slice(if value { b"true" } else { b"false" }),
        Value::Int(value) => value_text::put_int(out, value),
        Value::Double(value) if value.is_finite() => value_text::put_finite(out, value),
        Value::Double(value) if value.is_nan() => out.extend_from_slice(b"\"NaN\""),
        Value::Double(value) => {
            out.extend_from_slice(if value > 0.0 { b"\"Infinity\"" } else { b"\"-Infinity\"" });
        }
        Value::Bytes(bytes) => put_string(out, BASE64_STANDARD.encode(bytes).as_bytes())?,
        Value::Array(array) => {
            out.push(b'[');
            for (index, element) in array.iter().enumerate() {
                separate(out, index)?;
                put(out, element?)?;
            }
            out.push(b']');
        }
        Value::KeyValues(list) => {
            out.push(b'{');
            for (index, member) in list.iter().enumerate() {
                let KeyValue { key, value } = member?;
                separate(out, index)?;
                put_string(out, key)?;
                out.push(b':');
                put(out, value)?;
            }
            out.push(b'}');
        }
    }
    Ok(())
}

fn separate(out: &mut Vec<u8>, index: usize) -> Result<(), Error> {
    if index > 0 {
        out.push(b',');
    }
    if out.len() as u64 > ROW_BYTES_MAX { Err(Error::RowTooLarge) } else { Ok(()) }
}

fn put_string(out: &mut Vec<u8>, text: &[u8]) -> Result<(), Error> {
    // No text is shorter than its bytes.
    if (out.len() + text.len()) as u64 > ROW_BYTES_MAX {
        return Err(Error::RowTooLarge);
    }
    serde_json::to_writer(out, &String::from_utf8_lossy(text))
        .expect("a string always serialises, and a vector takes every byte");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_no_row_can_hold_is_given_up_before_it_is_written() {
        let text = vec![1; usize::try_from(ROW_BYTES_MAX).unwrap() + 1];
        let mut out = Vec::new();
        assert_eq!(put(&mut out, Value::String(&text)), Err(Error::RowTooLarge));
        assert!(out.is_empty());
        put(&mut out, Value::String(&text[..2])).unwrap();
        assert_eq!(out, br#""\u0001\u0001""#);
    }
}
