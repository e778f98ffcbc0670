//! The differences between an existing table and the wanted one.
//!
//! Job: compares what the server has ([`Found`]) with what is wanted ([`TableSpec`]), and lists every [`Difference`] with the change that
//! would remove it. Place in the flow: `sluice-gateway ddl diff` prints them; `ddl apply` makes the permitted changes and prints the
//! rest. Pure.
//!
//! | missing or different | change |
//! |---|---|
//! | table, view | it is created ([`Change::Create`]) |
//! | a column | it is added ([`Change::AddColumn`]), an optional one with its index: old rows read its default, no part is rewritten |
//! | durability | settings are changed ([`Change::ModifySetting`]): they hold for later INSERTs, no part is rewritten |
//! | a column's type, a JSON path's, the number of JSON paths | manual: every part is rewritten |
//! | an optional column that the server computes | manual: its owner chose the expression |
//! | a column's default, if it has none | manual: existing rows read other values |
//! | TTL | manual: rows are dropped |
//! | engine, layout, sorting key, replicas for a quorum | manual: a new table, and a copy of the rows |
//! | anything of a `Distributed` table | manual: the tables behind it first, or it accepts rows that these do not take |
//!
//! Only requested properties are compared. Other columns, indexes, codecs and settings belong to the table's owner; so does a view's
//! SELECT. A table with more durability than requested does not differ. Defaults are not compared with each other: the server rewrites
//! names and brackets.

use std::fmt;
use std::time::Duration;

use crate::column::{AttributeColumns, AttributeSet, Column, Layout, TableColumns};
use crate::ddl::preset::ComputedColumn;
use crate::ddl::view::View;
use crate::ddl::{
    Engine, ExtraColumn, TableSpec, column_line, create_table, extra_column_line, key_index, ttl_expression,
};
use crate::durability::{Durability, sync_settings};
use crate::json_type::{JsonType, PathRule, altered};
use crate::sql::{identifier, table_name};
use crate::table::{
    DefaultKind, DescribedColumn, Mismatch, Unfilled, check, described_columns, scope_layout, unfilled,
};
use crate::ttl::{self, AtOnce, RowTtl};
use crate::typed_value::TypedValue;

/// What a server has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// The table; `None` when it is missing.
    pub table: Option<FoundTable>,
    /// The existing tables and views of the database that have the name of a view or of its table.
    pub others: Vec<String>,
    /// The tables among these whose parts are not synced before an INSERT is acknowledged; empty if the spec does not ask for that.
    pub unsynced: Vec<String>,
}

/// A table, as the server shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundTable {
    /// Its engine's name.
    pub engine: String,
    /// The engine with all its clauses: `MergeTree PARTITION BY … TTL … SETTINGS …`.
    pub engine_full: String,
    /// The sorting key, without brackets.
    pub sorting_key: String,
    /// Its columns, in order.
    pub columns: Vec<DescribedColumn>,
    /// The rules of its TTL that act on new rows at once, if the spec has a TTL.
    pub acting_at_once: Vec<AtOnce>,
}

/// A property that differs from the spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The property: `column Route`, `TTL`, `view otel_traces_operations_mv`.
    pub what: String,
    /// The wanted value.
    pub wanted: String,
    /// The value on the server.
    pub found: String,
    /// The change that would remove the difference.
    pub change: Change,
}

/// The change that would remove a difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// These statements create something new.
    Create(Vec<String>),
    /// This statement adds a column.
    AddColumn(String),
    /// This statement changes settings of a table.
    ModifySetting(String),
    /// Data would be dropped, rewritten or copied: a statement or a description, to be run manually.
    ByHand(String),
}

impl Change {
    /// The statements that may be run automatically.
    pub fn statements(&self) -> &[String] {
        match self {
            Self::Create(statements) => statements,
            Self::AddColumn(statement) | Self::ModifySetting(statement) => std::slice::from_ref(statement),
            Self::ByHand(_) => &[],
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, wanted, found, change } = self;
        match change {
            Change::Create(statements) => {
                write!(f, "{what} is missing; this would take: {}", statements.join(";\n"))
            }
            Change::AddColumn(statement) => write!(f, "{what} is missing; this would take: {statement}"),
            Change::ModifySetting(would) | Change::ByHand(would) => {
                write!(f, "{what} is {found}, wanted: {wanted}; this would take: {would}")
            }
        }
    }
}

