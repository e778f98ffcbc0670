//! A table whose merges are stopped: its parts are counted, blocks become larger, and every row is stored once.

use crate::{
    broker::Topic,
    messages::{message, span},
    process::Scene,
    server::{Database, frames, metrics, send},
};
use sluice_clickhouse::{column::TableColumns, outcome::Class, parts::TableParts};
use sluice_gateway::{
    blocks::batch::BlockAge,
    table::{parts_watch::PartsWatch, sink::Sink},
};
use sluice_gateway_config::Insert;
use std::time::{Duration, Instant};

/// Rows of each message.
const ROWS: u64 = 2;

const BLOCK_AGE: &str = "sluice_gateway_block_age_seconds_max";

/// Stops the merges of the table, and has ClickHouse delay and refuse INSERTs from these numbers of parts on.
async fn stop_merges(database: &Database, delay_from: u64, refuse_from: u64) {
    let name = &database.name;
    let settings = format!("parts_to_delay_insert = {delay_from}, parts_to_throw_insert = {refuse_from}");
    database.execute(&format!("ALTER TABLE {name}.otel_traces MODIFY SETTING {settings}")).await;
    database.execute(&format!("SYSTEM STOP MERGES {name}.otel_traces")).await;
}

/// Has ClickHouse merge all parts into one.
async fn merge_all(database: &Database) {
    let name = &database.name;
    database.execute(&format!("SYSTEM START MERGES {name}.otel_traces")).await;
    database.execute(&format!("OPTIMIZE TABLE {name}.otel_traces FINAL")).await;
}

/// Inserts blocks with these numbers, one part each.
async fn insert(database: &Database, table: &(Sink, TableColumns), numbers: std::ops::Range<u64>) {
    let frames = frames(&table.1, &message(vec![span(vec![])]));
    for number in numbers {
        let query_id = format!("{}-{number}", database.name);
        send(table, &frames, &number.to_string(), &query_id).await.unwrap();
    }
}

#[tokio::test]
async fn parts_are_counted_and_a_refused_block_is_stored_once_merges_go_on() {
    let database = Database::new("parts").await;
    let table = database.with_table().await;
    stop_merges(&database, 20, 30).await;
    let metrics = metrics();
    let age_max = BlockAge::of(&Insert::default()).for_shards(1);
    let mut watch = PartsWatch::new(std::slice::from_ref(&table.0), age_max.merges(), metrics.clone());
    let age = || age_max.most(0, Instant::now());
    let shows = |line: &str| metrics.text().unwrap().lines().any(|shown| shown == line);
    watch.look().await;
    assert!(shows("sluice_gateway_table_parts_max 0"), "it has no rows");
    assert_eq!(age(), Duration::from_secs(1));
    insert(&database, &table, 0..10).await;
    let found = table.0.parts(0).await.unwrap();
    let expected = TableParts { parts: 10, delay_from: 20, refuse_from: 30, are_large: false };
    assert_eq!(found, Some(expected));
    watch.look().await;
    assert!(shows("sluice_gateway_table_parts_max 10"));
    assert!(shows("sluice_gateway_table_parts_ratio{limit=\"delay\"} 0.5"));
    assert_eq!(age(), Duration::from_secs(8), "larger blocks before ClickHouse delays one");
    assert!(metrics.sample().table_parts.unwrap().merges_behind);
    // It delays these, and then refuses one.
    insert(&database, &table, 10..30).await;
    let frames = frames(&table.1, &message(vec![span(vec![])]));
    let query_id = |last: &str| format!("{}-{last}", database.name);
    let refused = send(&table, &frames, "30", &query_id("refused")).await.unwrap_err();
    assert_eq!((refused.class, refused.code), (Class::BackPressure, Some(252)), "{refused}");
    merge_all(&database).await;
    for attempt in ["again", "once-more"] {
        send(&table, &frames, "30", &query_id(attempt)).await.unwrap();
    }
    assert_eq!(database.count().await, 31 * ROWS);
    watch.look().await;
    assert_eq!(age(), Duration::from_secs(1), "merges keep up");
    database.drop().await;
}

#[tokio::test]
async fn the_parts_of_a_table_without_any_are_not_known() {
    let database = Database::new("parts_unknown").await;
    let (sink, _) = database.with_table().await;
    let name = &database.name;
    let metrics = metrics();
    let age_max = BlockAge::of(&Insert::default()).for_shards(1);
    let mut watch = PartsWatch::new(std::slice::from_ref(&sink), age_max.merges(), metrics.clone());
    watch.look().await;
    assert!(metrics.sample().table_parts.is_some());
    database.execute(&format!("DROP TABLE {name}.otel_traces SYNC")).await;
    database.execute(&format!("CREATE TABLE {name}.otel_traces (x Int32) ENGINE = Null")).await;
    assert_eq!(sink.parts(0).await.unwrap(), None);
    watch.look().await;
    assert_eq!(metrics.sample().table_parts, None);
    assert!(!metrics.text().unwrap().contains("\nsluice_gateway_table_parts_max"), "never 0");
    database.drop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_makes_larger_blocks_while_merges_are_stopped_and_stores_every_span_once() {
    let scene = Scene::of(Topic::create("merges_stopped", 1).await, "merges_stopped").await;
    let table = scene.database.with_table().await;
    // Half of 40 is passed, and the gateway's own blocks come near no limit.
    stop_merges(&scene.database, 40, 3_000).await;
    insert(&scene.database, &table, 0..25).await;
    let mut gateway = scene.start("gateway-0", |_| {});
    gateway.wait_metric("sluice_gateway_table_parts_max", 25.0).await;
    gateway.wait_metric(BLOCK_AGE, 8.0).await;
    let message = message(vec![span(vec![])]);
    // The load: few messages, over four of the usual blocks.
    let mut pace = tokio::time::interval(Duration::from_millis(200));
    for _ in 0..20 {
        pace.tick().await;
        scene.topic.produce(0, &message);
    }
    scene.wait_until_committed(|committed| *committed == [Some(20)]).await;
    let blocks = gateway.metric("sluice_gateway_blocks_inserted_total").await.unwrap();
    assert!(blocks <= 3.0, "{blocks} blocks of 4 s: {}", gateway.said());
    assert!(gateway.said().contains("merges of ClickHouse are behind"), "{}", gateway.said());
    assert_eq!(scene.database.count().await, (25 + 20) * ROWS);
    merge_all(&scene.database).await;
    gateway.wait_metric(BLOCK_AGE, 1.0).await;
    scene.close().await;
}
