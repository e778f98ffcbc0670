//! Tables whose `JSON` columns declare and skip paths.

use crate::{
    messages::{array, attribute, list, message, span, string},
    server::Database,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use sluice_gateway_config::{Layout, SchemaManagement};

/// A table whose span attributes have this type.
async fn table(test: &str, json: &str) -> Database {
    let database = Database::new(test).await;
    database.sink(Layout::Json).apply(SchemaManagement::CreateIfMissing).await.unwrap();
    let table = format!("ALTER TABLE {}.otel_traces", database.name);
    database.execute(&format!("{table} MODIFY COLUMN SpanAttributes {json}")).await;
    database
}

async fn answer(database: &Database, expression: &str) -> String {
    database.ask(&format!("anyIf(toString({expression}), SpanName = 'name')")).await
}

const TYPES: &str = "JSON(max_dynamic_paths=8, status Int64, size UInt64, small Int8, ratio Float64, short Float32, ok Bool, \
    text String, `http.route` LowCardinality(String), maybe Nullable(Int64), lazy LowCardinality(Nullable(String)), \
    at DateTime64(9), ms DateTime64(3, 'UTC'), absent Int64, `list.n` Int64)";

#[tokio::test]
async fn declared_paths_get_values_of_their_type() {
    let database = table("typed", TYPES).await;
    let attributes = vec![
        attribute("status", Value::IntValue(200)),
        attribute("size", string("18446744073709551615")),
        attribute("small", Value::DoubleValue(-128.0)),
        attribute("ratio", Value::IntValue(2)),
        attribute("short", Value::DoubleValue(0.1)),
        attribute("ok", string("true")),
        attribute("text", Value::IntValue(-7)),
        attribute("http.route", string("/x")),
        attribute("maybe", Value::IntValue(5)),
        attribute("lazy", string("lc")),
        attribute("at", Value::IntValue(1_700_000_000_123_456_789)),
        attribute("ms", string("2023-11-14T23:13:20.123+01:00")),
        attribute("list", list(vec![attribute("n", string("3")), attribute("m", Value::IntValue(4))])),
        attribute("free", Value::IntValue(1)),
        attribute("status", Value::IntValue(404)),
    ];
    database.insert(&message(vec![span(attributes)])).await;
    for (path, expected) in [
        ("status", "200"),
        ("size", "18446744073709551615"),
        ("small", "-128"),
        ("ratio", "2"),
        ("short", "0.1"),
        ("ok", "true"),
        ("text", "-7"),
        ("http.route", "/x"),
        ("maybe", "5"),
        ("lazy", "lc"),
        ("ms", "2023-11-14 22:13:20.123"),
        ("absent", "0"),
        ("list.n", "3"),
        ("list.m", "4"),
        ("free", "1"),
    ] {
        assert_eq!(answer(&database, &format!("SpanAttributes.{path}")).await, expected, "{path}");
    }
    assert_eq!(answer(&database, "toUnixTimestamp64Nano(SpanAttributes.at)").await, "1700000000123456789");
    // The span without attributes: defaults, and null where there is one.
    let bare =
        "anyIf(toString((SpanAttributes.status, SpanAttributes.text, SpanAttributes.maybe)), SpanName = '')";
    assert_eq!(database.ask(bare).await, "(0,'',NULL)");
    database.drop().await;
}

#[tokio::test]
async fn a_value_that_does_not_fit_is_kept_beside_the_declared_path() {
    let database = table("unconverted", TYPES).await;
    let attributes = vec![
        attribute("status", string("teapot")),
        attribute("size", Value::IntValue(-1)),
        attribute("small", Value::IntValue(128)),
        attribute("ratio", Value::BoolValue(true)),
        attribute("ok", Value::IntValue(1)),
        attribute("text", array(vec![Some(Value::IntValue(1)), Some(string("x"))])),
        attribute("maybe", Value::BytesValue(vec![0xff])),
        attribute("at", string("yesterday")),
        attribute("list", list(vec![attribute("n", Value::DoubleValue(1.5))])),
        attribute("absent", array(vec![Some(Value::IntValue(9))])),
    ];
    database.insert(&message(vec![span(attributes)])).await;
    for (path, declared, kept) in [
        ("status", "0", "teapot"),
        ("size", "0", "-1"),
        ("small", "0", "128"),
        ("ratio", "0", "true"),
        ("ok", "false", "1"),
        ("list.n", "0", "1.5"),
        ("absent", "0", "[9]"),
    ] {
        assert_eq!(answer(&database, &format!("SpanAttributes.{path}")).await, declared, "{path}");
        assert_eq!(
            answer(&database, &format!("SpanAttributes.sluice.unconverted.{path}")).await,
            kept,
            "{path}"
        );
    }
    assert_eq!(answer(&database, "SpanAttributes.text").await, r#"[1,"x"]"#);
    assert_eq!(answer(&database, "SpanAttributes.sluice.unconverted.maybe").await, "/w==");
    assert_eq!(answer(&database, "SpanAttributes.sluice.unconverted.at").await, "yesterday");
    assert_eq!(answer(&database, "isNull(SpanAttributes.maybe)").await, "1");
    database.drop().await;
}

#[tokio::test]
async fn skipped_paths_are_not_stored_and_patterns_are_noted() {
    let database =
        table("skipped", "JSON(SKIP `secret`, SKIP `http.request.header`, SKIP REGEXP '^private')").await;
    let notes = database.sink(Layout::Json).check_table().await.unwrap().notes;
    assert_eq!(notes.len(), 1);
    assert!(notes[0].contains("SKIP REGEXP '^private'"), "{}", notes[0]);
    let attributes = vec![
        attribute("secret", string("x")),
        attribute("secret.key", string("x")),
        attribute("secretary", string("kept")),
        attribute(
            "http",
            list(vec![attribute(
                "request",
                list(vec![attribute("header", list(vec![attribute("a", string("x"))]))]),
            )]),
        ),
        attribute("private.stays", string("kept")),
    ];
    database.insert(&message(vec![span(attributes)])).await;
    assert_eq!(answer(&database, "JSONAllPaths(SpanAttributes)").await, "['private.stays','secretary']");
    database.drop().await;
}

#[tokio::test]
async fn what_is_not_supported_is_refused_by_name() {
    let database = table("refused", "JSON(tags Array(String))").await;
    let error = database.sink(Layout::Json).check_table().await.unwrap_err().to_string();
    assert!(
        error.contains("column SpanAttributes declares path tags as Array(String); expected one of Bool"),
        "{error}"
    );
    database.drop().await;
}