/// All differences: missing objects first, then missing columns, then settings, then manual changes.
pub fn differences(spec: &TableSpec, found: &Found) -> Vec<Difference> {
    let mut differences = match &found.table {
        None => vec![missing(format!("table {}.{}", spec.database, spec.table), create_table(spec))],
        Some(table) if table.engine == DISTRIBUTED => of_table(spec, table).into_iter().map(behind).collect(),
        Some(table) => of_table(spec, table),
    };
    differences.extend(spec.views.iter().filter_map(|view| of_view(spec, *view, &found.others)));
    differences.extend(found.unsynced.iter().map(|table| of_sync(spec, table)));
    differences.sort_by_key(|difference| match difference.change {
        Change::Create(_) => 0,
        Change::AddColumn(_) => 1,
        Change::ModifySetting(_) => 2,
        Change::ByHand(_) => 3,
    });
    differences
}

/// The engine that stores no rows, and passes them on to tables of other servers.
pub(super) const DISTRIBUTED: &str = "Distributed";

/// The tables that its rows go to.
pub(super) const BEHIND: &str = "the tables behind this Distributed table, on all of their servers";

/// The difference of a table that passes rows on. A column that it alone has is in rows that the tables behind it do not take: they wait in
/// its queue. What is stored how is decided by those tables.
fn behind(difference: Difference) -> Difference {
    let words = match &difference.change {
        Change::AddColumn(statement) => {
            format!("the column in {BEHIND}, and then {statement}")
        }
        Change::Create(_) | Change::ModifySetting(_) | Change::ByHand(_) => {
            format!("a change of {BEHIND}")
        }
    };
    Difference { change: Change::ByHand(words), ..difference }
}

fn missing(what: String, statements: Vec<String>) -> Difference {
    let change = Change::Create(statements);
    Difference { what, wanted: "present".into(), found: "missing".into(), change }
}

fn of_view(spec: &TableSpec, view: View, others: &[String]) -> Option<Difference> {
    let is_there = |name: String| others.contains(&name);
    let is_whole = is_there(view.table(&spec.table)) && is_there(view.name(&spec.table));
    (!is_whole).then(|| missing(format!("view {}", view.name(&spec.table)), view.create(spec)))
}

fn of_table(spec: &TableSpec, table: &FoundTable) -> Vec<Difference> {
    let mut found = of_columns(spec, table);
    found.extend(of_optional(spec, table));
    found.extend(spec.columns.iter().filter_map(|column| of_extra_column(spec, column, table)));
    found.extend(of_layout(spec, table));
    found.extend(of_preset(spec, table));
    found.extend(of_paths(spec, table));
    found.extend(of_engine(spec, table));
    found.extend(of_order(spec, table));
    found.extend(of_ttl(spec, table));
    found.extend(of_durability(spec, table));
    found
}

const NEW_TABLE: &str = "a new table, into which the rows are copied";

fn by_hand(what: String, wanted: String, found: String, would: String) -> Difference {
    Difference { what, wanted, found, change: Change::ByHand(would) }
}

/// The gateway's own columns that are missing or have another type.
fn of_columns(spec: &TableSpec, table: &FoundTable) -> Vec<Difference> {
    let missing = missing_columns(spec, &table.columns).into_iter();
    let added = missing.map(|column| add_column(spec, &column.name, column_line(&column, spec)));
    let mismatches = check(&table.columns).err().unwrap_or_default().into_iter();
    let others = mismatches.filter(|mismatch| !matches!(mismatch, Mismatch::Missing { .. }));
    let others = others.map(|mismatch| {
        let (what, wanted) =
            (format!("column {}", mismatch.column()), "one that rows can be written to".into());
        by_hand(what, wanted, "not so".into(), mismatch.to_string())
    });
    added.chain(others).collect()
}

