//! A gateway dies when the server has stored an INSERT but has not answered, and comes back with another `insert.format`. It sends its ranges
//! in flight again with the same tokens, as columns instead of rows or the other way around.
//!
//! ClickHouse must recognise both as the same block. It compares the token and the number of blocks of an INSERT, which is not documented.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::kill;
use crate::scene::{Expected, Scene};

/// Memory for both formats: columns need more than rows.
const MEMORY: &str = "256MiB";

/// The two formats, in the order of even rounds.
const FORMATS: [&str; 2] = ["Native", "RowBinary"];

/// Changes of a gateway's usual config.
fn change(format: &str) -> Value {
    json!({"sink": {"clickhouse": {"insert": {"format": format}}}, "memory": {"limit": MEMORY}})
}

/// Checks in the server's log that inserts came in both formats.
async fn both_formats(scene: &Scene<'_>) -> Result<()> {
    let server = &scene.stage.servers.server;
    server.execute("SYSTEM FLUSH LOGS query_log").await?;
    let question = format!(
        "SELECT count(DISTINCT extract(query, 'FORMAT (\\\\w+)')) FROM system.query_log \
         WHERE type = 'QueryFinish' AND query_kind = 'Insert' AND query LIKE '%{}%'",
        scene.database.name()
    );
    let formats = server.text(&question, "TSV").await?;
    ensure!(formats.trim() == "2", "blocks went in {} formats instead of both", formats.trim());
    Ok(())
}

pub async fn play(scene: &mut Scene<'_>) -> Result<Expected> {
    let [even, odd] = FORMATS;
    let (before, after) = if scene.round.is_multiple_of(2) { (even, odd) } else { (odd, even) };
    scene.reconfigure(&change(before))?;
    let (killed, _) = kill::with_change(scene, |scene| scene.reconfigure(&change(after))).await?;
    let expected = scene.recover(killed).await?;
    both_formats(scene).await?;
    Ok(expected)
}
