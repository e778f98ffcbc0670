//! The encoding of a type in a row and in a column, derived from its text.

use super::Unfit;
use super::cursor::Cursor;
use crate::json_type::{JsonType, split_arguments};
use crate::rowbinary::tag;

/// How deep types may nest, as in [`crate::row_ends`].
const DEPTH_MAX: u8 = 200;

/// `max_types` of a `Dynamic` whose type does not say.
const DYNAMIC_TYPES_DEFAULT: u8 = 32;

/// A type, by its encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// This many bytes.
    Fixed(usize),
    /// A string.
    Text,
    /// A string that a column stores in a dictionary; with a flag before it, if it can be null.
    LowCardinality { nullable: bool },
    /// A flag and a value.
    Nullable(Box<Kind>),
    /// Two values; a column stores all first ones, then all second ones.
    Pair(Box<(Kind, Kind)>),
    /// Values.
    Array(Box<Kind>),
    /// A value that carries its type.
    Dynamic,
    /// Paths; the declared ones are sorted by name, with their types.
    Json(Vec<(Box<[u8]>, Kind)>),
}

impl Kind {
    /// Parses the text of a type; `None` for one without a columnar encoding here.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let inside = |outer: &str| text.strip_prefix(outer)?.strip_suffix(')');
        Some(match text {
            "String" => Self::Text,
            "LowCardinality(String)" => Self::LowCardinality { nullable: false },
            "Bool" => Self::Fixed(1),
            "Int32" | "UInt32" => Self::Fixed(4),
            "Int64" | "UInt64" | "Float64" => Self::Fixed(8),
            _ if text.starts_with("DateTime64(") => Self::Fixed(8),
            _ if text == "JSON" || text.starts_with("JSON(") => Self::json(text)?,
            _ => {
                if let Some(element) = inside("Array(") {
                    return Some(Self::array(Self::parse(element)?));
                }
                if let Some(fields) = inside("Map(") {
                    return Some(Self::array(Self::pair(fields)?));
                }
                if let Some(fields) = inside("Nested(") {
                    return Some(Self::array(Self::pair(fields)?));
                }
                return Self::pair(inside("Tuple(")?);
            }
        })
    }

    /// Two types, with or without names before them.
    fn pair(fields: &str) -> Option<Self> {
        let fields = split_arguments(fields);
        let [first, second] = &fields[..] else { return None };
        let unnamed = |field: &str, name: &str| {
            let field = field.trim();
            Self::parse(field.strip_prefix(name).unwrap_or(field))
        };
        Some(Self::Pair(Box::new((unnamed(first, "Key ")?, unnamed(second, "Value ")?))))
    }

    fn json(text: &str) -> Option<Self> {
        let json = JsonType::parse(text).ok()?;
        let mut declared = Vec::new();
        for (path, value) in json.declared() {
            let (nullable, bytes) = value.shape();
            let plain = bytes.map_or(Self::Text, Self::Fixed);
            let kind = match (value.is_low_cardinality(), nullable) {
                (true, nullable) => Self::LowCardinality { nullable },
                (false, true) => Self::Nullable(Box::new(plain)),
                (false, false) => plain,
            };
            declared.push((path.into(), kind));
        }
        declared.sort_by(|(one, _), (other, _): &(Box<[u8]>, _)| one.cmp(other));
        Some(Self::Json(declared))
    }

    fn array(of: Self) -> Self {
        Self::Array(Box::new(of))
    }

    /// Reads the encoding of a type that a value carries, and also returns its text.
    pub(super) fn read(cursor: &mut Cursor<'_>, depth: u8) -> Result<(Self, String), Unfit> {
        if depth > DEPTH_MAX {
            return Err(Unfit::Value("a type that is nested too deep"));
        }
        let named = |kind, text: &str| Ok((kind, text.to_owned()));
        match cursor.byte()? {
            tag::BOOL => named(Self::Fixed(1), "Bool"),
            tag::UINT64 => named(Self::Fixed(8), "UInt64"),
            tag::INT64 => named(Self::Fixed(8), "Int64"),
            tag::FLOAT64 => named(Self::Fixed(8), "Float64"),
            tag::STRING => named(Self::Text, "String"),
            tag::ARRAY => {
                let (of, text) = Self::read(cursor, depth + 1)?;
                Ok((Self::array(of), format!("Array({text})")))
            }
            tag::NULLABLE => {
                let (of, text) = Self::read(cursor, depth + 1)?;
                Ok((Self::Nullable(Box::new(of)), format!("Nullable({text})")))
            }
            tag::DYNAMIC => match cursor.byte()? {
                DYNAMIC_TYPES_DEFAULT => named(Self::Dynamic, "Dynamic"),
                types => Ok((Self::Dynamic, format!("Dynamic(max_types={types})"))),
            },
            tag::JSON => Self::read_json(cursor),
            _ => Err(Unfit::Value("a type that the gateway does not write")),
        }
    }

    /// Reads the rest of a `JSON` type: version, limits, and nothing declared or skipped.
    fn read_json(cursor: &mut Cursor<'_>) -> Result<(Self, String), Unfit> {
        let version = cursor.byte()?;
        let (paths, types) = (cursor.length()?, cursor.byte()?);
        if version != 0 || cursor.take(3)? != [0; 3] {
            return Err(Unfit::Value("a JSON type that the gateway does not write"));
        }
        // Limits that are the defaults are not printed.
        let types = (types != 32).then(|| format!("max_dynamic_types={types}"));
        let paths = (paths != 1_024).then(|| format!("max_dynamic_paths={paths}"));
        let limits: Vec<_> = types.into_iter().chain(paths).collect();
        let text = if limits.is_empty() { "JSON".to_owned() } else { format!("JSON({})", limits.join(", ")) };
        Ok((Self::Json(Vec::new()), text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOW: Kind = Kind::LowCardinality { nullable: false };

    #[test]
    fn a_type_of_the_table_is_read_by_its_bytes() {
        let pair = |first, second| Kind::array(Kind::Pair(Box::new((first, second))));
        for (text, kind) in [
            ("DateTime64(9, 'Europe/Berlin')", Kind::Fixed(8)),
            ("DateTime64(3)", Kind::Fixed(8)),
            ("UInt32", Kind::Fixed(4)),
            ("Int32", Kind::Fixed(4)),
            ("LowCardinality(String)", LOW),
            ("Array(LowCardinality(String))", Kind::array(LOW)),
            ("Map(LowCardinality(String), String)", pair(LOW, Kind::Text)),
            ("Array(Map(String, String))", Kind::array(pair(Kind::Text, Kind::Text))),
            ("Array(Nested(Key LowCardinality(String), Value Bool))", Kind::array(pair(LOW, Kind::Fixed(1)))),
            ("Array(Array(Tuple(Key String, Value Float64)))", Kind::array(pair(Kind::Text, Kind::Fixed(8)))),
            ("JSON(max_dynamic_paths=16, SKIP a)", Kind::Json(vec![])),
            (
                "JSON(b UInt8, `a.c` Nullable(DateTime64(3)), d LowCardinality(String), e LowCardinality(Nullable(String)))",
                Kind::Json(vec![
                    (b"a.c"[..].into(), Kind::Nullable(Box::new(Kind::Fixed(8)))),
                    (b"b"[..].into(), Kind::Fixed(1)),
                    (b"d"[..].into(), LOW),
                    (b"e"[..].into(), Kind::LowCardinality { nullable: true }),
                ]),
            ),
        ] {
            assert_eq!(Kind::parse(text), Some(kind), "{text}");
        }
        for text in ["FixedString(32)", "JSON(a Array(String))", "Tuple(String)", "Variant(Int8)"] {
            assert_eq!(Kind::parse(text), None, "{text}");
        }
    }
}
