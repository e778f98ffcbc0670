//! A gateway with blocks on its queue volume dies, loses its partitions or is removed while ClickHouse is unreachable. With
//! `delivery.commit: AfterInsert` the volume is a cache, with `AfterEnqueue` it is the only copy.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use serde_json::{Value, json};

use super::volume::{
    self, BLOCKS, DRAIN_PATIENCE, LEAVE_PATIENCE, LEAVE_SOON, SPANS_AFTER, SPANS_AWAY, SPANS_READ,
    SPOOL_BLOCKS, as_real, leave_on_volume, run_drain_of,
};
use super::{FEW, Family, kill};
use crate::front::Way;
use crate::kafka_front::{self, Leg};
use crate::kafka_wire::OFFSET_COMMIT;
use crate::scene::{Expected, PARTITIONS, PATIENCE, Scene};
use crate::segments;
use e2e_fixtures::cluster::Seen;
use e2e_fixtures::pipeline::merged;
use e2e_fixtures::spans::Shape;
use e2e_stack::process::Signal;

/// The gateway's metric of blocks that an earlier process left and that it continues to insert.
const TAKEN_OVER: &str = "sluice_gateway_spool_taken_over_blocks_total";

/// The gateway's metric of blocks on its volume that it has given up.
const DROPPED: &str = "sluice_gateway_spool_dropped_blocks_total";

/// The gateway's metric of partitions that it owns.
pub(super) const PARTITIONS_OWNED: &str = "sluice_gateway_partitions_owned";

/// The gateway's metric of rows that may be there twice.
pub(super) const MAY_BE_DOUBLED: &str = "sluice_gateway_possible_duplicate_rows_total";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(clippy::doc_markdown, reason = "`--list` prints it as it is")]
pub enum OnlyCopy {
    /// commit: AfterEnqueue; SIGKILL while blocks are synced and the commit of their offsets is on its way
    EnqueueKillBeforeCommit,
    /// SIGKILL while blocks wait on the volume; the gateway comes back when another one has its partitions
    PodMoved,
    /// the same with commit: AfterEnqueue
    PodMovedAfterEnqueue,
    /// one of two gateways drains while the sink is unreachable, and is removed; `drain` empties its volume
    ScaleInFullSpool,
    /// the same with commit: AfterEnqueue
    ScaleInFullSpoolAfterEnqueue,
}

impl OnlyCopy {
    /// Whether offsets are committed once rows are on the volume.
    fn enqueues(self) -> bool {
        !matches!(self, OnlyCopy::PodMoved | OnlyCopy::ScaleInFullSpool)
    }
}

impl Family for OnlyCopy {
    fn rounds(self) -> u32 {
        if self == OnlyCopy::EnqueueKillBeforeCommit { u32::MAX } else { FEW }
    }

    fn change(self) -> Value {
        merged(&volume::change(self.enqueues()), &json!({"shutdown": {"deadline": LEAVE_SOON}}))
    }

    async fn play(self, scene: &mut Scene<'_>) -> Result<Expected> {
        scene.start_gateway(Some("gateway-0"))?;
        let enqueues = self.enqueues();
        let is_alone = self == OnlyCopy::EnqueueKillBeforeCommit;
        if !is_alone {
            scene.start_gateway(Some("gateway-1"))?;
            let half = f64::from(PARTITIONS) / 2.0;
            scene.wait_metric(1, PARTITIONS_OWNED, |owned| owned >= half).await?;
        }
        scene.begin_load().await?;
        scene.stop_load().await?;
        // All inserted rows are committed now, so later commits are for blocks on a volume.
        scene.wait_committed(0).await?;
        let played = scene.while_sink_goes(Way::Refused, async |scene| match self {
            OnlyCopy::EnqueueKillBeforeCommit => kill_before_commit(scene).await,
            OnlyCopy::PodMoved | OnlyCopy::PodMovedAfterEnqueue => kill_until_moved(scene, enqueues).await,
            OnlyCopy::ScaleInFullSpool | OnlyCopy::ScaleInFullSpoolAfterEnqueue => {
                take_away(scene, enqueues).await
            }
        });
        played.await?;
        let since = Instant::now();
        match self {
            OnlyCopy::EnqueueKillBeforeCommit => come_back(scene, since).await,
            OnlyCopy::PodMoved | OnlyCopy::PodMovedAfterEnqueue => {
                come_back_elsewhere(scene, enqueues, since).await
            }
            OnlyCopy::ScaleInFullSpool | OnlyCopy::ScaleInFullSpoolAfterEnqueue => {
                drain(scene, enqueues, since).await
            }
        }
    }
}

