//! Values by the types of their columns, read from rows and from columns, so that the two can be compared.
//!
//! Written after the formats' descriptions, apart from what the gateway turns rows into columns with. What is read here was accepted there:
//! whatever is not as described is a broken promise, and panics.
//!
//! Source: <https://clickhouse.com/docs/interfaces/formats/RowBinary>, and `Native` as `sluice_clickhouse::native` describes it.

use std::collections::BTreeMap;

use crate::reader::kind::Bytes;

/// The version of flattened `Dynamic` and `JSON`.
const FLATTENED: u64 = 3;

/// A type of a column, or of a value that carries its type.
#[derive(Debug)]
pub enum Type {
    Fixed(usize),
    Text,
    Low { nullable: bool },
    Nullable(Box<Type>),
    Array(Box<Type>),
    Pair(Box<(Type, Type)>),
    Dynamic,
    Json(BTreeMap<Vec<u8>, Type>),
}

/// A value. That of a path has the name of its type; what is absent is not in an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Bytes(Vec<u8>),
    Array(Vec<Value>),
    Pair(Box<(Value, Value)>),
    Typed(String, Box<Value>),
    Object(BTreeMap<Vec<u8>, Value>),
}

impl Type {
    /// The type of this name.
    pub fn of_name(name: &str) -> Type {
        let (outer, inside) = match name.split_once('(') {
            Some((outer, inside)) => (outer, inside.strip_suffix(')').expect("a bracket is closed")),
            None => (name, ""),
        };
        let inner = || Box::new(Type::of_name(inside));
        match outer {
            "Bool" | "Int8" | "UInt8" => Type::Fixed(1),
            "Int16" | "UInt16" => Type::Fixed(2),
            "Int32" | "UInt32" => Type::Fixed(4),
            "Int64" | "UInt64" | "Float64" | "DateTime64" => Type::Fixed(8),
            "String" => Type::Text,
            "LowCardinality" => Type::Low { nullable: inside.starts_with("Nullable") },
            "Nullable" => Type::Nullable(inner()),
            "Array" => Type::Array(inner()),
            "Map" | "Nested" => Type::Array(Box::new(Type::pair(inside))),
            "Dynamic" => Type::Dynamic,
            "JSON" => Type::json(inside),
            other => panic!("{other} is no type of a trace table"),
        }
    }

    /// Two types, with names before them or without.
    fn pair(fields: &str) -> Type {
        let (first, second) = fields.rsplit_once(", ").expect("two types");
        let unnamed = |field: &str, name: &str| Type::of_name(field.strip_prefix(name).unwrap_or(field));
        Type::Pair(Box::new((unnamed(first, "Key "), unnamed(second, "Value "))))
    }

    /// Limits and what is skipped say nothing of a value.
    fn json(parameters: &str) -> Type {
        let declared = parameters.split(", ").filter_map(|parameter| {
            let (path, name) = parameter.strip_prefix('`')?.split_once("` ")?;
            Some((path.as_bytes().to_vec(), Type::of_name(name)))
        });
        Type::Json(declared.collect())
    }

    /// The value of a declared path that a row does not have.
    fn default(&self) -> Value {
        match self {
            Type::Fixed(width) => Value::Bytes(vec![0; *width]),
            Type::Low { nullable: false } | Type::Text => Value::Bytes(Vec::new()),
            _ => Value::Null,
        }
    }
}

/// The next value of a row.
pub fn of_row(of: &Type, bytes: &mut Bytes<'_>) -> Value {
    match of {
        Type::Fixed(width) => Value::Bytes(bytes.take(*width).expect("a value in a row").to_vec()),
        Type::Text | Type::Low { nullable: false } => text(bytes),
        Type::Low { nullable: true } => {
            if is_null(bytes) {
                Value::Null
            } else {
                text(bytes)
            }
        }
        Type::Nullable(inner) => {
            if is_null(bytes) {
                Value::Null
            } else {
                of_row(inner, bytes)
            }
        }
        Type::Array(inner) => Value::Array((0..length(bytes)).map(|_| of_row(inner, bytes)).collect()),
        Type::Pair(pair) => Value::Pair(Box::new((of_row(&pair.0, bytes), of_row(&pair.1, bytes)))),
        Type::Dynamic => match type_name(bytes) {
            Some(name) => {
                let value = of_row(&Type::of_name(&name), bytes);
                Value::Typed(name, Box::new(value))
            }
            None => Value::Null,
        },
        Type::Json(declared) => {
            let mut paths: BTreeMap<_, _> =
                declared.iter().map(|(path, of)| (path.clone(), of.default())).collect();
            for _ in 0..length(bytes) {
                let path = bytes.text().expect("a path in a row").to_vec();
                match (declared.get(&path), of_row(declared.get(&path).unwrap_or(&Type::Dynamic), bytes)) {
                    (None, Value::Null) => {}
                    (_, value) => drop(paths.insert(path, value)),
                }
            }
            Value::Object(paths)
        }
    }
}

