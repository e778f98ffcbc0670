//! Skips values in `RowBinary`, by their types.
//!
//! Job: know a type from its name in a table, or from its tag before a value, and find the end of a value. Place in the flow: under
//! [`rows`](super::rows), which walks the rows that the null sink received. Limits: types nest to [`DEPTH_MAX`]. Only the types of trace
//! tables are supported; any other is an error that names it.
//!
//! Source: <https://clickhouse.com/docs/interfaces/formats/RowBinary> and
//! <https://clickhouse.com/docs/sql-reference/data-types/data-types-binary-encoding>.

use anyhow::{Context as _, Result, bail, ensure};

/// How deep types and values may nest. Chosen: far above what the gateway writes (8), so that damaged bytes end in an error
/// before the stack does.
const DEPTH_MAX: usize = 64;

/// The most elements of one value. Specified: the server's own limit for binary arrays is 2^30. Chosen: a row of the gateway has at most 4
/// MiB, and an element of it at least one byte.
const ELEMENTS_MAX: usize = 8 << 20;

/// The form of a value's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// This many bytes.
    Fixed(usize),
    /// A length and bytes.
    Text,
    /// A flag, and the value unless the flag says that it is absent.
    Nullable(Box<Kind>),
    /// A length and values.
    Array(Box<Kind>),
    /// A length and pairs.
    Map(Box<Kind>, Box<Kind>),
    /// A tag and a value of that type.
    Dynamic,
    /// A length, and as many paths with a tag and a value each; a declared path has a value of its type and no tag.
    Json(Vec<(String, Kind)>),
}

impl Kind {
    /// The kind of a type by its name in a table: `Array(LowCardinality(String))`.
    pub fn of_type(name: &str) -> Result<Kind> {
        let (outer, inner) = match name.split_once('(') {
            Some((outer, rest)) => {
                (outer, rest.strip_suffix(')').with_context(|| format!("read the type {name}"))?)
            }
            None => (name, ""),
        };
        Ok(match outer {
            "LowCardinality" => Kind::of_type(inner)?,
            "Nullable" => Kind::Nullable(Box::new(Kind::of_type(inner)?)),
            "Array" => Kind::Array(Box::new(Kind::of_type(inner)?)),
            // In rows, a list of named pairs has the form of a map.
            "Map" | "Nested" => {
                let (key, value) =
                    inner.rsplit_once(", ").with_context(|| format!("read the type {name}"))?;
                let unnamed =
                    |field: &str, name: &str| Kind::of_type(field.strip_prefix(name).unwrap_or(field));
                Kind::Map(Box::new(unnamed(key, "Key ")?), Box::new(unnamed(value, "Value ")?))
            }
            "String" => Kind::Text,
            "JSON" => Kind::Json(declared_paths(inner)?),
            "DateTime64" | "UInt64" | "Int64" | "Float64" => Kind::Fixed(8),
            "DateTime" | "UInt32" | "Int32" => Kind::Fixed(4),
            "UInt8" | "Int8" | "Bool" => Kind::Fixed(1),
            _ => bail!("values of the type {name} cannot be passed over"),
        })
    }
}

/// The paths that a `JSON` type declares. `parameters` is the text between its parentheses: limits (`max_dynamic_paths=64`), and paths in
/// backticks with their types.
fn declared_paths(parameters: &str) -> Result<Vec<(String, Kind)>> {
    let mut declared = Vec::new();
    for parameter in parameters.split(", ").filter(|parameter| !parameter.contains('=')) {
        if parameter.is_empty() {
            continue;
        }
        let (path, type_name) = parameter
            .strip_prefix('`')
            .and_then(|quoted| quoted.split_once("` "))
            .with_context(|| format!("read the parameter {parameter} of a JSON type"))?;
        declared.push((path.to_owned(), Kind::of_type(type_name)?));
    }
    Ok(declared)
}

