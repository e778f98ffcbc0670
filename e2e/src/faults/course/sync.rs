//! The disk of a queue volume fails to make durable what is on it, while blocks wait there: the gateway must not go on with it.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::INSERTS_BEFORE;
use super::spooled;
use super::volume::{self, BLOCKS, SPANS_AWAY, SPOOL_BLOCKS};
use crate::faults::kafka_front::Way;
use crate::faults::scene::{Expected, PATIENCE, Scene};
use crate::faults::sync_fails::SyncFails;

/// How a gateway ends whose volume has failed: something is wrong with what it runs on, and another start may find it mended.
const EXIT_FAILED: i32 = 1;

/// What it says then.
const SAYS_FAILED: &str = "the queue volume has failed";

/// Both `delivery.commit`, as whether offsets are committed once rows are on the volume; with a scenario's name and words.
pub const ALL: [(bool, &str, &str); 2] = [
    (
        false,
        "volume-sync-fails",
        "EIO of every fsync on the volume while blocks are there: the gateway ends, and the next start goes on",
    ),
    (true, "volume-sync-fails-after-enqueue", "the same with commit: AfterEnqueue"),
];

/// What gateways are told otherwise than usual.
pub fn change(enqueues: bool) -> Value {
    volume::change(enqueues)
}

/// Plays it.
///
/// # Errors
/// When the gateway goes on, or what is waited for does not come.
pub async fn play(scene: &mut Scene<'_>) -> Result<Expected> {
    let queue = scene.volume(0);
    std::fs::create_dir_all(&queue).with_context(|| format!("create {}", queue.display()))?;
    let disk = SyncFails::make(&scene.stage.folder, scene.topic.name(), &queue)?;
    scene.start_gateway_with(Some("gateway-0"), disk.environment())?;
    scene.start_load();
    scene.wait_inserts(INSERTS_BEFORE).await?;
    // What is produced at once goes on with the numbers of the load.
    scene.stop_load().await?;
    scene.stage.servers.sink.go(Way::Refused);
    let failed = fail(scene, &disk).await;
    scene.stage.servers.sink.go(Way::Open);
    failed?;
    let since = Instant::now();
    scene.start_again(0, Some("gateway-0"))?;
    let recovery = scene.recovered(since).await?;
    spooled::drained(scene).await?;
    Ok(Expected { recovery_s: Some(recovery), ..Expected::default() })
}

/// The disk fails while blocks come to it; the gateway ends by itself.
async fn fail(scene: &mut Scene<'_>, disk: &SyncFails) -> Result<()> {
    scene.produce(SPANS_AWAY).await?;
    scene.wait_metric(0, SPOOL_BLOCKS, |blocks| blocks >= BLOCKS).await?;
    disk.set(true)?;
    // With AfterInsert a block is synced when it is next marked as sent: the server must be there for that.
    scene.stage.servers.sink.go(Way::Open);
    let code = scene.gateway(0).end_within(PATIENCE).await?;
    disk.set(false)?;
    ensure!(code == EXIT_FAILED, "it ended with code {code} after a sync had failed");
    let log = std::fs::read_to_string(scene.gateway(0).log()).context("read the gateway's log")?;
    ensure!(log.contains(SAYS_FAILED), "it does not say why it ended");
    Ok(())
}
