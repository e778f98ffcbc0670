//! A gateway dies when the server has stored an INSERT but has not answered, and comes back with another format, another server or one more
//! shard in its config.

use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::kill::{self, Step};
use super::only_copy::MAY_BE_DOUBLED;
use super::volume::as_real;
use crate::scene::{Expected, SPANS_AFTER, Scene};
use crate::second_shard::ALL_SHARDS;

/// Memory for both formats: columns need more than rows.
const MEMORY: &str = "256MiB";

/// The two formats, in the order of even rounds.
const FORMATS: [&str; 2] = ["Native", "RowBinary"];

/// The gateway's series that is 1 while blocks may also be on another server.
const AT_LEAST_ONCE: &str =
    "sluice_gateway_delivery_guarantee{guarantee=\"at_least_once\",reason=\"destination_changed\"}";

/// Gateway 0 dies, and the same member comes back after `change`. Returns when it died, and the number of the new gateway.
async fn restart(
    scene: &mut Scene<'_>,
    change: impl FnOnce(&mut Scene<'_>) -> Result<()>,
) -> Result<(Instant, usize)> {
    scene.start_under_load(Some("gateway-0")).await?;
    let killed = kill::at(scene, Step::AfterServerCommit).await?;
    scene.retire(0)?;
    change(scene)?;
    Ok((killed, scene.start_gateway(Some("gateway-0"))?))
}

/// Comes back with another `insert.format`. It sends its ranges in flight again with the same tokens, as columns instead of rows or the other
/// way around. ClickHouse must recognise both as the same block. It compares the token and the number of blocks of an INSERT, which is not
/// documented.
pub async fn format(scene: &mut Scene<'_>) -> Result<Expected> {
    let [even, odd] = FORMATS;
    let (before, after) = if scene.round.is_multiple_of(2) { (even, odd) } else { (odd, even) };
    scene.reconfigure(&format_of(before))?;
    let (killed, _) = restart(scene, |scene| scene.reconfigure(&format_of(after))).await?;
    let expected = scene.recover(killed).await?;
    both_formats(scene).await?;
    Ok(expected)
}

/// Changes of a gateway's usual config.
fn format_of(format: &str) -> Value {
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

/// Comes back with another shard. Half of the partitions go to it from then on. Their ranges in flight go to the shard to which they were sent
/// before, as the plan says. The new shard does not know their token, and would store them again.
pub async fn shard_added(scene: &mut Scene<'_>) -> Result<Expected> {
    scene.open_second_shard().await?;
    #[expect(clippy::redundant_closure_for_method_calls, reason = "the method's path is not general enough")]
    let (killed, _) = restart(scene, |scene| scene.write_to_both_shards()).await?;
    let expected = scene.recover(killed).await?;
    ensure!(scene.second_shard()?.rows(scene.database.name()).await? > 0, "nothing goes to the new shard");
    Ok(expected)
}

/// Comes back with another server. That server does not know the token, so both servers store what was in flight. The gateway counts these
/// rows as possibly doubled, and its guarantee has the reason.
pub async fn server(scene: &mut Scene<'_>) -> Result<Expected> {
    scene.open_second_shard().await?;
    let (killed, number) = restart(scene, |scene| {
        let other = scene.second_shard()?.front.url();
        scene.reconfigure(&json!({"sink": {"clickhouse": {"endpoints": [other]}}}))
    })
    .await?;
    let stored = scene.second_shard()?.front.stored();
    let recovery = scene.recovered_at(stored, killed).await?;
    scene.wait_metric(number, AT_LEAST_ONCE, |holds| holds > 0.5).await?;
    scene.wait_acked(SPANS_AFTER).await?;
    let doubled = doubled(scene).await?;
    ensure!(doubled > 0, "the INSERT that was stored is not in flight");
    scene.wait_metric(number, MAY_BE_DOUBLED, |told| told > as_real(doubled) - 0.5).await?;
    Ok(Expected { doubled, recovery_s: Some(recovery), ..Expected::default() })
}

/// Rows that are on both servers.
async fn doubled(scene: &Scene<'_>) -> Result<u64> {
    let table = format!("`{}`.{ALL_SHARDS}", scene.database.name());
    let doubled = "toUInt64(count() - uniqExact(TraceId, toString(SpanAttributes)))";
    scene.stage.servers.server.count(&format!("SELECT {doubled} FROM {table}")).await
}
