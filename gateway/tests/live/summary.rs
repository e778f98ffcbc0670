//! The server adds its summary to the answer of every INSERT that it accepts, whatever happens to the rows. Without the summary, a block
//! is in doubt, and someone must act.

use crate::{
    messages::{message, span},
    native::columns_of,
    server::{Database, frames, send_body},
};
use sluice_clickhouse::body::InsertBody;

#[tokio::test]
async fn the_server_sums_up_what_it_stores_what_it_knows_already_and_what_views_take_long_over() {
    let database = Database::new("summary").await;
    let (sink, columns) = database.with_table().await;
    let rows = frames(&columns, &message(vec![span(vec![])]));
    let as_columns = columns_of(&columns, &rows);
    let bodies = [(InsertBody::new(rows), "rows"), (as_columns, "columns")];
    let send = async |body: &InsertBody, token: &str, attempt: u32| {
        let query_id = format!("{}-{token}-{attempt}", database.name);
        send_body((&sink, &columns), body, token, &query_id).await.unwrap();
    };
    for (body, token) in &bodies {
        send(body, token, 0).await;
        let stored = database.count().await;
        send(body, token, 1).await;
        assert_eq!(database.count().await, stored, "{token} are known by their token");
    }
    // Far longer than the server waits before it says how far a query is.
    let name = &database.name;
    database.execute(&format!("CREATE TABLE {name}.target (n UInt8) ENGINE = MergeTree ORDER BY n")).await;
    let select = format!("SELECT sleep(1) AS n FROM {name}.otel_traces");
    database.execute(&format!("CREATE MATERIALIZED VIEW {name}.slow TO {name}.target AS {select}")).await;
    for (body, token) in &bodies {
        let viewed = database.count_of("target").await;
        send(body, &format!("{token}-viewed"), 0).await;
        assert!(database.count_of("target").await > viewed, "the view has taken no {token}");
    }
    database.drop().await;
}