/// The type that a value carries, by its name; none for no value.
fn type_name(bytes: &mut Bytes<'_>) -> Option<String> {
    Some(match next(bytes) {
        0x00 => return None,
        0x04 => "UInt64".to_owned(),
        0x0a => "Int64".to_owned(),
        0x0e => "Float64".to_owned(),
        0x15 => "String".to_owned(),
        0x1e => format!("Array({})", type_name(bytes).expect("a type of elements")),
        0x23 => format!("Nullable({})", type_name(bytes).expect("a type that may be null")),
        0x2b => with_limits("Dynamic", &[("max_types", next(bytes).into(), 32)]),
        0x2d => "Bool".to_owned(),
        0x30 => {
            assert_eq!(next(bytes), 0, "the version of a JSON type");
            let (paths, types) = (length(bytes), next(bytes).into());
            assert_eq!(bytes.take(3).expect("counts of a JSON type"), [0; 3]);
            with_limits("JSON", &[("max_dynamic_types", types, 32), ("max_dynamic_paths", paths, 1_024)])
        }
        tag => panic!("{tag:#04x} is no type that a row has"),
    })
}

/// A type with limits, those left out that are the default.
fn with_limits(name: &str, limits: &[(&str, usize, usize)]) -> String {
    let told = limits.iter().filter(|(_, limit, default)| limit != default);
    let told: Vec<_> = told.map(|(name, limit, _)| format!("{name}={limit}")).collect();
    if told.is_empty() { name.to_owned() } else { format!("{name}({})", told.join(", ")) }
}

/// A type in a column, with what its prefix says of paths and of types.
pub enum Shape {
    Fixed(usize),
    Text,
    Low { nullable: bool },
    Nullable(Box<Shape>),
    Array(Box<Shape>),
    Pair(Box<(Shape, Shape)>),
    Dynamic(Vec<(String, Shape)>),
    Json { declared: Vec<(Vec<u8>, Shape)>, others: Vec<(Vec<u8>, Shape)> },
}

impl Shape {
    /// Reads the prefix of a column.
    pub fn read(of: &Type, bytes: &mut Bytes<'_>) -> Shape {
        match of {
            Type::Fixed(width) => Shape::Fixed(*width),
            Type::Text => Shape::Text,
            Type::Low { nullable } => {
                assert_eq!(number(bytes), 1, "the version of a dictionary");
                Shape::Low { nullable: *nullable }
            }
            Type::Nullable(inner) => Shape::Nullable(Box::new(Shape::read(inner, bytes))),
            Type::Array(inner) => Shape::Array(Box::new(Shape::read(inner, bytes))),
            Type::Pair(pair) => {
                Shape::Pair(Box::new((Shape::read(&pair.0, bytes), Shape::read(&pair.1, bytes))))
            }
            Type::Dynamic => {
                assert_eq!(number(bytes), FLATTENED);
                let names: Vec<_> = (0..length(bytes)).map(|_| name(bytes)).collect();
                let shape = |name: String| {
                    let shape = Shape::read(&Type::of_name(&name), bytes);
                    (name, shape)
                };
                Shape::Dynamic(names.into_iter().map(shape).collect())
            }
            Type::Json(declared) => {
                assert_eq!(number(bytes), FLATTENED);
                let paths = (0..length(bytes)).map(|_| bytes.text().expect("a path").to_vec());
                let paths: Vec<_> = paths.collect();
                let declared = declared.iter().map(|(path, of)| (path.clone(), Shape::read(of, bytes)));
                let declared = declared.collect();
                let others = paths.into_iter().map(|path| (path, Shape::read(&Type::Dynamic, bytes)));
                Shape::Json { declared, others: others.collect() }
            }
        }
    }

