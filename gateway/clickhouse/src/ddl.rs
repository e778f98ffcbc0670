//! The statements that create the table, its views and their tables.
//!
//! Job: `CREATE` statements for the columns of [`crate::column`], in any layout of the attributes, engine and order; the views
//! ([`view`]); tables that a reader defines ([`preset`]); the differences of an existing table ([`difference`]); and what adds the columns
//! without which a table takes no rows ([`missing`]). Place in the flow:
//! `sluice-gateway ddl` prints the statements or runs them through [`crate::probe`]. Pure: same input, same text.
//!
//! Limits: statements create objects, add columns and change settings; they never alter anything else, and never drop anything.
//! Replicated tables and `ON CLUSTER` are only checked as text: they were not run against a server with Keeper.

pub mod difference;
pub mod missing;
pub mod preset;
pub mod view;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::column::{AttributeSet, Column, ColumnType, Group, Layout, TableColumns};
use crate::durability::{Durability, sync_settings};
use crate::optional::{OptionalColumn, OptionalColumns};
use crate::sql::{identifier, table_name};
use preset::Preset;
use view::View;

/// Number of blocks whose tokens the server remembers. Chosen: a retry is dropped only while the server still knows its token; 10,000
/// blocks is the default of replicated tables (25.9), and hours at a few inserts a second. The default of tables without replicas is 0:
/// every retry after a lost answer would silently be stored twice.
pub const DEDUPLICATION_WINDOW_BLOCKS: u32 = 10_000;

/// A partition is a day of UTC. ClickHouse looks for a token in the partitions of a block. With days of the server's own zone, a retry
/// after a restart in another zone would go to other partitions and be stored twice. `toDate` wraps in 2149; `toDate32` reaches 2299.
const PARTITION_BY: &str = "toDate32(Timestamp, 'UTC')";

/// The default sorting key. Low cardinality first: equal neighbours compress best, and most queries name a service and a time.
/// `toDateTime` wraps in 2106; queries find later rows by `Timestamp`.
pub const ORDER_BY: [&str; 4] = ["ServiceName", "SpanName", "toDateTime(Timestamp)", "Timestamp"];

/// Paths of `ResourceAttributes` and `SpanAttributes` that get a column of their own; further ones share one. Chosen:
/// the server's default of 1,024 made merges take more than 60 hours at 700 k spans/s (ClickHouse#89944); its
/// developers advise small numbers (#103558).
pub const DYNAMIC_PATHS_MAX: u32 = 64;

/// Like [`DYNAMIC_PATHS_MAX`], for the attributes of events, links and scopes, which have few distinct keys (`exception.*`).
pub const NESTED_DYNAMIC_PATHS_MAX: u32 = 16;

/// Paths of `ResourceAttributes` that a new table declares as `Nullable(String)`, sorted by name, as the server shows them. None: readers
/// ask for the text of a path by `path.:String` and for its type by `dynamicType(path)` (`HyperDX`), which ClickHouse refuses for a
/// declared path. The price is that the server determines the type of each value. Measured with `cargo throughput --shape rich --sink
/// clickhouse` (21 November 2026, two virtual cores): with 14 declared paths, a million spans as `RowBinary` took 6.6 s of CPU, not 7.9 s.
/// `schema-bench --only json-service` measures both. An existing table keeps what it declares: only
/// [`TableSpec::typed_paths`] are compared.
pub const RESOURCE_PATHS: &[&str] = &[];

/// Uncompressed bytes from which a part has a file per column. Chosen: four blocks of the usual size, so that an insert writes one file,
/// and the result of merging several parts is read column by column. With the server's own 10 MiB, every block of a `JSON` table writes
/// hundreds of files, one for every path.
pub const WIDE_PART_BYTES_MIN: u64 = 128 << 20;

/// The wanted table. Open fields (`None`, empty) stay as the table has them, and have their default in a new table.
///
/// Names are quoted in statements. Types and expressions are not: the code that creates a spec from a config has checked them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSpec {
    pub database: String,
    /// Whether to create the database as well.
    pub create_database: bool,
    pub table: String,
    /// The reader that defines it.
    pub preset: Option<Preset>,
    /// The layout of its attributes.
    pub layout: Option<Layout>,
    pub engine: Option<Engine>,
    /// The cluster on which statements are run.
    pub cluster: Option<String>,
    /// Age at which rows are dropped, a whole day at a time; in whole seconds, at least one. None keeps them for ever.
    pub ttl: Option<Duration>,
    /// The sorting key, usually [`ORDER_BY`]: columns, or functions of one.
    pub order_by: Vec<String>,
    /// Paths with a column of their own, usually [`DYNAMIC_PATHS_MAX`].
    pub dynamic_paths_max: Option<u32>,
    /// Paths with a type, beside [`RESOURCE_PATHS`].
    pub typed_paths: Vec<TypedPath>,
    /// Columns that the gateway fills if they are there, usually [`optional_columns`].
    pub optional: Option<OptionalColumns>,
    /// Columns that the gateway does not fill.
    pub columns: Vec<ExtraColumn>,
    /// Views and their tables.
    pub views: Vec<View>,
    /// Tokens remembered, usually [`DEDUPLICATION_WINDOW_BLOCKS`].
    pub deduplication_window_blocks: u32,
    /// The minimum durability of acknowledged rows.
    pub durability: Durability,
}

