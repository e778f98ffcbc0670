//! Rows in the encoder's format, for tests: random columns, random values, the package's own writers.

use crate::column::{AttributeColumns, AttributeSet, Column, ColumnType, Group, TableColumns};
use crate::groups::Groups;
use crate::json::{JsonObject, put_empty_object};
use crate::json_array::ArrayKind;
use crate::json_limits::JsonLimits;
use crate::json_paths::JsonPaths;
use crate::json_type::{JsonType, PathRule};
use crate::optional::{OptionalColumn, OptionalColumns};
use crate::rowbinary::{put_len, put_string, put_u64};

/// Reproducible choices (xorshift64*).
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11
    }

    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    fn text(&mut self) -> Vec<u8> {
        let length = if self.below(12) == 0 { 120 + self.below(40) } else { self.below(9) };
        (0..length).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}

const JSON_TYPE: &str = "JSON(max_dynamic_paths=16, `i` Int64, `n` Nullable(UInt16), `s` LowCardinality(String), \
                         `t` DateTime64(3), `b` Nullable(String), SKIP q)";

/// Columns with a random layout for each set of attributes.
pub fn columns(chance: &mut Chance) -> TableColumns {
    let mut set = || match chance.below(4) {
        0 => AttributeColumns::Map,
        1 => AttributeColumns::Nested,
        2 => AttributeColumns::default(),
        _ => AttributeColumns::Json(JsonType::parse(JSON_TYPE).unwrap()),
    };
    let (resource, span, event, link, scope) = (set(), set(), set(), set(), set());
    let optional: OptionalColumns =
        OptionalColumn::ALL.into_iter().filter(|_| chance.below(3) == 0).collect();
    let has_scope = optional.has(OptionalColumn::ScopeAttributes);
    let scope = if has_scope { scope } else { AttributeColumns::default() };
    let mut columns = TableColumns { resource, span, event, link, scope, optional, described: Vec::new() };
    for set in AttributeSet::ALL.into_iter().chain([AttributeSet::Scope]) {
        if matches!(columns.of(set), AttributeColumns::Json(json) if json.has_rules()) {
            let type_name =
                if set.is_repeated() { format!("Array({JSON_TYPE})") } else { JSON_TYPE.to_owned() };
            columns.described.push((set.name().to_owned(), type_name));
        }
    }
    columns
}

/// A row of these columns.
pub fn row(columns: &TableColumns, chance: &mut Chance) -> Vec<u8> {
    let mut out = Vec::new();
    for column in columns.columns() {
        put_value(&mut out, &column, columns, chance);
    }
    out
}

/// A row with this `TraceId`.
pub fn with_trace_id(columns: &TableColumns, chance: &mut Chance, id: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for column in columns.columns() {
        if column.name == "TraceId" {
            put_string(&mut out, id);
        } else {
            put_value(&mut out, &column, columns, chance);
        }
    }
    out
}

fn put_value(out: &mut Vec<u8>, column: &Column, columns: &TableColumns, chance: &mut Chance) {
    let length = chance.below(3);
    match column.column_type {
        ColumnType::DateTime64Nanos
        | ColumnType::DateTime64Millis
        | ColumnType::UInt64
        | ColumnType::Int64 => put_u64(out, chance.next()),
        ColumnType::UInt32 | ColumnType::Int32 => out.extend_from_slice(&chance.next().to_le_bytes()[..4]),
        ColumnType::String | ColumnType::LowCardinalityString => put_string(out, &chance.text()),
        ColumnType::Json => put_json(out, column, columns, chance),
        ColumnType::Map => put_map(out, chance),
        // The groups of a set are written together, at the first of their columns.
        ColumnType::ArrayLowCardinalityString if column.name.ends_with("Bool.Key") => {
            groups(chance).put_columns(out, usize::MAX).unwrap();
        }
        ColumnType::ArrayLowCardinalityString if column.name.ends_with(".Key") => {}
        ColumnType::ArrayOfPairs(Group::Bool) => put_pairs(out, length, chance),
        ColumnType::ArrayOf(_) | ColumnType::ArrayOfPairs(_) => {}
        of_elements => {
            put_len(out, length);
            for _ in 0..length {
                match of_elements {
                    ColumnType::ArrayDateTime64Nanos => put_u64(out, chance.next()),
                    ColumnType::ArrayJson => put_json(out, column, columns, chance),
                    ColumnType::ArrayMap => put_map(out, chance),
                    _ => put_string(out, &chance.text()),
                }
            }
        }
    }
}

