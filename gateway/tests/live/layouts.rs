//! Every kind of value, in every layout, read back from the server.

use crate::{
    messages::{every_shape, message, span},
    server::Database,
};
use sluice_clickhouse::column::{Layout as Found, TableColumns};
use sluice_gateway_config::{Layout, SchemaManagement};

/// Makes the table of a layout as `ddl apply` does, and inserts one message.
async fn filled(test: &str, layout: Layout, found: Found) -> Database {
    let database = Database::new(test).await;
    let done = database.sink(layout).apply(SchemaManagement::CreateIfMissing).await.unwrap();
    let columns = TableColumns::of_layout(found).to_string();
    assert_eq!(done.to_string(), format!("table {}.otel_traces created: {columns}", database.name));
    let again = database.sink(layout).apply(SchemaManagement::CreateIfMissing).await.unwrap();
    assert_eq!(again.to_string(), format!("table {}.otel_traces fits: {columns}", database.name));
    let columns = database.insert(&message(vec![span(every_shape())])).await;
    assert_eq!(columns.to_string(), TableColumns::of_layout(found).to_string());
    assert_eq!(database.ask("toString(count())").await, "2");
    database
}

/// What is asked of the row with events; the other one has none.
async fn asked(database: &Database, expressions: &[(&str, &str)]) {
    for (expression, expected) in expressions {
        let found = database.ask(&format!("anyIf(toString({expression}), SpanName = 'name')")).await;
        assert_eq!(found, *expected, "{expression}");
        // Nothing shifted in the row behind it.
        database.ask(&format!("anyIf(toString({expression}), SpanName = '')")).await;
    }
    assert_eq!(database.ask("anyIf(toString(length(Events.Name)), SpanName = '')").await, "0");
}