/// The engine of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Engine {
    /// Rows on one server.
    #[default]
    MergeTree,
    /// Replicas. Path and name come from the server's own macros (`default_replica_path`).
    ReplicatedMergeTree,
    /// No rows are stored; views get them.
    Null,
}

/// A path of a `JSON` column with a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypedPath {
    /// The set of attributes of the column.
    pub set: AttributeSet,
    pub path: String,
    /// Its type, one that [`crate::typed_value`] supports.
    pub type_name: String,
}

/// A column that the gateway does not fill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtraColumn {
    pub name: String,
    pub type_name: String,
    /// The expression from which the server computes it.
    pub default: Option<String>,
}

impl Engine {
    /// The server's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::MergeTree => "MergeTree",
            Self::ReplicatedMergeTree => "ReplicatedMergeTree",
            Self::Null => "Null",
        }
    }

    fn window_setting(self) -> &'static str {
        match self {
            Self::ReplicatedMergeTree => "replicated_deduplication_window",
            Self::MergeTree | Self::Null => "non_replicated_deduplication_window",
        }
    }
}

impl TableSpec {
    /// `database.table` with the usual values: the database is created too, and rows never expire.
    pub fn new(database: impl Into<String>, table: impl Into<String>) -> Self {
        Self {
            database: database.into(),
            create_database: true,
            table: table.into(),
            preset: None,
            layout: None,
            engine: None,
            cluster: None,
            ttl: None,
            order_by: Vec::new(),
            dynamic_paths_max: None,
            typed_paths: Vec::new(),
            optional: None,
            columns: Vec::new(),
            views: Vec::new(),
            deduplication_window_blocks: DEDUPLICATION_WINDOW_BLOCKS,
            durability: Durability::default(),
        }
    }

    /// ` ON CLUSTER …`, or nothing.
    fn on_cluster(&self) -> String {
        self.cluster
            .as_deref()
            .map(|cluster| format!(" ON CLUSTER {}", identifier(cluster)))
            .unwrap_or_default()
    }

    /// The layout that is asked for, by name or by a preset.
    fn layout_asked(&self) -> Option<Layout> {
        self.layout.or(self.preset.map(Preset::layout))
    }

    /// The columns of a preset, which the server computes.
    fn computed_columns(&self) -> &'static [preset::ComputedColumn] {
        self.preset.map(Preset::columns).unwrap_or_default()
    }

    /// The sorting key of a new table.
    fn order_of_new(&self) -> String {
        match self.preset {
            _ if !self.order_by.is_empty() => self.order_by.join(", "),
            Some(preset) => preset.order_by().join(", "),
            None => ORDER_BY.join(", "),
        }
    }

    /// The engine of a new table. A quorum needs replicas.
    fn engine(&self) -> Engine {
        let usual = if self.durability == Durability::Quorum {
            Engine::ReplicatedMergeTree
        } else {
            Engine::default()
        };
        self.engine.unwrap_or(usual)
    }

    /// `, fsync_after_insert = 1, …` if parts are to be synced, to follow other settings of a table.
    fn sync_settings(&self) -> String {
        if self.durability == Durability::Fsync { format!(", {}", sync_settings()) } else { String::new() }
    }

    /// The beginning of an `ALTER TABLE …` statement.
    fn alter(&self) -> String {
        format!("ALTER TABLE {}{}", table_name(&self.database, &self.table), self.on_cluster())
    }

    /// The optional columns of a new table. A column of the spec's own takes the place of one of the same name.
    fn new_optional(&self) -> OptionalColumns {
        let optional = self.optional.unwrap_or_default();
        optional.iter().filter(|column| !self.has_own(column.name())).collect()
    }

    /// Whether the spec has a column of this name that the gateway does not fill.
    fn has_own(&self, name: &str) -> bool {
        self.columns.iter().any(|column| column.name == name)
    }

    /// The types of declared paths in the column of a set of attributes, by path.
    fn declared_paths(&self, set: AttributeSet) -> BTreeMap<&str, &str> {
        let usual = RESOURCE_PATHS.iter().filter(|_| set == AttributeSet::Resource);
        let usual = usual.map(|path| (*path, "Nullable(String)"));
        let asked = self.typed_paths.iter().filter(|typed| typed.set == set);
        usual.chain(asked.map(|typed| (&*typed.path, &*typed.type_name))).collect()
    }
}

