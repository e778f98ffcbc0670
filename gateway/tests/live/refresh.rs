//! The table is changed while a gateway runs.

use crate::{
    messages::{every_shape, message, span},
    server::{Database, metrics},
};
use sluice_gateway::{
    ground::metrics::Metrics,
    table::table_watch::{Described, TableChanged, TableWatch},
};
use sluice_gateway_config::{Layout, SchemaManagement};
use std::{
    sync::{Arc, Mutex},
    time::Instant,
};

/// A watch of the current table, and the changes that it reported.
async fn watched(database: &Database) -> (TableWatch, Arc<Metrics>, Arc<Mutex<Vec<TableChanged>>>) {
    let metrics = metrics();
    let told = Arc::new(Mutex::new(Vec::new()));
    let sink = database.sink(Layout::Json);
    let columns = sink.check_table().await.unwrap().columns;
    let telling = told.clone();
    let watch =
        TableWatch::new(sink, columns, metrics.clone(), move |changed| telling.lock().unwrap().push(changed));
    (watch, metrics, told)
}

#[tokio::test]
async fn rows_wait_for_a_column_that_has_gone_and_go_in_once_it_is_back() {
    let database = Database::new("mended").await;
    let sink = database.sink(Layout::Map);
    sink.apply(SchemaManagement::CreateIfMissing).await.unwrap();
    let columns = sink.check_table().await.unwrap().columns;
    let (watch, metrics, told) = watched(&database).await;
    let message = message(vec![span(every_shape())]);
    let table = format!("ALTER TABLE {}.otel_traces", database.name);
    database.execute(&format!("{table} DROP COLUMN TraceState")).await;
    let error = database.insert_for(&columns, &message).await.unwrap_err();
    assert_eq!(error.class.label(), "refresh_schema", "{error}");
    let refused = Instant::now();
    assert!(!watch.is_unfit());
    assert_eq!(watch.described(refused).await, Described::Unfit);
    assert_eq!((metrics.table_fits.get(), watch.is_unfit()), (0, true));
    assert!(told.lock().unwrap().is_empty());
    let reason = sink.check_table().await.unwrap_err().to_string();
    let remedy =
        format!("ALTER TABLE `{}`.`otel_traces` ADD COLUMN IF NOT EXISTS `TraceState` ", database.name);
    assert!(reason.contains(&format!("column TraceState is missing: {remedy}")), "{reason}");
    let mended = Instant::now();
    database.execute(&format!("{table} ADD COLUMN TraceState String")).await;
    assert_eq!(watch.described(refused).await, Described::Unfit, "what was seen since the refusal is enough");
    assert_eq!(watch.described(mended).await, Described::Unchanged);
    database.insert_for(&columns, &message).await.unwrap();
    watch.accepted();
    assert_eq!((metrics.table_fits.get(), watch.is_unfit()), (1, false));
    database.drop().await;
}

#[tokio::test]
async fn another_layout_is_told_once_and_a_new_start_fills_it() {
    let database = Database::new("changed").await;
    let sink = database.sink(Layout::Json);
    sink.apply(SchemaManagement::CreateIfMissing).await.unwrap();
    let columns = sink.check_table().await.unwrap().columns;
    let (watch, _metrics, told) = watched(&database).await;
    database.execute(&format!("DROP TABLE {}.otel_traces SYNC", database.name)).await;
    database.sink(Layout::Map).apply(SchemaManagement::CreateIfMissing).await.unwrap();
    let message = message(vec![span(every_shape())]);
    let error = database.insert_for(&columns, &message).await.unwrap_err();
    for _ in 0..2 {
        assert_eq!(watch.described(Instant::now()).await, Described::Unfit);
    }
    assert_eq!(told.lock().unwrap().len(), 1, "{error}");
    // An INSERT from before may be answered after that.
    watch.accepted();
    assert!(watch.is_unfit());
    assert_eq!(database.ask("toString(count())").await, "0");
    database.insert(&message).await;
    assert_eq!(database.ask("toString(count())").await, "2");
    database.drop().await;
}

#[tokio::test]
async fn a_path_that_is_declared_under_a_running_gateway_stores_nothing_shifted() {
    let database = Database::new("declared").await;
    let sink = database.sink(Layout::Json);
    sink.apply(SchemaManagement::CreateIfMissing).await.unwrap();
    let columns = sink.check_table().await.unwrap().columns;
    let (watch, _metrics, told) = watched(&database).await;
    let table = format!("ALTER TABLE {}.otel_traces", database.name);
    database
        .execute(&format!("{table} MODIFY COLUMN SpanAttributes JSON(max_dynamic_paths=64, `int` Int64)"))
        .await;
    let error = database.insert_for(&columns, &message(vec![span(every_shape())])).await.unwrap_err();
    assert_eq!(watch.described(Instant::now()).await, Described::Unfit);
    assert_eq!(told.lock().unwrap().len(), 1, "{error}");
    assert_eq!(database.ask("toString(count())").await, "0");
    database.drop().await;
}
