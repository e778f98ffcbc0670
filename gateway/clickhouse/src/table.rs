//! The columns that the gateway fills, and whether a table has them.
//!
//! Job: name the `otel_traces` layout with JSON attributes once, for the row encoder, the INSERT, the DDL and the
//! check. Place in the flow: [`check`] runs at start, on `sluice-gateway check`, and after the server called a row
//! unreadable; the encoder writes its columns in the order of [`COLUMNS`]. Pure.
//!
//! Layout: names and order of the OpenTelemetry exporters' table, so that existing queries and dashboards work.
//! `Events` and `Links` are one array per field, all of the same length within a row.
//!
//! Not supported: `JSON` columns with declared paths or `SKIP`. Binary values of declared paths carry no type tag, so
//! a value with one would shift everything behind it; `SKIP` is not, or not wholly, applied to binary input.

use std::fmt;

use crate::json_limits::JsonLimits;

/// What a column holds, hence which bytes are written for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnType {
    /// `DateTime64(9)`
    DateTime64Nanos,
    /// `String`
    String,
    /// `LowCardinality(String)`
    LowCardinalityString,
    /// `UInt64`
    UInt64,
    /// `JSON`
    Json,
    /// `Array(DateTime64(9))`
    ArrayDateTime64Nanos,
    /// `Array(String)`
    ArrayString,
    /// `Array(LowCardinality(String))`
    ArrayLowCardinalityString,
    /// `Array(JSON)`
    ArrayJson,
}

/// A column that the gateway fills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Its name in the table.
    pub name: &'static str,
    /// What it holds.
    pub column_type: ColumnType,
}

/// The columns of a row, in the order in which their bytes follow one another.
pub const COLUMNS: [Column; 22] = [
    column("Timestamp", ColumnType::DateTime64Nanos),
    column("TraceId", ColumnType::String),
    column("SpanId", ColumnType::String),
    column("ParentSpanId", ColumnType::String),
    column("TraceState", ColumnType::String),
    column("SpanName", ColumnType::LowCardinalityString),
    column("SpanKind", ColumnType::LowCardinalityString),
    column("ServiceName", ColumnType::LowCardinalityString),
    column("ResourceAttributes", ColumnType::Json),
    column("ScopeName", ColumnType::String),
    column("ScopeVersion", ColumnType::String),
    column("SpanAttributes", ColumnType::Json),
    column("Duration", ColumnType::UInt64),
    column("StatusCode", ColumnType::LowCardinalityString),
    column("StatusMessage", ColumnType::String),
    column("Events.Timestamp", ColumnType::ArrayDateTime64Nanos),
    column("Events.Name", ColumnType::ArrayLowCardinalityString),
    column("Events.Attributes", ColumnType::ArrayJson),
    column("Links.TraceId", ColumnType::ArrayString),
    column("Links.SpanId", ColumnType::ArrayString),
    column("Links.TraceState", ColumnType::ArrayString),
    column("Links.Attributes", ColumnType::ArrayJson),
];

const fn column(name: &'static str, column_type: ColumnType) -> Column {
    Column { name, column_type }
}

/// How a column of the server gets its value when an INSERT does not name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultKind {
    /// The type's default.
    Plain,
    /// `DEFAULT`
    Default,
    /// `MATERIALIZED`: computed, and refused in an INSERT.
    Materialized,
    /// `EPHEMERAL`: not stored.
    Ephemeral,
    /// `ALIAS`: computed when read, and refused in an INSERT.
    Alias,
}

impl DefaultKind {
    /// Reads the column `default_type` of `DESCRIBE TABLE`. A kind that is not known yet is one of some default.
    pub fn from_described(default_type: &str) -> Self {
        match default_type {
            "" => Self::Plain,
            "MATERIALIZED" => Self::Materialized,
            "EPHEMERAL" => Self::Ephemeral,
            "ALIAS" => Self::Alias,
            _ => Self::Default,
        }
    }
}

impl fmt::Display for DefaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Default => "DEFAULT",
            Self::Materialized => "MATERIALIZED",
            Self::Ephemeral => "EPHEMERAL",
            Self::Alias => "ALIAS",
        })
    }
}

/// A column as the server describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedColumn {
    /// Its name.
    pub name: String,
    /// Its type as the server prints it.
    pub type_name: String,
    /// Where its value comes from when it is not given.
    pub default_kind: DefaultKind,
}

