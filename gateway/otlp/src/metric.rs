//! Metrics that have the form of spans.
//!
//! OTLP's metrics have the outer levels of traces. Most of them differ from spans by their ids ([`crate::ids`]), or by a field with another
//! wire type. A gauge whose name has 16 bytes and whose description has 8 differs by neither. It has no start, which nearly every span has,
//! and its data are where a span has its name:
//!
//! ```text
//! Metric           1 name, 2 description, 3 unit: bytes; 5 gauge
//! Gauge            1 data_points
//! NumberDataPoint  2 start_time_unix_nano, 3 time_unix_nano, 4 as_double, 6 as_int: eight bytes
//!                  5 exemplars, 7 attributes: length, bytes; 8 flags: varint
//! ```
//!
//! Source: opentelemetry-proto 1.x, `metrics/v1/metrics.proto`. No name of a real span is such data: it would begin with a line feed and
//! its own length, and have the keys of numbers between its letters.

use crate::fields::span;
use crate::wire::Reader;

/// Keys of `Gauge` and of `NumberDataPoint`: number << 3 | wire type.
const DATA_POINTS: u32 = 0x0A;
const START_TIME_UNIX_NANO: u32 = 0x11;
const TIME_UNIX_NANO: u32 = 0x19;
const AS_DOUBLE: u32 = 0x21;
const EXEMPLARS: u32 = 0x2A;
const AS_INT: u32 = 0x31;
const ATTRIBUTES: u32 = 0x3A;
const FLAGS: u32 = 0x40;

/// Whether these fields of a span are those of a gauge, and no others. Ask only for a span without a start.
#[cold]
#[inline(never)]
pub fn is_gauge(fields: &[u8]) -> bool {
    let mut has_data = false;
    let is_metric = every(fields, |key, reader| match key {
        span::TRACE_ID | span::SPAN_ID | span::TRACE_STATE => reader.bytes(key).is_ok(),
        span::NAME => {
            has_data = true;
            reader.bytes(key).is_ok_and(are_data)
        }
        _ => false,
    });
    is_metric && has_data
}

fn are_data(gauge: &[u8]) -> bool {
    !gauge.is_empty()
        && every(gauge, |key, reader| key == DATA_POINTS && reader.bytes(key).is_ok_and(is_data_point))
}

fn is_data_point(fields: &[u8]) -> bool {
    let mut has_number = false;
    let is_point = every(fields, |key, reader| match key {
        START_TIME_UNIX_NANO | TIME_UNIX_NANO | AS_DOUBLE | AS_INT => {
            has_number = true;
            reader.fixed64(key).is_ok()
        }
        EXEMPLARS | ATTRIBUTES => reader.bytes(key).is_ok(),
        FLAGS => reader.varint(key).is_ok(),
        _ => false,
    });
    is_point && has_number
}

/// Whether every field is one of these. `is_field` reads the value behind a key.
fn every<'a>(fields: &'a [u8], mut is_field: impl FnMut(u32, &mut Reader<'a>) -> bool) -> bool {
    let mut reader = Reader::new(fields);
    while !reader.is_empty() {
        let Ok(key) = reader.key() else { return false };
        if !is_field(key, &mut reader) {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name of 16 bytes and a description of 8.
    #[rustfmt::skip]
    const NAMES: [u8; 28] = [
        0x0A, 16, b's', b'y', b's', b't', b'e', b'm', b'.', b'c', b'p', b'u', b'.', b'l', b'o', b'a', b'd', b'1',
        0x12, 8, b'c', b'p', b'u', b' ', b'l', b'o', b'a', b'd',
    ];

    /// These fields behind the names.
    fn is(fields: &[u8]) -> bool {
        is_gauge(&[&NAMES, fields].concat())
    }

    #[test]
    fn a_gauge_is_recognised_by_its_data() {
        for gauge in [
            // as_int 1
            &[0x2A, 11, 0x0A, 9, 0x31, 1, 0, 0, 0, 0, 0, 0, 0][..],
            // unit, time, an attribute, flags
            &[0x1A, 1, b'1', 0x2A, 17, 0x0A, 15, 0x3A, 2, 0x0A, 0, 0x19, 0, 0, 0, 0, 0, 0, 0, 9, 0x40, 1],
            // two data points
            &[0x2A, 22, 0x0A, 9, 0x21, 0, 0, 0, 0, 0, 0, 0, 0, 0x0A, 9, 0x21, 0, 0, 0, 0, 0, 0, 0, 0],
        ] {
            assert!(is(gauge), "{gauge:02X?}");
        }
    }

    #[test]
    fn a_span_without_a_start_is_none() {
        for span in [
            &[][..],
            // Names: empty, `name`, a line feed, `\n\x03abc`, a data point that is cut short, one without a number.
            &[0x2A, 0],
            &[0x2A, 4, b'n', b'a', b'm', b'e'],
            &[0x2A, 1, b'\n'],
            &[0x2A, 5, b'\n', 3, b'a', b'b', b'c'],
            &[0x2A, 10, 0x0A, 8, 0x31, 1, 0, 0, 0, 0, 0, 0],
            &[0x2A, 4, 0x0A, 2, 0x40, 1],
            // A kind beside such a name, also one of 0.
            &[0x2A, 11, 0x0A, 9, 0x31, 1, 0, 0, 0, 0, 0, 0, 0, 0x30, 0],
            // An end.
            &[0x2A, 11, 0x0A, 9, 0x31, 1, 0, 0, 0, 0, 0, 0, 0, 0x41, 1, 0, 0, 0, 0, 0, 0, 0],
        ] {
            assert!(!is(span), "{span:02X?}");
        }
    }
}
