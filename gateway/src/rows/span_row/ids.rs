//! Ids as strings of lower-case hex digits.

use sluice_clickhouse::rowbinary::put_len;
use sluice_otlp::Span;

/// `TraceId`, `SpanId`, `ParentSpanId`. Ids of the specified lengths are turned into digits 16 bytes at a time, of which the
/// compiler makes vector instructions.
#[inline]
pub(super) fn put(row: &mut Vec<u8>, span: &Span<'_>) {
    let parent = if span.parent_span_id.is_empty() { &NO_ID } else { span.parent_span_id };
    let (Ok(trace), Ok(own), Ok(parent)) =
        (span.trace_id.try_into(), span.span_id.try_into(), parent.try_into())
    else {
        return [span.trace_id, span.span_id, span.parent_span_id]
            .into_iter()
            .for_each(|id| put_hex(row, id));
    };
    let spans = u128::from(u64::from_le_bytes(parent)) << 64 | u128::from(u64::from_le_bytes(own));
    let (trace, spans) = (hex(trace), hex(spans.to_le_bytes()));
    let (own, parent) = spans.as_flattened().split_at(16);
    row.push(32);
    row.extend_from_slice(trace.as_flattened());
    row.push(16);
    row.extend_from_slice(own);
    if span.parent_span_id.is_empty() {
        row.push(0);
    } else {
        row.push(16);
        row.extend_from_slice(parent);
    }
}

/// Stands in for the parent of a span that has none.
const NO_ID: [u8; 8] = [0; 8];

/// The two digits of every byte.
#[inline]
fn hex(id: [u8; 16]) -> [[u8; 2]; 16] {
    let mut digits = [[0; 2]; 16];
    for (pair, byte) in digits.iter_mut().zip(id) {
        *pair = [digit(byte >> 4), digit(byte & 15)];
    }
    digits
}

/// Appends an id as a string of lower-case hex digits.
pub(super) fn put_hex(row: &mut Vec<u8>, id: &[u8]) {
    put_len(row, id.len() * 2);
    for byte in id {
        row.extend_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
}

#[inline]
const fn digit(number: u8) -> u8 {
    number + if number < 10 { b'0' } else { b'a' - 10 }
}