/// Waits until all gateways have blocks on their volumes and, if they enqueue, have committed some of them.
async fn fill(scene: &mut Scene<'_>, gateways: usize, enqueues: bool) -> Result<()> {
    let before = scene.committed_messages().await?;
    let each = u64::try_from(gateways).context("count gateways")?;
    scene.produce(each * SPANS_AWAY).await?;
    for number in 0..gateways {
        scene.wait_metric(number, SPOOL_BLOCKS, |blocks| blocks >= BLOCKS).await?;
    }
    if enqueues { wait_enqueued(scene, before).await } else { Ok(()) }
}

/// Waits until offsets of blocks that only a volume has are committed.
pub(super) async fn wait_enqueued(scene: &mut Scene<'_>, messages_before: i64) -> Result<()> {
    scene
        .wait("commits of what is on the volume", PATIENCE, async |scene| {
            let committed = scene.committed_messages().await?;
            Ok(Seen::when(committed > messages_before, || format!("{committed} messages, as before")))
        })
        .await
}

async fn kill_before_commit(scene: &mut Scene<'_>) -> Result<()> {
    fill(scene, 1, true).await?;
    let topic = scene.topic.name().to_owned();
    let commits = move |passage: &kafka_front::Passage| {
        let is_asked = passage.leg == Leg::Asked && passage.request.api == OFFSET_COMMIT;
        is_asked && passage.request.commits.iter().any(|commit| commit.topic == topic)
    };
    let trap = scene.stage.servers.kafka_gate().trap("a commit", commits);
    scene.produce(SPANS_AWAY / 2).await?;
    let caught = trap.caught(PATIENCE).await?;
    let on_volume = scene.gateway(0).metric(SPOOL_BLOCKS).await.unwrap_or(0.0);
    let more = on_volume + BLOCKS;
    scene.wait_metric(0, SPOOL_BLOCKS, |blocks| blocks >= more).await?;
    kill::die(scene, caught, kafka_front::Verdict::Reset).await.map(drop)
}

/// The gateway comes back and continues behind the blocks on its volume.
async fn come_back(scene: &mut Scene<'_>, since: Instant) -> Result<Expected> {
    let committed = u64::try_from(scene.committed_messages().await?).context("count messages")?;
    scene.start_again(0, Some("gateway-0"))?;
    let recovery = scene.recovered(since).await?;
    scene.produce(SPANS_AFTER).await?;
    scene.wait_committed(0).await?;
    scene.wait_metric_within(0, SPOOL_BLOCKS, DRAIN_PATIENCE, |blocks| blocks == 0.0).await?;
    let acked = scene.stop_load().await?.acked.count();
    let read = scene.wait_metric(0, SPANS_READ, |_| true).await?;
    let taken = scene.wait_metric(0, TAKEN_OVER, |blocks| blocks >= BLOCKS).await?;
    // Each block is one message here.
    let message = Shape::Numbered.message_spans();
    let behind = as_real(acked - committed * message) - taken * as_real(message);
    let diff = read - behind;
    ensure!(diff.abs() < 1.0, "it has read {read} spans; {behind} are behind what it has on its volume");
    let doubled = scene.wait_metric(0, MAY_BE_DOUBLED, |_| true).await?;
    ensure!(
        doubled == 0.0,
        "{doubled} rows are said to be doubled perhaps, though every token is remembered"
    );
    Ok(Expected {
        recovery_s: Some(recovery),
        measures: vec![("blocks taken over", taken), ("spans read again or new", read)],
        ..Expected::default()
    })
}

