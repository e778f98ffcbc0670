//! The statements that make the table.
//!
//! Job: `CREATE` statements for the columns of [`crate::column`], in any layout of the attributes. Place in the flow: `sluice-gateway ddl` prints them or
//! runs them through [`crate::probe`]. Pure: same input, same text. Limits: one `MergeTree` table on one server;
//! nothing is ever altered or dropped.

use std::time::Duration;

use crate::column::{AttributeSet, Column, ColumnType, Group, Layout, TableColumns};
use crate::sql::{identifier, table_name};

/// Blocks whose tokens the server remembers. Chosen: a retry under a token is dropped only while the server still
/// knows the token; 10,000 blocks is what replicated tables remember by default (25.9), and hours at a few inserts a
/// second. The server's own default for tables without replicas is 0: every retry after a lost answer would be stored
/// twice, without a word.
pub const DEDUPLICATION_WINDOW_BLOCKS: u32 = 10_000;

/// Paths of `ResourceAttributes` and `SpanAttributes` that get a column of their own; further ones share one. Chosen:
/// the server's default of 1,024 made merges take more than 60 hours at 700 k spans/s (ClickHouse#89944); its
/// developers advise small numbers (#103558).
pub const DYNAMIC_PATHS_MAX: u32 = 64;

/// As [`DYNAMIC_PATHS_MAX`], for the attributes of events and links, which have few distinct keys (`exception.*`).
pub const NESTED_DYNAMIC_PATHS_MAX: u32 = 16;

/// Paths of `ResourceAttributes` that are declared: what SDKs and Kubernetes say of nearly every resource (OpenTelemetry semantic
/// conventions, resource). A declared path needs no look at its type for every row: the server's CPU for a million spans
/// with 14 of them fell from 7.9 s to 6.6 s (`cargo throughput --shape rich --sink clickhouse`, 21 November 2026, two virtual
/// cores). `Nullable`, so that an absent one is NULL, as an undeclared one is; it costs the same as `String`. In the order of
/// their names, as the server shows them.
pub const RESOURCE_PATHS: [&str; 14] = [
    "cloud.provider",
    "cloud.region",
    "host.name",
    "k8s.deployment.name",
    "k8s.namespace.name",
    "k8s.node.name",
    "k8s.pod.name",
    "service.instance.id",
    "service.name",
    "service.namespace",
    "service.version",
    "telemetry.sdk.language",
    "telemetry.sdk.name",
    "telemetry.sdk.version",
];

/// Bytes, before compression, from which a part has a file for every column. Chosen: four blocks of the usual size, so that
/// what an insert makes is one file, and what a merge of several makes is read column by column. With the server's own 10 MiB
/// every block of a `JSON` table makes hundreds of files, one for every path.
pub const WIDE_PART_BYTES_MIN: u64 = 128 << 20;

/// The table wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSpec {
    /// The database.
    pub database: String,
    /// Whether to create the database as well.
    pub create_database: bool,
    /// The table.
    pub table: String,
    /// How attributes lie in it.
    pub layout: Layout,
    /// Age at which rows are dropped, a whole day at a time; in whole seconds, at least one. None keeps them for ever.
    pub ttl: Option<Duration>,
    /// Paths with a column of their own, usually [`DYNAMIC_PATHS_MAX`].
    pub dynamic_paths_max: u32,
    /// Tokens remembered, usually [`DEDUPLICATION_WINDOW_BLOCKS`].
    pub deduplication_window_blocks: u32,
}

impl TableSpec {
    /// `database.table` as it is usually wanted: the database is created too, nothing expires.
    pub fn new(database: impl Into<String>, table: impl Into<String>) -> Self {
        Self {
            database: database.into(),
            create_database: true,
            table: table.into(),
            layout: Layout::default(),
            ttl: None,
            dynamic_paths_max: DYNAMIC_PATHS_MAX,
            deduplication_window_blocks: DEDUPLICATION_WINDOW_BLOCKS,
        }
    }
}

