//! What the server's logs show about a block of unknown fate.

use crate::{
    messages::{message, span},
    server::{Database, frames, send},
};
use bytes::Bytes;
use sluice_clickhouse::{
    fate::{Fate, LOG_MARGIN, Lost},
    frame::FrameEncoder,
    outcome::Class,
};
use std::time::{Duration, SystemTime};

fn now() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().unwrap()
}

fn lost(query_id_start: &str, since: Duration) -> Lost<'_> {
    Lost { query_id_start, attempts: Some(1), rows: 2, since }
}

/// Waits until the server has noted how a query ended, which it does after its answer.
async fn noted(database: &Database, query_id: &str) {
    let ended = format!("query_id = '{query_id}' AND type != 'QueryStart'");
    database.logged(&format!("SELECT toString(type) FROM system.query_log WHERE {ended}")).await;
}

#[tokio::test]
async fn a_block_whose_attempt_finished_is_stored() {
    let (database, since) = (Database::new("fate_stored").await, now());
    let table = database.with_table().await;
    let frames = frames(&table.1, &message(vec![span(vec![])]));
    let start = format!("{}-", database.name);
    send(&table, &frames, "a", &format!("{start}0")).await.unwrap();
    noted(&database, &format!("{start}0")).await;
    assert_eq!(table.0.fate(&lost(&start, since)).await, Some(Fate::Stored));
    database.drop().await;
}

/// The finding on which it rests that the rows which an attempt has read tell whether it stored the block: none of an INSERT whose
/// body was lost, and all of one that the server drops as known, whatever the views below the table write.
#[tokio::test]
async fn an_insert_of_no_rows_is_no_sign_of_a_block() {
    let (database, since) = (Database::new("fate_empty").await, now());
    let table = database.with_table().await;
    let name = &database.name;
    database.execute(&format!("CREATE TABLE {name}.target (n UInt64) ENGINE = MergeTree ORDER BY n")).await;
    let select = format!("SELECT arrayJoin(range(3)) AS n FROM {name}.otel_traces");
    database.execute(&format!("CREATE MATERIALIZED VIEW {name}.adds TO {name}.target AS {select}")).await;
    let frames = frames(&table.1, &message(vec![span(vec![])]));
    let start = format!("{name}-");
    let query_id = |attempt: u32| format!("{start}{attempt}");
    let read_rows = async |attempt: u32| {
        let query_id = query_id(attempt);
        let ended = format!("type = 'QueryFinish' AND query_id = '{query_id}'");
        database.logged(&format!("SELECT toString(read_rows) FROM system.query_log WHERE {ended}")).await
    };
    let error = send(&table, &[], "a", &query_id(0)).await.unwrap_err();
    assert_eq!((error.class, error.code), (Class::Retry, None), "{error}");
    assert_eq!(read_rows(0).await, "0");
    assert_eq!(table.0.fate(&lost(&start, since)).await, Some(Fate::Unknown));
    for attempt in [1, 2] {
        send(&table, &frames, "a", &query_id(attempt)).await.unwrap();
        assert_eq!(database.count().await, 2);
        let read: u64 = read_rows(attempt).await.parse().unwrap();
        assert!(read >= 2, "{read}: those of the body, and those that the view reads of it");
        assert_eq!(table.0.fate(&lost(&query_id(attempt), since)).await, Some(Fate::Stored));
    }
    database.drop().await;
}

/// The finding on which it rests that rows which a view refuses are not sent in parts.
#[tokio::test]
async fn a_block_that_a_view_refuses_is_in_the_table() {
    let (database, since) = (Database::new("fate_view").await, now());
    let table = database.with_table().await;
    let name = &database.name;
    database.execute(&format!("CREATE TABLE {name}.target (n UInt8) ENGINE = MergeTree ORDER BY n")).await;
    let select = format!("SELECT throwIf(Duration >= 0) AS n FROM {name}.otel_traces");
    database.execute(&format!("CREATE MATERIALIZED VIEW {name}.refuses TO {name}.target AS {select}")).await;
    let frames = frames(&table.1, &message(vec![span(vec![])]));
    let start = format!("{name}-");
    for attempt in 0..2 {
        let error = send(&table, &frames, "a", &format!("{start}{attempt}")).await.unwrap_err();
        assert_eq!(error.code, Some(395), "{error}");
        assert_eq!((database.count().await, database.count_of("target").await), (2, 0));
        assert_eq!(table.0.fate(&lost(&start, since)).await, Some(Fate::InTable));
    }
    database.drop().await;
}

