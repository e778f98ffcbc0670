//! The cases: which spans, which program inserts them, and into which table.

use std::str::FromStr;

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::collector::{self, Schema};
use crate::command::value_name;
use crate::schema_bench::{Layout, NAMES, SERVICE_FIRST, TIME_FIRST, TRACE_FIRST, Variant, plain};
use crate::throughput::{InsertFormat, TableLayout};
use e2e_fixtures::gateway::Orders;
use e2e_fixtures::pipeline::merged;
use e2e_fixtures::spans::{Encoding, Shape};

/// The age at which a block closes if its number of rows is given. Chosen: longer than a partition needs for the largest block at a few
/// hundred spans a second, so that rows close the block.
const BLOCK_AGE: &str = "60s";

/// Rows that a block may have (`sink.clickhouse.insert.maxRows`).
const BLOCK_ROWS_MAX: u32 = 1_000_000;

/// The queries about spans without attributes of HTTP and Kubernetes.
const LOADGEN_QUESTIONS: [&str; 5] = ["trace", "operation", "duration", "services", "operations"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    pub shape: Shape,
    pub program: Program,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Gateway(Settings),
    Collector(Schema),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    pub layout: TableLayout,
    pub format: InsertFormat,
    pub block: BlockSize,
    pub order: Order,
    pub has_views: bool,
}

/// When a block closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockSize {
    /// By the gateway's defaults.
    Default,
    /// At this many rows.
    Rows(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// `ServiceName`, `SpanName`, time: the default
    Service,
    /// Time in steps of five minutes, `ServiceName`, `SpanName`
    Time,
    /// `TraceId`, time
    Trace,
}

impl FromStr for BlockSize {
    type Err = String;

    fn from_str(text: &str) -> Result<BlockSize, String> {
        if text == "default" {
            return Ok(BlockSize::Default);
        }
        match text.parse() {
            Ok(rows) if (1..=BLOCK_ROWS_MAX).contains(&rows) => Ok(BlockSize::Rows(rows)),
            _ => Err(format!("is neither `default` nor a number from 1 to {BLOCK_ROWS_MAX}")),
        }
    }
}

impl Order {
    fn columns(self) -> &'static [&'static str] {
        match self {
            Order::Service => SERVICE_FIRST,
            Order::Time => TIME_FIRST,
            Order::Trace => TRACE_FIRST,
        }
    }
}

impl Settings {
    fn name(&self) -> String {
        let (layout, format) = (value_name(&self.layout), value_name(&self.format));
        let mut name = format!("{layout}-{format}-{}", value_name(&self.order));
        if let BlockSize::Rows(rows) = self.block {
            name.push('-');
            name.push_str(&rows.to_string());
        }
        if self.has_views {
            name += "-views";
        }
        name
    }

    fn variant(&self) -> Variant {
        Variant { views: self.has_views, ..plain("gateway", self.layout.layout(), self.order.columns()) }
    }
}

impl Case {
    pub fn of_gateway(shape: Shape, settings: Settings) -> Case {
        Case { shape, program: Program::Gateway(settings) }
    }

    /// The Collector's cases: a table of each of its own schemas.
    pub fn of_collector(shape: Shape) -> [Case; 2] {
        [Schema::OwnJson, Schema::OwnMap].map(|schema| Case { shape, program: Program::Collector(schema) })
    }

    pub fn name(&self) -> String {
        let shape = value_name(&self.shape);
        match &self.program {
            Program::Gateway(settings) => format!("{shape}-{}", settings.name()),
            Program::Collector(Schema::OwnMap) => format!("{shape}-collector-map"),
            Program::Collector(_) => format!("{shape}-collector-json"),
        }
    }

    pub fn describe(&self) -> String {
        match &self.program {
            Program::Collector(_) => "Collector, its own table and view".to_owned(),
            Program::Gateway(settings) => {
                let block = match settings.block {
                    BlockSize::Default => "blocks by default".to_owned(),
                    BlockSize::Rows(rows) => format!("blocks of {rows} rows"),
                };
                let views = if settings.has_views { ", two views" } else { "" };
                format!("gateway, {block}, sorted by {}{views}", settings.order.columns().join(", "))
            }
        }
    }

