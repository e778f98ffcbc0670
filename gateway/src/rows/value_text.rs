//! Writes a value as text: for maps of text, and for declared paths of type String.
//!
//! | `AnyValue` | text |
//! | --- | --- |
//! | string | unchanged, in UTF-8 ([`crate::rows::utf8`]) |
//! | bool, int | `true`, `false`, decimal digits |
//! | double | the shortest digits that give the same number, in ECMAScript's notation: `0.5`, `1e+21`; `NaN`, `Infinity`, `-Infinity` |
//! | bytes | base64 (RFC 4648, padded) |
//! | array, key-value list | [`crate::rows::json_text`] |
//! | empty | the empty string |
//!
//! The OpenTelemetry Collector writes the same texts (`pcommon.Value.AsString`), with two exceptions. For NaN and infinities it writes an
//! error text, and it sorts the keys of a list.

use crate::rows::{attributes::Error, json_text, utf8};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use sluice_clickhouse::room;
use sluice_otlp::Value;
use std::io::Write as _;

/// Doubles of smaller magnitude, except 0, are written with an exponent (ECMAScript, `Number::toString`).
const POSITIONAL_MIN: f64 = 1e-6;

/// Doubles of this magnitude or more are written with an exponent.
const POSITIONAL_MAX: f64 = 1e21;

/// Digits of the largest `u64`.
const DIGITS_MAX: usize = 20;

/// Appends the text of a value, at most `bytes`.
pub fn put(out: &mut Vec<u8>, value: Value<'_>, bytes: usize) -> Result<(), Error> {
    let limit = out.len().saturating_add(bytes);
    match value {
        Value::Empty => {}
        Value::String(text) => utf8::append(out, text, limit)?,
        Value::Bool(value) => out.extend_from_slice(if value { b"true" } else { b"false" }),
        Value::Int(value) => put_int(out, value),
        Value::Double(value) => put_double(out, value),
        Value::Bytes(value) => {
            room::make(out, base64_bytes(value), limit)?;
            put_base64(out, value);
        }
        Value::Array(_) | Value::KeyValues(_) => json_text::put(out, value, bytes)?,
    }
    Ok(())
}

/// Appends the decimal digits of an integer.
pub fn put_int(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    put_uint(out, value.unsigned_abs());
}

/// Appends the decimal digits of an integer.
pub fn put_uint(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [b'0'; DIGITS_MAX];
    let mut first = DIGITS_MAX - 1;
    while value >= 10 {
        digits[first] = b'0' + (value % 10).to_le_bytes()[0];
        value /= 10;
        first -= 1;
    }
    digits[first] = b'0' + value.to_le_bytes()[0];
    out.extend_from_slice(&digits[first..]);
}

/// Appends a double.
pub fn put_double(out: &mut Vec<u8>, value: f64) {
    if value.is_nan() {
        out.extend_from_slice(b"NaN");
    } else if value.is_infinite() {
        out.extend_from_slice(if value > 0.0 { b"Infinity" } else { b"-Infinity" });
    } else {
        put_finite(out, value);
    }
}

/// Appends a finite double, in a form that is also a JSON number.
pub fn put_finite(out: &mut Vec<u8>, value: f64) {
    let positional = value == 0.0 || (POSITIONAL_MIN..POSITIONAL_MAX).contains(&value.abs());
    let from = out.len();
    let written = if positional { write!(out, "{value}") } else { write!(out, "{value:e}") };
    written.expect("a vector takes every byte");
    // Rust writes no plus sign in an exponent.
    if let Some(at) = out[from..].iter().position(|byte| *byte == b'e').map(|at| from + at + 1)
        && out[at] != b'-'
    {
        out.insert(at, b'+');
    }
}

/// The base64 text of bytes, in a buffer whose content is replaced.
pub fn base64<'a>(text: &'a mut Vec<u8>, bytes: &[u8]) -> &'a [u8] {
    text.clear();
    put_base64(text, bytes);
    text
}

/// Bytes of the base64 text of bytes.
pub fn base64_bytes(bytes: &[u8]) -> usize {
    bytes.len().div_ceil(3) * 4
}

/// Appends the base64 text of bytes.
pub fn put_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    let from = out.len();
    out.reserve_exact(base64_bytes(bytes));
    out.resize(from + base64_bytes(bytes), 0);
    let written = BASE64_STANDARD
        .encode_slice(bytes, &mut out[from..])
        .expect("four characters for every three bytes are enough");
    out.truncate(from + written);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn integers_are_decimal_digits() {
        for value in [0, 7, 10, -1, i64::MAX, i64::MIN] {
            assert_eq!(text(|out| put_int(out, value)), value.to_string());
        }
        assert_eq!(text(|out| put_uint(out, u64::MAX)), u64::MAX.to_string());
    }

    #[test]
    fn doubles_are_written_as_the_collector_does() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (0.1, "0.1"),
            (-2.5, "-2.5"),
            (1e-6, "0.000001"),
            (1e-7, "1e-7"),
            (1.5e-10, "1.5e-10"),
            (123_456_789_012_345_680_000.0, "123456789012345680000"),
            (1e21, "1e+21"),
            (-1.7e300, "-1.7e+300"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(text(|out| put_double(out, value)), expected);
        }
    }

    #[test]
    fn bytes_are_base64() {
        assert_eq!(text(|out| put_base64(out, &[0xff, 0xee])), "/+4=");
        assert_eq!(base64(&mut b"old".to_vec(), b""), b"");
    }
}
