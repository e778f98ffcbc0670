//! Whether a table has the columns that the gateway fills.
//!
//! Job: converts `DESCRIBE TABLE` into [`TableColumns`], which need no further checks, or into a list of mismatches with advice. Place in
//! the flow: [`check`] runs at start, in `sluice-gateway check` and `ddl apply`, and after the server refused rows. Pure.
//!
//! Encodings are compared rather than names. `String` and `LowCardinality(String)` have the same bytes. A time zone changes how a time
//! prints, but not how it is stored. A `Duration` of at most ten years has the same bytes as `UInt64` and `Int64`. The names that were found
//! go before the rows of every INSERT ([`crate::header`]), so that a later change of a type is detected. Other columns are left to the
//! server, which fills them from their DEFAULT, computes them, or uses the default of their type.
//!
//! A column of [`crate::optional`] is filled if it has no expression and its type reads the same bytes. Otherwise it is another column, too,
//! and a note says why: no table is refused for it.

use std::fmt;

use crate::column::{AttributeColumns, AttributeSet, Column, ColumnType, Group, Layout, TableColumns};
use crate::json_type::{JsonType, JsonTypeError};
use crate::optional::{OptionalColumn, OptionalColumns};
use crate::typed_value;

/// How the server fills a column that an INSERT does not name.
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
    /// Parses the column `default_type` of `DESCRIBE TABLE`. An unknown kind counts as a default.
    pub fn from_described(default_type: &str) -> Self {
        match default_type {
            "" => Self::Plain,
            "MATERIALIZED" => Self::Materialized,
            "EPHEMERAL" => Self::Ephemeral,
            "ALIAS" => Self::Alias,
            _ => Self::Default,
        }
    }

    /// Whether an INSERT must not name the column.
    fn is_computed(self) -> bool {
        matches!(self, Self::Materialized | Self::Alias)
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
    pub name: String,
    /// Its type as the server prints it.
    pub type_name: String,
    /// The source of its value if an INSERT does not name it.
    pub default_kind: DefaultKind,
}

/// A table that rows can be written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableFit {
    /// How rows are written to it.
    pub columns: TableColumns,
    /// Columns that the gateway does not fill, in the table's order; the server gives them their default.
    pub additional: Vec<String>,
    /// Notes about behaviour that the table's owner may not expect.
    pub notes: Vec<String>,
}

/// One reason why rows cannot be written to a table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// The column does not exist.
    #[error("column {column} is missing; expected {column} {expected}")]
    Missing { column: String, expected: String },
    /// The column has a type with another encoding.
    #[error(
        "column {column} has type {found}; expected {expected}: change it (ALTER TABLE … MODIFY COLUMN), or name another table"
    )]
    Type { column: String, expected: String, found: String },
    /// The column's JSON type declares a path of a type that is not supported.
    #[error(
        "column {column} declares path {path} as {found}; expected one of {supported}: declare one of them, or remove the path",
        supported = typed_value::SUPPORTED
    )]
    PathType { column: String, path: String, found: String },
    /// The column's JSON type declares a path that the gateway writes itself.
    #[error(
        "column {column} declares path {path}; remove it: the gateway writes this path with its own type"
    )]
    PathReserved { column: String, path: String },
    /// The column is computed by the server.
    #[error(
        "column {column} is {default_kind}, which cannot be inserted; expected a column that stores {expected}"
    )]
    Computed { column: String, expected: String, default_kind: DefaultKind },
}

impl Mismatch {
    /// The column's name.
    pub fn column(&self) -> &str {
        match self {
            Self::Missing { column, .. }
            | Self::Type { column, .. }
            | Self::PathType { column, .. }
            | Self::PathReserved { column, .. }
            | Self::Computed { column, .. } => column,
        }
    }
}

/// The apparent layout of a table with these columns, whether or not rows can be written to it.
pub fn described_columns(described: &[DescribedColumn]) -> TableColumns {
    Described(described).columns()
}

/// Determines how rows are written to a table with these columns.
///
/// # Errors
/// Every mismatch, in the order of a row.
pub fn check(described: &[DescribedColumn]) -> Result<TableFit, Vec<Mismatch>> {
    let table = Described(described);
    let columns = table.columns();
    let mut mismatches = Vec::new();
    for column in columns.columns() {
        mismatches.extend(table.mismatch(&column));
    }
    if !mismatches.is_empty() {
        return Err(mismatches);
    }
    let ours = columns.columns();
    let is_ours = |name: &str| ours.iter().any(|column| column.name == name);
    let additional =
        described.iter().filter(|column| !is_ours(&column.name)).map(|column| column.name.clone());
    let mut notes = notes(&columns);
    notes.extend(table.unfilled().iter().map(Unfilled::note));
    Ok(TableFit { additional: additional.collect(), notes, columns })
}

