//! Rows become columns that hold the same values, or are refused with a reason; those that a message gave are never refused as no rows.

use std::cell::RefCell;

use bytes::Bytes;
use sluice_clickhouse::column::{AttributeColumns, Layout, TableColumns};
use sluice_clickhouse::frame::FrameEncoder;
use sluice_clickhouse::json_type::JsonType;
use sluice_clickhouse::native::{NativeShape, Unfit, turned};
use sluice_clickhouse::optional::OptionalColumns;

use crate::otlp_rows::{GOOD, Worker};
use crate::reader::{frames, kind};
use crate::values::{Shape, Type, length, name, of_row};

/// A column of JSON in which paths are declared.
const DECLARED: &str = "JSON(max_dynamic_paths=16, `a` Int64, `b` Nullable(UInt16), `c` LowCardinality(String), \
                        `k` Nullable(String), `l` LowCardinality(Nullable(String)), `t` DateTime64(3), SKIP q)";

/// The word of refusals that say that bytes are no rows.
const NO_ROWS: &str = "rows";

/// A table, and what a worker keeps for it.
struct Table {
    worker: Worker,
    shape: NativeShape,
    /// Name and type of each column.
    columns: Vec<(String, String, Type)>,
}

impl Table {
    fn new(columns: TableColumns) -> Self {
        let shape = NativeShape::of(&columns).expect("a table of the gateway's");
        let described = columns.columns().into_iter().map(|column| {
            let type_name = columns.type_name(&column);
            let of = Type::of_name(&type_name);
            (column.name, type_name, of)
        });
        let described = described.collect();
        Self { worker: Worker::new(columns), shape, columns: described }
    }
}

/// A table of each layout, that with maps with all optional columns, and one with declared paths.
fn tables() -> [Table; 4] {
    let [json, map, nested] = [Layout::Json, Layout::Map, Layout::Nested].map(TableColumns::of_layout);
    let declared = TableColumns {
        span: AttributeColumns::Json(JsonType::parse(DECLARED).expect("a type of ours")),
        described: vec![("SpanAttributes".to_owned(), DECLARED.to_owned())],
        ..TableColumns::default()
    };
    [json, map.with_optional(OptionalColumns::all()), nested, declared].map(Table::new)
}

thread_local! {
    static TABLES: RefCell<[Table; 4]> = RefCell::new(tables());
}

/// Takes the bytes behind the first two as rows in two frames, or as a message between two others, of a table that the first byte
/// chooses.
///
/// # Panics
/// When a promise is broken.
pub fn check(bytes: &[u8]) {
    let [choice, cut, rest @ ..] = bytes else { return };
    TABLES.with_borrow_mut(|tables| {
        let table = &mut tables[usize::from(choice % 4)];
        if choice / 4 % 2 == 0 {
            let (first, second) = rest.split_at(usize::from(*cut) * rest.len() / 256);
            check_block(table, &framed(first, second)).ok();
        } else {
            let rows = table.worker.rows_of(&[GOOD, rest, GOOD]);
            if let Err(unfit) = check_block(table, &[Bytes::from(rows)]) {
                assert!(unfit.word() != NO_ROWS, "a message became no rows: {unfit}");
            }
        }
    });
}

fn framed(first: &[u8], second: &[u8]) -> Vec<Bytes> {
    let mut encoder = FrameEncoder::new(first.len().max(second.len()));
    let pieces = [first, second].into_iter().filter(|piece| !piece.is_empty());
    pieces.map(|piece| Bytes::copy_from_slice(encoder.encode(piece))).collect()
}

/// Turns a block, and compares.
fn check_block(table: &Table, block: &[Bytes]) -> Result<(), Unfit> {
    let as_columns =
        turned(&table.shape, block).inspect_err(|unfit| assert!(!unfit.to_string().is_empty()))?;
    let (rows, columns) = (unpacked(block), unpacked(&as_columns));
    let (mut rows, mut columns) = (kind::Bytes(&rows), kind::Bytes(&columns));
    assert_eq!(length(&mut columns), table.columns.len());
    let count = length(&mut columns);
    let mut values = Vec::new();
    for (column, type_name, of) in &table.columns {
        assert_eq!((&name(&mut columns), &name(&mut columns)), (column, type_name));
        let shape = Shape::read(of, &mut columns);
        values.push(shape.values(count, &mut columns).into_iter());
    }
    assert!(columns.0.is_empty(), "{} bytes behind the last column", columns.0.len());
    for row in 0..count {
        for ((column, _, of), values) in table.columns.iter().zip(&mut values) {
            let value = values.next().expect("a value for every row");
            assert_eq!(value, of_row(of, &mut rows), "{column} of row {row}");
        }
    }
    assert!(rows.0.is_empty(), "{} bytes behind the last row", rows.0.len());
    Ok(())
}

fn unpacked(block: &[Bytes]) -> Vec<u8> {
    let mut raw = Vec::new();
    for frame in block {
        frames::unpack(frame, &mut raw).expect("frames that another reader reads");
    }
    raw
}