/// The statements that create everything, in order. Running them again changes nothing.
pub fn create_all(spec: &TableSpec) -> Vec<String> {
    let mut statements = create_table(spec);
    for view in &spec.views {
        statements.extend(view.create(spec));
    }
    statements
}

/// The statements that create database and table.
pub fn create_table(spec: &TableSpec) -> Vec<String> {
    let mut statements = Vec::with_capacity(2);
    if spec.create_database {
        let database = identifier(&spec.database);
        statements.push(format!("CREATE DATABASE IF NOT EXISTS {database}{}", spec.on_cluster()));
    }
    statements.push(create_table_statement(spec));
    statements
}

fn create_table_statement(spec: &TableSpec) -> String {
    let name = table_name(&spec.database, &spec.table);
    let layout = spec.layout_asked().unwrap_or_default();
    let optional = spec.new_optional();
    let columns = TableColumns::of_layout(layout).with_optional(optional).columns();
    let mut lines: Vec<_> = columns.iter().map(|column| column_line(column, spec)).collect();
    lines.extend(spec.computed_columns().iter().map(preset::ComputedColumn::line));
    lines.extend(spec.columns.iter().map(extra_column_line));
    if spec.engine() != Engine::Null {
        lines.extend(item_lines(layout, spec));
        lines.extend(indexes(spec.preset, layout, optional));
    }
    let body = lines.join(",\n    ");
    format!(
        "CREATE TABLE IF NOT EXISTS {name}{cluster}\n(\n    {body}\n)\nENGINE = {engine}{stored}",
        cluster = spec.on_cluster(),
        engine = spec.engine().name(),
        stored = stored(spec),
    )
}

/// How rows are stored; empty if they are not.
fn stored(spec: &TableSpec) -> String {
    if spec.engine() == Engine::Null {
        return String::new();
    }
    format!(
        "\nPARTITION BY {PARTITION_BY}\n{primary}ORDER BY ({order})\n{ttl}{settings}",
        primary = primary_key_line(spec),
        order = spec.order_of_new(),
        ttl = ttl_line(spec.ttl, "Timestamp"),
        settings = settings_line(spec),
    )
}

/// The primary key of the exporter's table with maps: the sorting key without its last column, which leaves 8 bytes per granule out of the
/// server's memory. Without this line, as in the exporter's table with `JSON`, it is the whole sorting key.
fn primary_key_line(spec: &TableSpec) -> String {
    if spec.preset.is_some() || spec.layout != Some(Layout::Map) || !spec.order_by.is_empty() {
        return String::new();
    }
    let [key @ .., _] = &ORDER_BY;
    format!("PRIMARY KEY ({})\n", key.join(", "))
}

/// Columns of the exporter's table with maps that are computed when they are read: the text `key=value` of each attribute. A preset has
/// its own.
fn item_lines(layout: Layout, spec: &TableSpec) -> Vec<String> {
    if spec.preset.is_some() || layout != Layout::Map {
        return Vec::new();
    }
    let items =
        [("ResourceAttributeItems", AttributeSet::Resource), ("SpanAttributeItems", AttributeSet::Span)];
    let items = items.into_iter().filter(|(name, _)| !spec.has_own(name));
    let line = |(name, set): (&str, AttributeSet)| {
        let map = set.name();
        format!(
            "{} Array(String) ALIAS arrayMap((key, value) -> concat(key, '=', value), mapKeys({map}), mapValues({map}))",
            identifier(name)
        )
    };
    items.map(line).collect()
}

fn indexes(preset: Option<Preset>, layout: Layout, optional: OptionalColumns) -> Vec<String> {
    if let Some(preset) = preset {
        let own = preset.indexes().iter().map(|index| (*index).to_owned());
        return own.chain(optional.iter().filter_map(key_index)).collect();
    }
    // A query for one trace reads the few granules that may contain it; the sorting key cannot help, since it starts with the service.
    let mut indexes = vec!["INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1".to_owned()];
    indexes.extend(attribute_indexes(layout));
    indexes.extend(optional.iter().filter_map(key_index));
    indexes.push("INDEX idx_duration Duration TYPE minmax GRANULARITY 1".to_owned());
    if layout == Layout::Map {
        // HyperDX looks for words in names in lower case.
        indexes.push(
            "INDEX idx_lower_span_name lower(SpanName) TYPE tokenbf_v1(32768, 3, 0) GRANULARITY 8".to_owned(),
        );
    }
    indexes
}