/// A table that rows can be written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableFit {
    /// Columns that the gateway does not fill, in the table's order; the server gives them their default.
    pub additional: Vec<String>,
    /// The limits of the `JSON` columns' types.
    pub json: JsonColumns,
}

/// The limits of the `JSON` columns' types, which are part of the types of objects in their arrays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JsonColumns {
    /// Of `ResourceAttributes`.
    pub resource: JsonLimits,
    /// Of `SpanAttributes`.
    pub span: JsonLimits,
    /// Of `Events.Attributes`.
    pub event: JsonLimits,
    /// Of `Links.Attributes`.
    pub link: JsonLimits,
}

impl JsonColumns {
    fn of(described: &[DescribedColumn]) -> Self {
        let limits = |name: &str| {
            let column = described.iter().find(|column| column.name == name);
            column.map_or_else(JsonLimits::default, |column| JsonLimits::of_type(&column.type_name))
        };
        Self {
            resource: limits("ResourceAttributes"),
            span: limits("SpanAttributes"),
            event: limits("Events.Attributes"),
            link: limits("Links.Attributes"),
        }
    }
}

/// One reason why rows cannot be written to a table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// The column is not there.
    #[error("column {column} is missing; expected {column} {expected}")]
    Missing {
        /// The column's name.
        column: &'static str,
        /// The type that the gateway writes.
        expected: ColumnType,
    },
    /// The column has a type of which other bytes are read.
    #[error("column {column} has type {found}; expected {expected}")]
    Type {
        /// The column's name.
        column: &'static str,
        /// The type that the gateway writes.
        expected: ColumnType,
        /// The type that the server has.
        found: String,
    },
    /// The column's JSON type declares or skips paths.
    #[error(
        "column {column} has type {found}; expected {expected} without {argument:?}: declared and skipped paths \
         are not supported yet, since their binary values have another form"
    )]
    JsonPaths {
        /// The column's name.
        column: &'static str,
        /// The type that the gateway writes.
        expected: ColumnType,
        /// The type that the server has.
        found: String,
        /// The first argument of the JSON type that is not a limit.
        argument: String,
    },
    /// The column is computed by the server.
    #[error(
        "column {column} is {default_kind}, which cannot be inserted; expected a column that stores {expected}"
    )]
    Computed {
        /// The column's name.
        column: &'static str,
        /// The type that the gateway writes.
        expected: ColumnType,
        /// How the server computes it.
        default_kind: DefaultKind,
    },
}

/// Whether rows of [`COLUMNS`] can be written to a table of these columns.
///
/// # Errors
/// Every mismatch, in the order of [`COLUMNS`].
pub fn check(described: &[DescribedColumn]) -> Result<TableFit, Vec<Mismatch>> {
    let mismatches: Vec<_> = COLUMNS
        .iter()
        .filter_map(|column| {
            let found = described.iter().find(|described| described.name == column.name);
            mismatch(*column, found)
        })
        .collect();
    if !mismatches.is_empty() {
        return Err(mismatches);
    }
    let ours = |name: &str| COLUMNS.iter().any(|column| column.name == name);
    let additional = described.iter().filter(|column| !ours(&column.name)).map(|column| column.name.clone());
    Ok(TableFit { additional: additional.collect(), json: JsonColumns::of(described) })
}

fn mismatch(column: Column, described: Option<&DescribedColumn>) -> Option<Mismatch> {
    let Column { name: column, column_type: expected } = column;
    let Some(described) = described else {
        return Some(Mismatch::Missing { column, expected });
    };
    let default_kind = described.default_kind;
    if matches!(default_kind, DefaultKind::Materialized | DefaultKind::Alias) {
        return Some(Mismatch::Computed { column, expected, default_kind });
    }
    let found = described.type_name.clone();
    match expected.fit(&found) {
        TypeFit::Same => None,
        TypeFit::Other => Some(Mismatch::Type { column, expected, found }),
        TypeFit::JsonPaths(argument) => {
            let argument = argument.to_owned();
            Some(Mismatch::JsonPaths { column, expected, found, argument })
        }
    }
}

/// Whether a type of the server takes the bytes of one of ours.
#[derive(Debug, PartialEq, Eq)]
enum TypeFit<'a> {
    Same,
    Other,
    /// JSON with this argument, which is not a limit.
    JsonPaths(&'a str),
}

