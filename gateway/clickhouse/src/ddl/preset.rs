//! Tables as a reader of traces defines them.
//!
//! Job: what a preset adds to the table of its layout: columns that the server computes, indexes, the sorting key. Place in the flow:
//! [`crate::ddl`] writes the `CREATE` statement with it; [`crate::ddl::difference`] looks for its columns in an existing table. Pure.
//!
//! | preset | reader | layout |
//! |---|---|---|
//! | [`Preset::ClickStack`] | `HyperDX`, with the table `otel_traces` of `ClickStack` | maps |
//!
//! `ClickStack`: columns, indexes and sorting key are those of version 2.36.0 (August 2026) on ClickHouse 26.2 or newer. The partition is
//! the day of UTC instead of the server's ([`crate::ddl`] says why), and rows are kept unless the spec has a TTL; `ClickStack` itself
//! drops them after 30 days. Its tables of frequent values (`otel_traces_kv_rollup_15m`) are not made: they count rows, and would count
//! a block that comes twice.
//!
//! Limits: the gateway fills none of these columns. An INSERT never names them.

use crate::column::Layout;
use crate::sql::identifier;
use crate::table::DefaultKind;

/// A table that a reader defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    /// The table that `HyperDX` expects.
    ClickStack,
}

/// A column that the server computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ComputedColumn {
    pub name: &'static str,
    pub type_name: &'static str,
    /// `MATERIALIZED` or `ALIAS`.
    pub kind: DefaultKind,
    pub expression: &'static str,
    /// How it is compressed; a computed-when-read column has none.
    codec: Option<&'static str>,
}

/// What `HyperDX` reads beside the attributes: the session of a browser, how many spans a sampled one stands for, and the items
/// `key=value` that text indexes hold.
const CLICKSTACK_COLUMNS: [ComputedColumn; 4] = [
    ComputedColumn {
        name: "__hdx_materialized_rum.sessionId",
        type_name: "String",
        kind: DefaultKind::Materialized,
        expression: "ResourceAttributes['rum.sessionId']",
        codec: Some("ZSTD(1)"),
    },
    ComputedColumn {
        name: "SampleRate",
        type_name: "UInt64",
        kind: DefaultKind::Materialized,
        expression: "greatest(toUInt64OrZero(SpanAttributes['SampleRate']), 1)",
        codec: Some("T64, ZSTD(1)"),
    },
    ComputedColumn {
        name: "ResourceAttributeItems",
        type_name: "Array(String)",
        kind: DefaultKind::Alias,
        expression: "arrayMap((arr) -> concat(arr.1, '=', arr.2), ResourceAttributes::Array(Tuple(String, String)))",
        codec: None,
    },
    ComputedColumn {
        name: "SpanAttributeItems",
        type_name: "Array(String)",
        kind: DefaultKind::Alias,
        expression: "arrayMap((arr) -> concat(arr.1, '=', arr.2), SpanAttributes::Array(Tuple(String, String)))",
        codec: None,
    },
];

/// `HyperDX` looks for the text indexes, and then asks for an attribute by `has(SpanAttributeItems, 'key=value')`.
const CLICKSTACK_INDEXES: [&str; 8] = [
    "INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1",
    "INDEX idx_rum_session_id `__hdx_materialized_rum.sessionId` TYPE bloom_filter(0.001) GRANULARITY 1",
    "INDEX idx_res_attr_key mapKeys(ResourceAttributes) TYPE bloom_filter(0.01) GRANULARITY 1",
    "INDEX idx_res_attr_items ResourceAttributeItems TYPE text(tokenizer = 'array')",
    "INDEX idx_span_attr_key mapKeys(SpanAttributes) TYPE bloom_filter(0.01) GRANULARITY 1",
    "INDEX idx_span_attr_items SpanAttributeItems TYPE text(tokenizer = 'array')",
    "INDEX idx_duration Duration TYPE minmax GRANULARITY 1",
    "INDEX idx_lower_span_name lower(SpanName) TYPE tokenbf_v1(32768, 3, 0) GRANULARITY 8",
];

const CLICKSTACK_ORDER_BY: [&str; 3] = ["ServiceName", "SpanName", "toDateTime(Timestamp)"];

impl Preset {
    /// The layout of its attributes.
    pub fn layout(self) -> Layout {
        match self {
            Self::ClickStack => Layout::Map,
        }
    }

    /// Its columns beside those that the gateway fills.
    pub fn columns(self) -> &'static [ComputedColumn] {
        match self {
            Self::ClickStack => &CLICKSTACK_COLUMNS,
        }
    }

    /// Its indexes, in place of those of its layout.
    pub fn indexes(self) -> &'static [&'static str] {
        match self {
            Self::ClickStack => &CLICKSTACK_INDEXES,
        }
    }

    /// The sorting key of a new table.
    pub fn order_by(self) -> &'static [&'static str] {
        match self {
            Self::ClickStack => &CLICKSTACK_ORDER_BY,
        }
    }
}

impl ComputedColumn {
    /// Its line in a statement.
    pub(crate) fn line(&self) -> String {
        let Self { name, type_name, kind, expression, codec } = self;
        let codec = codec.map(|codec| format!(" CODEC({codec})")).unwrap_or_default();
        format!("{} {type_name} {kind} {expression}{codec}", identifier(name))
    }
}
