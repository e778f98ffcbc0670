//! Plain values of ClickHouse's `RowBinary` format, appended to a byte buffer.
//!
//! Job: turn one value into the bytes of one column. Place in the flow: the row encoder calls these functions for
//! every column of every row; nothing below them allocates except the buffer itself. Owner: the worker thread that
//! owns the buffer. Limits: a string's length is bounded by the server at 1 GiB (`format_binary_max_string_size`),
//! far above any Kafka message.
//!
//! | value | bytes |
//! |---|---|
//! | varuint | 7 bits a byte, least significant first, high bit set on all but the last (LEB128) |
//! | `String`, `LowCardinality(String)` | varuint length, then the bytes |
//! | `UInt8`, `UInt32`, `UInt64`, `Int32`, `Int64`, `Float64` | little-endian |
//! | `DateTime64(9)` | `Int64` nanoseconds since 1970-01-01 00:00:00 UTC |
//! | `Array(T)` | varuint length, then the values |
//! | `JSON` | see [`crate::json`] |
//!
//! Source: <https://clickhouse.com/docs/interfaces/formats/RowBinary>; every case was checked against ClickHouse 26.7.

/// Type tags of values that carry their type, as the values of `JSON` paths do.
///
/// Source: <https://clickhouse.com/docs/sql-reference/data-types/data-types-binary-encoding>. Only the types that the
/// row encoder writes are named.
pub mod tag {
    /// `Nothing`: a null without a type; a path with this value is absent when read.
    pub const NOTHING: u8 = 0x00;
    /// `UInt64`, followed by nothing.
    pub const UINT64: u8 = 0x04;
    /// `Int64`, followed by nothing.
    pub const INT64: u8 = 0x0a;
    /// `Float64`, followed by nothing.
    pub const FLOAT64: u8 = 0x0e;
    /// `String`, followed by nothing.
    pub const STRING: u8 = 0x15;
    /// `Array(T)`, followed by the tag of `T`.
    pub const ARRAY: u8 = 0x1e;
    /// `Nullable(T)`, followed by the tag of `T`. Refused by the server at the top of a JSON value.
    pub const NULLABLE: u8 = 0x23;
    /// `Dynamic(max_types=N)`, followed by N as one byte.
    pub const DYNAMIC: u8 = 0x2b;
    /// `Bool`, followed by nothing.
    pub const BOOL: u8 = 0x2d;
    /// `JSON(...)`, followed by version, limits, typed paths, skipped paths and skip patterns.
    pub const JSON: u8 = 0x30;
}

/// Bytes of the longest varuint: 64 bits at 7 bits a byte.
pub const VARUINT_BYTES_MAX: usize = 10;

/// Appends `n` as a varuint (1 to [`VARUINT_BYTES_MAX`] bytes).
#[inline]
pub fn put_varuint(out: &mut Vec<u8>, n: u64) {
    if n < 0x80 {
        out.push(low_seven_bits(n));
    } else {
        put_long_varuint(out, n);
    }
}

/// Most lengths are below 128; the loop for others, copied to wherever a string is written, would make these slower.
#[inline(never)]
fn put_long_varuint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(low_seven_bits(n) | 0x80);
        n >>= 7;
    }
    out.push(low_seven_bits(n));
}