/// The index over a column of keys, with the exporter's name: granules without a key are skipped.
fn key_index(column: OptionalColumn) -> Option<String> {
    let short = match column {
        OptionalColumn::ResourceAttributesKeys => "res",
        OptionalColumn::SpanAttributesKeys => "span",
        OptionalColumn::ScopeAttributesKeys => "scope",
        _ => return None,
    };
    Some(format!("INDEX idx_{short}_attr_keys {} TYPE bloom_filter(0.01) GRANULARITY 1", column.name()))
}

/// Granules without a key or value are skipped. A `JSON` column needs no index: a path is a column of its own.
fn attribute_indexes(layout: Layout) -> Vec<String> {
    let mut indexes = Vec::new();
    for (set, short) in [(AttributeSet::Resource, "res"), (AttributeSet::Span, "span")] {
        let (key, value) = match layout {
            Layout::Json => continue,
            Layout::Map => (format!("mapKeys({})", set.name()), format!("mapValues({})", set.name())),
            Layout::Nested => {
                let group = format!("{}{}", set.name(), Group::String.name());
                (identifier(&format!("{group}.Key")), identifier(&format!("{group}.Value")))
            }
        };
        indexes.push(format!("INDEX idx_{short}_attr_key {key} TYPE bloom_filter(0.01) GRANULARITY 1"));
        indexes.push(format!("INDEX idx_{short}_attr_value {value} TYPE bloom_filter(0.01) GRANULARITY 1"));
    }
    indexes
}

fn column_line(column: &Column, spec: &TableSpec) -> String {
    let name = identifier(&column.name);
    let paths_max = spec.dynamic_paths_max.unwrap_or(DYNAMIC_PATHS_MAX);
    let is_scope = column.name == AttributeSet::Scope.name();
    let paths_max = if is_scope { paths_max.min(NESTED_DYNAMIC_PATHS_MAX) } else { paths_max };
    let column_type = match column.column_type {
        ColumnType::Json => json_type(column, spec, paths_max),
        ColumnType::ArrayJson => {
            format!("Array(JSON(max_dynamic_paths={}))", paths_max.min(NESTED_DYNAMIC_PATHS_MAX))
        }
        other => other.to_string(),
    };
    format!("{name} {column_type} CODEC({})", codec(column.column_type))
}

fn json_type(column: &Column, spec: &TableSpec, paths_max: u32) -> String {
    let set = AttributeSet::of_column(&column.name);
    let declared = set.map(|set| spec.declared_paths(set)).unwrap_or_default();
    let declared = declared.into_iter().map(|(path, of)| format!(", {} {of}", identifier(path)));
    format!("JSON(max_dynamic_paths={paths_max}{})", declared.collect::<String>())
}

fn extra_column_line(column: &ExtraColumn) -> String {
    let default =
        column.default.as_deref().map(|default| format!(" DEFAULT ({default})")).unwrap_or_default();
    format!("{} {}{default}", identifier(&column.name), column.type_name)
}

/// Times and offsets are close to their neighbours; durations use few of their 64 bits.
fn codec(column_type: ColumnType) -> &'static str {
    match column_type {
        ColumnType::DateTime64Nanos | ColumnType::DateTime64Millis | ColumnType::Int64 => "Delta(8), ZSTD(1)",
        ColumnType::UInt64 => "T64, ZSTD(1)",
        _ => "ZSTD(1)",
    }
}

/// Rows are dropped this long after the time in `column`. `toDateTime` has 32 bits: a sum after February 2106 wraps into the past, and
/// ClickHouse drops the row at once. `DateTime64(9)` ends in 2262, and a larger sum fails the INSERT. `DateTime64(0)` holds every sum.
fn ttl_line(ttl: Option<Duration>, column: &str) -> String {
    ttl.map(|ttl| format!("TTL {}\n", ttl_expression(ttl, column))).unwrap_or_default()
}

fn ttl_expression(ttl: Duration, column: &str) -> String {
    format!("toDateTime64({column}, 0) + toIntervalSecond({})", ttl.as_secs())
}

/// `ttl_only_drop_parts`: partitions are days, so that expiry drops whole parts instead of rewriting them.
fn settings_line(spec: &TableSpec) -> String {
    format!(
        "SETTINGS index_granularity = 8192, ttl_only_drop_parts = 1, min_bytes_for_wide_part = {WIDE_PART_BYTES_MIN}, {} = {}{}",
        spec.engine().window_setting(),
        spec.deduplication_window_blocks,
        spec.sync_settings()
    )
}

#[cfg(test)]
#[path = "ddl_tests.rs"]
mod tests;
