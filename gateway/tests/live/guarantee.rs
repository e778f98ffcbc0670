//! The conditions of the guarantee "once" on a real server.

use crate::{
    front::Front,
    messages::{message, span},
    server::{Database, frames, metrics, send},
};
use sluice_clickhouse::body::InsertBody;
use sluice_clickhouse::insert::InsertId;
use sluice_clickhouse::outcome::Class;
use sluice_clickhouse::token_places::PLACES_ASKED;
use sluice_gateway::guarantee::{GuaranteeState, Load, Reason, Verdict, Watch};
use sluice_gateway::table::sink::Sink;
use sluice_gateway_config::Layout;
use std::{sync::Arc, time::Duration};

const LOAD: Load = Load { blocks_per_second: 1.0, insert_timeout: Duration::from_secs(30) };

async fn reasons(sink: &Sink) -> Vec<Reason> {
    let answers: Result<Vec<_>, _> = sink.deduplication().await.into_iter().collect();
    Verdict::of(&answers.unwrap(), sink.servers(), &LOAD).reasons.into_iter().collect()
}

/// Changes the table's window.
async fn set_window(database: &Database, blocks: u32) {
    let table = format!("ALTER TABLE {}.otel_traces", database.name);
    database.execute(&format!("{table} MODIFY SETTING non_replicated_deduplication_window = {blocks}")).await;
}

#[tokio::test]
async fn our_own_table_stores_a_token_once_and_another_token_again() {
    let database = Database::new("once").await;
    let table = database.with_table().await;
    assert_eq!(reasons(&table.0).await, []);
    let frames = frames(&table.1, &message(vec![span(vec![])]));
    for (token, rows) in [("a", 2), ("a", 2), ("b", 4), ("a", 4), ("b", 4)] {
        let query_id = format!("{}-{token}-{rows}", database.name);
        send(&table, &frames, token, &query_id).await.unwrap();
        assert_eq!(database.count().await, rows, "token {token}");
    }
    database.drop().await;
}

#[tokio::test]
async fn a_token_that_the_window_has_passed_is_forgotten() {
    let database = Database::new("forgotten").await;
    let table = database.with_table().await;
    set_window(&database, 2).await;
    assert_eq!(reasons(&table.0).await, [Reason::WindowShort]);
    let frames = frames(&table.1, &message(vec![span(vec![])]));
    for (number, (token, rows)) in
        [("a", 2), ("b", 4), ("a", 4), ("c", 6), ("d", 8), ("a", 10)].into_iter().enumerate()
    {
        send(&table, &frames, token, &format!("{}-{number}", database.name)).await.unwrap();
        assert_eq!(database.count().await, rows, "token {token}");
    }
    database.drop().await;
}

#[tokio::test]
async fn without_a_window_a_token_means_nothing() {
    let database = Database::new("no_window").await;
    let table = database.with_table().await;
    set_window(&database, 0).await;
    assert_eq!(reasons(&table.0).await, [Reason::WindowOff]);
    let frames = frames(&table.1, &message(vec![span(vec![])]));
    for rows in [2, 4] {
        send(&table, &frames, "a", &format!("{}-{rows}", database.name)).await.unwrap();
        assert_eq!(database.count().await, rows);
    }
    database.drop().await;
}

#[tokio::test]
async fn engines_that_remember_nothing_are_named() {
    let database = Database::new("engines").await;
    let (sink, _) = database.with_table().await;
    let name = &database.name;
    database.execute(&format!("RENAME TABLE {name}.otel_traces TO {name}.kept")).await;
    for (engine, reason) in [
        ("Null", Reason::EngineForgets),
        ("Memory", Reason::EngineForgets),
        ("Log", Reason::EngineForgets),
        (&format!("Buffer({name}, kept, 1, 1, 1, 1, 1, 1, 1)"), Reason::EngineForwards),
    ] {
        database.execute(&format!("CREATE TABLE {name}.otel_traces (x Int32) ENGINE = {engine}")).await;
        assert_eq!(reasons(&sink).await, [reason], "{engine}");
        database.execute(&format!("DROP TABLE {name}.otel_traces SYNC")).await;
    }
    assert!(sink.deduplication().await[0].is_err(), "there is no table");
    database.drop().await;
}

