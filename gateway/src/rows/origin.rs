//! What Kafka says of a message: columns that are equal in all of its rows.
//!
//! Job: writes `KafkaTopic`, `KafkaPartition`, `KafkaOffset`, `KafkaTimestamp` and `KafkaHeaders`, as far as the table has them
//! (`sluice_clickhouse::optional`). Place in the flow: once per message, before its rows; each row gets a copy. Owner: a worker. All of it
//! comes from the log, so a message that is read again gives the same bytes.
//!
//! | column | from |
//! | --- | --- |
//! | `KafkaTimestamp` | the message's timestamp in ms; 0 without one or before 1970; at most [`TIMESTAMP_MAX`] |
//! | `KafkaHeaders` | names and values; bytes of a value that are not UTF-8 are replaced ([`crate::rows::utf8`]); of equal names the first |
//!
//! Limits: [`HEADERS_MAX`] headers and [`HEADER_BYTES_MAX`] bytes of them. A header that does not fit is left out as a whole, and later ones
//! that fit are kept; the caller counts such messages. No value is copied or examined before its size is known to fit.

use crate::rows::utf8::mended;
use sluice_clickhouse::{
    optional::{OptionalColumn, OptionalColumns},
    rowbinary::{put_i64, put_string, varuint_bytes},
};
use std::ops::ControlFlow;

/// Headers that are looked at. Chosen: ten times what tracing and routing use; equal names are found by comparing all of them.
pub const HEADERS_MAX: usize = 64;

/// Bytes of the kept headers in a row, with their lengths. Chosen: every row of the message has a copy, and a span of 100 bytes may write
/// 6,400 ([`crate::rows::raw_limit`]). So headers do not make a message of usual spans too large.
pub const HEADER_BYTES_MAX: usize = 4 << 10;

/// The longest name of a topic. Specified: Kafka's limit.
const TOPIC_BYTES_MAX: usize = 249;

/// Bytes of all columns.
pub const BYTES_MAX: usize =
    TOPIC_BYTES_MAX + 2 + size_of::<i32>() + 2 * size_of::<i64>() + 1 + HEADER_BYTES_MAX;

/// The last time that `DateTime64(3)` holds: 2299-12-31 23:59:59.999 UTC, in ms since 1970.
pub const TIMESTAMP_MAX: i64 = 10_413_791_999_999;

const _: () = assert!(HEADERS_MAX < 0x80, "the number of headers takes one byte");

/// Where a message comes from.
#[derive(Clone, Copy, Default)]
pub struct Origin<'a> {
    pub topic: &'a str,
    pub partition: i32,
    pub offset: i64,
    /// ms since 1970, if Kafka has a timestamp.
    pub timestamp_millis: Option<i64>,
    /// Read only if the table has a column for them.
    pub headers: Option<&'a dyn MessageHeaders>,
}

/// Takes name and value of a header, and says whether to go on.
pub type TakeHeader<'a> = dyn FnMut(&str, Option<&[u8]>) -> ControlFlow<()> + 'a;

