//! Replaces bytes of strings that are not UTF-8.
//!
//! proto3 requires every `string` to be UTF-8, and readers of the table do too: a Python client fails on the column if one key of one row
//! is not UTF-8, and text formats of the server print invalid text. So each invalid sequence becomes U+FFFD, as with
//! `String::from_utf8_lossy`, before the string is used: keys that are equal after that are equal keys.
//!
//! Rejecting the message, as strict protobuf readers do, would lose the spans of all other services in a collector's batch because of one
//! string that was cut within a character.
//!
//! Limits: one invalid byte may become three bytes; the caller limits the total.

use sluice_clickhouse::room::{self, NoRoom};
use sluice_otlp::is_utf8;
use std::borrow::Cow;

/// Replaces bytes that are not UTF-8 (the Unicode Standard, U+FFFD).
pub const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();

/// The string as UTF-8; a replaced string has at most `bytes`.
#[inline]
pub fn mended(text: &[u8], bytes: usize) -> Result<Cow<'_, [u8]>, NoRoom> {
    if is_utf8(text) { Ok(Cow::Borrowed(text)) } else { mend(text, bytes).map(Cow::Owned) }
}

/// Appends the string as UTF-8, if the buffer has room for it within the length `limit`.
pub fn append(out: &mut Vec<u8>, text: &[u8], limit: usize) -> Result<(), NoRoom> {
    let text = mended(text, limit.saturating_sub(out.len()))?;
    room::append(out, &text, limit)
}

#[cold]
fn mend(text: &[u8], bytes: usize) -> Result<Vec<u8>, NoRoom> {
    let replaced = |invalid: &[u8]| if invalid.is_empty() { &[][..] } else { REPLACEMENT };
    let pieces = || text.utf8_chunks().map(|chunk| (chunk.valid().as_bytes(), replaced(chunk.invalid())));
    let length = pieces().map(|(valid, replacement)| valid.len() + replacement.len()).sum();
    if length > bytes {
        return Err(NoRoom);
    }
    let mut mended = Vec::with_capacity(length);
    for (valid, replacement) in pieces() {
        mended.extend_from_slice(valid);
        mended.extend_from_slice(replacement);
    }
    Ok(mended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_utf8_is_replaced_as_another_writer_does() {
        for text in [
            &b""[..],
            b"plain",
            "é😀".as_bytes(),
            b"\xff\xfe",
            b"a\xe2\x82b",
            b"\xf0\x9f\x92",
            b"\xc0\x80\xed\xa0\x80",
        ] {
            let expected = String::from_utf8_lossy(text);
            assert_eq!(mended(text, usize::MAX).unwrap(), expected.as_bytes());
            assert!(mended(text, expected.len()).is_ok());
            let mut out = b"before ".to_vec();
            append(&mut out, text, 7 + expected.len()).unwrap();
            assert_eq!(out, format!("before {expected}").into_bytes());
        }
    }

    #[test]
    fn a_string_that_has_no_room_is_given_up_before_it_is_made() {
        assert_eq!(mended(b"\xff\xff", 5), Err(NoRoom));
        let mut out = Vec::new();
        assert_eq!(append(&mut out, b"\xff\xff", 5), Err(NoRoom));
        assert!(out.is_empty());
    }
}
