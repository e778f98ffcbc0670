//! The header before the rows of an INSERT: names and types of their columns.
//!
//! Job: the server refuses rows that were encoded for other types than the table has. `RowBinary` alone contains no types. If a column
//! changed from `Int64` to `Float64`, or if a `JSON` column now declares a path, the rows would silently be stored as other numbers.
//! Place in the flow: [`crate::insert::InsertTarget`] has one header, made once; the client sends it before the frames of every block,
//! under any token. Pure.
//!
//! | bytes | meaning |
//! |---|---|
//! | varuint | number of columns |
//! | then per column: varuint length, bytes | its name |
//! | then per column: varuint length, bytes | its type, exactly as `DESCRIBE TABLE` prints it on one line |
//!
//! Measured on ClickHouse 26.7: any difference in the text of a type is code 117, `Type of 'c' must be X, not Y: (while reading header)`,
//! before a row is read. That includes declared paths, skipped paths and limits of `JSON`. The header costs the server 0.1 ms and about
//! 600 bytes per INSERT on the wire; the rows stay the same.
//!
//! The header is a frame of its own, so that a block's bytes do not depend on type names. It is the one frame that does not end inside a
//! value: a body that ends with it has no rows, which [`crate::client`] detects in the answer.
//!
//! Source: <https://clickhouse.com/docs/interfaces/formats/RowBinaryWithNamesAndTypes>.

use bytes::Bytes;

use crate::column::TableColumns;
use crate::frame::FrameEncoder;
use crate::rowbinary::{put_len, put_string};

/// The format of rows behind a header.
pub const FORMAT: &str = "RowBinaryWithNamesAndTypes";

/// The frame before rows of these columns.
pub fn frame(columns: &TableColumns) -> Bytes {
    let raw = raw(columns);
    Bytes::copy_from_slice(FrameEncoder::new(raw.len()).encode(&raw))
}

fn raw(columns: &TableColumns) -> Vec<u8> {
    let mut raw = Vec::new();
    let names = columns.columns();
    put_len(&mut raw, names.len());
    for column in &names {
        put_string(&mut raw, column.name.as_bytes());
    }
    for column in &names {
        put_string(&mut raw, columns.type_name(column).as_bytes());
    }
    raw
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::column::Layout;
    use crate::frame::decode;

    #[test]
    fn the_header_is_the_number_of_columns_then_names_then_types() {
        let described = vec![("TraceId".to_owned(), "FixedString(32)".to_owned())];
        let columns = TableColumns { described, ..TableColumns::of_layout(Layout::Nested) };
        let mut raw = Vec::new();
        decode(&frame(&columns), &mut raw).unwrap();
        assert!(raw.starts_with(b"\x30\x09Timestamp\x07TraceId\x06SpanId"), "{raw:?}");
        let types = b"\x17Links.AttributesComplex\x0dDateTime64(9)\x0fFixedString(32)\x06String";
        assert!(raw.windows(types.len()).any(|window| window == types));
        assert!(raw.ends_with(b"Array(Nested(Key LowCardinality(String), Value String))"));
    }
}