impl ColumnType {
    /// Compares bytes rather than names: `String` and `LowCardinality(String)` are written alike, and a time zone
    /// changes how a time prints, not how it is stored.
    fn fit(self, found: &str) -> TypeFit<'_> {
        let element = array_element(found);
        let (found, expected) = match self {
            Self::ArrayDateTime64Nanos => (element, Self::DateTime64Nanos),
            Self::ArrayString | Self::ArrayLowCardinalityString => (element, Self::String),
            Self::ArrayJson => (element, Self::Json),
            scalar => (Some(found), scalar),
        };
        let Some(found) = found else { return TypeFit::Other };
        let same = match expected {
            Self::Json => return json_fit(found),
            Self::DateTime64Nanos => {
                found == "DateTime64(9)" || (found.starts_with("DateTime64(9, '") && found.ends_with("')"))
            }
            Self::UInt64 => found == "UInt64",
            _ => found == "String" || found == "LowCardinality(String)",
        };
        if same { TypeFit::Same } else { TypeFit::Other }
    }
}

/// `T` of `Array(T)`.
fn array_element(type_name: &str) -> Option<&str> {
    type_name.strip_prefix("Array(")?.strip_suffix(')')
}

/// A JSON type fits when its arguments are limits only; these do not change the bytes of a value.
fn json_fit(found: &str) -> TypeFit<'_> {
    if found == "JSON" {
        return TypeFit::Same;
    }
    let Some(arguments) = found.strip_prefix("JSON(").and_then(|rest| rest.strip_suffix(')')) else {
        return TypeFit::Other;
    };
    // A declared path may hold a comma inside quotes. Its pieces are then not limits either, and the first is named.
    match arguments.split(',').map(str::trim).find(|argument| !is_json_limit(argument)) {
        None => TypeFit::Same,
        Some(argument) => TypeFit::JsonPaths(argument),
    }
}

