//! A `JSON` type as the server prints it: limits, declared paths, skipped paths.
//!
//! Job: parses the text of `DESCRIBE TABLE` into what the encoder must know about a path before it writes its value. Place in the flow:
//! [`crate::table::check`] parses it at start; the encoder calls [`JsonType::rule`] per path, which costs nothing for a type without
//! declared and skipped paths. Pure.
//!
//! ```text
//! JSON(max_dynamic_types=8, max_dynamic_paths=16, `a.b` Int64, REGEXP Int64, SKIP `q.r`, SKIP REGEXP '^p')
//! ```
//!
//! | argument | effect on a row |
//! |---|---|
//! | `max_dynamic_paths=N`, `max_dynamic_types=N` | none, except inside arrays of objects: [`crate::json_limits`] |
//! | path type | its value is written without a tag: [`crate::typed_value`] |
//! | `SKIP path` | the path and everything below it are not sent |
//! | `SKIP REGEXP 'p'` | none: ClickHouse 26.7 ignores patterns for binary values, so that such paths are stored |
//!
//! A declared path that a row lacks gets the default of its type, or null if that is `Nullable`. Paths may be in any order. All of this
//! was tested with ClickHouse 26.7.

use crate::json_limits::JsonLimits;
use crate::sql::identifier;
use crate::typed_value::TypedValue;

/// The prefix of paths that the gateway itself writes. They cannot be declared: their values always carry a tag.
pub const RESERVED_PREFIX: &str = "sluice.";

/// A `JSON` type whose values can be written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JsonType {
    limits: JsonLimits,
    declared: Vec<(Box<[u8]>, TypedValue)>,
    skipped: Vec<Box<[u8]>>,
    patterns: Vec<String>,
    /// Bit `n` is set if a declared or skipped path begins with a byte whose low six bits are `n`. This alone rules out most paths of a
    /// row. Bit 0 is also set if one of them is empty.
    first_bytes: u64,
}

/// How a path is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathRule {
    /// A value with its tag.
    Dynamic,
    /// A value of this type, without a tag.
    Typed(TypedValue),
    /// Nothing is written.
    Skipped,
}

/// Why a type cannot be written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JsonTypeError {
    /// It is not a `JSON` type, or has an unknown form.
    Other,
    /// It declares a path with a type that [`TypedValue`] does not support.
    Path { path: String, type_name: String },
    /// It declares a path that begins with [`RESERVED_PREFIX`].
    Reserved { path: String },
}

impl JsonType {
    /// Parses the text of a type.
    ///
    /// # Errors
    /// [`JsonTypeError`] for another type, and for a declared path of a type that is not supported.
    pub fn parse(type_name: &str) -> Result<Self, JsonTypeError> {
        if type_name == "JSON" {
            return Ok(Self::default());
        }
        let arguments = type_name.strip_prefix("JSON(").and_then(|rest| rest.strip_suffix(')'));
        let mut json = Self::default();
        for argument in split_arguments(arguments.ok_or(JsonTypeError::Other)?) {
            json.add(argument.trim())?;
        }
        let declared = json.declared.iter().map(|(path, _)| path);
        json.first_bytes = declared.chain(&json.skipped).fold(0, |bits, path| bits | first_byte_bit(path));
        Ok(json)
    }

    fn add(&mut self, argument: &str) -> Result<(), JsonTypeError> {
        if let Some(limit) = limit(argument, "max_dynamic_paths=") {
            self.limits.paths = limit?;
        } else if let Some(limit) = limit(argument, "max_dynamic_types=") {
            self.limits.types = limit?;
        } else if let Some(pattern) = argument.strip_prefix("SKIP REGEXP ") {
            self.patterns.push(pattern.to_owned());
        } else if let Some(path) = argument.strip_prefix("SKIP ") {
            let (path, rest) = name(path).ok_or(JsonTypeError::Other)?;
            if !rest.is_empty() {
                return Err(JsonTypeError::Other);
            }
            self.skipped.push(path.into_bytes().into());
        } else {
            let (path, rest) = name(argument).ok_or(JsonTypeError::Other)?;
            if path.starts_with(RESERVED_PREFIX) {
                return Err(JsonTypeError::Reserved { path });
            }
            let type_name = rest.trim_start();
            let Some(value) = TypedValue::parse(type_name) else {
                return Err(JsonTypeError::Path { path, type_name: type_name.to_owned() });
            };
            self.declared.push((path.into_bytes().into(), value));
        }
        Ok(())
    }

    /// The limits, for the types of objects in arrays.
    pub fn limits(&self) -> JsonLimits {
        self.limits
    }