/// The statements that make the table, in order, each of which changes nothing when run a second time.
pub fn create_table(spec: &TableSpec) -> Vec<String> {
    let mut statements = Vec::with_capacity(2);
    if spec.create_database {
        statements.push(format!("CREATE DATABASE IF NOT EXISTS {}", identifier(&spec.database)));
    }
    statements.push(create_table_statement(spec));
    statements
}

fn create_table_statement(spec: &TableSpec) -> String {
    let name = table_name(&spec.database, &spec.table);
    let columns = TableColumns::of_layout(spec.layout).columns();
    let mut lines: Vec<_> = columns.iter().map(|column| column_line(column, spec)).collect();
    // Looking up one trace reads the few granules that may hold it; the key cannot help, since it is sorted by service.
    lines.push("INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1".to_owned());
    lines.extend(attribute_indexes(spec.layout));
    lines.push("INDEX idx_duration Duration TYPE minmax GRANULARITY 1".to_owned());
    let body = lines.join(",\n    ");
    // Low cardinality first: equal neighbours compress best, and most queries name a service and a time.
    format!(
        "CREATE TABLE IF NOT EXISTS {name}\n(\n    {body}\n)\nENGINE = MergeTree\n\
         PARTITION BY toDate(Timestamp)\n\
         ORDER BY (ServiceName, SpanName, toDateTime(Timestamp), Timestamp)\n\
         {ttl}{settings}",
        ttl = ttl_line(spec.ttl),
        settings = settings_line(spec),
    )
}

/// Granules without a key or a value are not read. A `JSON` column needs no index: a path is a column of its own.
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
    let column_type = match column.column_type {
        ColumnType::Json if column.name == AttributeSet::Resource.name() => {
            let declared = RESOURCE_PATHS.map(|path| format!("{} Nullable(String)", identifier(path)));
            format!("JSON(max_dynamic_paths={}, {})", spec.dynamic_paths_max, declared.join(", "))
        }
        ColumnType::Json => format!("JSON(max_dynamic_paths={})", spec.dynamic_paths_max),
        ColumnType::ArrayJson => {
            let paths = spec.dynamic_paths_max.min(NESTED_DYNAMIC_PATHS_MAX);
            format!("Array(JSON(max_dynamic_paths={paths}))")
        }
        other => other.to_string(),
    };
    format!("{name} {column_type} CODEC({})", codec(column.column_type))
}

/// Times are close to their neighbours; durations use few of their 64 bits.
fn codec(column_type: ColumnType) -> &'static str {
    match column_type {
        ColumnType::DateTime64Nanos => "Delta(8), ZSTD(1)",
        ColumnType::UInt64 => "T64, ZSTD(1)",
        _ => "ZSTD(1)",
    }
}

fn ttl_line(ttl: Option<Duration>) -> String {
    match ttl {
        Some(ttl) => format!("TTL toDateTime(Timestamp) + toIntervalSecond({})\n", ttl.as_secs()),
        None => String::new(),
    }
}

