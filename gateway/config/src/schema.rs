//! The schema of the table: who creates it, and its properties.
//!
//! Job: the options of `sluice-gateway ddl`, and their rules. No unchecked text reaches a statement: names are plain names, types and
//! expressions are complete (brackets and quotes closed), so that no text can become a second statement or clause. An absent field leaves
//! an existing table unchanged, and has its default in a new table.

use crate::{
    deduplication, durability::Durability, optional_columns::OptionalColumns, preset::Preset,
    units::Duration, violation::Violations,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum number of expressions in the sorting key. Chosen: beyond a handful, a key has no more effect.
pub const ORDER_BY_MAX: usize = 8;

/// Maximum number of additional columns. Chosen: each costs every INSERT.
pub const COLUMNS_MAX: usize = 64;

/// Maximum number of declared paths per set of attributes. Chosen: each is a column of its own in every part.
pub const TYPED_PATHS_MAX: usize = 64;

/// Maximum bytes of a type.
pub const TYPE_BYTES_MAX: usize = 256;

/// Maximum bytes of an expression or a path.
pub const EXPRESSION_BYTES_MAX: usize = 1_024;

/// Maximum number of paths with a column of their own: the server's default; its developers advise against more.
pub const DYNAMIC_PATHS_MAX: u32 = 1_024;

/// A day.
const DAY_SECONDS: u64 = 86_400;

/// The shortest TTL. Chosen: partitions are days, and are dropped as a whole.
const TTL_MIN: Duration = Duration::secs(3_600);

/// The longest TTL: 100 years. From now on, `Timestamp` plus that is before 2262, where `DateTime64(9)` ends.
const TTL_MAX: Duration = Duration::secs(100 * 365 * 86_400);

/// Types of a declared path; each also as `Nullable(…)`.
pub const PATH_TYPES: [&str; 12] = [
    "Bool", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Float32", "Float64",
    "String",
];

/// Names, or prefixes before a dot, of the gateway's own columns in any layout.
pub const COLUMNS_OWNED: [&str; 17] = [
    "Timestamp",
    "TraceId",
    "SpanId",
    "ParentSpanId",
    "TraceState",
    "SpanName",
    "SpanKind",
    "ServiceName",
    "ResourceAttributes",
    "ScopeName",
    "ScopeVersion",
    "SpanAttributes",
    "Duration",
    "StatusCode",
    "StatusMessage",
    "Events",
    "Links",
];

/// Prefix of paths that the gateway writes itself, with their type.
const PATH_RESERVED: &str = "sluice.";

/// Who creates the table, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Schema {
    /// What Sluice may do with the table.
    #[serde(default)]
    pub management: SchemaManagement,
    /// The reader for which the table is made; its columns are compared with those of an existing table. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    /// The layout of attributes in the table. Absent: unchanged; `Json` in a new table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<Layout>,
    /// The table's engine. Absent: unchanged; `MergeTree` in a new table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<Engine>,
    /// The cluster on which every statement runs (`ON CLUSTER`); absent means each endpoint on its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Age at which rows are dropped, whole days at a time: 1 h to 100 years. Absent: unchanged; a new table keeps rows forever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Duration>,
    /// The sorting key: column names, or functions of one column, at most [`ORDER_BY_MAX`]. Empty: unchanged; low cardinality first in a
    /// new table.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order_by: Vec<String>,
    /// Paths of a JSON column that get a column of their own: 0 to [`DYNAMIC_PATHS_MAX`]. More paths share one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_dynamic_paths: Option<u32>,
    /// Declared paths of JSON columns, with their types.
    #[serde(default, skip_serializing_if = "TypedPaths::is_empty")]
    pub typed_paths: TypedPaths,
    /// Groups of columns that the gateway fills if the table has them. Absent: unchanged; a new table has
    /// none. Empty: none are asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optional_columns: Option<Vec<OptionalColumns>>,
    /// Additional columns, which the server computes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<ExtraColumn>,
    /// Additional tables that views fill.
    #[serde(default, skip_serializing_if = "Views::is_empty")]
    pub views: Views,
    /// The minimum durability of acknowledged rows. A table with more is left unchanged.
    #[serde(default, skip_serializing_if = "Durability::is_default")]
    pub durability: Durability,
    /// Number of blocks whose tokens a new table remembers: 1 to [`deduplication::WINDOW_BLOCKS_MAX`]; absent means
    /// [`deduplication::WINDOW_BLOCKS_MIN`]. An existing table is not compared: the gateway reports if its window is too short for the
    /// delivery guarantee.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deduplication_window: Option<u32>,
}

/// What Sluice may do with the table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SchemaManagement {
    /// Nothing; only the gateway checks the columns when it starts.
    None,
    /// Compare, and start no pods if rows cannot be written.
    Validate,
    /// Create database, table and views if they are missing, then compare.
    #[default]
    CreateIfMissing,
    /// Like `CreateIfMissing`, and add missing columns. Nothing else is ever changed.
    Evolve,
}

