//! While a gateway runs, a column is changed to a type in which the same bytes are another value.

use crate::{
    messages::{attribute, message, span},
    server::{Database, frames},
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use sluice_clickhouse::{
    body::InsertBody,
    client::InsertClient,
    column::{Layout as Found, TableColumns},
    insert::InsertId,
};
use sluice_gateway_config::{Layout, SchemaManagement};

/// The table of a layout, and how rows were encoded for it before it was changed.
async fn table(test: &str, layout: Layout, change: Option<&str>) -> (Database, TableColumns) {
    let database = Database::new(test).await;
    database.sink(layout).apply(SchemaManagement::CreateIfMissing).await.unwrap();
    if let Some(change) = change {
        alter(&database, change).await;
    }
    let columns = database.sink(layout).check_table().await.unwrap().columns;
    (database, columns)
}

async fn alter(database: &Database, change: &str) {
    database.execute(&format!("ALTER TABLE {}.otel_traces {change}", database.name)).await;
}

fn numbered(number: i64) -> Vec<u8> {
    message(vec![span(vec![attribute("n", Value::IntValue(number))])])
}

/// Rows that were encoded for the columns of before are refused, as ones after which the table is described again.
async fn is_refused(database: &Database, columns: &TableColumns, message: &[u8]) {
    let error = database.insert_for(columns, message).await.unwrap_err();
    assert_eq!((error.class.label(), error.code), ("refresh_schema", Some(117)), "{error}");
    assert_eq!(database.ask("toString(count())").await, "0", "nothing is stored");
}

#[tokio::test]
async fn a_declared_path_that_gets_another_type_of_the_same_width_stores_no_other_number() {
    let declared = |kind: &str| format!("MODIFY COLUMN SpanAttributes JSON(max_dynamic_paths=64, n {kind})");
    for (before, after) in [("UInt64", "Int64"), ("Int64", "Float64"), ("Int64", "UInt64")] {
        let test = format!("width_{before}_{after}");
        let (database, columns) = table(&test, Layout::Json, Some(&declared(before))).await;
        alter(&database, &declared(after)).await;
        is_refused(&database, &columns, &numbered(7)).await;
        let found = database.sink(Layout::Json).check_table().await.unwrap().columns;
        assert_ne!(found, columns, "the gateway sees that it must encode anew");
        database.insert(&numbered(7)).await;
        assert_eq!(database.ask("anyIf(toString(SpanAttributes.n), SpanName = 'name')").await, "7");
        database.drop().await;
    }
}

#[tokio::test]
async fn a_path_that_is_declared_no_more_or_skipped_anew_is_noticed() {
    let with = |paths: &str| format!("MODIFY COLUMN SpanAttributes JSON(max_dynamic_paths=64{paths})");
    for (test, before, after) in [("undeclared", ", n Int64", ""), ("skipped_anew", "", ", SKIP `n`")] {
        let (database, columns) = table(test, Layout::Json, Some(&with(before))).await;
        alter(&database, &with(after)).await;
        is_refused(&database, &columns, &numbered(7)).await;
        database.drop().await;
    }
}

#[tokio::test]
async fn a_column_that_gets_another_type_of_the_same_width_is_refused_until_it_is_mended() {
    let layouts = [
        ("duration", Layout::Map, "Duration", "Float64", "UInt64"),
        ("group", Layout::Nested, "`SpanAttributesInt.Value`", "Array(Float64)", "Array(Int64)"),
    ];
    for (test, layout, column, other, own) in layouts {
        let (database, columns) = table(test, layout, None).await;
        alter(&database, &format!("MODIFY COLUMN {column} {other} CODEC(ZSTD(1))")).await;
        is_refused(&database, &columns, &numbered(7)).await;
        assert!(database.sink(layout).check_table().await.is_err(), "{column} does not fit");
        alter(&database, &format!("MODIFY COLUMN {column} {own}")).await;
        database.insert_for(&columns, &numbered(7)).await.unwrap();
        assert_eq!(database.ask("toString(count())").await, "2");
        database.drop().await;
    }
}

#[tokio::test]
async fn a_type_that_holds_the_same_bytes_under_another_name_is_encoded_for_anew() {
    let (database, columns) = table("renamed", Layout::Map, None).await;
    alter(&database, "MODIFY COLUMN TraceState LowCardinality(String)").await;
    is_refused(&database, &columns, &numbered(7)).await;
    let found = database.sink(Layout::Map).check_table().await.unwrap().columns;
    assert_ne!(found, columns);
    database.insert_for(&found, &numbered(7)).await.unwrap();
    assert_eq!(database.ask("toString(count())").await, "2");
    database.drop().await;
}

#[tokio::test]
async fn a_body_that_ends_behind_its_types_is_no_success_and_a_retry_under_a_used_token_is_one() {
    for (test, layout, found) in
        [("cut_json", Layout::Json, Found::Json), ("cut_nested", Layout::Nested, Found::Nested)]
    {
        let (database, columns) = table(test, layout, None).await;
        assert_eq!(columns.to_string(), TableColumns::of_layout(found).to_string());
        let targets = database.sink(layout).targets(&columns).unwrap();
        let client = InsertClient::new();
        let id = InsertId { token: Some("one"), query_id: &format!("{}-cut", database.name) };
        let error = client.insert(targets.at(0), &InsertBody::new(Vec::new()), id).await.unwrap_err();
        assert_eq!((error.class.label(), error.http_status), ("retry", Some(200)), "{error}");
        let body = InsertBody::new(frames(&columns, &numbered(7)));
        for attempt in ["first", "second"] {
            let query_id = format!("{}-{attempt}", database.name);
            let id = InsertId { token: Some("one"), query_id: &query_id };
            client.insert(targets.at(0), &body, id).await.unwrap();
            assert_eq!(database.ask("toString(count())").await, "2", "{attempt}");
        }
        database.drop().await;
    }
}