    /// The table, as queries need to know it. The Collector's view is not used: a trace is found by the index that its table has.
    pub fn variant(&self) -> Variant {
        match &self.program {
            Program::Gateway(settings) => settings.variant(),
            Program::Collector(Schema::OwnMap) => plain("collector", Layout::Map, SERVICE_FIRST),
            Program::Collector(_) => plain("collector", Layout::Json, SERVICE_FIRST),
        }
    }

    /// The queries that its spans can answer.
    pub fn questions(&self) -> &'static [&'static str] {
        match self.shape {
            Shape::Loadgen => &LOADGEN_QUESTIONS,
            Shape::Rich | Shape::Numbered => &NAMES,
        }
    }

    pub fn config(&self, orders: &Orders, partitions: i32) -> Value {
        match &self.program {
            Program::Gateway(settings) => gateway_config(settings, orders, partitions),
            Program::Collector(schema) => collector_config(*schema, orders),
        }
    }
}

fn gateway_config(settings: &Settings, orders: &Orders, partitions: i32) -> Value {
    let format = json!({"format": settings.format});
    let insert = match settings.block {
        BlockSize::Default => format,
        BlockSize::Rows(rows) => merged(&format, &json!({"maxRows": rows, "maxInterval": BLOCK_AGE})),
    };
    let change = json!({
        "source": {"kafka": {"partitionsActiveMax": partitions}},
        "sink": {"clickhouse": {"insert": insert, "schema": settings.variant().schema()}},
        "memory": {"limit": settings.format.memory_limit(Encoding::OtlpProto)},
    });
    merged(&orders.config(), &change)
}

fn collector_config(schema: Schema, orders: &Orders) -> Value {
    let receiver = json!({
        "brokers": [orders.broker],
        "group_id": orders.group,
        "initial_offset": "earliest",
        "traces": {"topics": [orders.topic], "encoding": "otlp_proto"},
    });
    let exporter = collector::exporter(orders.sink, orders.database, schema);
    collector::config(("kafka", &receiver), ("clickhouse", &exporter))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_gateway_config::{Duration, parse};

    const ORDERS: Orders<'static> = Orders {
        broker: "127.0.0.1:1",
        topic: "spans",
        group: "bill",
        sink: "http://127.0.0.1:2",
        database: "bill",
    };

    fn settings(block: BlockSize) -> Settings {
        let (layout, format) = (TableLayout::Nested, InsertFormat::Native);
        Settings { layout, format, block, order: Order::Trace, has_views: true }
    }

    #[test]
    fn a_gateway_accepts_its_config() {
        for (block, rows, age) in [
            (BlockSize::Default, 100_000, Duration::secs(1)),
            (BlockSize::Rows(5_000), 5_000, Duration::secs(60)),
        ] {
            let case = Case::of_gateway(Shape::Rich, settings(block));
            let config = parse::from_yaml(&case.config(&ORDERS, 8).to_string()).unwrap();
            let clickhouse = &config.sink.clickhouse;
            assert_eq!((clickhouse.insert.max_rows, clickhouse.insert.max_interval), (rows, age));
            assert_eq!(clickhouse.schema.order_by, TRACE_FIRST);
            assert!(clickhouse.schema.views.operations && clickhouse.schema.views.trace_times);
            assert!(config.check().is_ok());
        }
    }

    #[test]
    fn a_collector_reads_the_topic_and_makes_its_own_table() {
        let [_, map] = Case::of_collector(Shape::Loadgen);
        let config = map.config(&ORDERS, 8);
        assert_eq!(config["receivers"]["kafka"]["traces"]["topics"][0], "spans");
        assert_eq!(config["exporters"]["clickhouse"]["endpoint"], "http://127.0.0.1:2");
        assert_eq!(config["exporters"]["clickhouse"]["json"], false);
        assert_eq!(map.variant().layout, Layout::Map);
    }

    #[test]
    fn a_block_size_is_a_number_of_rows_or_the_default() {
        assert_eq!("default".parse(), Ok(BlockSize::Default));
        assert_eq!("36000".parse(), Ok(BlockSize::Rows(36_000)));
        for text in ["", "0", "1000001", "-1", "10k"] {
            assert!(text.parse::<BlockSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn spans_are_asked_only_for_what_they_have() {
        let questions = |shape| Case::of_gateway(shape, settings(BlockSize::Default)).questions();
        assert_eq!(questions(Shape::Rich), NAMES);
        assert!(questions(Shape::Loadgen).iter().all(|name| NAMES.contains(name) && *name != "tag"));
    }
}