/// Gateway 0 dies with blocks on its volume, and gateway 1 gets all partitions.
async fn kill_until_moved(scene: &mut Scene<'_>, enqueues: bool) -> Result<()> {
    fill(scene, 2, enqueues).await?;
    scene.gateway(0).kill().await?;
    // It stays down until it is started again below.
    scene.retire(0)?;
    let all = f64::from(PARTITIONS);
    scene.wait_metric(1, PARTITIONS_OWNED, |owned| owned >= all).await?;
    Ok(())
}

/// The messages of the blocks on its volume are in Kafka or committed. Each block is continued with its partition, or dropped. Gateway 0
/// would get the partitions of gateway 1 only after ten minutes, so gateway 1 leaves.
async fn dropped_or_gone_on_with(scene: &mut Scene<'_>, left: u64) -> Result<()> {
    scene.gateway(1).signal(Signal::TERM)?;
    let code = scene.gateway(1).end_within(LEAVE_PATIENCE).await?;
    ensure!(code == 0, "gateway 1 ended with code {code}");
    scene.retire(1)?;
    scene.wait_metric_within(0, SPOOL_BLOCKS, DRAIN_PATIENCE, |blocks| blocks == 0.0).await?;
    let taken = scene.wait_metric(0, TAKEN_OVER, |_| true).await?;
    let dropped = scene.wait_metric(0, DROPPED, |dropped| dropped + taken >= as_real(left)).await;
    dropped.map(drop).with_context(|| format!("{taken} of {left} blocks were gone on with"))
}

async fn come_back_elsewhere(scene: &mut Scene<'_>, enqueues: bool, since: Instant) -> Result<Expected> {
    let left = u64::try_from(segments::left(&scene.volume(0))?.len())?;
    ensure!(left > 0, "no block was on the volume");
    let recovery = scene.recovered(since).await?;
    scene.start_again(0, Some("gateway-0"))?;
    scene.produce(SPANS_AFTER).await?;
    scene.wait_committed_within(0, DRAIN_PATIENCE).await?;
    scene.wait_metric_within(1, SPOOL_BLOCKS, DRAIN_PATIENCE, |blocks| blocks == 0.0).await?;
    if enqueues {
        scene.wait_metric_within(0, SPOOL_BLOCKS, DRAIN_PATIENCE, |blocks| blocks == 0.0).await?;
    } else {
        dropped_or_gone_on_with(scene, left).await?;
    }
    let measures = vec![("blocks on its volume", as_real(left))];
    Ok(Expected { recovery_s: Some(recovery), measures, ..Expected::default() })
}

/// Gateway 1 gets a drain request, and is removed although it holds blocks.
async fn take_away(scene: &mut Scene<'_>, enqueues: bool) -> Result<()> {
    fill(scene, 2, enqueues).await?;
    let left = scene.gateway(1).admin().drain().await?;
    ensure!(left.blocks > 0, "it says that it holds nothing: {left:?}");
    let all = f64::from(PARTITIONS);
    scene.wait_metric(0, PARTITIONS_OWNED, |owned| owned >= all).await?;
    leave_on_volume(scene, 1, LEAVE_PATIENCE).await?;
    scene.retire(1)?;
    if enqueues {
        let (code, report) = run_drain_of(scene, 1, "1s").await?;
        ensure!(code == 69, "drain ended with {code} while ClickHouse is away: {report}");
        ensure!(report["left"]["blocks"].as_u64() > Some(0), "it says that nothing is left: {report}");
    }
    Ok(())
}

/// Drains the volume of gateway 1, as the operator's Job does.
async fn drain(scene: &mut Scene<'_>, enqueues: bool, since: Instant) -> Result<Expected> {
    let recovery = scene.recovered(since).await?;
    let (code, report) = run_drain_of(scene, 1, "60s").await?;
    ensure!(code == 0, "drain ended with {code}: {report}");
    let inserted = report["inserted"]["rows"].as_f64().context("no rows in the report of drain")?;
    ensure!(enqueues == (inserted > 0.0), "the only copy, and nothing else, is to be inserted: {report}");
    scene.produce(SPANS_AFTER).await?;
    scene.wait_metric_within(0, SPOOL_BLOCKS, DRAIN_PATIENCE, |blocks| blocks == 0.0).await?;
    Ok(Expected {
        recovery_s: Some(recovery),
        measures: vec![("drained rows", inserted)],
        ..Expected::default()
    })
}