/// Bytes that are read from the front.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).context("the bytes end within a value")?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    /// A length: seven bits a byte, the least significant first.
    pub fn length(&mut self) -> Result<usize> {
        let mut length = 0;
        for shift in (0..usize::BITS).step_by(7) {
            let byte = self.byte()?;
            length |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(length);
            }
        }
        bail!("a length has more bytes than a number can have")
    }

    /// A length and as many bytes.
    pub fn text(&mut self) -> Result<&'a [u8]> {
        let length = self.length()?;
        self.take(length)
    }

    pub fn skip(&mut self, kind: &Kind) -> Result<()> {
        self.skip_at(kind, 0)
    }

    /// Skips a type's tag and a value of that type.
    pub fn skip_tagged(&mut self) -> Result<()> {
        self.skip_at(&Kind::Dynamic, 0)
    }

    fn skip_at(&mut self, kind: &Kind, depth: usize) -> Result<()> {
        ensure!(depth < DEPTH_MAX, "values nest deeper than {DEPTH_MAX}");
        match kind {
            Kind::Fixed(bytes) => self.take(*bytes).map(drop),
            Kind::Text => self.text().map(drop),
            Kind::Nullable(inner) if self.byte()? == 0 => self.skip_at(inner, depth + 1),
            Kind::Nullable(_) => Ok(()),
            Kind::Array(inner) => {
                let length = self.elements()?;
                (0..length).try_for_each(|_| self.skip_at(inner, depth + 1))
            }
            Kind::Map(key, value) => (0..self.elements()?).try_for_each(|_| {
                self.skip_at(key, depth + 1)?;
                self.skip_at(value, depth + 1)
            }),
            Kind::Dynamic => {
                let kind = self.tag(depth)?;
                self.skip_at(&kind, depth + 1)
            }
            Kind::Json(declared) => (0..self.elements()?).try_for_each(|_| {
                let path = self.text()?;
                let kind = declared.iter().find(|(name, _)| name.as_bytes() == path);
                self.skip_at(kind.map_or(&Kind::Dynamic, |(_, kind)| kind), depth + 1)
            }),
        }
    }

    /// How many elements follow. An element of type Nothing takes no byte, so the number of bytes is no limit.
    fn elements(&mut self) -> Result<usize> {
        let length = self.length()?;
        ensure!(length <= ELEMENTS_MAX, "a value claims {length} elements");
        Ok(length)
    }

    fn tag(&mut self, depth: usize) -> Result<Kind> {
        ensure!(depth < DEPTH_MAX, "types nest deeper than {DEPTH_MAX}");
        Ok(match self.byte()? {
            // Nothing: a null without a type.
            0x00 => Kind::Fixed(0),
            // UInt64, Int64, Float64.
            0x04 | 0x0a | 0x0e => Kind::Fixed(8),
            0x15 => Kind::Text,
            0x1e => Kind::Array(Box::new(self.tag(depth + 1)?)),
            0x23 => Kind::Nullable(Box::new(self.tag(depth + 1)?)),
            // Dynamic, with the number of its types.
            0x2b => {
                self.byte()?;
                Kind::Dynamic
            }
            0x2d => Kind::Fixed(1),
            0x30 => {
                self.json_limits()?;
                Kind::Json(Vec::new())
            }
            tag => bail!("values of the type with tag {tag:#04x} cannot be passed over"),
        })
    }

    /// Reads what follows the tag of JSON: version, limits, and the counts of declared and skipped paths, which are 0 here.
    fn json_limits(&mut self) -> Result<()> {
        self.byte()?;
        self.length()?;
        self.byte()?;
        ensure!(self.take(3)? == [0; 3], "a JSON type with declared or skipped paths cannot be passed over");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_known_by_its_name() {
        let text = || Box::new(Kind::Text);
        for (name, kind) in [
            ("DateTime64(9)", Kind::Fixed(8)),
            ("LowCardinality(String)", Kind::Text),
            ("Array(LowCardinality(String))", Kind::Array(text())),
            ("Array(JSON(max_dynamic_paths=16))", Kind::Array(Box::new(Kind::Json(Vec::new())))),
            (
                "JSON(max_dynamic_paths=64, `a.b` Nullable(String), `c` Int64)",
                Kind::Json(vec![
                    ("a.b".to_owned(), Kind::Nullable(text())),
                    ("c".to_owned(), Kind::Fixed(8)),
                ]),
            ),
            ("Map(LowCardinality(String), String)", Kind::Map(text(), text())),
            ("Nested(Key LowCardinality(String), Value Bool)", Kind::Map(text(), Box::new(Kind::Fixed(1)))),
            ("Nullable(UInt8)", Kind::Nullable(Box::new(Kind::Fixed(1)))),
        ] {
            assert_eq!(Kind::of_type(name).unwrap(), kind, "{name}");
        }
        assert!(Kind::of_type("JSON(c Int64)").is_err(), "the path is not between backticks");
        assert!(Kind::of_type("Decimal(9, 2)").is_err());
        assert!(Kind::of_type("Array(String").is_err());
    }

    #[test]
    fn a_declared_path_has_no_tag() {
        let kind = Kind::of_type("JSON(`s` Nullable(String))").unwrap();
        // {"s": "x", "d": false}, and a byte of what follows.
        let mut bytes = Bytes(&[2, 1, b's', 0, 1, b'x', 1, b'd', 0x2d, 0, 0xff]);
        bytes.skip(&kind).unwrap();
        assert_eq!(bytes.0, [0xff]);
    }

    #[test]
    fn every_value_that_a_gateway_writes_is_passed_over() {
        let values: [&[u8]; 8] = [
            &[0x00],
            &[0x15, 2, b'h', b'i'],
            &[0x2d, 1],
            &[0x0e, 0, 0, 0, 0, 0, 0, 0, 0],
            // Array(Nullable(String)): "x", null
            &[0x1e, 0x23, 0x15, 2, 0, 1, b'x', 1],
            // Array(Dynamic): null, true
            &[0x1e, 0x2b, 32, 2, 0x00, 0x2d, 1],
            // Array(JSON): one object {"a": false}
            &[0x1e, 0x30, 0, 16, 16, 0, 0, 0, 1, 1, 1, b'a', 0x2d, 0],
            // Array(Array(Nullable(Bool))) in Dynamic
            &[0x1e, 0x2b, 32, 1, 0x1e, 0x23, 0x2d, 1, 0, 1],
        ];
        for value in values {
            let mut bytes = Bytes(value);
            bytes.skip_tagged().unwrap();
            assert!(bytes.0.is_empty(), "{value:?}");
            assert!(Bytes(&value[..value.len() - 1]).skip_tagged().is_err(), "{value:?} without its end");
        }
    }

    #[test]
    fn types_without_end_are_refused() {
        assert!(Bytes(&[0x1e; 1_000]).skip_tagged().is_err());
        assert!(Bytes(&[0xff; 20]).length().is_err());
        // 2^63 elements of type Nothing, which take no bytes.
        let nothings = [&[0x1e, 0x00][..], &[0x80; 9], &[0x01]].concat();
        assert!(Bytes(&nothings).skip_tagged().is_err());
    }
}
