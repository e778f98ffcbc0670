//! The disk of a queue volume fails to sync or to read while blocks wait there. The gateway must stop using it, and must not treat unreadable
//! blocks as damaged.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use serde_json::Value;

use super::Family;
use super::spooled;
use super::volume::{self, BLOCKS, SPANS_AWAY, SPOOL_BLOCKS};
use crate::failing_disk::{Call, FailingDisk};
use crate::front::Way;
use crate::scene::{Expected, PATIENCE, Scene};

/// The exit code of a gateway whose volume has failed: its environment is broken, and a restart may find it repaired.
const EXIT_FAILED: i32 = 1;

/// What it logs then.
pub(super) const SAYS_FAILED: &str = "the queue volume has failed";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(clippy::doc_markdown, reason = "`--list` prints it as it is")]
pub enum Disk {
    /// EIO for every fsync on the volume while it holds blocks: the gateway exits, and continues after a restart
    SyncFails,
    /// the same with commit: AfterEnqueue
    SyncFailsAfterEnqueue,
    /// EIO for every read of the volume while it holds blocks: the gateway exits, and continues after a restart
    ReadFails,
    /// the same with commit: AfterEnqueue: no only copy is treated as damaged
    ReadFailsAfterEnqueue,
}

impl Family for Disk {
    const PREFIX: &'static str = "volume-";

    fn change(self) -> Value {
        volume::change(matches!(self, Disk::SyncFailsAfterEnqueue | Disk::ReadFailsAfterEnqueue))
    }

    async fn play(self, scene: &mut Scene<'_>) -> Result<Expected> {
        let fails = match self {
            Disk::SyncFails | Disk::SyncFailsAfterEnqueue => Call::Sync,
            Disk::ReadFails | Disk::ReadFailsAfterEnqueue => Call::Read,
        };
        let disk = start_on_disk(scene)?;
        scene.begin_load().await?;
        // Spans that are produced from here on continue the numbers of the load.
        scene.stop_load().await?;
        scene.while_sink_goes(Way::Refused, async |scene| fail(scene, &disk, fails).await).await?;
        let since = Instant::now();
        scene.start_again(0, Some("gateway-0"))?;
        let recovery = scene.recovered(since).await?;
        spooled::drained(scene).await?;
        Ok(Expected { recovery_s: Some(recovery), ..Expected::default() })
    }
}

/// Starts gateway 0 with a volume on a disk that can fail.
pub(super) fn start_on_disk(scene: &mut Scene<'_>) -> Result<FailingDisk> {
    let queue = scene.volume(0);
    std::fs::create_dir_all(&queue).with_context(|| format!("create {}", queue.display()))?;
    let disk = FailingDisk::make(&scene.stage.folder, scene.topic.name(), &queue)?;
    scene.start_gateway_with(Some("gateway-0"), disk.environment())?;
    Ok(disk)
}

/// The disk fails while blocks are written to it; the gateway exits.
async fn fail(scene: &mut Scene<'_>, disk: &FailingDisk, call: Call) -> Result<()> {
    scene.produce(SPANS_AWAY).await?;
    scene.wait_metric(0, SPOOL_BLOCKS, |blocks| blocks >= BLOCKS).await?;
    disk.set(Some(call))?;
    // With AfterInsert, the gateway syncs a block when it next marks one as sent, and reads a block when it sends it. Both need the server.
    scene.stage.servers.sink.go(Way::Open);
    ended(scene, disk, 0).await
}

/// Waits until the gateway has exited because of its disk, and repairs the disk. `before` is the number of such log lines before.
pub(super) async fn ended(scene: &mut Scene<'_>, disk: &FailingDisk, before: usize) -> Result<()> {
    let code = scene.gateway(0).end_within(PATIENCE).await?;
    disk.set(None)?;
    ensure!(code == EXIT_FAILED, "it ended with code {code} after the disk had failed");
    ensure!(scene.lines_logged(SAYS_FAILED)? > before, "it does not say why it ended");
    Ok(())
}
