//! ClickHouse is unreachable while blocks go to the queue volume, and faults of these blocks.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use serde_json::{Value, json};

use super::{FEW, Family, spooled};
use crate::front::Way;
use crate::scene::{Expected, PATIENCE, Scene};
use crate::segments;
use e2e_fixtures::cluster::Seen;
use e2e_fixtures::produce::Sent;
use e2e_fixtures::spans::Shape;
use e2e_stack::process::Signal;

/// The smallest memory limit for one worker and these inserts, so that the pool of chunks is as small as it gets: 24 MiB.
const MEMORY: &str = "146MiB";

/// Spans that arrive while ClickHouse is unreachable: 480 messages, each a block and a chunk of 64 KiB; seven eighths of the pool are 400.
pub(super) const SPANS_AWAY: u64 = 48_000;

/// Spans that come after it.
pub(super) const SPANS_AFTER: u64 = 4_000;

/// Blocks that must be on the volume before the fault.
pub(super) const BLOCKS: f64 = 50.0;

/// Blocks that must have been drained before the gateway is killed while it drains.
const BLOCKS_DRAINED: f64 = 20.0;

/// How long it may take until the volume is empty again: 500 inserts on a machine with other work.
pub(crate) const DRAIN_PATIENCE: Duration = Duration::from_mins(8);

/// `shutdown.deadline` of a gateway that leaves its blocks on the volume: it moves them there 3 s before.
pub(super) const LEAVE_SOON: &str = "8s";

/// How long a gateway with the usual deadline may take, on a machine with other work.
const TERM_PATIENCE: Duration = Duration::from_secs(70);

/// How long a gateway with [`LEAVE_SOON`] may take.
pub(super) const LEAVE_PATIENCE: Duration = Duration::from_secs(30);

/// The gateway's metric of spans that it has read from messages.
pub(super) const SPANS_READ: &str = "sluice_gateway_spans_total";

/// The gateway's metric of blocks on its volume.
pub(crate) const SPOOL_BLOCKS: &str = "sluice_gateway_spool_blocks";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(clippy::doc_markdown, reason = "`--list` prints it as it is")]
pub enum Volume {
    /// connections to the sink are refused until blocks of 48,000 spans wait on the volume
    #[value(name = "volume-outage")]
    Outage,
    /// SIGKILL while blocks go to the volume
    #[value(name = "volume-kill-in-spill")]
    KillInSpill,
    /// SIGKILL while blocks are inserted from the volume
    #[value(name = "volume-kill-in-drain")]
    KillInDrain,
    /// a gateway leaves its blocks on its volume, Kafka deletes their messages, and `drain` inserts them
    DrainCommand,
    /// commit: AfterEnqueue; SIGKILL, and the volume is lost with all rows that are committed but not inserted
    #[value(name = "volume-lost-after-enqueue")]
    LostAfterEnqueue,
    /// commit: AfterEnqueue; SIGKILL while blocks on the volume are committed and ClickHouse is away
    #[value(name = "volume-kill-after-enqueue")]
    KillAfterEnqueue,
    /// SIGTERM with the usual grace period while ClickHouse is unreachable: exit code 0, and everything that was read is on the volume
    #[value(name = "volume-term-away")]
    TermAway,
}

impl Family for Volume {
    fn rounds(self) -> u32 {
        match self {
            Volume::KillInSpill | Volume::KillInDrain | Volume::KillAfterEnqueue => u32::MAX,
            Volume::Outage | Volume::DrainCommand | Volume::LostAfterEnqueue | Volume::TermAway => FEW,
        }
    }

    fn change(self) -> Value {
        let mut change = change(matches!(self, Volume::LostAfterEnqueue | Volume::KillAfterEnqueue));
        if self == Volume::DrainCommand {
            // A gateway that leaves for good has no reason to wait.
            change["shutdown"]["deadline"] = json!(LEAVE_SOON);
        }
        change
    }

    async fn play(self, scene: &mut Scene<'_>) -> Result<Expected> {
        spooled::begin(scene).await?;
        if self == Volume::TermAway {
            // If a block is inserted before an earlier one, there is a gap, and everything behind it is read again.
            scene.wait_stored().await?;
        }
        if self == Volume::DrainCommand {
            scene.while_sink_goes(Way::Refused, async |scene| leave_all_on_volume(scene).await).await?;
            return drain(scene).await;
        }
        if self == Volume::TermAway {
            let left = scene.while_sink_goes(Way::Refused, async |scene| term_away(scene).await).await?;
            return come_back(scene, left).await;
        }
        scene.while_sink_goes(Way::Refused, async |scene| self.fill(scene).await).await?;
        let since = Instant::now();
        if self == Volume::KillInDrain {
            let drained = |drained| drained >= BLOCKS_DRAINED;
            scene.wait_metric(0, "sluice_gateway_spool_drained_blocks_total", drained).await?;
            scene.restart(0).await?;
        }
        if matches!(self, Volume::KillInSpill | Volume::KillInDrain) {
            let taken = |taken| taken > 0.0;
            scene.wait_metric(0, "sluice_gateway_spool_taken_over_blocks_total", taken).await?;
        }
        if matches!(self, Volume::LostAfterEnqueue | Volume::KillAfterEnqueue) {
            return after_enqueue(self, scene, since).await;
        }
        let recovery = scene.recovered(since).await?;
        spooled::drained(scene).await?;
        Ok(Expected { recovery_s: Some(recovery), ..Expected::default() })
    }
}