/// Bytes that [`put_varuint`] writes for `n`.
#[inline]
pub fn varuint_bytes(n: u64) -> usize {
    let bits = 64 - (n | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Appends the number of elements or bytes that follow.
#[inline]
pub fn put_len(out: &mut Vec<u8>, len: usize) {
    put_varuint(out, len as u64);
}

/// Appends a `String` or `LowCardinality(String)`: any bytes, UTF-8 or not.
#[inline]
pub fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    put_len(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Appends a `UInt8`, or the flag byte of a `Bool` or `Nullable`.
#[inline]
pub fn put_u8(out: &mut Vec<u8>, n: u8) {
    out.push(n);
}

/// Appends a `UInt32`.
#[inline]
pub fn put_u32(out: &mut Vec<u8>, n: u32) {
    out.extend_from_slice(&n.to_le_bytes());
}

/// Appends a `UInt64`.
#[inline]
pub fn put_u64(out: &mut Vec<u8>, n: u64) {
    out.extend_from_slice(&n.to_le_bytes());
}

/// Appends an `Int64`.
#[inline]
pub fn put_i64(out: &mut Vec<u8>, n: i64) {
    out.extend_from_slice(&n.to_le_bytes());
}

/// Appends a `Float64`, NaN and infinities included.
#[inline]
pub fn put_f64(out: &mut Vec<u8>, x: f64) {
    out.extend_from_slice(&x.to_le_bytes());
}

/// Appends a `DateTime64(9)`: nanoseconds since the Unix epoch.
///
/// The server stores any `i64` and prints what lies outside 1900-01-01 to 2262-04-11 as something else; the caller
/// keeps to that range.
#[inline]
pub fn put_datetime64(out: &mut Vec<u8>, unix_nanos: i64) {
    put_i64(out, unix_nanos);
}

#[inline]
fn low_seven_bits(n: u64) -> u8 {
    n.to_le_bytes()[0] & 0x7f
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out);
        out
    }

    #[test]
    fn varuints_are_seven_bits_a_byte_least_significant_first() {
        let table: &[(u64, &[u8])] = &[
            (0, &[0x00]),
            (1, &[0x01]),
            (127, &[0x7f]),
            (128, &[0x80, 0x01]),
            (300, &[0xac, 0x02]),
            (16_383, &[0xff, 0x7f]),
            (16_384, &[0x80, 0x80, 0x01]),
            (u64::MAX, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]),
        ];
        for (n, expected) in table {
            assert_eq!(&bytes(|out| put_varuint(out, *n)), expected, "{n}");
            assert_eq!(varuint_bytes(*n), expected.len(), "{n}");
        }
        assert_eq!(varuint_bytes(u64::MAX), VARUINT_BYTES_MAX);
    }

    #[test]
    fn strings_are_a_length_and_bytes() {
        assert_eq!(bytes(|out| put_string(out, b"")), [0x00]);
        assert_eq!(bytes(|out| put_string(out, b"hi")), [0x02, b'h', b'i']);
        assert_eq!(bytes(|out| put_string(out, b"\xff\x00")), [0x02, 0xff, 0x00]);
        let long = bytes(|out| put_string(out, &[b'x'; 200]));
        assert_eq!(long[..3], [0xc8, 0x01, b'x']);
        assert_eq!(long.len(), 202);
    }

    #[test]
    fn numbers_are_little_endian() {
        assert_eq!(bytes(|out| put_u8(out, 0xfe)), [0xfe]);
        assert_eq!(bytes(|out| put_u32(out, 0x0102)), [0x02, 0x01, 0, 0]);
        assert_eq!(bytes(|out| put_u64(out, 0x0102)), [0x02, 0x01, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes(|out| put_i64(out, -1)), [0xff; 8]);
        // 1.5 = 0x3ff8_0000_0000_0000
        assert_eq!(bytes(|out| put_f64(out, 1.5)), [0, 0, 0, 0, 0, 0, 0xf8, 0x3f]);
    }

    #[test]
    fn datetime64_is_signed_nanoseconds() {
        // 2023-11-14 22:13:20.123456789 UTC, the bytes that ClickHouse 26.7 read back as that text
        let expected = [0x15, 0xcd, 0x85, 0x3d, 0xfe, 0x9c, 0x97, 0x17];
        assert_eq!(bytes(|out| put_datetime64(out, 1_700_000_000_123_456_789)), expected);
        assert_eq!(bytes(|out| put_datetime64(out, -1)), [0xff; 8]);
    }
}