#[tokio::test]
async fn a_block_whose_attempts_all_failed_is_absent() {
    let database = Database::new("fate_absent").await;
    let table = database.with_table().await;
    let start = format!("{}-", database.name);
    // A frame that can be read, of rows that cannot: without one the server refuses before it writes anything down.
    let broken = [Bytes::copy_from_slice(FrameEncoder::new(64).encode(&[0xff; 40]))];
    send(&table, &broken, "a", &format!("{start}0")).await.unwrap_err();
    noted(&database, &format!("{start}0")).await;
    // As if the first attempt were the next thing to come: the server was up before it if it was up at all.
    let coming = now() + LOG_MARGIN.saturating_sub(Duration::from_secs(5));
    let expected =
        if database.up_time().await > Duration::from_secs(5) { Fate::Absent } else { Fate::Unknown };
    assert_eq!(table.0.fate(&lost(&start, coming)).await, Some(expected));
    let two = Lost { attempts: Some(2), ..lost(&start, coming) };
    assert_eq!(table.0.fate(&two).await, Some(Fate::Unknown), "an attempt that the server never saw");
    let inherited = Lost { attempts: None, ..two };
    assert_eq!(table.0.fate(&inherited).await, Some(Fate::Unknown), "attempts of others");
    let restarted = lost(&start, now().saturating_sub(database.up_time().await));
    assert_eq!(
        table.0.fate(&restarted).await,
        Some(Fate::Unknown),
        "the server came up after the first attempt"
    );
    database.drop().await;
}

/// A profile with these settings refuses every INSERT that does not set them.
#[tokio::test]
async fn an_attempt_that_was_refused_before_it_began_is_told_apart() {
    let database = Database::new("fate_refused").await;
    let (sink, _) = database.with_table().await;
    let coming = now() + LOG_MARGIN.saturating_sub(Duration::from_secs(5));
    let is_up = database.up_time().await > Duration::from_secs(5);
    let query_id = format!("{}-0", database.name);
    let refused = format!(
        "INSERT INTO {}.otel_traces (ServiceName) SELECT 'a' SETTINGS use_query_cache = 1, read_overflow_mode = 'break'",
        database.name
    );
    let error = database.fails(&refused, &query_id).await;
    assert!(error.contains("QUERY_CACHE_USED_WITH_NON_THROW_OVERFLOW_MODE"), "{error}");
    noted(&database, &query_id).await;
    let expected = if is_up { Fate::Refused } else { Fate::Unknown };
    assert_eq!(sink.fate(&lost(&query_id, coming)).await, Some(expected));
    database.drop().await;
}

/// One that waits has its parts in the table, and they are in no log until it has waited.
#[tokio::test]
async fn an_attempt_that_ended_while_it_may_have_waited_for_a_quorum_is_not_taken_for_failed() {
    let database = Database::new("fate_quorum").await;
    let (sink, _) = database.with_table().await;
    let coming = now() + LOG_MARGIN.saturating_sub(Duration::from_secs(5));
    let is_up = database.up_time().await > Duration::from_secs(5);
    for (quorum, expected) in [("0", Fate::Absent), ("2", Fate::Unknown), ("'auto'", Fate::Unknown)] {
        let query_id = format!("{}-{}", database.name, quorum.trim_matches('\''));
        let late = format!(
            "INSERT INTO {}.otel_traces (ServiceName) SELECT toString(sleepEachRow(0.5)) FROM numbers(6) \
             SETTINGS max_execution_time = 1, max_block_size = 1, insert_quorum = {quorum}",
            database.name
        );
        let error = database.fails(&late, &query_id).await;
        assert!(error.contains("TIMEOUT_EXCEEDED"), "{error}");
        noted(&database, &query_id).await;
        let expected = if is_up { expected } else { Fate::Unknown };
        assert_eq!(sink.fate(&lost(&query_id, coming)).await, Some(expected), "{quorum}");
    }
    database.drop().await;
}

#[tokio::test]
async fn a_block_that_no_log_names_is_unknown() {
    let database = Database::new("fate_unknown").await;
    let (sink, _) = database.with_table().await;
    assert_eq!(sink.fate(&lost("no-such-query-", now())).await, Some(Fate::Unknown));
    database.drop().await;
}
