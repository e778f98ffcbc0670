//! Tables beside the main one, each filled by a materialized view.
//!
//! Job: their statements. Place in the flow: they follow the statement of the main table, whose rows the views get block by block.
//!
//! | view | table | answers |
//! |---|---|---|
//! | [`View::Operations`] | `<table>_operations` | which services there are, and which operations they have; since when, until when |
//! | [`View::TraceTimes`] | `<table>_trace_id_ts` | when a trace was: a query by trace id with these times reads only its days |
//!
//! Name and columns of the second are those of the OpenTelemetry exporter, which dashboards look for.
//!
//! Every value besides the key is a `min` or a `max`: a block that arrives twice changes no answer, whether the server drops it (the
//! tables have a token window too) or not. For the same reason there are no counts. The tables have no partitions, since deduplication
//! below a view that groups into partitions fails on some servers (ClickHouse#112649); so expired rows are removed by merges. Merges run
//! at any time: queries must group by the key and apply `min` and `max` again.

use crate::ddl::{Engine, TableSpec, ttl_line};
use crate::sql::table_name;

/// A table that a view fills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// Services and their operations.
    Operations,
    /// The time range of each trace.
    TraceTimes,
}

impl View {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Operations, Self::TraceTimes];

    /// The table that it fills.
    pub fn table(self, table: &str) -> String {
        format!("{table}_{}", self.suffix())
    }

    /// The view's own name.
    pub fn name(self, table: &str) -> String {
        format!("{table}_{}_mv", self.suffix())
    }

    fn suffix(self) -> &'static str {
        match self {
            Self::Operations => "operations",
            Self::TraceTimes => "trace_id_ts",
        }
    }

    /// The statements that make its table and the view, in order.
    pub fn create(self, spec: &TableSpec) -> Vec<String> {
        vec![self.create_table(spec), self.create_view(spec)]
    }

    fn create_table(self, spec: &TableSpec) -> String {
        let engine = match spec.engine() {
            Engine::ReplicatedMergeTree => Engine::ReplicatedMergeTree,
            // The views of a table without rows store theirs.
            Engine::MergeTree | Engine::Null => Engine::MergeTree,
        };
        let replicated = if engine == Engine::ReplicatedMergeTree { "Replicated" } else { "" };
        let (columns, key, last) = match self {
            Self::Operations => (
                "`ServiceName` LowCardinality(String) CODEC(ZSTD(1)),
    `SpanName` LowCardinality(String) CODEC(ZSTD(1)),
    `SpanKind` LowCardinality(String) CODEC(ZSTD(1)),
    `First` SimpleAggregateFunction(min, DateTime64(9)) CODEC(ZSTD(1)),
    `Last` SimpleAggregateFunction(max, DateTime64(9)) CODEC(ZSTD(1))",
                "(ServiceName, SpanName, SpanKind)",
                "Last",
            ),
            Self::TraceTimes => (
                "`TraceId` String CODEC(ZSTD(1)),
    `Start` SimpleAggregateFunction(min, DateTime64(9)) CODEC(Delta(8), ZSTD(1)),
    `End` SimpleAggregateFunction(max, DateTime64(9)) CODEC(Delta(8), ZSTD(1))",
                "TraceId",
                "End",
            ),
        };
        format!(
            "CREATE TABLE IF NOT EXISTS {name}{cluster}\n(\n    {columns}\n)\nENGINE = {replicated}AggregatingMergeTree\n\
             ORDER BY {key}\n{ttl}SETTINGS {window} = {blocks}{sync}",
            name = table_name(&spec.database, &self.table(&spec.table)),
            cluster = spec.on_cluster(),
            ttl = ttl_line(spec.ttl, last),
            window = engine.window_setting(),
            blocks = spec.deduplication_window_blocks,
            sync = spec.sync_settings(),
        )
    }

    fn create_view(self, spec: &TableSpec) -> String {
        let select = match self {
            Self::Operations => {
                "ServiceName, SpanName, SpanKind, min(Timestamp) AS First, max(Timestamp) AS Last"
            }
            Self::TraceTimes => "TraceId, min(Timestamp) AS Start, max(Timestamp) AS End",
        };
        let rest = match self {
            Self::Operations => "GROUP BY ServiceName, SpanName, SpanKind",
            // Spans without a trace id do not form one trace.
            Self::TraceTimes => "WHERE TraceId != '' GROUP BY TraceId",
        };
        format!(
            "CREATE MATERIALIZED VIEW IF NOT EXISTS {view}{cluster} TO {target}\nAS SELECT {select}\nFROM {source}\n{rest}",
            view = table_name(&spec.database, &self.name(&spec.table)),
            cluster = spec.on_cluster(),
            target = table_name(&spec.database, &self.table(&spec.table)),
            source = table_name(&spec.database, &spec.table),
        )
    }
}