impl Volume {
    /// The faults while ClickHouse is unreachable.
    async fn fill(self, scene: &mut Scene<'_>) -> Result<()> {
        scene.produce(SPANS_AWAY).await?;
        scene.wait_metric(0, SPOOL_BLOCKS, |blocks| blocks >= BLOCKS).await?;
        match self {
            Volume::KillInSpill => scene.restart(0).await,
            Volume::LostAfterEnqueue | Volume::KillAfterEnqueue => {
                // More is committed than inserted: the difference is on the volume.
                wait_all_read(scene).await?;
                scene.gateway(0).kill().await
            }
            Volume::Outage | Volume::KillInDrain | Volume::DrainCommand | Volume::TermAway => Ok(()),
        }
    }
}

/// Settings of gateways with a volume: little memory, and one message per block, for many blocks at little cost.
pub(super) fn change(is_enqueued: bool) -> Value {
    json!({
        "delivery": {"commit": if is_enqueued { "AfterEnqueue" } else { "AfterInsert" }},
        "queue": {"mode": "Spill", "maxBytes": "1GiB"},
        "sink": {"clickhouse": {"insert": {"maxRows": 1, "concurrency": 8}}},
        "workers": 1,
        "memory": {"limit": MEMORY},
        "shutdown": {"deadline": "50s"},
    })
}

/// More spans arrive. Waits until the gateway has read all that Kafka has taken.
pub(super) async fn read_all(scene: &mut Scene<'_>) -> Result<Sent> {
    scene.produce(SPANS_AWAY).await?;
    wait_all_read(scene).await
}

async fn wait_all_read(scene: &mut Scene<'_>) -> Result<Sent> {
    let sent = scene.stop_load().await?.clone();
    let spans = as_real(sent.acked.count());
    scene.wait_metric(0, SPANS_READ, |read| read >= spans).await?;
    Ok(sent)
}

/// Checks that the volume of the ended gateway has all rows that are not in the table. Returns how many are in the table, and how many on the
/// volume.
pub(super) async fn ensure_on_volume(scene: &mut Scene<'_>) -> Result<(u64, u64)> {
    let sent = scene.stop_load().await?.clone();
    let inserted = scene.oracle().count(&sent).await?.unique_acked;
    let rows: u64 = segments::left(&scene.volume(0))?.iter().map(|block| block.rows).sum();
    let left = sent.acked.count() - inserted;
    ensure!(rows >= left, "{rows} of {left} rows are on the volume");
    Ok((inserted, rows))
}

/// Empties the folder of a volume.
pub(super) fn lose_volume(volume: &Path) -> Result<()> {
    std::fs::remove_dir_all(volume).with_context(|| format!("lose {}", volume.display()))?;
    std::fs::create_dir(volume).with_context(|| format!("create {}", volume.display()))
}

/// The gateway reads everything and gets SIGTERM. Returns how many rows are on its volume then: all rows that are not in the table.
async fn term_away(scene: &mut Scene<'_>) -> Result<u64> {
    read_all(scene).await?;
    leave_on_volume(scene, 0, TERM_PATIENCE).await?;
    let (_, rows) = ensure_on_volume(scene).await?;
    Ok(rows)
}

/// A gateway gets SIGTERM, and must end with everything on its volume that is not inserted.
pub(super) async fn leave_on_volume(scene: &mut Scene<'_>, number: usize, patience: Duration) -> Result<()> {
    scene.gateway(number).signal(Signal::TERM)?;
    let code = scene.gateway(number).end_within(patience).await?;
    ensure!(code == 0, "it ended with code {code}, and should have left everything on its volume");
    Ok(())
}

/// The next process inserts what is on the volume, and reads none of it again.
async fn come_back(scene: &mut Scene<'_>, rows: u64) -> Result<Expected> {
    scene.start_again(0, Some("gateway-0"))?;
    let recovery = scene.recovered(Instant::now()).await?;
    scene.wait_metric_within(0, SPOOL_BLOCKS, DRAIN_PATIENCE, |blocks| blocks == 0.0).await?;
    let read = scene.wait_metric(0, SPANS_READ, |_| true).await?;
    ensure!(read < 1.0, "{read} spans were read again");
    scene.produce(SPANS_AFTER).await?;
    let measures = vec![("rows left on the volume", as_real(rows))];
    Ok(Expected { recovery_s: Some(recovery), measures, ..Expected::default() })
}