    /// The declared paths, in the order of the type.
    #[cfg(feature = "native")]
    pub(crate) fn declared(&self) -> impl Iterator<Item = (&[u8], TypedValue)> {
        self.declared.iter().map(|(path, value)| (&**path, *value))
    }

    /// The patterns of `SKIP REGEXP`, as printed; the server ignores them for binary inserts.
    pub fn patterns(&self) -> &[String] {
        &self.patterns
    }

    /// Whether a rule other than [`PathRule::Dynamic`] exists.
    #[inline]
    pub fn has_rules(&self) -> bool {
        self.first_bytes != 0
    }

    /// The rule of `path`.
    #[inline]
    pub fn rule(&self, path: &[u8]) -> PathRule {
        if self.first_bytes & first_byte_bit(path) == 0 { PathRule::Dynamic } else { self.search(path) }
    }

    fn search(&self, path: &[u8]) -> PathRule {
        if let Some((_, value)) = self.declared.iter().find(|(declared, _)| **declared == *path) {
            return PathRule::Typed(*value);
        }
        let is_below = |skipped: &[u8]| {
            path.strip_prefix(skipped).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
        };
        if self.skipped.iter().any(|skipped| is_below(skipped)) {
            PathRule::Skipped
        } else {
            PathRule::Dynamic
        }
    }
}

#[inline]
fn first_byte_bit(path: &[u8]) -> u64 {
    1 << (path.first().copied().unwrap_or(0) & 63)
}

/// The text of a type with these paths declared, and this number of dynamic paths if given; the rest is unchanged. A `SKIP` of one of the
/// paths is removed. `type_name` must be one that [`JsonType::parse`] accepts.
pub(crate) fn altered(type_name: &str, declared: &[(&str, &str)], paths_max: Option<u32>) -> String {
    let arguments = type_name.strip_prefix("JSON(").and_then(|rest| rest.strip_suffix(')'));
    let arguments = arguments.map(split_arguments).unwrap_or_default();
    let is_declared = |path: &str| declared.iter().any(|(declared, _)| *declared == path);
    let hides_one = |skipped: &str| {
        let below = format!("{skipped}.");
        declared.iter().any(|(path, _)| *path == skipped || path.starts_with(&below))
    };
    let stays = |argument: &&str| {
        if argument.starts_with("max_dynamic_paths=") {
            return paths_max.is_none();
        }
        match argument.strip_prefix("SKIP ") {
            Some(pattern) if pattern.starts_with("REGEXP ") => true,
            Some(path) => name(path).is_none_or(|(path, _)| !hides_one(&path)),
            None => name(argument).is_none_or(|(path, _)| !is_declared(&path)),
        }
    };
    let paths_max = paths_max.map(|paths| format!("max_dynamic_paths={paths}"));
    let stay = arguments.into_iter().map(str::trim).filter(stays).map(str::to_owned);
    let declared = declared.iter().map(|(path, type_name)| format!("{} {type_name}", identifier(path)));
    format!("JSON({})", paths_max.into_iter().chain(stay).chain(declared).collect::<Vec<_>>().join(", "))
}

/// The number after `name`, if the argument is this limit.
fn limit<N: std::str::FromStr>(argument: &str, name: &str) -> Option<Result<N, JsonTypeError>> {
    let number = argument.strip_prefix(name)?;
    Some(number.parse().map_err(|_| JsonTypeError::Other))
}

/// The name that begins `text`, without quotes and escapes, and what follows it.
fn name(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('`') else {
        let end = text.find(' ').unwrap_or(text.len());
        return (end > 0).then(|| (text[..end].to_owned(), &text[end..]));
    };
    let (mut name, mut chars) = (String::new(), quoted.char_indices());
    while let Some((at, char)) = chars.next() {
        match char {
            '`' => return Some((name, &quoted[at + 1..])),
            '\\' => name.push(match chars.next()?.1 {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                '0' => '\0',
                'b' => '\u{8}',
                'f' => '\u{c}',
                other => other,
            }),
            other => name.push(other),
        }
    }
    None
}

