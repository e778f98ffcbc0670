//! The disk of the logs fails, or is slow.
//!
//! After a failed sync, the last record is cut off before the next start, as if the disk had lost it. None of its requests may have had a
//! success.

use std::time::Instant;

use anyhow::{Result, ensure};

use super::damage::unanswered;
use super::kill::STEP_PATIENCE;
use super::{begin_on_disk, damage};
use crate::course::SPANS_AFTER;
use crate::course::disk::{SAYS_FAILED, ended};
use crate::failing_disk::{Call, FailingDisk, Hold};
use crate::otlp_clients::CLIENTS;
use crate::scene::{Expected, PATIENCE, Scene};
use e2e_fixtures::cluster::Seen;

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
    wait_told_again(scene).await?;
    disk.set(None)?;
    let recovery = scene.recovered(Instant::now()).await?;
    scene.wait_acked(SPANS_AFTER).await?;
    let remaining = scene.gateway(0).admin().drainz().await?;
    ensure!(!remaining.unreadable, "the log can be read, and the answer to /drainz is {remaining:?}");
    Ok(Expected { recovery_s: Some(recovery), ..Expected::default() })
}

/// Waits until each client was asked to retry.
async fn wait_told_again(scene: &mut Scene<'_>) -> Result<()> {
    let wanted = scene.clients()?.told_again() + CLIENTS as u64;
    scene
        .wait("clients that are asked to retry", PATIENCE, async |scene| {
            let told = scene.clients()?.told_again();
            Ok(if told >= wanted {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("{told} of {wanted} requests"))
            })
        })
        .await
}

/// Fails the sync of a written record.
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
    let told = wait_told_again(scene).await;
    disk.hold(None)?;
    told?;
    let recovery = scene.recovered(Instant::now()).await?;
    scene.wait_acked(SPANS_AFTER).await?;
    Ok(Expected { recovery_s: Some(recovery), ..Expected::default() })
}