/// An optional column that a table has, and that the gateway does not fill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfilled {
    /// Its name.
    pub column: String,
    /// The type that the gateway could fill.
    pub expected: String,
    /// Its type.
    pub found: String,
    /// The source of its value if an INSERT does not name it.
    pub default_kind: DefaultKind,
}

impl Unfilled {
    /// Whether the server computes it, so that only its expression is in the way.
    pub fn is_computed(&self) -> bool {
        self.default_kind != DefaultKind::Plain
    }

    fn note(&self) -> String {
        let Self { column, expected, found, default_kind } = self;
        if self.is_computed() {
            return format!(
                "column {column} is {default_kind}, so the server fills it; for the gateway to fill it, remove the expression \
                 (ALTER TABLE … MODIFY COLUMN {column} REMOVE {default_kind})"
            );
        }
        format!(
            "column {column} has type {found} and is not filled; the gateway fills a column {column} of type {expected}: change it \
             (ALTER TABLE … MODIFY COLUMN), or leave it if it is a column of your own"
        )
    }
}

/// The layout of the scope's attributes in a table that has a column for them, whether or not it can be filled.
pub fn scope_layout(described: &[DescribedColumn]) -> Option<Layout> {
    let table = Described(described);
    let layout = table.attributes(AttributeSet::Scope).layout();
    let columns = AttributeSet::Scope.columns(layout);
    columns.iter().any(|column| table.find(&column.name).is_some()).then_some(layout)
}

/// The optional columns of a table that the gateway does not fill, in the order of a row.
pub fn unfilled(described: &[DescribedColumn]) -> Vec<Unfilled> {
    Described(described).unfilled()
}

/// The columns for which rows were encoded, from their names and types ([`TableColumns::names_and_types`]).
///
/// # Errors
/// Every mismatch: rows are never encoded for such columns.
pub fn columns_of(names_and_types: &[(String, String)]) -> Result<TableColumns, Vec<Mismatch>> {
    let described = |(name, type_name): &(String, String)| DescribedColumn {
        name: name.clone(),
        type_name: type_name.clone(),
        default_kind: DefaultKind::Plain,
    };
    check(&names_and_types.iter().map(described).collect::<Vec<_>>()).map(|fit| fit.columns)
}

/// Determines how rows that were encoded for other columns are written to a table. An INSERT names its columns, so these need only exist,
/// with types of the same encoding. Their current type names go before the rows.
///
/// # Errors
/// Every column that does not fit, in the order of a row.
pub fn check_encoded(
    encoded: &TableColumns,
    described: &[DescribedColumn],
) -> Result<TableColumns, Vec<Mismatch>> {
    let table = Described(described);
    let columns = encoded.columns();
    let mismatches: Vec<Mismatch> =
        columns.iter().filter_map(|column| table.mismatch_encoded(column, encoded)).collect();
    if !mismatches.is_empty() {
        return Err(mismatches);
    }
    Ok(TableColumns { described: table.names_and_types(&columns), ..encoded.clone() })
}

/// A table as the server describes it.
#[derive(Clone, Copy)]
struct Described<'a>(&'a [DescribedColumn]);