#[tokio::test]
async fn views_are_found_with_their_tables_all_the_way_down() {
    let database = Database::new("views").await;
    let (sink, _) = database.with_table().await;
    let name = &database.name;
    let table = |table: &str, settings: &str| {
        format!("CREATE TABLE {name}.{table} (n UInt64) ENGINE = SummingMergeTree ORDER BY () {settings}")
    };
    let view = |view: &str, to: &str, from: &str| {
        format!("CREATE MATERIALIZED VIEW {name}.{view} TO {name}.{to} AS SELECT 1 AS n FROM {name}.{from}")
    };
    database.execute(&table("kept", "SETTINGS non_replicated_deduplication_window = 1000")).await;
    database.execute(&view("first", "kept", "otel_traces")).await;
    let found = sink.deduplication().await.remove(0).unwrap();
    assert_eq!(found.views.len(), 1, "{found:?}");
    assert_eq!((found.views[0].name.clone(), found.views[0].window_blocks), (format!("{name}.first"), 1_000));
    assert_eq!(found.views[0].engine, "SummingMergeTree");
    assert_eq!(reasons(&sink).await, []);
    database.execute(&table("forgets", "")).await;
    database.execute(&view("second", "forgets", "kept")).await;
    assert_eq!(sink.deduplication().await[0].as_ref().unwrap().views.len(), 2);
    assert_eq!(reasons(&sink).await, [Reason::ViewsNotOnce]);
    database.drop().await;
}

#[tokio::test]
async fn a_proxy_that_takes_settings_away_is_found() {
    let database = Database::new("proxy").await;
    database.with_table().await;
    let front = Front::before(database.authority()).await;
    let sink = database.sink_at(Layout::Json, &front.url);
    assert_eq!(reasons(&sink).await, [Reason::SettingsLost]);
    let lost = sink.deduplication().await.remove(0).unwrap().lost;
    assert!(lost.iter().any(|name| name == "insert_deduplication_token"), "{lost:?}");
    database.drop().await;
}

/// Without that header no INSERT counts as stored, and everything would be inserted again and again.
#[tokio::test]
async fn a_proxy_that_takes_the_summary_away_is_found() {
    let database = Database::new("summary").await;
    let (sink, columns) = database.with_table().await;
    let found: Vec<String> = sink.obstacles(&columns).await.iter().map(ToString::to_string).collect();
    assert_eq!(found, Vec::<String>::new());
    let front = Front::without_summary(database.authority()).await;
    let sink = database.sink_at(Layout::Json, &front.url);
    let found: Vec<String> = sink.obstacles(&columns).await.iter().map(ToString::to_string).collect();
    let [obstacle] = &found[..] else { panic!("{found:?}") };
    assert!(obstacle.contains("lack the header X-ClickHouse-Summary"), "{obstacle}");
    database.drop().await;
}

/// The server reads compressed bytes as rows then. They must not be taken for rows that it refuses.
#[tokio::test]
async fn a_proxy_that_hides_the_compression_is_found_and_no_row_is_blamed() {
    let database = Database::new("decompress").await;
    let (_, columns) = database.with_table().await;
    let front = Front::without_decompress(database.authority()).await;
    let sink = database.sink_at(Layout::Json, &front.url);
    let found: Vec<String> = sink.obstacles(&columns).await.iter().map(ToString::to_string).collect();
    let [obstacle] = &found[..] else { panic!("{found:?}") };
    assert!(obstacle.contains("a proxy removes the parameter decompress"), "{obstacle}");
    let targets = sink.targets(&columns).unwrap();
    let body = InsertBody::new(vec![targets.at(0).header().clone()]);
    let id = InsertId { token: Some("t"), query_id: "hidden-compression" };
    let error = targets.client().insert(targets.at(0), &body, id).await.unwrap_err();
    assert_eq!((error.class, error.code), (Class::Retry, None), "{error}");
    database.drop().await;
}

