//! A value as JSON text: for what lies deeper than [`crate::attributes::json::DEPTH_MAX`], and for arrays and lists where
//! a column holds text.
//!
//! The depth is bounded by the walk, which refuses messages that nest deeper than protobuf's own limit.

use crate::value_text;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use sluice_otlp::{KeyValue, Malformed, Value};

/// Appends the JSON text of a value. Bytes are base64; NaN and infinities are strings, as in OTLP's JSON encoding; bytes
/// that are not UTF-8 become replacement characters, since JSON has no others.
pub fn put(out: &mut Vec<u8>, value: Value<'_>) -> Result<(), Malformed> {
    match value {
        Value::Empty => out.extend_from_slice(b"null"),
        Value::String(text) => put_string(out, &String::from_utf8_lossy(text)),
        Value::Bool(value) => out.extend_from_slice(if value { b"true" } else { b"false" }),
        Value::Int(value) => value_text::put_int(out, value),
        Value::Double(value) if value.is_finite() => value_text::put_finite(out, value),
        Value::Double(value) if value.is_nan() => out.extend_from_slice(b"\"NaN\""),
        Value::Double(value) => {
            out.extend_from_slice(if value > 0.0 { b"\"Infinity\"" } else { b"\"-Infinity\"" });
        }
        Value::Bytes(bytes) => put_string(out, &BASE64_STANDARD.encode(bytes)),
        Value::Array(array) => {
            out.push(b'[');
            for (index, element) in array.iter().enumerate() {
                separate(out, index);
                put(out, element?)?;
            }
            out.push(b']');
        }
        Value::KeyValues(list) => {
            out.push(b'{');
            for (index, member) in list.iter().enumerate() {
                let KeyValue { key, value } = member?;
                separate(out, index);
                put_string(out, &String::from_utf8_lossy(key));
                out.push(b':');
                put(out, value)?;
            }
            out.push(b'}');
        }
    }
    Ok(())
}

fn separate(out: &mut Vec<u8>, index: usize) {
    if index > 0 {
        out.push(b',');
    }
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("a string always serialises, and a vector takes every byte");
}
