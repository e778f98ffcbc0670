//! A row of `otel_traces` in `RowBinary`, read as strictly as the server does and two things more: no object has a path twice, which
//! the server would refuse the whole INSERT for, and strings are UTF-8, which its readers ask for.

use std::collections::HashSet;

use sluice_clickhouse::column::{Column, ColumnType, Group};

use crate::reader::kind::{Bytes, Kind};

/// Takes a row of these columns off the front; says whether its span is called `n`.
///
/// # Panics
/// When it is not a row.
pub fn read(rest: &mut &[u8], columns: &[Column]) -> bool {
    let mut bytes = Bytes(rest);
    let (mut named_n, mut arrays) = (false, ("", 0));
    for Column { name, column_type } in columns {
        match column_type {
            ColumnType::DateTime64Nanos
            | ColumnType::DateTime64Millis
            | ColumnType::UInt64
            | ColumnType::Int64 => fixed(&mut bytes, 8),
            ColumnType::UInt32 | ColumnType::Int32 => fixed(&mut bytes, 4),
            ColumnType::String | ColumnType::LowCardinalityString => {
                let text = text(&mut bytes);
                named_n |= name == "SpanName" && text == b"n";
            }
            ColumnType::Json => object(&mut bytes),
            ColumnType::Map => map(&mut bytes),
            // Keys of attributes: sorted, and each once.
            ColumnType::ArrayLowCardinalityString if !name.contains('.') => {
                let keys: Vec<_> = (0..length(&mut bytes)).map(|_| text(&mut bytes)).collect();
                assert!(
                    keys.is_sorted_by(|one, next| one < next),
                    "{name} is not sorted, or has a key twice"
                );
            }
            _ => {
                // Columns of one name before the dot are arrays side by side.
                let (nested, _) = name.split_once('.').expect("an array is one of several");
                let length = length(&mut bytes);
                assert!(nested != arrays.0 || length == arrays.1, "{name} has another length");
                arrays = (nested, length);
                (0..length).for_each(|_| element(&mut bytes, *column_type));
            }
        }
    }
    *rest = bytes.0;
    named_n
}

fn element(bytes: &mut Bytes<'_>, array: ColumnType) {
    match array {
        ColumnType::ArrayDateTime64Nanos => fixed(bytes, 8),
        ColumnType::ArrayString | ColumnType::ArrayLowCardinalityString => {
            text(bytes);
        }
        ColumnType::ArrayJson => object(bytes),
        ColumnType::ArrayMap => map(bytes),
        ColumnType::ArrayOf(group) => group_value(bytes, group),
        ColumnType::ArrayOfPairs(group) => {
            for _ in 0..length(bytes) {
                text(bytes);
                group_value(bytes, group);
            }
        }
        other => panic!("{other:?} is no array"),
    }
}

fn group_value(bytes: &mut Bytes<'_>, group: Group) {
    match group {
        Group::Bool => fixed(bytes, 1),
        Group::Double | Group::Int => fixed(bytes, 8),
        Group::String | Group::Complex => {
            text(bytes);
        }
    }
}

fn fixed(bytes: &mut Bytes<'_>, count: usize) {
    bytes.take(count).expect("a row has a value of fixed size here");
}

fn length(bytes: &mut Bytes<'_>) -> usize {
    bytes.length().expect("a row has a length here")
}

fn text<'a>(bytes: &mut Bytes<'a>) -> &'a [u8] {
    let text = bytes.text().expect("a row has a string here");
    assert!(std::str::from_utf8(text).is_ok(), "{} is not UTF-8", text.escape_ascii());
    text
}

fn map(bytes: &mut Bytes<'_>) {
    for _ in 0..length(bytes) {
        text(bytes);
        text(bytes);
    }
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
        // String.
        [0x15, string @ ..] => {
            *bytes = Bytes(string);
            text(bytes);
        }
        // Array(JSON(...)).
        [0x1e, 0x30, limits @ ..] => {
            *bytes = behind_limits(limits);
            (0..length(bytes)).for_each(|_| object(bytes));
        }
        // Array(Dynamic) of at most this many types.
        [0x1e, 0x2b, _, elements @ ..] => {
            *bytes = Bytes(elements);
            (0..length(bytes)).for_each(|_| value(bytes));
        }
        // JSON(...) in an Array(Dynamic).
        [0x30, limits @ ..] => {
            *bytes = behind_limits(limits);
            object(bytes);
        }
        _ => bytes.skip(&Kind::Dynamic).expect("a value of a type that the gateway writes"),
    }
}

/// What follows a JSON type's version, its limits, and three counts that are zero.
fn behind_limits(limits: &[u8]) -> Bytes<'_> {
    let mut header = Bytes(limits);
    fixed(&mut header, 1);
    length(&mut header);
    fixed(&mut header, 4);
    header
}