/// The headers of a message.
pub trait MessageHeaders {
    /// Calls `take` with name and value of each header, in order, until it breaks off.
    fn each(&self, take: &mut TakeHeader<'_>);
}

/// Appends the columns that the table has. Returns whether headers were left out.
pub fn put(out: &mut Vec<u8>, columns: OptionalColumns, origin: &Origin<'_>) -> bool {
    out.reserve_exact(BYTES_MAX.saturating_sub(out.len()));
    if columns.has(OptionalColumn::KafkaTopic) {
        put_string(out, origin.topic.as_bytes());
    }
    if columns.has(OptionalColumn::KafkaPartition) {
        out.extend_from_slice(&origin.partition.to_le_bytes());
    }
    if columns.has(OptionalColumn::KafkaOffset) {
        put_i64(out, origin.offset);
    }
    if columns.has(OptionalColumn::KafkaTimestamp) {
        put_i64(out, origin.timestamp_millis.unwrap_or_default().clamp(0, TIMESTAMP_MAX));
    }
    columns.has(OptionalColumn::KafkaHeaders) && put_headers(out, origin.headers)
}

/// Appends a map: its number of headers, then name and value of each.
fn put_headers(out: &mut Vec<u8>, headers: Option<&dyn MessageHeaders>) -> bool {
    let count_at = out.len();
    out.push(0);
    let mut names = [(0, 0); HEADERS_MAX];
    let (mut kept, mut seen, mut are_cut) = (0_u8, 0, false);
    let mut take = |name: &str, value: Option<&[u8]>| {
        seen += 1;
        if seen > HEADERS_MAX {
            are_cut = true;
            return ControlFlow::Break(());
        }
        let known = &names[..usize::from(kept)];
        if known.iter().any(|(start, end)| out[*start..*end] == *name.as_bytes()) {
            return ControlFlow::Continue(());
        }
        let bytes_left = HEADER_BYTES_MAX - (out.len() - count_at - 1);
        if let Some(name_at) = put_header(out, (name, value.unwrap_or_default()), bytes_left) {
            names[usize::from(kept)] = name_at;
            kept += 1;
        } else {
            are_cut = true;
        }
        ControlFlow::Continue(())
    };
    if let Some(headers) = headers {
        headers.each(&mut take);
    }
    out[count_at] = kept;
    are_cut
}

/// Appends name and value, if both take at most `bytes_left`; returns where the name is.
fn put_header(out: &mut Vec<u8>, (name, value): (&str, &[u8]), bytes_left: usize) -> Option<(usize, usize)> {
    // A replaced value is never shorter than the value.
    bytes_left.checked_sub(name.len() + value.len())?;
    let value = mended(value, bytes_left).ok()?;
    let lengths = varuint_bytes(name.len() as u64) + varuint_bytes(value.len() as u64);
    bytes_left.checked_sub(name.len() + value.len() + lengths)?;
    put_string(out, name.as_bytes());
    let name_end = out.len();
    put_string(out, &value);
    Some((name_end - name.len(), name_end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_clickhouse::optional::OptionalGroup;

    struct Headers(Vec<(String, Option<Vec<u8>>)>);

    impl MessageHeaders for Headers {
        fn each(&self, take: &mut TakeHeader<'_>) {
            for (name, value) in &self.0 {
                if take(name, value.as_deref()).is_break() {
                    return;
                }
            }
        }
    }

    fn headers(pairs: &[(&str, Option<&[u8]>)]) -> Headers {
        Headers(pairs.iter().map(|(name, value)| ((*name).to_owned(), value.map(<[u8]>::to_vec))).collect())
    }

    /// The map's bytes, and whether headers were left out.
    fn map(headers: &Headers) -> (Vec<u8>, bool) {
        let origin = Origin { headers: Some(headers), ..Origin::default() };
        let mut out = b"before".to_vec();
        let are_cut = put(&mut out, OptionalGroup::KafkaHeaders.columns(), &origin);
        (out.split_off(6), are_cut)
    }

    #[test]
    fn columns_are_written_in_their_order_and_only_those_that_there_are() {
        let found = headers(&[("k", Some(b"v"))]);
        let origin = Origin {
            topic: "t1",
            partition: 7,
            offset: 258,
            timestamp_millis: Some(1),
            headers: Some(&found),
        };
        let mut out = Vec::new();
        assert!(!put(&mut out, OptionalColumns::all(), &origin));
        let expected = [
            &b"\x02t1"[..],
            &7_i32.to_le_bytes(),
            &258_i64.to_le_bytes(),
            &1_i64.to_le_bytes(),
            b"\x01\x01k\x01v",
        ];
        assert_eq!(out, expected.concat());
        let mut out = Vec::new();
        put(&mut out, OptionalGroup::KafkaCoordinates.columns(), &Origin::default());
        assert_eq!(out, [0; 1 + 4 + 8 + 8]);
        let mut out = Vec::new();
        put(&mut out, OptionalGroup::TraceFlags.columns(), &origin);
        assert_eq!(out, [0_u8; 0]);
    }

    #[test]
    fn a_time_that_the_column_does_not_hold_is_the_nearest() {
        for (millis, expected) in
            [(None, 0), (Some(-1), 0), (Some(5), 5), (Some(i64::MAX), TIMESTAMP_MAX), (Some(i64::MIN), 0)]
        {
            let mut out = Vec::new();
            let columns = [OptionalColumn::KafkaTimestamp].into_iter().collect();
            put(&mut out, columns, &Origin { timestamp_millis: millis, ..Origin::default() });
            assert_eq!(out, expected.to_le_bytes(), "{millis:?}");
        }
    }

    #[test]
    fn values_are_text_and_of_equal_names_the_first_is_kept() {
        let found = headers(&[("a", Some(b"x\xff")), ("b", None), ("a", Some(b"y")), ("", Some(b""))]);
        assert_eq!(map(&found), (b"\x03\x01a\x04x\xef\xbf\xbd\x01b\x00\x00\x00".to_vec(), false));
        assert_eq!(map(&headers(&[])), (vec![0], false));
    }

    #[test]
    fn a_header_that_is_too_long_is_left_out_and_later_ones_are_kept() {
        let (long, not_text) = (vec![b'x'; 1 << 20], vec![0xff; HEADER_BYTES_MAX / 2]);
        let found =
            headers(&[("long", Some(&long)), ("bytes", Some(&not_text)), ("traceparent", Some(b"00"))]);
        assert_eq!(map(&found), (b"\x01\x0btraceparent\x0200".to_vec(), true));
        let name = "n".repeat(1 << 20);
        assert_eq!(map(&headers(&[(&name, None), ("k", None)])), (b"\x01\x01k\x00".to_vec(), true));
        // To the last byte: two lengths, of one and of two bytes.
        let fits = vec![b'x'; HEADER_BYTES_MAX - 1 - 3];
        let (bytes, are_cut) = map(&headers(&[("k", Some(&fits))]));
        assert_eq!((bytes.len(), are_cut), (1 + HEADER_BYTES_MAX, false));
        assert!(map(&headers(&[("k", Some(&[&fits[..], b"x"].concat()))])).1);
    }

    #[test]
    fn many_headers_take_no_more_than_the_limits() {
        let many = Headers((0..200_000).map(|number| (number.to_string(), Some(vec![b'v']))).collect());
        let (bytes, are_cut) = map(&many);
        assert_eq!((usize::from(bytes[0]), are_cut), (HEADERS_MAX, true));
        let wide = Headers((0..40).map(|number| (number.to_string(), Some(vec![b'v'; 200]))).collect());
        let (bytes, are_cut) = map(&wide);
        assert!(bytes.len() <= 1 + HEADER_BYTES_MAX && are_cut && bytes[0] == 20, "{} bytes", bytes.len());
        let mut out = Vec::new();
        put(&mut out, OptionalColumns::all(), &Origin { headers: Some(&wide), ..Origin::default() });
        assert!(out.capacity() <= BYTES_MAX, "the buffer does not grow: {}", out.capacity());
    }
}