/// `ttl_only_drop_parts`: partitions are days, so that expiry drops whole parts instead of rewriting them.
fn settings_line(spec: &TableSpec) -> String {
    format!(
        "SETTINGS index_granularity = 8192, ttl_only_drop_parts = 1, min_bytes_for_wide_part = {WIDE_PART_BYTES_MIN}, \
         non_replicated_deduplication_window = {}",
        spec.deduplication_window_blocks
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_table_is_this_text() {
        let statements = create_table(&TableSpec::new("otel", "otel_traces"));
        assert_eq!(statements[0], "CREATE DATABASE IF NOT EXISTS `otel`");
        assert_eq!(
            statements[1],
            "\
CREATE TABLE IF NOT EXISTS `otel`.`otel_traces`
(
    `Timestamp` DateTime64(9) CODEC(Delta(8), ZSTD(1)),
    `TraceId` String CODEC(ZSTD(1)),
    `SpanId` String CODEC(ZSTD(1)),
    `ParentSpanId` String CODEC(ZSTD(1)),
    `TraceState` String CODEC(ZSTD(1)),
    `SpanName` LowCardinality(String) CODEC(ZSTD(1)),
    `SpanKind` LowCardinality(String) CODEC(ZSTD(1)),
    `ServiceName` LowCardinality(String) CODEC(ZSTD(1)),
    `ResourceAttributes` JSON(max_dynamic_paths=64, `cloud.provider` Nullable(String), \
`cloud.region` Nullable(String), `host.name` Nullable(String), `k8s.deployment.name` Nullable(String), `k8s.namespace.name` Nullable(String), \
`k8s.node.name` Nullable(String), `k8s.pod.name` Nullable(String), `service.instance.id` Nullable(String), `service.name` Nullable(String), \
`service.namespace` Nullable(String), `service.version` Nullable(String), `telemetry.sdk.language` Nullable(String), `telemetry.sdk.name` Nullable(String), \
`telemetry.sdk.version` Nullable(String)) CODEC(ZSTD(1)),
    `ScopeName` String CODEC(ZSTD(1)),
    `ScopeVersion` String CODEC(ZSTD(1)),
    `SpanAttributes` JSON(max_dynamic_paths=64) CODEC(ZSTD(1)),
    `Duration` UInt64 CODEC(T64, ZSTD(1)),
    `StatusCode` LowCardinality(String) CODEC(ZSTD(1)),
    `StatusMessage` String CODEC(ZSTD(1)),
    `Events.Timestamp` Array(DateTime64(9)) CODEC(ZSTD(1)),
    `Events.Name` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `Events.Attributes` Array(JSON(max_dynamic_paths=16)) CODEC(ZSTD(1)),
    `Links.TraceId` Array(String) CODEC(ZSTD(1)),
    `Links.SpanId` Array(String) CODEC(ZSTD(1)),
    `Links.TraceState` Array(String) CODEC(ZSTD(1)),
    `Links.Attributes` Array(JSON(max_dynamic_paths=16)) CODEC(ZSTD(1)),
    INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX idx_duration Duration TYPE minmax GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toDate(Timestamp)
ORDER BY (ServiceName, SpanName, toDateTime(Timestamp), Timestamp)
SETTINGS index_granularity = 8192, ttl_only_drop_parts = 1, min_bytes_for_wide_part = 134217728, non_replicated_deduplication_window = 10000"
        );
        assert_eq!(statements.len(), 2);
    }

    /// The lines in which the table of a layout differs from the usual one.
    fn difference(layout: Layout) -> String {
        let text =
            |layout| create_table(&TableSpec { layout, ..TableSpec::new("otel", "otel_traces") }).remove(1);
        let usual = text(Layout::Json);
        let lines: Vec<_> = text(layout).lines().map(str::to_owned).collect();
        lines
            .into_iter()
            .filter(|line| !usual.lines().any(|known| known == line))
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn a_table_of_maps_differs_in_these_lines() {
        assert_eq!(
            difference(Layout::Map),
            "    `ResourceAttributes` Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    `SpanAttributes` Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    `Events.Attributes` Array(Map(LowCardinality(String), String)) CODEC(ZSTD(1)),
    `Links.Attributes` Array(Map(LowCardinality(String), String)) CODEC(ZSTD(1)),
    INDEX idx_res_attr_key mapKeys(ResourceAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_res_attr_value mapValues(ResourceAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_span_attr_key mapKeys(SpanAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_span_attr_value mapValues(SpanAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,"
        );
    }

    #[test]
    fn a_table_of_groups_differs_in_these_lines() {
        assert_eq!(
            difference(Layout::Nested),
            "    `ResourceAttributesBool.Key` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `ResourceAttributesBool.Value` Array(Bool) CODEC(ZSTD(1)),
    `ResourceAttributesDouble.Key` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `ResourceAttributesDouble.Value` Array(Float64) CODEC(ZSTD(1)),
    `ResourceAttributesInt.Key` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `ResourceAttributesInt.Value` Array(Int64) CODEC(ZSTD(1)),
    `ResourceAttributesString.Key` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `ResourceAttributesString.Value` Array(String) CODEC(ZSTD(1)),
    `ResourceAttributesComplex.Key` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `ResourceAttributesComplex.Value` Array(String) CODEC(ZSTD(1)),
    `SpanAttributesBool.Key` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `SpanAttributesBool.Value` Array(Bool) CODEC(ZSTD(1)),
    `SpanAttributesDouble.Key` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `SpanAttributesDouble.Value` Array(Float64) CODEC(ZSTD(1)),
    `SpanAttributesInt.Key` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `SpanAttributesInt.Value` Array(Int64) CODEC(ZSTD(1)),
    `SpanAttributesString.Key` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `SpanAttributesString.Value` Array(String) CODEC(ZSTD(1)),
    `SpanAttributesComplex.Key` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `SpanAttributesComplex.Value` Array(String) CODEC(ZSTD(1)),
    `Events.AttributesBool` Array(Nested(Key LowCardinality(String), Value Bool)) CODEC(ZSTD(1)),
    `Events.AttributesDouble` Array(Nested(Key LowCardinality(String), Value Float64)) CODEC(ZSTD(1)),
    `Events.AttributesInt` Array(Nested(Key LowCardinality(String), Value Int64)) CODEC(ZSTD(1)),
    `Events.AttributesString` Array(Nested(Key LowCardinality(String), Value String)) CODEC(ZSTD(1)),
    `Events.AttributesComplex` Array(Nested(Key LowCardinality(String), Value String)) CODEC(ZSTD(1)),
    `Links.AttributesBool` Array(Nested(Key LowCardinality(String), Value Bool)) CODEC(ZSTD(1)),
    `Links.AttributesDouble` Array(Nested(Key LowCardinality(String), Value Float64)) CODEC(ZSTD(1)),
    `Links.AttributesInt` Array(Nested(Key LowCardinality(String), Value Int64)) CODEC(ZSTD(1)),
    `Links.AttributesString` Array(Nested(Key LowCardinality(String), Value String)) CODEC(ZSTD(1)),
    `Links.AttributesComplex` Array(Nested(Key LowCardinality(String), Value String)) CODEC(ZSTD(1)),
    INDEX idx_res_attr_key `ResourceAttributesString.Key` TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_res_attr_value `ResourceAttributesString.Value` TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_span_attr_key `SpanAttributesString.Key` TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_span_attr_value `SpanAttributesString.Value` TYPE bloom_filter(0.01) GRANULARITY 1,"
        );
    }

    #[test]
    fn options_change_their_part_of_the_text() {
        let spec = TableSpec {
            create_database: false,
            ttl: Some(Duration::from_hours(72)),
            dynamic_paths_max: 8,
            deduplication_window_blocks: 100,
            ..TableSpec::new("otel", "otel_traces")
        };
        let statements = create_table(&spec);
        assert_eq!(statements.len(), 1);
        for part in [
            "`SpanAttributes` JSON(max_dynamic_paths=8) CODEC",
            "`Events.Attributes` Array(JSON(max_dynamic_paths=8)) CODEC",
            "\nTTL toDateTime(Timestamp) + toIntervalSecond(259200)\nSETTINGS ",
            "non_replicated_deduplication_window = 100",
        ] {
            assert!(statements[0].contains(part), "{part} in {}", statements[0]);
        }
    }

    #[test]
    fn names_are_quoted() {
        let statements = create_table(&TableSpec::new("o`t", "x` (a Int8); --"));
        assert_eq!(statements[0], r"CREATE DATABASE IF NOT EXISTS `o\`t`");
        assert!(statements[1].starts_with(r"CREATE TABLE IF NOT EXISTS `o\`t`.`x\` (a Int8); --`"));
    }
}
