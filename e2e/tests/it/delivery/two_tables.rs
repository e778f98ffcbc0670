//! Two pipelines read one topic into two tables of one server, each with its own consumer group. Their INSERTs run at the same time, and
//! neither gateway mistakes the other's INSERT for its own: each table gets every span.
//!
//! Without a deduplication window, a gateway whose INSERT is refused because "the query runs already" asks the server's log about that
//! INSERT. The answer must be about its own INSERT.

use super::process::{self, Gateway};
use crate::prelude::*;

/// Messages of one span each, one after another, so that both gateways send each at the same time.
const MESSAGES: usize = 4;

/// Each INSERT runs for a tenth of a second, so that both overlap. A gateway that asks about one gets the answer after its end.
const SLOW: &str = "ALTER TABLE {table} ADD COLUMN slow UInt8 MATERIALIZED sleepEachRow(0.1)";

/// The server remembers no tokens.
const FORGETFUL: &str = "ALTER TABLE {table} MODIFY SETTING non_replicated_deduplication_window = 0";

/// The metric of a gateway that knows it.
const NO_WINDOW: &str = r#"sluice_gateway_delivery_guarantee{guarantee="at_least_once",reason="window_off"}"#;

#[test]
#[ignore = "group delivery"]
fn two_pipelines_never_answer_for_each_other() -> Result<()> {
    process::run("two_tables", 1, async |stage| {
        let (first, second) =
            (stage.start("first", &json!({})).await?, stage.start("second", &json!({})).await?);
        for gateway in [&first, &second] {
            gateway.execute(SLOW).await?;
            gateway.execute(FORGETFUL).await?;
        }
        for gateway in [&first, &second] {
            // From now on, it asks the log before it sends a block again.
            gateway.wait_metric(NO_WINDOW, Some(1.0)).await?;
        }
        for _ in 0..MESSAGES {
            stage.send(0, Some(&good("both"))).await?;
            first.wait_lag(0).await?;
            second.wait_lag(0).await?;
        }
        let rows = [rows(&first).await?, rows(&second).await?];
        ensure!(rows == [MESSAGES, MESSAGES], "{MESSAGES} spans were sent, and the tables have {rows:?}");
        first.stop().await?;
        second.stop().await
    })
}

async fn rows(gateway: &Gateway) -> Result<usize> {
    Ok(gateway.select("1", "").await?.len())
}
