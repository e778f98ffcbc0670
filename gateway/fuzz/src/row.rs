//! A row of `otel_traces` in `RowBinary`, read as strictly as the server does and one thing more: no object has a path twice, which
//! the server would refuse the whole INSERT for.

use std::collections::HashSet;

use sluice_clickhouse::table::{COLUMNS, ColumnType};

use crate::reader::kind::{Bytes, Kind};

/// What was found in a row.
pub struct Row {
    /// 1 when the span's name is `n`.
    pub spans_named_n: u64,
}

/// Takes a row off the front.
///
/// # Panics
/// When it is not a row.
pub fn read(rest: &mut &[u8]) -> Row {
    let mut bytes = Bytes(rest);
    let mut row = Row { spans_named_n: 0 };
    let (mut array_column, mut array_length) = ("", 0);
    for column in COLUMNS {
        let mut array = |bytes: &mut Bytes<'_>| {
            let (nested, _) = column.name.split_once('.').expect("an array is a column of a nested one");
            let length = length(bytes);
            assert!(nested != array_column || length == array_length, "{} has another length", column.name);
            (array_column, array_length) = (nested, length);
            length
        };
        match column.column_type {
            ColumnType::DateTime64Nanos | ColumnType::UInt64 => fixed(&mut bytes),
            ColumnType::String | ColumnType::LowCardinalityString => {
                let text = text(&mut bytes);
                row.spans_named_n += u64::from(column.name == "SpanName" && text == b"n");
            }
            ColumnType::Json => object(&mut bytes),
            ColumnType::ArrayDateTime64Nanos => (0..array(&mut bytes)).for_each(|_| fixed(&mut bytes)),
            ColumnType::ArrayString | ColumnType::ArrayLowCardinalityString => {
                for _ in 0..array(&mut bytes) {
                    text(&mut bytes);
                }
            }
            ColumnType::ArrayJson => (0..array(&mut bytes)).for_each(|_| object(&mut bytes)),
        }
    }
    *rest = bytes.0;
    row
}

fn fixed(bytes: &mut Bytes<'_>) {
    bytes.take(8).expect("a row has eight bytes here");
}

fn length(bytes: &mut Bytes<'_>) -> usize {
    bytes.length().expect("a row has a length here")
}

fn text<'a>(bytes: &mut Bytes<'a>) -> &'a [u8] {
    bytes.text().expect("a row has a string here")
}

fn object(bytes: &mut Bytes<'_>) {
    let mut paths = HashSet::new();
    for _ in 0..length(bytes) {
        let path = text(bytes);
        assert!(paths.insert(path), "the path {:?} is there twice", path.escape_ascii().to_string());
        value(bytes);
    }
}

/// A tagged value: objects in arrays are looked into, all else is passed over.
fn value(bytes: &mut Bytes<'_>) {
    match bytes.0 {
        // Array(JSON(...)): version, limits, and three counts that are zero.
        [0x1e, 0x30, ..] => {
            let mut header = Bytes(&bytes.0[2..]);
            header.take(1).expect("a JSON type has a version");
            length(&mut header);
            header.take(4).expect("a JSON type has its limits");
            *bytes = header;
            (0..length(bytes)).for_each(|_| object(bytes));
        }
        // Array(Dynamic) of at most so many types.
        [0x1e, 0x2b, _, elements @ ..] => {
            *bytes = Bytes(elements);
            (0..length(bytes)).for_each(|_| value(bytes));
        }
        // JSON(...) in an Array(Dynamic).
        [0x30, rest @ ..] => {
            let mut header = Bytes(rest);
            header.take(1).expect("a JSON type has a version");
            length(&mut header);
            header.take(4).expect("a JSON type has its limits");
            *bytes = header;
            object(bytes);
        }
        _ => bytes.skip(&Kind::Dynamic).expect("a value of a type that the gateway writes"),
    }
}