#[tokio::test]
async fn json_keeps_every_type() {
    let database = filled("json", Layout::Json, Found::Json).await;
    asked(
        &database,
        &[
            ("ResourceAttributes.service.name", "shop"),
            ("ResourceAttributes.host.name IS NULL", "1"),
            ("JSONDynamicPaths(ResourceAttributes)", "['service.name']"),
            ("SpanAttributes.string", r#"it's "text""#),
            ("SpanAttributes.int", "-9223372036854775808"),
            ("dynamicType(SpanAttributes.int)", "Int64"),
            ("dynamicType(SpanAttributes.bool)", "Bool"),
            ("SpanAttributes.double.large", "1e300"),
            ("SpanAttributes.nan", "nan"),
            ("SpanAttributes.infinity", "-inf"),
            ("SpanAttributes.bytes", "/+4="),
            ("SpanAttributes.array.empty", "[]"),
            ("SpanAttributes.array.ints", "[1,NULL]"),
            ("SpanAttributes.array.mixed", "[1,'x',true]"),
            ("SpanAttributes.array.lists", r#"['{"k":2}']"#),
            ("SpanAttributes.list.a", "x"),
            ("SpanAttributes.list.b.c", "3"),
            ("SpanAttributes.twice", "first"),
            ("has(JSONAllPaths(SpanAttributes), 'empty')", "0"),
            ("has(JSONAllPaths(SpanAttributes), '')", "1"),
            ("length(JSONAllPaths(SpanAttributes))", "17"),
            ("arrayMap(e -> length(JSONAllPaths(e)), Events.Attributes)", "[17,0]"),
            ("Links.Attributes", r#"['{"l":1}']"#),
        ],
    )
    .await;
    database.drop().await;
}

/// Every shape in a map, as the server prints it.
const MAP: &str = r#"{'string':'it\'s "text"','string.empty':'','bool':'true','int':'-9223372036854775808','double':'0.5','double.large':'1e+300','nan':'NaN','infinity':'-Infinity','bytes':'/+4=','array.empty':'[]','array.ints':'[1,null]','array.mixed':'[1,"x",true]','array.lists':'[{"k":2}]','list':'{"a":"x","b":{"c":3}}','empty':'','twice':'first','':'no key'}"#;

#[tokio::test]
async fn maps_hold_every_value_as_text() {
    let database = filled("map", Layout::Map, Found::Map).await;
    let events = format!("[{MAP},{{}}]");
    asked(
        &database,
        &[
            ("ResourceAttributes", "{'service.name':'shop'}"),
            ("SpanAttributes", MAP),
            ("Events.Attributes", &events),
            ("Links.Attributes", "[{'l':'1'}]"),
        ],
    )
    .await;
    database.drop().await;
}

#[tokio::test]
async fn groups_hold_every_value_in_its_type() {
    let database = filled("nested", Layout::Nested, Found::Nested).await;
    asked(
        &database,
        &[
            ("(`ResourceAttributesString.Key`, `ResourceAttributesString.Value`)", "(['service.name'],['shop'])"),
            ("(`SpanAttributesBool.Key`, `SpanAttributesBool.Value`)", "(['bool'],[true])"),
            (
                "(`SpanAttributesDouble.Key`, `SpanAttributesDouble.Value`)",
                "(['double','double.large','nan','infinity'],[0.5,1e300,nan,-inf])",
            ),
            ("(`SpanAttributesInt.Key`, `SpanAttributesInt.Value`)", "(['int'],[-9223372036854775808])"),
            (
                "(`SpanAttributesString.Key`, `SpanAttributesString.Value`)",
                r#"(['string','string.empty','twice',''],['it\'s "text"','','first','no key'])"#,
            ),
            (
                "(`SpanAttributesComplex.Key`, `SpanAttributesComplex.Value`)",
                r#"(['@bytes@bytes','@slice@array.empty','@slice@array.ints','@slice@array.mixed','@slice@array.lists','@map@list'],['/+4=','[]','[1,null]','[1,"x",true]','[{"k":2}]','{"a":"x","b":{"c":3}}'])"#,
            ),
            ("`Events.AttributesBool`", "[[('bool',true)],[]]"),
            ("`Events.AttributesInt`.Key", "[['int'],[]]"),
            ("`Events.AttributesString`.Value", r#"[['it\'s "text"','','first','no key'],[]]"#),
            ("arrayMap(pairs -> length(pairs), `Events.AttributesComplex`)", "[6,0]"),
            ("`Links.AttributesInt`", "[[('l',1)]]"),
            ("SpanAttributesInt.Value[indexOf(SpanAttributesInt.Key, 'int')]", "-9223372036854775808"),
        ],
    )
    .await;
    database.drop().await;
}

/// The Collector's own table, as its exporter makes it on a server with text indexes: maps, ALIAS columns, indexes on them.
const COLLECTOR_TABLE: &str = "
    Timestamp DateTime64(9) CODEC(Delta(8), ZSTD(1)),
    TraceId String, SpanId String, ParentSpanId String, TraceState String,
    SpanName LowCardinality(String), SpanKind LowCardinality(String), ServiceName LowCardinality(String),
    ResourceAttributes Map(LowCardinality(String), String), ScopeName String, ScopeVersion String,
    SpanAttributes Map(LowCardinality(String), String), Duration UInt64 CODEC(T64, ZSTD(1)),
    StatusCode LowCardinality(String), StatusMessage String,
    Events Nested (Timestamp DateTime64(9), Name LowCardinality(String), Attributes Map(LowCardinality(String), String)) CODEC(ZSTD(1)),
    Links Nested (TraceId String, SpanId String, TraceState String, Attributes Map(LowCardinality(String), String)) CODEC(ZSTD(1)),
    SpanAttributeItems Array(String) ALIAS arrayMap(kv -> concat(kv.1, '=', kv.2), CAST(SpanAttributes, 'Array(Tuple(String, String))')),
    INDEX idx_trace_id TraceId TYPE text(tokenizer = 'array'),
    INDEX idx_span_attr_key mapKeys(SpanAttributes) TYPE text(tokenizer = 'array'),
    INDEX idx_span_attr_items SpanAttributeItems TYPE text(tokenizer = 'array'),
    INDEX idx_duration Duration TYPE minmax GRANULARITY 1";

#[tokio::test]
async fn a_collectors_table_is_filled_as_it_is() {
    let database = Database::new("collector").await;
    database
        .execute(&format!(
            "CREATE TABLE {}.otel_traces ({COLLECTOR_TABLE}) ENGINE = MergeTree PARTITION BY toDate(Timestamp) \
             PRIMARY KEY (ServiceName, SpanName, toDateTime(Timestamp)) \
             ORDER BY (ServiceName, SpanName, toDateTime(Timestamp), Timestamp)",
            database.name
        ))
        .await;
    let columns = database.insert(&message(vec![span(every_shape())])).await;
    assert_eq!(columns.to_string(), TableColumns::of_layout(Found::Map).to_string());
    asked(
        &database,
        &[
            ("SpanAttributes", MAP),
            ("SpanAttributeItems[3]", "bool=true"),
            ("Duration", "5"),
            ("ServiceName", "shop"),
        ],
    )
    .await;
    database.drop().await;
}

/// The exporter's tables had this type until 2024.
#[tokio::test]
async fn a_collectors_older_table_is_filled_as_it_is() {
    let database = Database::new("collector_older").await;
    let columns =
        COLLECTOR_TABLE.replace("Duration UInt64 CODEC(T64, ZSTD(1))", "Duration Int64 CODEC(ZSTD(1))");
    assert_ne!(columns, COLLECTOR_TABLE);
    database
        .execute(&format!(
            "CREATE TABLE {}.otel_traces ({columns}) ENGINE = MergeTree ORDER BY (ServiceName, SpanName, Timestamp)",
            database.name
        ))
        .await;
    database.insert(&message(vec![span(every_shape())])).await;
    asked(&database, &[("SpanAttributes", MAP), ("Duration", "5"), ("toTypeName(Duration)", "Int64")]).await;
    database.drop().await;
}

#[tokio::test]
async fn columns_that_are_not_ours_get_their_default() {
    let database = Database::new("additional").await;
    let sink = database.sink(Layout::Map);
    sink.apply(SchemaManagement::CreateIfMissing).await.unwrap();
    let table = format!("ALTER TABLE {}.otel_traces", database.name);
    database.execute(&format!("{table} ADD COLUMN Tenant String DEFAULT 'none' FIRST")).await;
    database.execute(&format!("{table} ADD COLUMN Note Nullable(String) AFTER TraceId")).await;
    database.execute(&format!("{table} ADD COLUMN Route String MATERIALIZED SpanAttributes['string']")).await;
    database.execute(&format!("{table} ADD COLUMN Ms Float64 ALIAS Duration / 1e6")).await;
    database.execute(&format!("{table} ADD COLUMN Hint String EPHEMERAL")).await;
    let fit = sink.check_table().await.unwrap();
    let items = ["ResourceAttributeItems", "SpanAttributeItems"];
    let additional = ["Tenant", "Note", items[0], items[1], "Route", "Ms", "Hint"];
    assert_eq!(fit.additional, additional);
    database.insert(&message(vec![span(every_shape())])).await;
    asked(&database, &[("(Tenant, Note, Route, Ms)", "('none',NULL,'it\\'s \"text\"',0.000005)")]).await;
    database.drop().await;
}

#[tokio::test]
async fn each_set_of_attributes_may_have_its_own_layout() {
    let database = Database::new("mixed").await;
    database.sink(Layout::Nested).apply(SchemaManagement::CreateIfMissing).await.unwrap();
    let table = format!("ALTER TABLE {}.otel_traces", database.name);
    let columns = sluice_clickhouse::column::AttributeSet::Event.columns(Found::Nested);
    for column in columns {
        database.execute(&format!("{table} DROP COLUMN `{}`", column.name)).await;
    }
    database.execute(&format!("{table} ADD COLUMN `Events.Attributes` Array(JSON)")).await;
    let columns = database.insert(&message(vec![span(every_shape())])).await;
    assert!(
        columns
            .to_string()
            .contains("SpanAttributes Nested, Events.Attributes Json, Links.Attributes Nested")
    );
    asked(
        &database,
        &[
            ("Events.Attributes[1].int", "-9223372036854775808"),
            ("`SpanAttributesInt.Value`", "[-9223372036854775808]"),
            ("`Links.AttributesInt`", "[[('l',1)]]"),
        ],
    )
    .await;
    database.drop().await;
}
