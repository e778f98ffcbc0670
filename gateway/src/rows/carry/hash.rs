//! The text that takes the place of a value: `sha256:` and 64 hex digits.
//!
//! It is the SHA-256 (FIPS 180-4) of the value's text, as a `Map` stores it ([`crate::rows::value_text`]), without a key: equal values have
//! equal hashes in all pipelines, so that they can be compared and counted. Who knows which values are possible can compute their hashes.
//!
//! A text that is such a hash already stays, so that a replayed letter is not hashed twice. An empty value stays empty.

use crate::rows::{
    attributes::{Error, RowLimit},
    carry::LIST_BYTES_MAX,
    utf8::REPLACEMENT,
    value_text,
};
use sha2::{Digest as _, Sha256};
use sluice_otlp::{Scalar, Value};

const PREFIX: &[u8; 7] = b"sha256:";

/// Bytes of a hash as text.
pub const TEXT_BYTES: usize = PREFIX.len() + 64;

/// A hash as text.
pub type HashText = [u8; TEXT_BYTES];

/// The hash of a scalar; `None` if it is one already.
pub fn of_scalar(scalar: Scalar<'_>) -> Option<HashText> {
    let mut text = Vec::new();
    match scalar {
        Scalar::String(value) => return of_text(value),
        Scalar::Bool(value) => text.extend_from_slice(if value { b"true" } else { b"false" }),
        Scalar::Int(value) => value_text::put_int(&mut text, value),
        Scalar::Double(value) => value_text::put_double(&mut text, value),
    }
    of_text(&text)
}

/// The hash of a value; `None` if it is one already, or empty.
pub fn of_value(value: Value<'_>) -> Result<Option<HashText>, Error> {
    match value {
        Value::Empty => Ok(None),
        Value::String(value) => Ok(of_text(value)),
        value => {
            let mut text = Vec::new();
            value_text::put(&mut text, value, LIST_BYTES_MAX).map_err(|error| match error {
                Error::RowTooLarge(RowLimit::Bytes) => Error::RowTooLarge(RowLimit::Ruled),
                other => other,
            })?;
            Ok(of_text(&text))
        }
    }
}

fn of_text(text: &[u8]) -> Option<HashText> {
    if is_hash(text) {
        return None;
    }
    let mut sha = Sha256::new();
    for chunk in text.utf8_chunks() {
        sha.update(chunk.valid());
        if !chunk.invalid().is_empty() {
            sha.update(REPLACEMENT);
        }
    }
    let mut hash = [0; TEXT_BYTES];
    let (prefix, digits) = hash.split_at_mut(PREFIX.len());
    prefix.copy_from_slice(PREFIX);
    for (pair, byte) in digits.chunks_exact_mut(2).zip(sha.finalize()) {
        pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
    Some(hash)
}

/// Whether this is a hash as text.
fn is_hash(text: &[u8]) -> bool {
    let digits = text.strip_prefix(PREFIX).filter(|_| text.len() == TEXT_BYTES);
    digits.is_some_and(|digits| digits.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')))
}

const fn digit(number: u8) -> u8 {
    number + if number < 10 { b'0' } else { b'a' - 10 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(value: Value<'_>) -> String {
        let hash = of_value(value).unwrap().unwrap();
        String::from_utf8(hash.to_vec()).unwrap()
    }

    #[test]
    fn a_hash_is_that_of_the_text() {
        // FIPS 180-4, example of one block.
        let abc = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash(Value::String(b"abc")), abc);
        assert_eq!(hash(Value::Int(7)), hash(Value::String(b"7")));
        assert_eq!(hash(Value::Bool(true)), hash(Value::String(b"true")));
        assert_eq!(hash(Value::String(b"\xff")), hash(Value::String("\u{fffd}".as_bytes())));
        assert_eq!(of_scalar(Scalar::Int(7)).unwrap(), hash(Value::Int(7)).as_bytes());
    }

    #[test]
    fn what_is_a_hash_or_empty_stays() {
        let once = hash(Value::String(b"abc"));
        assert_eq!(of_value(Value::String(once.as_bytes())), Ok(None));
        assert_eq!(of_scalar(Scalar::String(once.as_bytes())), None);
        assert_eq!(of_value(Value::Empty), Ok(None));
        for other in [once.to_uppercase(), format!("{once}0"), once[..70].to_owned(), String::new()] {
            assert!(of_value(Value::String(other.as_bytes())).unwrap().is_some(), "{other}");
        }
    }
}
