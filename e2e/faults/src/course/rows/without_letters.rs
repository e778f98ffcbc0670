//! Rows that the table refuses while the broker refuses to make the dead-letter topic: `onMissing: Skip` and `Stop`.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use super::{ANYWHERE, Constraint, SETTLE_PATIENCE, all_letters};
use crate::course::spooled::is_same;
use crate::course::volume::as_real;
use crate::scene::{Expected, IMBALANCE, SPANS_AFTER, Scene};

/// The partition whose rows are refused alone.
const PARTITION: usize = 0;

/// Refuses rows of that partition only, one in a second and a half. Partitions take messages of 100 spans in turn, and this is a multiple
/// of eight.
const ONE_PARTITION: Constraint = Constraint { every: 8_000, rest: 50 };

/// In one of this many rounds, the gateway is killed while a block waits.
const KILL_EVERY: u32 = 2;

const SKIPPED: &str = "sluice_gateway_rows_skipped_total";

/// The metric of blocks that wait for a person to act.
const HALTED: &str = "sluice_gateway_blocks_halted";

/// Every refused row is skipped and counted, all others are inserted, and there is no letter.
pub(super) async fn skipped(scene: &mut Scene<'_>) -> Result<Expected> {
    ANYWHERE.add(scene).await?;
    scene.topic.refuse_dead_letters().await?;
    scene.start_under_load(Some("gateway-0")).await?;
    scene.wait_acked(SPANS_AFTER).await?;
    let sent = scene.stop_load().await?.clone();
    scene.wait_committed_within(0, SETTLE_PATIENCE).await?;
    // If Kafka may or may not have a span, the counts cannot be predicted.
    ensure!(sent.doubtful.count() == 0, "{} spans may be in Kafka or not", sent.doubtful.count());
    let lost = u64::try_from(ANYWHERE.refused(&sent.acked).len()).context("count refused rows")?;
    ensure!(lost > 0, "no row was refused");
    scene.wait_metric(0, SKIPPED, |rows| is_same(rows, as_real(lost))).await?;
    scene.wait_metric(0, IMBALANCE, |rows| rows == 0.0).await?;
    scene.letters().await?.ensure_exactly(&scene.topic, "row_refused", &BTreeSet::new())?;
    Ok(Expected { lost, ..Expected::default() })
}

/// A block with a refused row waits: its partition is committed up to it, and all other partitions continue. When the broker makes the
/// topic, the partition continues too, also in another process.
pub(super) async fn stops(scene: &mut Scene<'_>) -> Result<Expected> {
    ONE_PARTITION.add(scene).await?;
    let taken = scene.topic.refuse_dead_letters().await?;
    scene.start_under_load(Some("gateway-0")).await?;
    scene.wait_logged("Kafka refuses its dead letter; the block waits").await?;
    scene.recovered(Instant::now()).await?;
    scene.wait_acked(SPANS_AFTER).await?;
    scene.stop_load().await?;
    scene.wait_committed_but(PARTITION).await?;
    if scene.round % KILL_EVERY == KILL_EVERY - 1 {
        scene.restart(0).await?;
    }
    scene.wait_metric(0, HALTED, |blocks| blocks > 0.0).await?;
    taken.delete().await?;
    let healed = Instant::now();
    scene.wait_committed_within(0, SETTLE_PATIENCE).await?;
    let recovery_s = healed.elapsed().as_secs_f64();
    scene.wait_metric(0, HALTED, |blocks| blocks == 0.0).await?;
    scene.wait_metric(0, IMBALANCE, |rows| rows == 0.0).await?;
    all_letters(scene, ONE_PARTITION, Some(recovery_s)).await
}
