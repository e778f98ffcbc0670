//! ClickHouse comes back in another time zone, with a table whose partitions are days of the server's zone: the token of an INSERT that it has
//! stored is in another partition than the rows of the next try, which are stored a second time. It has lost its logs, so that nobody can say
//! what became of the INSERT: its rows are doubled, and counted as rows that may be.

use std::time::Instant;

use anyhow::Result;
use serde_json::{Value, json};

use super::only_copy::MAY_BE_DOUBLED;
use super::{INSERTS_BEFORE, SPANS_AFTER};
use crate::gate::Trap;
use crate::scene::{Expected, PATIENCE, Scene};
use crate::sink_front::{Leg, Passage, Verdict};
use e2e_fixtures::pipeline::TABLE;

/// The series of a gateway that is 1 while it relies on no token because of that.
const AT_LEAST_ONCE: &str =
    "sluice_gateway_delivery_guarantee{guarantee=\"at_least_once\",reason=\"time_zone\"}";

/// The first and the last zone of a day: it is never the same day in both.
const EAST: &str = "Pacific/Kiritimati";
const WEST: &str = "Etc/GMT+12";

/// One INSERT at a time, so that no other one is stored when the server dies.
pub fn change() -> Value {
    json!({"sink": {"clickhouse": {"insert": {"concurrency": 1}}}})
}

/// Plays it.
///
/// # Errors
/// When what is waited for does not come, or the server could not be handled.
pub async fn play(scene: &mut Scene<'_>) -> Result<Expected> {
    divide_by_the_servers_days(scene).await?;
    scene.start_gateway(Some("gateway-0"))?;
    scene.start_load();
    scene.wait_inserts(INSERTS_BEFORE).await?;
    let zone = zone_of_another_day(scene).await?;
    let stored = |passage: &Passage| passage.leg == Leg::Answered && passage.written_rows > 0;
    let gate = scene.stage.servers.sink.gate();
    let caught = gate.trap("stored insert", stored).caught(PATIENCE).await?;
    let doubled = caught.passage.written_rows;
    let token = caught.passage.token.clone();
    let is_again = move |passage: &Passage| {
        passage.leg == Leg::Answered && passage.token == token && passage.written_rows > 0
    };
    let again = gate.trap("second insert of the block that was stored", is_again);
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

/// Other rounds have the server in this machine's zone. No INSERT is stored without an answer when the server dies: its rows would be doubled
/// in the former zone, too.
async fn return_to_the_former_zone(scene: &Scene<'_>) -> Result<()> {
    let servers = &scene.stage.servers;
    let unsent = servers.sink.gate().trap("insert", |passage: &Passage| passage.leg == Leg::Head);
    // There is one INSERT at a time. If none comes, the scenario has failed already, and the server is all that is left to return.
    let unsent = unsent.caught(PATIENCE).await;
    servers.kill_clickhouse().await?;
    servers.start_clickhouse().await?;
    // Dropping it lets it pass.
    unsent.map(drop)
}

/// The block itself must be sent again before the server returns to its former zone, which still knows its token. Rows that count as possibly
/// doubled do not show that: another block that was sent to the dead server counts too.
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
    // Its own rows. Those of another block that was sent to the dead server may count as well.
    #[expect(clippy::cast_precision_loss, reason = "some thousands of rows")]
    scene.wait_metric(0, MAY_BE_DOUBLED, |told| told > doubled as f64 - 0.5).await?;
    Ok(recovery)
}

/// The table was not created by the gateway.
async fn divide_by_the_servers_days(scene: &Scene<'_>) -> Result<()> {
    let (server, database) = (&scene.stage.servers.server, scene.database.name());
    let ours = format!("`{database}`.`{TABLE}`");
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

/// A zone in which the rows of now are of another day than in the server's.
async fn zone_of_another_day(scene: &Scene<'_>) -> Result<&'static str> {
    let table = format!("`{}`.`{TABLE}`", scene.database.name());
    let question = format!("SELECT toDate(max(Timestamp), '{EAST}') != toDate(max(Timestamp)) FROM {table}");
    let is_another = scene.stage.servers.server.text(&question, "TabSeparated").await?;
    Ok(if is_another.trim() == "1" { EAST } else { WEST })
}