/// The gateway's own columns that a table with these columns lacks, in the order of a row.
pub(super) fn missing_columns(spec: &TableSpec, described: &[DescribedColumn]) -> Vec<Column> {
    let mut columns = with_layout(described_columns(described), spec, described).columns();
    columns.retain(|column| described.iter().all(|found| found.name != column.name));
    columns
}

/// A set of attributes without any column is added in the wanted layout.
fn with_layout(mut columns: TableColumns, spec: &TableSpec, described: &[DescribedColumn]) -> TableColumns {
    let Some(layout) = spec.layout_asked() else { return columns };
    for set in AttributeSet::ALL {
        if found_layout(set, described).is_none() {
            *columns.of_mut(set) = AttributeColumns::of_layout(layout);
        }
    }
    columns
}

/// The optional columns that are asked for and are missing, or are not filled.
fn of_optional(spec: &TableSpec, table: &FoundTable) -> Vec<Difference> {
    let Some(wanted) = spec.optional else { return Vec::new() };
    let columns = described_columns(&table.columns);
    let scope = scope_layout(&table.columns).unwrap_or(columns.resource.layout());
    let is_there = |name: &str| table.columns.iter().any(|column| column.name == name);
    let mut found = Vec::new();
    for optional in wanted.iter().filter(|column| !columns.optional.has(*column)) {
        let missing = optional.columns(scope).into_iter().filter(|column| !is_there(&column.name));
        let added = missing.map(|column| {
            let mut difference = add_column(spec, &column.name, column_line(&column, spec));
            if let (Some(index), Change::AddColumn(statement)) = (key_index(optional), &mut difference.change)
            {
                // In the same statement: a column that is there is not asked for its index.
                statement.push_str(", ADD ");
                statement.push_str(&index.replacen("INDEX ", "INDEX IF NOT EXISTS ", 1));
            }
            difference
        });
        found.extend(added);
    }
    let names: Vec<String> =
        wanted.iter().flat_map(|it| it.columns(scope)).map(|column| column.name).collect();
    let unfilled = unfilled(&table.columns).into_iter().filter(|unfilled| names.contains(&unfilled.column));
    found.extend(unfilled.map(|unfilled| of_unfilled(spec, &unfilled)));
    found
}

/// An optional column that is there and cannot be filled.
fn of_unfilled(spec: &TableSpec, unfilled: &Unfilled) -> Difference {
    let Unfilled { column, expected, found, default_kind } = unfilled;
    let alter = format!("{} MODIFY COLUMN {}", spec.alter(), identifier(column));
    let what = format!("column {column}");
    if unfilled.is_computed() {
        let wanted = "filled by gateways".to_owned();
        return by_hand(what, wanted, default_kind.to_string(), format!("{alter} REMOVE {default_kind}"));
    }
    by_hand(what, expected.clone(), found.clone(), format!("{alter} {expected}"))
}

fn add_column(spec: &TableSpec, name: &str, line: String) -> Difference {
    let statement = format!("{} ADD COLUMN IF NOT EXISTS {line}", spec.alter());
    let change = Change::AddColumn(statement);
    Difference { what: format!("column {name}"), wanted: line, found: "missing".into(), change }
}

fn of_extra_column(spec: &TableSpec, column: &ExtraColumn, table: &FoundTable) -> Option<Difference> {
    let line = extra_column_line(column);
    let Some(found) = table.columns.iter().find(|found| found.name == column.name) else {
        return Some(add_column(spec, &column.name, line));
    };
    let would = format!("{} MODIFY COLUMN {line}", spec.alter());
    if without_spaces(&column.type_name) != without_spaces(&found.type_name) {
        let (wanted, is) = (column.type_name.clone(), found.type_name.clone());
        return Some(by_hand(format!("column {}", column.name), wanted, is, would));
    }
    let wanted = column.default.as_ref().filter(|_| found.default_kind != DefaultKind::Default)?;
    let is = match found.default_kind {
        DefaultKind::Plain => "none".to_owned(),
        kind => kind.to_string(),
    };
    Some(by_hand(format!("default of column {}", column.name), format!("DEFAULT {wanted}"), is, would))
}

