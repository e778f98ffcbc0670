//! Columns with one of a few words.

/// Bytes of the longest word, its length included.
pub(super) const BYTES: usize = 12;

/// Appends one of a few words. All are copied at full length, without a call or a branch.
#[inline]
pub(super) fn put(row: &mut Vec<u8>, word: &[u8; BYTES]) {
    let end = row.len() + 1 + usize::from(word[0]);
    row.extend_from_slice(word);
    row.truncate(end);
}

/// `SpanKind` as a string with its length: opentelemetry.proto.trace.v1.Span.SpanKind; an unknown number is unspecified.
pub(super) fn kind(kind: i32) -> &'static [u8; BYTES] {
    match kind {
        1 => b"\x08Internal   ",
        2 => b"\x06Server     ",
        3 => b"\x06Client     ",
        4 => b"\x08Producer   ",
        5 => b"\x08Consumer   ",
        _ => b"\x0bUnspecified",
    }
}

/// `StatusCode` as a string with its length: opentelemetry.proto.trace.v1.Status.StatusCode.
pub(super) fn status(code: i32) -> &'static [u8; BYTES] {
    match code {
        1 => b"\x02Ok         ",
        2 => b"\x05Error      ",
        _ => b"\x05Unset      ",
    }
}