/// The layout of attributes in a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layout {
    /// One `JSON` column per set of attributes: every value keeps its type.
    #[default]
    Json,
    /// One `Map(LowCardinality(String), String)` per set: every value is text, as in the OpenTelemetry exporter's table.
    Map,
    /// A group of keys and values per type (bool, double, int, string, complex) and set, as in Jaeger's tables.
    Nested,
}

/// The table's engine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Engine {
    /// Rows on one server.
    #[default]
    MergeTree,
    /// Replicas that Keeper keeps in sync.
    ReplicatedMergeTree,
    /// No rows are stored; views get them.
    Null,
}

/// Declared paths of JSON columns: type by path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TypedPaths {
    /// Of the resource's attributes, besides the usual ones.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resource: BTreeMap<String, String>,
    /// Of the span's attributes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub span: BTreeMap<String, String>,
}

impl TypedPaths {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.resource.is_empty() && self.span.is_empty()
    }
}

/// A column that the gateway does not fill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExtraColumn {
    pub name: String,
    /// Its type.
    pub r#type: String,
    /// The expression from which the server computes it (`DEFAULT`); absent means the default of its type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

/// Additional tables that materialized views fill.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Views {
    /// Services and their operations, with the first and last time of each: `<table>_operations`.
    #[serde(default, skip_serializing_if = "is_off")]
    pub operations: bool,
    /// The time range of each trace: `<table>_trace_id_ts`.
    #[serde(default, skip_serializing_if = "is_off")]
    pub trace_times: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_off(on: &bool) -> bool {
    !on
}

impl Views {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        !self.operations && !self.trace_times
    }
}

impl Schema {
    /// Adds what is wrong; `at` is the section's path.
    pub(crate) fn check(&self, at: &str, found: &mut Violations) {
        let at = |field: &str| format!("{at}.{field}");
        if let Some(cluster) = &self.cluster {
            found.add_if(!is_name(cluster), &at("cluster"), || not_a_name(cluster));
        }
        if let Some(ttl) = self.ttl {
            found.add_if(!(TTL_MIN..=TTL_MAX).contains(&ttl), &at("ttl"), || {
                format!("{} is not between {TTL_MIN} and {}", in_days(ttl), in_days(TTL_MAX))
            });
        }
        if let Some(blocks) = self.deduplication_window {
            let most = deduplication::WINDOW_BLOCKS_MAX;
            found.add_if(!(1..=most).contains(&blocks), &at("deduplicationWindow"), || {
                format!("{blocks} is not between 1 and {most}")
            });
        }
        self.check_order(&at("orderBy"), found);
        if let Some(preset) = self.preset {
            preset.check(self, &at, found);
        }
        self.check_json(&at, found);
        self.check_columns(&at("columns"), found);
        self.check_null(&at, found);
    }

    fn check_order(&self, at: &str, found: &mut Violations) {
        found.add_if(self.order_by.len() > ORDER_BY_MAX, at, || {
            format!("{} expressions are more than {ORDER_BY_MAX}", self.order_by.len())
        });
        for part in &self.order_by {
            found.add_if(!is_key_part(part), at, || {
                format!(
                    "{part:?} is neither a column nor a function of one, such as ServiceName or toDateTime(Timestamp)"
                )
            });
        }
    }

    fn check_json(&self, at: &impl Fn(&str) -> String, found: &mut Violations) {
        if let Some(paths) = self.max_dynamic_paths {
            found.add_if(paths > DYNAMIC_PATHS_MAX, &at("maxDynamicPaths"), || {
                format!("{paths} is not between 0 and {DYNAMIC_PATHS_MAX}")
            });
        }
        // With a preset, the violation is that there are paths.
        let is_json = self.preset.is_some() || self.layout.unwrap_or_default() == Layout::Json;
        for (set, paths) in [("resource", &self.typed_paths.resource), ("span", &self.typed_paths.span)] {
            let at = at(&format!("typedPaths.{set}"));
            found.add_if(paths.len() > TYPED_PATHS_MAX, &at, || {
                format!("{} paths are more than {TYPED_PATHS_MAX}", paths.len())
            });
            for (path, type_name) in paths {
                check_path(path, type_name, &at, found);
            }
        }
        let wants_json = self.max_dynamic_paths.is_some() || !self.typed_paths.is_empty();
        found.add_if(wants_json && !is_json, &at("layout"), || {
            "must be Json, since maxDynamicPaths or typedPaths is set: only JSON columns have paths".into()
        });
    }

