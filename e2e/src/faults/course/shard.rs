//! One of two shards is lost and comes back, while a gateway dies and replays what is in flight.

use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::json;

use super::{INSERTS_BEFORE, SPANS_AFTER};
use crate::faults::scene::{Expected, Scene};

/// Spans while the shard is lost: half a minute of load, in which its blocks fill their share of the memory.
const SPANS_LOST: u64 = 150_000;

/// Inserts into the other shard at the end of that time: two seconds' worth, of four partitions.
const INSERTS_OF_OTHER: u64 = 24;

/// Plays it.
///
/// # Errors
/// When what is waited for does not come, or a server could not be handled.
pub async fn play(scene: &mut Scene<'_>) -> Result<Expected> {
    scene.open_second_shard().await?;
    let urls = [scene.stage.servers.sink.url(), scene.second_shard()?.front.url()];
    let shards: Vec<[&String; 1]> = urls.iter().map(|url| [url]).collect();
    scene.reconfigure(&json!({"sink": {"clickhouse": {"endpoints": [], "shards": shards}}}))?;
    scene.start_gateway(Some("gateway-0"))?;
    scene.start_load();
    scene.wait_inserts(INSERTS_BEFORE).await?;
    let database = scene.database.name().to_owned();
    ensure!(scene.second_shard()?.rows(&database).await? > 0, "nothing goes to the second shard");

    scene.second_shard()?.kill().await?;
    scene.wait_acked(SPANS_LOST / 2).await?;
    // Its successor finds ranges in flight for a shard that it cannot ask.
    scene.gateway(0).kill().await?;
    scene.start_again(0, Some("gateway-0"))?;
    scene.wait_acked(SPANS_LOST / 2).await?;
    scene.wait_inserts(INSERTS_OF_OTHER).await?;

    scene.second_shard()?.begin().await?;
    let back = Instant::now();
    let recovery = scene.recovered(back).await?;
    scene.wait_acked(SPANS_AFTER).await?;
    Ok(Expected { recovery_s: Some(recovery), ..Expected::default() })
}