/// All rows that are not inserted go to the volume of a removed gateway, and Kafka has deleted their messages.
async fn leave_all_on_volume(scene: &mut Scene<'_>) -> Result<()> {
    read_all(scene).await?;
    leave_on_volume(scene, 0, LEAVE_PATIENCE).await?;
    scene.retire(0)?;
    let marks = scene.topic.watermarks().await?;
    let ends: Vec<(i32, i64)> = marks.iter().map(|marks| (marks.partition, marks.high)).collect();
    scene.topic.delete_records(&ends).await?;
    let (code, report) = run_drain_of(scene, 0, "1s").await?;
    ensure!(code == 69, "drain ended with {code} while ClickHouse is away: {report}");
    ensure!(report["left"]["blocks"].as_u64() > Some(0), "it says that nothing is left: {report}");
    // Otherwise the next owner of the partitions reads them, and drain drops the blocks.
    ensure!(report["inKafka"]["blocks"] == 0, "blocks were dropped: {report}");
    Ok(())
}

/// The volume is emptied once, and another gateway continues after it.
async fn drain(scene: &mut Scene<'_>) -> Result<Expected> {
    let since = Instant::now();
    let (code, report) = run_drain_of(scene, 0, "60s").await?;
    ensure!(code == 0, "drain ended with {code}: {report}");
    let inserted = report["inserted"]["rows"].as_f64().context("no rows in the report of drain")?;
    ensure!(inserted > 0.0 && report["possibleDuplicateRows"] == 0, "drain has said: {report}");
    let (code, report) = run_drain_of(scene, 0, "1s").await?;
    ensure!(
        code == 0 && report["found"]["blocks"] == 0,
        "drain ended with {code} on an empty volume: {report}"
    );
    let drained_s = since.elapsed().as_secs_f64();
    scene.start_gateway(Some("gateway-1"))?;
    scene.produce(SPANS_AFTER).await?;
    Ok(Expected {
        measures: vec![("drained rows", inserted), ("drained s", drained_s)],
        ..Expected::default()
    })
}

/// Runs `sluice-gateway drain` for the volume of a gateway: its exit code and what it has printed.
pub(super) async fn run_drain_of(
    scene: &mut Scene<'_>,
    number: usize,
    timeout: &str,
) -> Result<(i32, Value)> {
    let orders = scene.gateway(number).orders().clone();
    let mut command = Command::new(&orders.program);
    command.args(["drain", "--json", "--timeout", timeout, "--config"]).arg(&orders.config);
    let ran = tokio::task::spawn_blocking(move || command.output()).await.context("run drain")?;
    let output = ran.context("run drain")?;
    let (said, why) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let report = serde_json::from_str(&said).with_context(|| format!("read what drain says: {said}{why}"))?;
    Ok((output.status.code().unwrap_or(-1), report))
}

/// The volume of the killed gateway had everything that was committed and is not in the table.
async fn after_enqueue(volume: Volume, scene: &mut Scene<'_>, since: Instant) -> Result<Expected> {
    let sent = scene.stop_load().await?.clone();
    // It stays down until its volume is lost. Its last requests may still be on their way to the broker.
    scene.retire(0)?;
    let mut seen = -1;
    let messages = scene
        .wait("an end of its commits", PATIENCE, async |scene| {
            let now = scene.committed_messages().await?;
            let before = std::mem::replace(&mut seen, now);
            Ok(Seen::of((before == now).then_some(now), || format!("{now} messages are committed")))
        })
        .await?;
    let messages = u64::try_from(messages).context("count messages")?;
    let inserted = scene.oracle().count(&sent).await?.unique_acked;
    let committed = messages * Shape::Numbered.message_spans();
    let on_volume = committed.checked_sub(inserted).context("more is inserted than committed")?;
    ensure!(on_volume > 0, "nothing is committed that is not inserted ({committed} spans)");
    let is_lost = volume == Volume::LostAfterEnqueue;
    if is_lost {
        lose_volume(&scene.volume(0))?;
    }
    scene.start_again(0, Some("gateway-0"))?;
    let recovery = scene.recovered(since).await?;
    spooled::drained(scene).await?;
    Ok(Expected {
        lost: if is_lost { on_volume } else { 0 },
        recovery_s: Some(recovery),
        measures: vec![("spans on the volume alone", as_real(on_volume))],
        ..Expected::default()
    })
}

/// A whole number that is small enough to be exact in floating point.
#[expect(clippy::cast_precision_loss, reason = "spans of a few seconds")]
pub(crate) fn as_real(spans: u64) -> f64 {
    spans as f64
}