    fn check_columns(&self, at: &str, found: &mut Violations) {
        found.add_if(self.columns.len() > COLUMNS_MAX, at, || {
            format!("{} columns are more than {COLUMNS_MAX}", self.columns.len())
        });
        let mut names = std::collections::BTreeSet::new();
        let optional = self.optional_columns.iter().flatten();
        let optional: Vec<&str> = optional.flat_map(|group| group.names()).copied().collect();
        for column in &self.columns {
            let at = format!("{at}.{}", column.name);
            found.add_if(!is_name(&column.name), &at, || not_a_name(&column.name));
            found.add_if(!names.insert(&column.name), &at, || "is listed twice".into());
            found.add_if(COLUMNS_OWNED.contains(&column.name.as_str()), &at, || {
                "the gateway fills this column; use another name".into()
            });
            found.add_if(optional.contains(&column.name.as_str()), &at, || {
                "the gateway fills this column, since optionalColumns asks for it; remove it here or there".into()
            });
            found.add_if(!is_type(&column.r#type), &format!("{at}.type"), || {
                format!("{:?} is not a type, such as String or LowCardinality(String)", column.r#type)
            });
            if let Some(default) = &column.default {
                found.add_if(!is_expression(default), &format!("{at}.default"), || {
                    format!(
                        "{default:?} is not one whole expression: brackets and quotes must be closed, without comments and ';', in \
                         at most {EXPRESSION_BYTES_MAX} bytes"
                    )
                });
            }
        }
    }

    /// A table that stores nothing has no order and no age.
    fn check_null(&self, at: &impl Fn(&str) -> String, found: &mut Violations) {
        if self.engine != Some(Engine::Null) {
            return;
        }
        let reason = || "must not be set with engine Null, which stores nothing".to_owned();
        found.add_if(self.ttl.is_some(), &at("ttl"), reason);
        found.add_if(!self.order_by.is_empty(), &at("orderBy"), reason);
    }
}

fn check_path(path: &str, type_name: &str, at: &str, found: &mut Violations) {
    let at = format!("{at}.{path}");
    let is_text = !path.is_empty() && path.len() <= TYPE_BYTES_MAX && !path.chars().any(char::is_control);
    found.add_if(!is_text, &at, || format!("{path:?} is not a path, such as http.route"));
    found.add_if(path.starts_with(PATH_RESERVED), &at, || {
        format!("begins with {PATH_RESERVED}, which the gateway writes itself")
    });
    let of_nullable = type_name.strip_prefix("Nullable(").and_then(|rest| rest.strip_suffix(')'));
    found.add_if(!PATH_TYPES.contains(&of_nullable.unwrap_or(type_name)), &at, || {
        format!("{type_name:?} is not one of {}, each also as Nullable(…)", PATH_TYPES.join(", "))
    });
}

/// A duration in hours, and in days if it is whole days: configs have either.
fn in_days(duration: Duration) -> String {
    let seconds = duration.to_std().as_secs();
    match seconds / DAY_SECONDS {
        days @ 1.. if seconds.is_multiple_of(DAY_SECONDS) => format!("{duration} ({days}d)"),
        _ => duration.to_string(),
    }
}

/// Whether the text needs no quotes.
fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    let begins = bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    begins && text.len() <= 128 && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn not_a_name(text: &str) -> String {
    format!("{text:?} is not a name: 1 to 128 of a-z, A-Z, 0-9 and '_', not a digit first")
}

/// `Name` or `function(Name)`.
fn is_key_part(text: &str) -> bool {
    let of_function = text.split_once('(').and_then(|(name, rest)| Some((name, rest.strip_suffix(')')?)));
    match of_function {
        Some((function, column)) => is_name(function) && is_name(column),
        None => is_name(text),
    }
}

/// `Name` or `Name(…)` with nothing behind it.
fn is_type(text: &str) -> bool {
    if text.len() > TYPE_BYTES_MAX {
        return false;
    }
    match text.split_once('(') {
        None => is_name(text),
        Some((name, _)) => is_name(name) && closes_at_the_end(&text[name.len()..]),
    }
}

/// Whether the text is complete: it stays one expression between brackets.
fn is_expression(text: &str) -> bool {
    let is_sized = !text.trim().is_empty() && text.len() <= EXPRESSION_BYTES_MAX;
    is_sized && closes_at_the_end(&format!("({text})"))
}

/// Whether the bracket at the beginning of `text` is closed by its last character, and not before. Brackets and quotes inside must be
/// closed too, and there must be no comment and no `;`.
fn closes_at_the_end(text: &str) -> bool {
    let mut open = Vec::new();
    let mut quote = None;
    let mut bytes = text.bytes().enumerate().peekable();
    while let Some((at, byte)) = bytes.next() {
        if let Some(end) = quote {
            if byte == b'\\' {
                bytes.next();
            } else if byte == end {
                quote = None;
            }
            continue;
        }
        let next = bytes.peek().map(|(_, next)| *next);
        match (byte, next) {
            (b'\'' | b'"' | b'`', _) => quote = Some(byte),
            (b'(', _) => open.push(b')'),
            (b'[', _) => open.push(b']'),
            (b'{', _) => open.push(b'}'),
            (b')' | b']' | b'}', _) => {
                if open.pop() != Some(byte) {
                    return false;
                }
                if open.is_empty() {
                    return at + 1 == text.len();
                }
            }
            (b';' | b'#' | b'$' | 0..=31 | 127.., _) | (b'-', Some(b'-')) | (b'/', Some(b'*' | b'/')) => {
                return false;
            }
            _ => {}
        }
    }
    false
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
