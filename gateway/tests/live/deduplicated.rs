//! Rows that the server dropped because it knows their token: their number, and how to have them stored again.

use crate::{
    messages::{message, span},
    server::{Database, frames, metrics, send},
};
use sluice_gateway::delivery::{deduplicated::Watch, query_ids::QueryIds};
use std::time::{Duration, Instant};

const GROUP: &str = "group";

/// How long the server's log may take: it counts once it is 15 s old.
const LOGGED: Duration = Duration::from_mins(1);

#[tokio::test]
async fn rows_that_a_token_drops_are_counted_and_there_is_a_way_to_store_them() {
    let database = Database::new("deduplicated").await;
    let table = database.with_table().await;
    let frames = frames(&table.1, &message(vec![span(vec![])]));
    let ids = QueryIds::of(GROUP, table.0.names(), 0);
    let metrics = metrics();
    let mut watch = Watch::new(std::slice::from_ref(&table.0), GROUP, metrics.clone());
    watch.look().await;

    send(&table, &frames, "a", &ids.attempt("a", 0)).await.unwrap();
    database.execute(&format!("DELETE FROM {}.otel_traces WHERE true", database.name)).await;
    send(&table, &frames, "a", &ids.attempt("a", 1)).await.unwrap();
    // Another pipeline's, which counts for itself.
    send(&table, &frames, "a", &QueryIds::of("other", table.0.names(), 0).attempt("a", 0)).await.unwrap();
    assert_eq!(database.count().await, 0, "the token outlives a DELETE");

    let deadline = Instant::now() + LOGGED;
    while metrics.rows_deduplicated.get() == 0 {
        assert!(Instant::now() < deadline, "no row was counted within {LOGGED:?}");
        watch.look().await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    watch.look().await;
    assert_eq!(metrics.rows_deduplicated.get(), 2, "two rows, once");

    // What DELIVERY.md says, "To store rows again".
    for blocks in [0, 10_000] {
        let table = format!("ALTER TABLE {}.otel_traces", database.name);
        database
            .execute(&format!("{table} MODIFY SETTING non_replicated_deduplication_window = {blocks}"))
            .await;
    }
    send(&table, &frames, "a", &ids.attempt("a", 2)).await.unwrap();
    assert_eq!(database.count().await, 2, "the window that was off has forgotten the token");
    let partition = database.ask("any(_partition_id)").await;
    let drop_partition = format!("ALTER TABLE {}.otel_traces DROP PARTITION ID '{partition}'", database.name);
    database.execute(&drop_partition).await;
    send(&table, &frames, "a", &ids.attempt("a", 3)).await.unwrap();
    assert_eq!(database.count().await, 2, "the token goes with the partition");
    database.drop().await;
}