fn is_json_limit(argument: &str) -> bool {
    ["max_dynamic_paths=", "max_dynamic_types="].iter().any(|limit| {
        argument
            .strip_prefix(limit)
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DateTime64Nanos => "DateTime64(9)",
            Self::String => "String",
            Self::LowCardinalityString => "LowCardinality(String)",
            Self::UInt64 => "UInt64",
            Self::Json => "JSON",
            Self::ArrayDateTime64Nanos => "Array(DateTime64(9))",
            Self::ArrayString => "Array(String)",
            Self::ArrayLowCardinalityString => "Array(LowCardinality(String))",
            Self::ArrayJson => "Array(JSON)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(name: &str, type_name: &str, default_type: &str) -> DescribedColumn {
        DescribedColumn {
            name: name.into(),
            type_name: type_name.into(),
            default_kind: DefaultKind::from_described(default_type),
        }
    }

    fn fitting() -> Vec<DescribedColumn> {
        COLUMNS.iter().map(|column| described(column.name, &column.column_type.to_string(), "")).collect()
    }

    /// The message for a table in which one column has another type.
    fn message(column: &str, type_name: &str, default_type: &str) -> Option<String> {
        let mut columns = fitting();
        let changed = columns.iter_mut().find(|described| described.name == column).unwrap();
        *changed = described(column, type_name, default_type);
        match check(&columns) {
            Ok(_) => None,
            Err(mismatches) => {
                assert_eq!(mismatches.len(), 1);
                Some(mismatches[0].to_string())
            }
        }
    }

    #[test]
    fn our_own_layout_fits_in_any_order() {
        let mut columns = fitting();
        assert_eq!(check(&columns), Ok(TableFit { additional: vec![], json: JsonColumns::of(&columns) }));
        columns.reverse();
        assert_eq!(check(&columns), Ok(TableFit { additional: vec![], json: JsonColumns::of(&columns) }));
    }

    #[test]
    fn types_that_read_the_same_bytes_fit() {
        let table = [
            ("Timestamp", "DateTime64(9, 'UTC')"),
            ("SpanName", "String"),
            ("TraceId", "LowCardinality(String)"),
            ("SpanAttributes", "JSON(max_dynamic_paths=64)"),
            ("SpanAttributes", "JSON(max_dynamic_types=16, max_dynamic_paths=0)"),
            ("Events.Attributes", "Array(JSON(max_dynamic_paths=16))"),
            ("Events.Timestamp", "Array(DateTime64(9, 'Europe/Berlin'))"),
            ("Events.Name", "Array(String)"),
            ("Links.TraceId", "Array(LowCardinality(String))"),
        ];
        for (column, type_name) in table {
            assert_eq!(message(column, type_name, ""), None, "{column} {type_name}");
        }
        assert_eq!(message("Duration", "UInt64", "DEFAULT"), None);
        assert_eq!(message("SpanAttributes", "JSON", "EPHEMERAL"), None);
    }

    #[test]
    fn other_types_are_named_with_what_was_expected() {
        let table = [
            ("Timestamp", "DateTime64(3)", "column Timestamp has type DateTime64(3); expected DateTime64(9)"),
            ("Timestamp", "DateTime", "column Timestamp has type DateTime; expected DateTime64(9)"),
            ("Duration", "Int64", "column Duration has type Int64; expected UInt64"),
            ("TraceId", "FixedString(32)", "column TraceId has type FixedString(32); expected String"),
            ("TraceId", "Nullable(String)", "column TraceId has type Nullable(String); expected String"),
            (
                "SpanName",
                "LowCardinality(Nullable(String))",
                "column SpanName has type LowCardinality(Nullable(String)); expected LowCardinality(String)",
            ),
            (
                "SpanAttributes",
                "Map(LowCardinality(String), String)",
                "column SpanAttributes has type Map(LowCardinality(String), String); expected JSON",
            ),
            (
                "SpanAttributes",
                "Nullable(JSON)",
                "column SpanAttributes has type Nullable(JSON); expected JSON",
            ),
            ("Events.Attributes", "JSON", "column Events.Attributes has type JSON; expected Array(JSON)"),
            (
                "Events.Timestamp",
                "Array(DateTime64(6))",
                "column Events.Timestamp has type Array(DateTime64(6)); expected Array(DateTime64(9))",
            ),
        ];
        for (column, type_name, expected) in table {
            assert_eq!(message(column, type_name, "").as_deref(), Some(expected));
        }
    }

    #[test]
    fn json_that_declares_or_skips_paths_is_refused() {
        let table = [
            ("JSON(a UInt32)", "a UInt32"),
            (
                "JSON(max_dynamic_paths=64, `http.method` LowCardinality(String))",
                "`http.method` LowCardinality(String)",
            ),
            ("JSON(SKIP a.b)", "SKIP a.b"),
            ("JSON(max_dynamic_types=8, SKIP REGEXP '^p')", "SKIP REGEXP '^p'"),
            ("JSON(`max_dynamic_paths=1` UInt8)", "`max_dynamic_paths=1` UInt8"),
        ];
        for (type_name, argument) in table {
            for (column, type_name) in [
                ("SpanAttributes", type_name.to_owned()),
                ("Links.Attributes", format!("Array({type_name})")),
            ] {
                let message = message(column, &type_name, "").unwrap();
                assert!(message.contains(&format!("{argument:?}")), "{message}");
                assert!(message.contains("not supported yet"), "{message}");
            }
        }
    }

    #[test]
    fn missing_and_computed_columns_are_named() {
        let mut columns = fitting();
        columns.retain(|column| column.name != "TraceState" && column.name != "Links.Attributes");
        let messages: Vec<_> = check(&columns).unwrap_err().iter().map(ToString::to_string).collect();
        assert_eq!(
            messages,
            [
                "column TraceState is missing; expected TraceState String",
                "column Links.Attributes is missing; expected Links.Attributes Array(JSON)",
            ]
        );
        assert_eq!(
            message("Duration", "UInt64", "MATERIALIZED").as_deref(),
            Some(
                "column Duration is MATERIALIZED, which cannot be inserted; expected a column that stores UInt64"
            )
        );
        assert!(message("Duration", "UInt64", "ALIAS").is_some());
        assert_eq!(check(&[]).unwrap_err().len(), COLUMNS.len());
    }

    #[test]
    fn additional_columns_are_left_to_the_server() {
        let mut columns = fitting();
        columns.insert(3, described("Day", "Date", "MATERIALIZED"));
        columns.push(described("Tenant", "String", "DEFAULT"));
        columns.push(described("Note", "Nullable(String)", ""));
        let additional = vec!["Day".to_owned(), "Tenant".to_owned(), "Note".to_owned()];
        assert_eq!(check(&columns), Ok(TableFit { additional, json: JsonColumns::of(&columns) }));
    }
}