/// A server without a UUID of its own.
const NIL_UUID: &str = "00000000-0000-0000-0000-000000000000";

#[tokio::test]
async fn an_address_of_several_servers_is_told_from_one_of_one() {
    let database = Database::new("balancing").await;
    let (sink, _) = database.with_table().await;
    // The local server has none: zeros, which name no server.
    let uuid = database.answer("SELECT toString(serverUUID())").await;
    let known = if uuid == NIL_UUID { Vec::new() } else { vec![uuid] };
    let places = sink.deduplication().await.remove(0).unwrap().token_places;
    assert_eq!(places.into_iter().collect::<Vec<_>>(), known);
    assert_eq!(reasons(&sink).await, []);
    let front = Front::balancing(database.authority()).await;
    let sink = database.sink_at(Layout::Json, &front.url);
    let places = sink.deduplication().await.remove(0).unwrap().token_places;
    assert_eq!(places.len(), PLACES_ASKED, "{places:?}");
    assert_eq!(reasons(&sink).await, [Reason::AddressBalances]);
    database.drop().await;
}

#[tokio::test]
async fn partitions_by_the_servers_days_are_told_from_others() {
    let database = Database::new("zones").await;
    let (sink, _) = database.with_table().await;
    let zone = async || sink.deduplication().await.remove(0).unwrap().partition_zone;
    assert_eq!(zone().await, None, "our own table");
    let name = &database.name;
    database.execute(&format!("DROP TABLE {name}.otel_traces SYNC")).await;
    database
        .execute(&format!(
            "CREATE TABLE {name}.otel_traces (Timestamp DateTime64(9)) ENGINE = MergeTree \
             PARTITION BY toDate(Timestamp) ORDER BY ()"
        ))
        .await;
    assert_eq!(zone().await, Some(database.answer("SELECT serverTimezone()").await));
    database.drop().await;
}

/// Rows in flight may be in the former table, which has another name then.
#[tokio::test]
async fn a_table_that_is_exchanged_is_another_destination() {
    let database = Database::new("exchanged").await;
    let (sink, _) = database.with_table().await;
    let name = &database.name;
    database.execute(&format!("CREATE TABLE {name}.other AS {name}.otel_traces")).await;
    let metrics = metrics();
    let standing = Arc::new(GuaranteeState::new(metrics.guarantee.clone(), 1, []));
    let mut watch = Watch::new(vec![sink], standing.clone(), Arc::default());
    let now = Duration::from_secs(100);
    watch.look(now).await;
    assert_eq!(standing.tell(now), None);
    watch.look(now).await;
    assert_eq!(standing.tell(now), None, "it is the same");
    database.execute(&format!("EXCHANGE TABLES {name}.otel_traces AND {name}.other")).await;
    watch.look(now).await;
    assert_eq!(standing.tell(now), Some(Reason::DestinationChanged));
    assert_eq!(
        standing.age_budget(0, Duration::from_secs(99)),
        Duration::ZERO,
        "its tokens are unknown there"
    );
    database.drop().await;
}

#[tokio::test]
async fn blocks_of_all_writers_are_counted() {
    let database = Database::new("blocks").await;
    let table = database.with_table().await;
    let frames = frames(&table.1, &message(vec![span(vec![])]));
    send(&table, &frames, "0", &format!("{}-0", database.name)).await.unwrap();
    let before = table.0.blocks_written().await.unwrap();
    for token in ["1", "2", "3"] {
        send(&table, &frames, token, &format!("{}-{token}", database.name)).await.unwrap();
    }
    assert_eq!(table.0.blocks_written().await.unwrap() - before, 3);
    database.drop().await;
}