fn of_layout(spec: &TableSpec, table: &FoundTable) -> Option<Difference> {
    let wanted = spec.layout_asked()?;
    let other = AttributeSet::ALL.into_iter().find_map(|set| {
        found_layout(set, &table.columns).filter(|found| *found != wanted).map(|found| (set, found))
    });
    other.map(|(set, found)| {
        let what = format!("layout of {}", set.name());
        by_hand(what, format!("{wanted:?}"), format!("{found:?}"), NEW_TABLE.into())
    })
}

/// The columns of a preset that are missing or have another type. Its expressions read the attributes in its own layout: in another one
/// they cannot be added, and the layout is the difference.
fn of_preset(spec: &TableSpec, table: &FoundTable) -> Vec<Difference> {
    if of_layout(spec, table).is_some() {
        return Vec::new();
    }
    let columns = spec.computed_columns().iter();
    columns.filter_map(|column| of_computed_column(spec, column, table)).collect()
}

fn of_computed_column(spec: &TableSpec, column: &ComputedColumn, table: &FoundTable) -> Option<Difference> {
    let Some(found) = table.columns.iter().find(|found| found.name == column.name) else {
        return Some(add_column(spec, column.name, column.line()));
    };
    let is_same = without_spaces(column.type_name) == without_spaces(&found.type_name);
    (!is_same).then(|| {
        let would = format!("{} MODIFY COLUMN {}", spec.alter(), column.line());
        by_hand(
            format!("column {}", column.name),
            column.type_name.to_owned(),
            found.type_name.clone(),
            would,
        )
    })
}

/// The layout of a set of attributes, if any of its columns exists.
fn found_layout(set: AttributeSet, described: &[DescribedColumn]) -> Option<Layout> {
    let columns = described_columns(described);
    let layout = columns.of(set).layout();
    let names = set.columns(layout);
    described.iter().any(|found| names.iter().any(|name| name.name == found.name)).then_some(layout)
}

/// Paths with another type or none, and the number of paths with a column of their own.
fn of_paths(spec: &TableSpec, table: &FoundTable) -> Vec<Difference> {
    let mut found = Vec::new();
    for set in [AttributeSet::Resource, AttributeSet::Span] {
        let Some(column) = table.columns.iter().find(|column| column.name == set.name()) else { continue };
        let Ok(json) = JsonType::parse(&column.type_name) else { continue };
        let would = || modify_json(spec, set, &column.type_name);
        for typed in spec.typed_paths.iter().filter(|typed| typed.set == set) {
            let wanted = TypedValue::parse(&typed.type_name).map(PathRule::Typed);
            let rule = json.rule(typed.path.as_bytes());
            if Some(rule) != wanted {
                let what = format!("path {} of {}", typed.path, set.name());
                found.push(by_hand(what, typed.type_name.clone(), rule_text(rule), would()));
            }
        }
        if let Some(paths) = spec.dynamic_paths_max.filter(|paths| json.limits().paths != u64::from(*paths)) {
            let what = format!("max_dynamic_paths of {}", set.name());
            found.push(by_hand(what, paths.to_string(), json.limits().paths.to_string(), would()));
        }
    }
    found
}

/// The wanted properties, and the table's own for everything else: a type is given completely, and omitted parts are lost.
fn modify_json(spec: &TableSpec, set: AttributeSet, found: &str) -> String {
    let asked = spec.typed_paths.iter().filter(|typed| typed.set == set);
    let asked: Vec<_> = asked.map(|typed| (&*typed.path, &*typed.type_name)).collect();
    let altered = altered(found, &asked, spec.dynamic_paths_max);
    format!("{} MODIFY COLUMN {} {altered}, which rewrites every part", spec.alter(), identifier(set.name()))
}

fn rule_text(rule: PathRule) -> String {
    match rule {
        PathRule::Dynamic => "not declared".into(),
        PathRule::Skipped => "skipped".into(),
        PathRule::Typed(_) => "declared with another type".into(),
    }
}

