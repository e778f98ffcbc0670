//! The disk of the logs fails, or is slow.
//!
//! After a failed sync, the last record is cut off before the next start, as if the disk had lost it. None of its requests may have had a
//! success.

use std::time::Instant;

use anyhow::{Result, ensure};

use super::damage::unanswered;
use super::kill::STEP_PATIENCE;
use super::{begin_on_disk, damage, wait_told_again};
use crate::course::disk::{SAYS_FAILED, ended};
use crate::failing_disk::{Call, FailingDisk, Hold};
use crate::otlp_clients::CLIENTS;
use crate::scene::{Expected, SPANS_AFTER, Scene};

/// What a gateway logs when it cannot read a log.
const SAYS_UNREADABLE: &str = "a log on the queue volume cannot be read";

/// Syncs and writes fail in turn.
pub(super) async fn fails(scene: &mut Scene<'_>) -> Result<Expected> {
    let disk = begin_on_disk(scene).await?;
    let mut longest = 0.0_f64;
    for call in [Call::Sync, Call::Write] {
        let before = scene.lines_logged(SAYS_FAILED)?;
        if call == Call::Sync {
            fail_held_sync(&disk).await?;
        } else {
            disk.set(Some(call))?;
        }
        ended(scene, &disk, before).await?;
        let since = Instant::now();
        if call == Call::Sync {
            unanswered(&damage::log(scene))?.cut()?;
        }
        scene.start_again(0, Some("gateway-0"))?;
        longest = longest.max(scene.recovered(since).await?);
    }
    scene.wait_acked(SPANS_AFTER).await?;
    Ok(Expected { recovery_s: Some(longest), ..Expected::default() })
}

/// Reads fail until the gateway says so, and refuses requests because it has no other log.
pub(super) async fn fails_reads(scene: &mut Scene<'_>) -> Result<Expected> {
    let disk = begin_on_disk(scene).await?;
    disk.set(Some(Call::Read))?;
    scene.wait_logged(SAYS_UNREADABLE).await?;
    let remaining = scene.gateway(0).admin().drainz().await?;
    ensure!(remaining.unreadable, "the answer to /drainz is {remaining:?}");
    // Each client was asked to retry.
    wait_told_again(scene, CLIENTS as u64).await?;
    disk.set(None)?;
    let expected = scene.recover(Instant::now()).await?;
    let remaining = scene.gateway(0).admin().drainz().await?;
    ensure!(!remaining.unreadable, "the log can be read, and the answer to /drainz is {remaining:?}");
    Ok(expected)
}

async fn fail_held_sync(disk: &FailingDisk) -> Result<()> {
    disk.hold(Some(Hold::RecordSync))?;
    let caught = disk.caught(STEP_PATIENCE).await;
    disk.set(Some(Call::Sync))?;
    disk.hold(None)?;
    caught
}

/// Holds a sync until each client has an answer that its request was not stored in time.
pub(super) async fn slow(scene: &mut Scene<'_>) -> Result<Expected> {
    let disk = begin_on_disk(scene).await?;
    disk.hold(Some(Hold::RecordSync))?;
    let told = wait_told_again(scene, CLIENTS as u64).await;
    disk.hold(None)?;
    told?;
    scene.recover(Instant::now()).await
}