impl<'a> Described<'a> {
    fn find(self, name: &str) -> Option<&'a DescribedColumn> {
        self.0.iter().find(|described| described.name == name)
    }

    fn columns(self) -> TableColumns {
        let [resource, span, event, link] = AttributeSet::ALL.map(|set| self.attributes(set));
        let mut scope = self.attributes(AttributeSet::Scope);
        let fills = |column: &OptionalColumn| self.fills(*column, scope.layout());
        let optional: OptionalColumns = OptionalColumn::ALL.into_iter().filter(fills).collect();
        let optional = optional.complete();
        if !optional.has(OptionalColumn::ScopeAttributes) {
            scope = AttributeColumns::default();
        }
        let mut columns =
            TableColumns { resource, span, event, link, scope, optional, described: Vec::new() };
        columns.described = self.names_and_types(&columns.columns());
        columns
    }

    /// Whether the gateway fills an optional column: all of its columns exist, have no expression, and read the same bytes.
    fn fills(self, column: OptionalColumn, scope: Layout) -> bool {
        column
            .columns(scope)
            .iter()
            .all(|column| self.find(&column.name).is_some_and(|it| is_fillable(column, it)))
    }

    /// The optional columns that exist, at least in part, and are not filled.
    fn unfilled(self) -> Vec<Unfilled> {
        let scope = self.attributes(AttributeSet::Scope).layout();
        let columns = OptionalColumn::ALL.into_iter().filter(|column| !self.fills(*column, scope));
        let existing = columns.flat_map(|column| column.columns(scope)).filter_map(|column| {
            let found = self.find(&column.name).filter(|found| !is_fillable(&column, found))?;
            let expected = column.column_type.to_string();
            let (found, default_kind) = (found.type_name.clone(), found.default_kind);
            Some(Unfilled { column: column.name, expected, found, default_kind })
        });
        existing.collect()
    }

    /// The server's names of these columns, as far as they exist.
    fn names_and_types(self, columns: &[Column]) -> Vec<(String, String)> {
        let described = columns.iter().filter_map(|column| self.find(&column.name));
        described.map(|column| (column.name.clone(), column.type_name.clone())).collect()
    }

    /// The apparent layout of a set of attributes; JSON if no column tells.
    fn attributes(self, set: AttributeSet) -> AttributeColumns {
        let grouped = set.columns(Layout::Nested).iter().any(|column| self.find(&column.name).is_some());
        // Rows do not go to a column that is computed from the groups, for old queries.
        let is_target = |column: &&DescribedColumn| !(grouped && column.default_kind.is_computed());
        if let Some(column) = self.find(set.name()).filter(is_target) {
            let single =
                if set.is_repeated() { array_element(&column.type_name) } else { Some(&*column.type_name) };
            let single = single.unwrap_or_default();
            if single.starts_with("Map(") {
                return AttributeColumns::Map;
            }
            return AttributeColumns::Json(JsonType::parse(single).unwrap_or_default());
        }
        if grouped { AttributeColumns::Nested } else { AttributeColumns::default() }
    }

    /// The column, if an INSERT may name it.
    fn writable(self, column: &str, expected: &str) -> Result<&'a DescribedColumn, Mismatch> {
        let (column, expected) = (column.to_owned(), expected.to_owned());
        match self.find(&column) {
            None => Err(Mismatch::Missing { column, expected }),
            Some(found) if found.default_kind.is_computed() => {
                Err(Mismatch::Computed { column, expected, default_kind: found.default_kind })
            }
            Some(found) => Ok(found),
        }
    }

    /// Why bytes that were encoded for a column are no longer right for it.
    fn mismatch_encoded(self, wanted: &Column, encoded: &TableColumns) -> Option<Mismatch> {
        let (column, expected) = (wanted.name.clone(), encoded.type_name(wanted));
        let found = match self.writable(&column, &expected) {
            Ok(described) => described.type_name.clone(),
            Err(mismatch) => return Some(mismatch),
        };
        let is_same = match wanted.column_type {
            // Its paths and limits determine the bytes.
            ColumnType::Json => JsonType::parse(&found) == JsonType::parse(&expected),
            ColumnType::ArrayJson => {
                array_element(&found).map(JsonType::parse) == array_element(&expected).map(JsonType::parse)
            }
            other => other.fit(&found) == TypeFit::Same,
        };
        (!is_same).then_some(Mismatch::Type { column, expected, found })
    }

    fn mismatch(self, wanted: &Column) -> Option<Mismatch> {
        let column = wanted.name.clone();
        let expected = expected(wanted);
        let described = match self.writable(&column, &expected) {
            Ok(described) => described,
            Err(mismatch) => return Some(mismatch),
        };
        let found = described.type_name.clone();
        match wanted.column_type.fit(&found) {
            TypeFit::Same => None,
            TypeFit::Other | TypeFit::Json(JsonTypeError::Other) => {
                Some(Mismatch::Type { column, expected, found })
            }
            TypeFit::Json(JsonTypeError::Path { path, type_name }) => {
                Some(Mismatch::PathType { column, path, found: type_name })
            }
            TypeFit::Json(JsonTypeError::Reserved { path }) => Some(Mismatch::PathReserved { column, path }),
        }
    }
}

/// Whether the gateway may fill an optional column of this description. One with an expression keeps it: its owner has chosen its value.
fn is_fillable(wanted: &Column, found: &DescribedColumn) -> bool {
    found.default_kind == DefaultKind::Plain && wanted.column_type.fit(&found.type_name) == TypeFit::Same
}