fn of_engine(spec: &TableSpec, table: &FoundTable) -> Option<Difference> {
    let wanted = spec.engine?;
    // ClickHouse Cloud stores every table of the family this way, whatever its statement says.
    let is_shared = table.engine == "SharedMergeTree" && wanted != Engine::Null;
    (table.engine != wanted.name() && !is_shared)
        .then(|| by_hand("engine".into(), wanted.name().into(), table.engine.clone(), NEW_TABLE.into()))
}

fn of_order(spec: &TableSpec, table: &FoundTable) -> Option<Difference> {
    let wanted = spec.order_by.join(", ");
    let is_wanted = wanted.is_empty() || without_spaces(&wanted) == without_spaces(&table.sorting_key);
    (!is_wanted)
        .then(|| by_hand("sorting key".into(), wanted.clone(), table.sorting_key.clone(), NEW_TABLE.into()))
}

/// A TTL with the wanted age and another rule that deletes rows differs: the rule deletes younger rows, too. Rules that move rows or compress
/// them again are kept.
fn of_ttl(spec: &TableSpec, table: &FoundTable) -> Option<Difference> {
    let wanted = Duration::from_secs(spec.ttl?.as_secs());
    let present = RowTtl::in_engine(&table.engine_full);
    if present.is_only(wanted) {
        return None;
    }
    let expression = ttl_expression(wanted, "Timestamp");
    let kept = ttl::rules(&table.engine_full).filter(|rule| !rule.deletes()).map(|rule| rule.text);
    let rules: Vec<&str> = [&*expression].into_iter().chain(kept).collect();
    let notes = ttl_notes(&present, &table.acting_at_once);
    let would = format!("{} MODIFY TTL {}, which drops what is older{notes}", spec.alter(), rules.join(", "));
    let found = ttl::expression(&table.engine_full).unwrap_or("none").to_owned();
    Some(by_hand("TTL".into(), expression, found, would))
}

/// What the present TTL deletes besides rows of an age, each after a semicolon.
fn ttl_notes(present: &RowTtl, acting_at_once: &[AtOnce]) -> String {
    let others = present.others().iter().map(|other| {
        match acting_at_once.iter().find(|at_once| at_once.rule == *other) {
            Some(at_once) => format!("; {at_once}"),
            None => format!("; the present TTL also deletes rows by {other}"),
        }
    });
    present.wrapped().map(|wrapped| format!("; {wrapped}")).into_iter().chain(others).collect()
}

/// A table that cannot be made durable by its settings.
fn of_durability(spec: &TableSpec, table: &FoundTable) -> Option<Difference> {
    let engine = table.engine.as_str();
    let is_family = engine.ends_with("MergeTree");
    let is_replicated = is_family && (engine.starts_with("Replicated") || engine.starts_with("Shared"));
    let (wanted, would) = match spec.durability {
        Durability::Quorum if !is_replicated => {
            ("Quorum", "a new table of engine ReplicatedMergeTree, into which the rows are copied")
        }
        // A table that stores nothing has nothing to sync.
        Durability::Fsync if !is_family && engine != Engine::Null.name() => ("Fsync", NEW_TABLE),
        _ => return None,
    };
    let found = if is_family { "Process".to_owned() } else { format!("unknown with engine {engine}") };
    Some(by_hand(format!("durability of {}", spec.table), wanted.into(), found, would.into()))
}

/// A table, the main one or a view's, whose parts are not synced before an INSERT is acknowledged.
fn of_sync(spec: &TableSpec, table: &str) -> Difference {
    let name = table_name(&spec.database, table);
    let statement = format!("ALTER TABLE {name}{} MODIFY SETTING {}", spec.on_cluster(), sync_settings());
    Difference {
        what: format!("durability of {table}"),
        wanted: "Fsync".into(),
        found: "Process".into(),
        change: Change::ModifySetting(statement),
    }
}

/// The server prints types and keys with spaces of its own.
fn without_spaces(text: &str) -> String {
    text.chars().filter(|char| !char.is_whitespace() && *char != '`').collect()
}

/// The names of the spec's views and their tables.
pub fn names_of_views(spec: &TableSpec) -> Vec<String> {
    spec.views.iter().flat_map(|view| [view.table(&spec.table), view.name(&spec.table)]).collect()
}

#[cfg(test)]
#[path = "difference_tests.rs"]
mod tests;