fn groups(chance: &mut Chance) -> Groups {
    let mut groups = Groups::default();
    groups.clear();
    for _ in 0..chance.below(6) {
        let key = chance.text();
        match chance.below(5) {
            0 => groups.bool(&key, true),
            1 => groups.double(&key, 0.5),
            2 => groups.int(&key, -1),
            3 => groups.string(&key, &chance.text()),
            _ => groups.complex(Group::BYTES_PREFIX, &key, &chance.text()),
        }
    }
    groups
}

fn put_pairs(out: &mut Vec<u8>, length: usize, chance: &mut Chance) {
    let mut columns = <[Vec<u8>; 5]>::default();
    for _ in 0..length {
        groups(chance).put_pairs(&mut columns, usize::MAX).unwrap();
    }
    for column in columns {
        put_len(out, length);
        out.extend_from_slice(&column);
    }
}

fn put_map(out: &mut Vec<u8>, chance: &mut Chance) {
    let length = chance.below(4);
    put_len(out, length);
    for _ in 0..2 * length {
        put_string(out, &chance.text());
    }
}

fn put_json(out: &mut Vec<u8>, column: &Column, columns: &TableColumns, chance: &mut Chance) {
    let set = AttributeSet::of_column(&column.name).unwrap();
    let AttributeColumns::Json(json_type) = columns.of(set) else { panic!("{} is no JSON", column.name) };
    if chance.below(4) == 0 {
        return put_empty_object(out);
    }
    let mut paths = JsonPaths::new();
    let mut object = JsonObject::begin(out, &mut paths);
    for path in [&b"i"[..], b"n", b"s", b"t", b"b", b"dynamic", b""] {
        if chance.below(2) == 0 || !object.path(path) {
            continue;
        }
        match json_type.rule(path) {
            PathRule::Typed(typed) => {
                let number = i64::try_from(chance.below(1_000)).unwrap();
                let fits = typed.put_int(object.buffer(), number) || typed.put_text(object.buffer(), b"text");
                assert!(fits, "{path:?}");
            }
            PathRule::Dynamic | PathRule::Skipped => put_dynamic(&mut object, json_type.limits(), chance),
        }
    }
    if chance.below(16) == 0 {
        for number in 0..150 {
            if object.path(format!("many.{number}").as_bytes()) {
                object.int(number);
            }
        }
    }
    object.finish();
}

fn put_dynamic(object: &mut JsonObject<'_>, limits: JsonLimits, chance: &mut Chance) {
    let elements = limits.in_array();
    match chance.below(9) {
        0 => object.string(&chance.text()),
        1 => object.bool(true),
        2 => object.int(-7),
        3 => object.uint(7),
        4 => object.double(f64::NAN),
        5 => object.null(),
        6 => {
            object.array(ArrayKind::Strings, 2, elements);
            ArrayKind::Strings.string(object.buffer(), &chance.text());
            ArrayKind::Strings.null(object.buffer());
        }
        7 => {
            object.array(ArrayKind::Objects, 1, elements);
            let mut inner = object.element_object();
            if inner.path(b"i") {
                put_dynamic(&mut inner, elements, chance);
            }
            inner.finish();
        }
        _ => {
            object.array(ArrayKind::Mixed, 2, elements);
            ArrayKind::Mixed.int(object.buffer(), 1);
            put_dynamic(object, elements, chance);
        }
    }
}
