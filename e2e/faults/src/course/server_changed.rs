//! A gateway is killed after the server has stored an INSERT and before the gateway gets the answer. It is restarted with another server in
//! its config. That server does not know the token, so both servers store what was in flight. The gateway counts these rows as possibly
//! doubled, and its guarantee has the reason.

use anyhow::{Result, ensure};
use serde_json::json;

use super::kill;
use super::only_copy::MAY_BE_DOUBLED;
use super::volume::as_real;
use crate::scene::{Expected, SPANS_AFTER, Scene};
use crate::second_shard::ALL_SHARDS;

/// The gateway's series that is 1 while blocks may also be on another server.
const AT_LEAST_ONCE: &str =
    "sluice_gateway_delivery_guarantee{guarantee=\"at_least_once\",reason=\"destination_changed\"}";

pub async fn play(scene: &mut Scene<'_>) -> Result<Expected> {
    scene.open_second_shard().await?;
    let (killed, number) = kill::with_change(scene, |scene| {
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