    /// Reads this many values of the column.
    pub fn values(&self, count: usize, bytes: &mut Bytes<'_>) -> Vec<Value> {
        match self {
            Shape::Fixed(width) => {
                let value = |_| Value::Bytes(bytes.take(*width).expect("a value in a column").to_vec());
                (0..count).map(value).collect()
            }
            Shape::Text => (0..count).map(|_| text(bytes)).collect(),
            Shape::Low { .. } if count == 0 => Vec::new(),
            Shape::Low { nullable } => dictionary(*nullable, count, bytes),
            Shape::Nullable(inner) => {
                let flags: Vec<_> = (0..count).map(|_| is_null(bytes)).collect();
                let values = inner.values(count, bytes).into_iter().zip(flags);
                values.map(|(value, is_null)| if is_null { Value::Null } else { value }).collect()
            }
            Shape::Array(inner) => {
                let ends: Vec<_> = (0..count).map(|_| size(bytes)).collect();
                let mut values = inner.values(ends.last().copied().unwrap_or(0), bytes).into_iter();
                let starts = std::iter::once(0).chain(ends.iter().copied());
                let lengths = starts.zip(&ends).map(|(start, end)| end - start);
                lengths.map(|length| Value::Array(values.by_ref().take(length).collect())).collect()
            }
            Shape::Pair(pair) => {
                let first = pair.0.values(count, bytes);
                let pairs = first.into_iter().zip(pair.1.values(count, bytes));
                pairs.map(|pair| Value::Pair(Box::new(pair))).collect()
            }
            Shape::Dynamic(types) => dynamic(types, count, bytes),
            Shape::Json { declared, others } => {
                let mut objects = vec![BTreeMap::new(); count];
                for (path, shape) in declared {
                    let values = objects.iter_mut().zip(shape.values(count, bytes));
                    values.for_each(|(object, value)| drop(object.insert(path.clone(), value)));
                }
                for (path, shape) in others {
                    let values = objects.iter_mut().zip(shape.values(count, bytes));
                    let there = values.filter(|(_, value)| *value != Value::Null);
                    there.for_each(|(object, value)| drop(object.insert(path.clone(), value)));
                }
                objects.into_iter().map(Value::Object).collect()
            }
        }
    }
}

fn dictionary(nullable: bool, count: usize, bytes: &mut Bytes<'_>) -> Vec<Value> {
    let width = match number(bytes) {
        0x600 => 1,
        0x601 => 2,
        0x602 => 4,
        other => panic!("{other:#x} is no dictionary"),
    };
    let mut strings: Vec<_> = (0..size(bytes)).map(|_| text(bytes)).collect();
    assert_eq!(strings[0], Value::Bytes(Vec::new()), "the first is the default");
    if nullable {
        strings[0] = Value::Null;
    }
    assert_eq!(size(bytes), count);
    let index = |_| {
        bytes
            .take(width)
            .expect("an index")
            .iter()
            .rev()
            .fold(0, |index, byte| index << 8 | usize::from(*byte))
    };
    (0..count).map(index).map(|index| strings[index].clone()).collect()
}

fn dynamic(types: &[(String, Shape)], count: usize, bytes: &mut Bytes<'_>) -> Vec<Value> {
    let indexes: Vec<_> = (0..count).map(|_| usize::from(next(bytes))).collect();
    let of_type = |(number, (_, shape)): (usize, &(String, Shape))| {
        let count = indexes.iter().filter(|index| **index == number).count();
        shape.values(count, bytes).into_iter()
    };
    let mut values: Vec<_> = types.iter().enumerate().map(of_type).collect();
    let value = |index: &usize| match types.get(*index) {
        Some((name, _)) => {
            let value = values[*index].next().expect("as many values as indexes");
            Value::Typed(name.clone(), Box::new(value))
        }
        None => Value::Null,
    };
    indexes.iter().map(value).collect()
}

fn text(bytes: &mut Bytes<'_>) -> Value {
    Value::Bytes(bytes.text().expect("a string").to_vec())
}

/// The name of a type.
pub fn name(bytes: &mut Bytes<'_>) -> String {
    String::from_utf8(bytes.text().expect("a name").to_vec()).expect("names are text")
}

fn is_null(bytes: &mut Bytes<'_>) -> bool {
    next(bytes) != 0
}

fn next(bytes: &mut Bytes<'_>) -> u8 {
    bytes.byte().expect("one more byte")
}

/// A length in as few bytes as it needs.
pub fn length(bytes: &mut Bytes<'_>) -> usize {
    bytes.length().expect("a length")
}

fn number(bytes: &mut Bytes<'_>) -> u64 {
    let bytes = bytes.take(8).expect("a number").try_into().expect("eight bytes");
    u64::from_le_bytes(bytes)
}

fn size(bytes: &mut Bytes<'_>) -> usize {
    usize::try_from(number(bytes)).expect("a number that fits memory")
}
