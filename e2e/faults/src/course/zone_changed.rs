//! ClickHouse comes back in another time zone, with a table that is partitioned by days of the server's zone. The token of a stored INSERT
//! belongs to another partition than the rows of the next try, so the server stores them a second time. It has lost its logs, so it cannot
//! tell the gateway what happened to the INSERT. The rows are doubled, and the gateway counts them as possibly doubled.

use std::time::Instant;

use anyhow::Result;
use serde_json::{Value, json};

use super::only_copy::MAY_BE_DOUBLED;
use super::server::{is_stored, stored_insert};
use super::volume::as_real;
use crate::gate::Trap;
use crate::scene::{Expected, PATIENCE, SPANS_AFTER, Scene};
use crate::sink_front::{Leg, Passage, Verdict};

/// The gateway's series that is 1 while it does not rely on tokens for that reason.
const AT_LEAST_ONCE: &str =
    "sluice_gateway_delivery_guarantee{guarantee=\"at_least_once\",reason=\"time_zone\"}";

/// The first and the last zone of a day: both never have the same day.
const EAST: &str = "Pacific/Kiritimati";
const WEST: &str = "Etc/GMT+12";

/// One INSERT at a time, so that no other one is stored when the server dies.
pub fn change() -> Value {
    json!({"sink": {"clickhouse": {"insert": {"concurrency": 1}}}})
}

pub async fn play(scene: &mut Scene<'_>) -> Result<Expected> {
    divide_by_the_servers_days(scene).await?;
    scene.start_under_load(Some("gateway-0")).await?;
    let zone = zone_of_another_day(scene).await?;
    let caught = stored_insert(scene).await?;
    let doubled = caught.passage.written_rows;
    let token = caught.passage.token.clone();
    let is_again = move |passage: &Passage| is_stored(passage) && passage.token == token;
    let again = scene.stage.servers.sink.gate().trap("second insert of the block that was stored", is_again);
    scene.stage.servers.kill_clickhouse().await?;
    caught.decide(Verdict::Reset);
    scene.stage.servers.start_clickhouse_in(zone).await?;
    let since = Instant::now();
    let played = recover(scene, since, doubled, again).await;
    let returned = return_to_the_former_zone(scene).await;
    let recovery = played?;
    returned?;
    Ok(Expected { doubled, recovery_s: Some(recovery), ..Expected::default() })
}

/// Other rounds run the server in this machine's zone. No INSERT may be stored without an answer when the server is killed: its rows would
/// also be doubled in the former zone.
async fn return_to_the_former_zone(scene: &Scene<'_>) -> Result<()> {
    let servers = &scene.stage.servers;
    let unsent = servers.sink.gate().trap("insert", |passage: &Passage| passage.leg == Leg::Head);
    // There is one INSERT at a time. If none comes, the scenario has failed already, and only the server must be restored.
    let unsent = unsent.caught(PATIENCE).await;
    servers.kill_clickhouse().await?;
    servers.start_clickhouse().await?;
    // Dropping it lets it pass.
    unsent.map(drop)
}

/// The block must be sent again before the server returns to its former zone, which still knows its token. The count of possibly doubled
/// rows does not show that, because another block that was sent to the dead server counts too.
async fn recover(
    scene: &mut Scene<'_>,
    since: Instant,
    doubled: u64,
    again: Trap<Passage, Verdict>,
) -> Result<f64> {
    again.caught(PATIENCE).await.map(drop)?;
    let recovery = scene.recovered(since).await?;
    scene.wait_metric(0, AT_LEAST_ONCE, |holds| holds > 0.5).await?;
    scene.wait_acked(SPANS_AFTER).await?;
    // At least its own rows: those of another block that was sent to the dead server may count too.
    scene.wait_metric(0, MAY_BE_DOUBLED, |told| told > as_real(doubled) - 0.5).await?;
    Ok(recovery)
}

/// The table was not created by the gateway.
async fn divide_by_the_servers_days(scene: &Scene<'_>) -> Result<()> {
    let (server, database) = (&scene.stage.servers.server, scene.database.name());
    let ours = scene.table();
    let engine = "MergeTree PARTITION BY toDate(Timestamp) ORDER BY Timestamp \
                  SETTINGS non_replicated_deduplication_window = 10000";
    for statement in [
        format!("CREATE TABLE `{database}`.theirs AS {ours} ENGINE = {engine}"),
        format!("DROP TABLE {ours} SYNC"),
        format!("RENAME TABLE `{database}`.theirs TO {ours}"),
    ] {
        server.execute(&statement).await?;
    }
    Ok(())
}

/// A zone in which the current rows belong to another day than in the server's zone.
async fn zone_of_another_day(scene: &Scene<'_>) -> Result<&'static str> {
    let is_another = format!("toDate(max(Timestamp), '{EAST}') != toDate(max(Timestamp))");
    let question = format!("SELECT {is_another} FROM {}", scene.table());
    let is_another = scene.stage.servers.server.text(&question, "TabSeparated").await?;
    Ok(if is_another.trim() == "1" { EAST } else { WEST })
}