/// The arguments between commas that are neither in parentheses nor in quotes.
pub(crate) fn split_arguments(arguments: &str) -> Vec<&str> {
    let (mut found, mut from, mut depth, mut quote) = (Vec::new(), 0, 0_usize, None);
    let mut chars = arguments.char_indices();
    while let Some((at, char)) = chars.next() {
        match (quote, char) {
            (Some(_), '\\') => drop(chars.next()),
            (Some(open), char) if char == open => quote = None,
            (None, '`' | '\'') => quote = Some(char),
            (None, '(') => depth += 1,
            (None, ')') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                found.push(&arguments[from..at]);
                from = at + 1;
            }
            (Some(_) | None, _) => {}
        }
    }
    found.push(&arguments[from..]);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(type_name: &str) -> PathRule {
        PathRule::Typed(TypedValue::parse(type_name).unwrap())
    }

    #[test]
    fn a_type_is_read_as_the_server_prints_it() {
        let json = JsonType::parse(
            "JSON(max_dynamic_types=8, max_dynamic_paths=16, REGEXP Int64, `SKIP` String, `a,b` UInt8, \
             `a.b` DateTime64(9, 'UTC'), `c)d` Bool, `max_dynamic_paths=1` Float64, \
             `x\\`y` Nullable(String), SKIP `q.r`, SKIP s, SKIP REGEXP '^p,\\\\)')",
        )
        .unwrap();
        assert_eq!(json.limits(), JsonLimits { paths: 16, types: 8 });
        assert_eq!(json.patterns(), [r"'^p,\\)'"]);
        for (path, rule) in [
            ("REGEXP", typed("Int64")),
            ("SKIP", typed("String")),
            ("a,b", typed("UInt8")),
            ("a.b", typed("DateTime64(9)")),
            ("c)d", typed("Bool")),
            ("max_dynamic_paths=1", typed("Float64")),
            ("x`y", typed("Nullable(String)")),
            ("q.r", PathRule::Skipped),
            ("q.r.z", PathRule::Skipped),
            ("q.rz", PathRule::Dynamic),
            ("q", PathRule::Dynamic),
            ("s", PathRule::Skipped),
            ("a", PathRule::Dynamic),
            ("a.b.c", PathRule::Dynamic),
            ("p", PathRule::Dynamic),
            ("", PathRule::Dynamic),
        ] {
            assert_eq!(json.rule(path.as_bytes()), rule, "{path}");
        }
    }

    #[test]
    fn an_altered_type_keeps_what_nobody_asked_to_change() {
        let full = "JSON(max_dynamic_types=8, max_dynamic_paths=16, `a.b` Int64, c String, SKIP d, SKIP REGEXP '^p')";
        for (type_name, declared, paths_max, expected) in [
            (
                full,
                &[("e", "Bool")][..],
                None,
                "JSON(max_dynamic_types=8, max_dynamic_paths=16, `a.b` Int64, c String, SKIP d, SKIP REGEXP '^p', `e` Bool)",
            ),
            (
                full,
                &[("a.b", "String"), ("d.x", "Bool")],
                Some(32),
                "JSON(max_dynamic_paths=32, max_dynamic_types=8, c String, SKIP REGEXP '^p', `a.b` String, `d.x` Bool)",
            ),
            ("JSON", &[("e", "Bool")], None, "JSON(`e` Bool)"),
            ("JSON", &[], Some(0), "JSON(max_dynamic_paths=0)"),
            ("JSON(SKIP dx)", &[("d", "Bool")], None, "JSON(SKIP dx, `d` Bool)"),
        ] {
            let altered = altered(type_name, declared, paths_max);
            assert_eq!(altered, expected);
            let json = JsonType::parse(&altered).unwrap();
            for (path, of) in declared {
                assert_eq!(json.rule(path.as_bytes()), typed(of), "{altered}");
            }
        }
    }

    #[test]
    fn a_type_without_paths_has_no_rules() {
        for text in ["JSON", "JSON(max_dynamic_paths=0)", "JSON(max_dynamic_types=4, SKIP REGEXP 'x')"] {
            let json = JsonType::parse(text).unwrap();
            assert!(!json.has_rules());
            assert_eq!(json.rule(b""), PathRule::Dynamic);
        }
        assert_eq!(JsonType::parse("JSON").unwrap().limits(), JsonLimits::default());
    }

    #[test]
    fn a_declared_path_of_another_type_is_named() {
        for (text, path, type_name) in [
            ("JSON(a.b Array(String))", "a.b", "Array(String)"),
            (
                "JSON(a Int64, `b` Tuple(\n    x Int64,\n    y String))",
                "b",
                "Tuple(\n    x Int64,\n    y String)",
            ),
            ("JSON(e Enum8('a)' = 1, 'b,' = 2), SKIP q)", "e", "Enum8('a)' = 1, 'b,' = 2)"),
        ] {
            let error = JsonTypeError::Path { path: path.into(), type_name: type_name.into() };
            assert_eq!(JsonType::parse(text), Err(error));
        }
        let reserved = JsonTypeError::Reserved { path: "sluice.unconverted.a".into() };
        assert_eq!(JsonType::parse("JSON(`sluice.unconverted.a` Int64)"), Err(reserved));
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for text in
            ["String", "Nullable(JSON)", "JSON(", "JSON()", "JSON(max_dynamic_paths=x)", "JSON(`a Int64)"]
        {
            assert!(JsonType::parse(text).is_err(), "{text}");
        }
    }
}
