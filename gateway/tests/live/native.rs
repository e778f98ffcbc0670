//! The same block as rows and as columns: the table gets the same bytes, and one token covers both.

use crate::{
    messages::{attribute, every_shape, message, span, string},
    server::{Database, frames, next_number, send_body},
};
use bytes::Bytes;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use sluice_clickhouse::{
    body::InsertBody,
    column::TableColumns,
    native::{NativeShape, turned},
};
use sluice_gateway_config::Layout;

/// The block of these frames as columns.
pub fn columns_of(columns: &TableColumns, frames: &[Bytes]) -> InsertBody {
    InsertBody::native(turned(&NativeShape::of(columns).unwrap(), frames).unwrap())
}

/// Inserts a message's rows in either format into tables like the database's, and compares what is in them. Every live test that
/// inserts a message comes here, whatever its table is.
pub async fn stores_the_same(database: &Database, columns: &TableColumns, message: &[u8]) {
    let frames = frames(columns, message);
    let bodies = [InsertBody::new(frames.clone()), columns_of(columns, &frames)];
    let number = next_number();
    let mut stored = Vec::new();
    for (name, body) in ["rows", "columns"].into_iter().zip(&bodies) {
        let table = format!("twin_{name}_{number}");
        let sink = database.twin(&table).await;
        let query_id = format!("{}-{table}", database.name);
        send_body((&sink, columns), body, &query_id, &query_id).await.unwrap();
        stored.push(database.bytes(&table).await);
        database.execute(&format!("DROP TABLE {}.{table}", database.name)).await;
    }
    let [rows, as_columns] = &stored[..] else { unreachable!("two formats") };
    let engine = format!(
        "SELECT engine FROM system.tables WHERE database = '{}' AND name = 'otel_traces'",
        database.name
    );
    assert_eq!(rows.is_empty(), database.answer(&engine).await == "Null", "{columns}");
    assert!(rows == as_columns, "the same block is stored as other rows when it comes as columns: {columns}");
}

/// Blocks of one row, of some, and of more than a frame holds.
#[tokio::test]
async fn a_block_is_known_by_its_token_in_either_format() {
    let database = Database::new("native_token").await;
    let (sink, columns) = database.with_table().await;
    let mut expected = 0;
    for spans in [0, 5, 2_000_i64] {
        let many =
            (0..spans).map(|n| span(vec![attribute("n", Value::IntValue(n)), attribute("s", string("x"))]));
        let frames = frames(&columns, &message(many.collect()));
        let bodies = [InsertBody::new(frames.clone()), columns_of(&columns, &frames)];
        for (token, order) in [("rows-first", [0, 1, 0, 1]), ("columns-first", [1, 0, 1, 1])] {
            let token = format!("{token}-{spans}");
            // One row more than spans: a span without anything ends each message.
            expected += u64::try_from(spans).unwrap() + 1;
            for (attempt, body) in order.into_iter().enumerate() {
                let query_id = format!("{}-{token}-{attempt}", database.name);
                send_body((&sink, &columns), &bodies[body], &token, &query_id).await.unwrap();
                assert_eq!(database.count().await, expected, "{token}, attempt {attempt}");
            }
        }
    }
    database.drop().await;
}

/// A path that has another type in every row, nested arrays, and paths that come and go.
#[tokio::test]
async fn values_of_many_types_are_the_same_in_either_format() {
    let database = Database::new("native_types").await;
    let (_, columns) = database.with_table().await;
    let spans = (0..700_i64).zip(0_usize..).map(|(number, n)| {
        let mut attributes = every_shape();
        let values: Vec<_> =
            attributes.iter().filter_map(|attribute| attribute.value.clone()?.value).collect();
        attributes.truncate(n % 18);
        attributes.push(attribute("changing", values[n % values.len()].clone()));
        attributes.push(attribute(&format!("of.{}", n % 90), Value::IntValue(number)));
        span(attributes)
    });
    stores_the_same(&database, &columns, &message(spans.collect())).await;
    database.drop().await;
}

#[tokio::test]
async fn columns_of_other_types_than_the_table_has_are_refused() {
    let database = Database::new("native_altered").await;
    let (sink, columns) = database.with_table().await;
    let body = columns_of(&columns, &frames(&columns, &message(vec![span(every_shape())])));
    for (change, back) in
        [("Duration Int64", "Duration UInt64"), ("SpanAttributes JSON(int Int64)", "SpanAttributes JSON")]
    {
        let alter = |to: &str| format!("ALTER TABLE {}.otel_traces MODIFY COLUMN {to}", database.name);
        database.execute(&alter(change)).await;
        let query_id = format!("{}-{}", database.name, next_number());
        let error = send_body((&sink, &columns), &body, &query_id, &query_id).await.unwrap_err();
        assert_eq!(error.class, sluice_clickhouse::outcome::Class::RefreshSchema, "{error}");
        assert_eq!(database.count().await, 0, "{error}");
        database.execute(&alter(back)).await;
    }
    database.drop().await;
}

#[tokio::test]
async fn every_layout_is_the_same_in_either_format() {
    for layout in [Layout::Json, Layout::Map, Layout::Nested] {
        let database = Database::new(&format!("native_{}", format!("{layout:?}").to_lowercase())).await;
        let sink = database.sink(layout);
        sink.apply(sluice_gateway_config::SchemaManagement::CreateIfMissing).await.unwrap();
        let columns = sink.check_table().await.unwrap().columns;
        let spans = (0..300).map(|_| span(every_shape())).collect();
        stores_the_same(&database, &columns, &message(spans)).await;
        database.drop().await;
    }
}
