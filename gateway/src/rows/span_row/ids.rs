//! Writes ids as strings of lower-case hex digits. An id of all zeros, which OTLP calls invalid, is an empty string, like one that is missing:
//! readers of the table find root spans by `ParentSpanId = ''`, and some SDKs send zeros for them.

use sluice_clickhouse::rowbinary::put_len;
use sluice_otlp::Span;

/// Bytes of the longest ids, as digits with their lengths.
pub(super) const BYTES_MAX: usize = 33 + 17 + 17;

/// Appends `TraceId`, `SpanId`, `ParentSpanId`, 16 bytes at a time, which compiles to vector instructions.
#[inline]
pub(super) fn put(row: &mut Vec<u8>, span: &Span<'_>) {
    let parent = u64::from_le_bytes(*span.parent_span_id.unwrap_or(&[0; 8]));
    let own = u64::from_le_bytes(*span.span_id);
    let spans = u128::from(parent) << 64 | u128::from(own);
    let (trace, spans) = (hex(*span.trace_id), hex(spans.to_le_bytes()));
    let (own_digits, parent_digits) = spans.as_flattened().split_at(16);
    put_unless(row, *span.trace_id == [0; 16], trace.as_flattened());
    put_unless(row, own == 0, own_digits);
    put_unless(row, parent == 0, parent_digits);
}

/// The bytes of an id that the row stores as digits: none if they are all zeros.
pub fn stored<const N: usize>(id: &[u8; N]) -> &[u8] {
    if *id == [0; N] { &[] } else { id }
}

/// Appends an id of a link as a string of lower-case hex digits; an empty string if there is no id.
pub(super) fn put_hex<const N: usize>(row: &mut Vec<u8>, id: Option<&[u8; N]>) {
    let id = id.map_or(&[][..], stored);
    put_len(row, id.len() * 2);
    for byte in id {
        row.extend_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
}

/// Appends the digits of an id as a string; an empty one if the id is all zeros.
#[inline]
fn put_unless(row: &mut Vec<u8>, is_zero: bool, digits: &[u8]) {
    if is_zero {
        row.push(0);
    } else {
        put_len(row, digits.len());
        row.extend_from_slice(digits);
    }
}

/// The two digits of every byte.
#[inline]
fn hex(id: [u8; 16]) -> [[u8; 2]; 16] {
    let mut digits = [[0; 2]; 16];
    for (pair, byte) in digits.iter_mut().zip(id) {
        *pair = [digit(byte >> 4), digit(byte & 15)];
    }
    digits
}

#[inline]
const fn digit(number: u8) -> u8 {
    number + if number < 10 { b'0' } else { b'a' - 10 }
}