/// The expected type of a column, as text; for attributes in one column, with the other layouts.
fn expected(wanted: &Column) -> String {
    match wanted.column_type {
        ColumnType::Json => {
            "JSON, Map(LowCardinality(String), String), or typed groups in its place".to_owned()
        }
        ColumnType::ArrayJson => {
            "Array(JSON), Array(Map(LowCardinality(String), String)), or typed groups in its place".to_owned()
        }
        other => other.to_string(),
    }
}

/// Notes about behaviour of a table that its owner may not expect.
fn notes(columns: &TableColumns) -> Vec<String> {
    let note = |set: AttributeSet| match columns.of(set) {
        AttributeColumns::Json(json) if !json.patterns().is_empty() => Some(format!(
            "column {} has SKIP REGEXP {}, which ClickHouse ignores for binary formats: matching paths are stored",
            set.name(),
            json.patterns().join(", ")
        )),
        _ => None,
    };
    AttributeSet::ALL.into_iter().filter_map(note).collect()
}

/// Whether a type of the server has the encoding of one of the gateway's.
#[derive(Debug, PartialEq, Eq)]
enum TypeFit {
    Same,
    Other,
    /// A JSON type that cannot be written to.
    Json(JsonTypeError),
}

impl ColumnType {
    fn fit(self, found: &str) -> TypeFit {
        let element = || array_element(found);
        let same = match self {
            Self::Json => return json_fit(found),
            Self::ArrayJson => return element().map_or(TypeFit::Other, json_fit),
            Self::Map => is_map(found),
            Self::ArrayMap => element().is_some_and(is_map),
            Self::DateTime64Nanos => is_time("9", found),
            Self::DateTime64Millis => is_time("3", found),
            Self::ArrayDateTime64Nanos => element().is_some_and(|found| is_time("9", found)),
            // The gateway's numbers are below 2^63, and partitions and offsets are not negative: both types read the same bytes.
            Self::UInt64 | Self::Int64 => found == "UInt64" || found == "Int64",
            Self::Int32 => found == "UInt32" || found == "Int32",
            Self::UInt32 => found == "UInt32",
            Self::String | Self::LowCardinalityString => is_text(found),
            Self::ArrayString | Self::ArrayLowCardinalityString => element().is_some_and(is_text),
            Self::ArrayOf(group) => element().is_some_and(|found| is_value(group, found)),
            Self::ArrayOfPairs(group) => element().is_some_and(|found| is_pairs(group, found)),
        };
        if same { TypeFit::Same } else { TypeFit::Other }
    }
}

/// `T` of `Array(T)`.
fn array_element(type_name: &str) -> Option<&str> {
    type_name.strip_prefix("Array(")?.strip_suffix(')')
}

fn is_text(found: &str) -> bool {
    found == "String" || found == "LowCardinality(String)"
}

/// `DateTime64` with this number of digits, with or without a zone.
fn is_time(digits: &str, found: &str) -> bool {
    let inner = found.strip_prefix("DateTime64(").and_then(|rest| rest.strip_suffix(')'));
    let zone = inner.and_then(|inner| inner.strip_prefix(digits));
    zone.is_some_and(|zone| zone.is_empty() || (zone.starts_with(", '") && zone.ends_with('\'')))
}

fn is_map(found: &str) -> bool {
    let inner = found.strip_prefix("Map(").and_then(|rest| rest.strip_suffix(')'));
    inner.and_then(|inner| inner.split_once(", ")).is_some_and(|(key, value)| is_text(key) && is_text(value))
}

fn is_value(group: Group, found: &str) -> bool {
    match group {
        Group::String | Group::Complex => is_text(found),
        Group::Bool | Group::Double | Group::Int => found == group.value_type(),
    }
}

/// `Nested(Key …, Value …)`, or what that stands for.
fn is_pairs(group: Group, found: &str) -> bool {
    let inside = |text: &'static str| found.strip_prefix(text);
    let pair = inside("Nested(").and_then(|rest| rest.strip_suffix(')'));
    let pair = pair.or_else(|| inside("Array(Tuple(").and_then(|rest| rest.strip_suffix("))")));
    let fields = pair.and_then(|pair| pair.split_once(", "));
    fields.is_some_and(|(key, value)| {
        key.strip_prefix("Key ").is_some_and(is_text)
            && value.strip_prefix("Value ").is_some_and(|found| is_value(group, found))
    })
}

fn json_fit(found: &str) -> TypeFit {
    JsonType::parse(found).map_or_else(TypeFit::Json, |_| TypeFit::Same)
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
