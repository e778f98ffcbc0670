//! Faults of the queue volume, and of what its blocks need: it is lost or full, or Kafka has deleted their messages. Damage to its bytes is
//! in [`damage`](super::damage).
//!
//! ```text
//! load -> gateway -> volume     ClickHouse is away, or refuses
//!            X          X       the fault
//!         gateway <- volume -> ClickHouse, which is back; Kafka has what the volume lacks
//! ```
//!
//! The volume's files show which blocks are hit ([`segments`], which reads them by their documented layout).

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::ValueEnum;
use serde_json::{Value, json};

use super::broker::MESSAGES_LOST;
use super::damage::refusing;
use super::only_copy::MAY_BE_DOUBLED;
use super::server::{AT_LEAST_ONCE, WINDOW_SHORT, is_stored};
use super::volume::{
    self, DRAIN_PATIENCE, LEAVE_PATIENCE, SPANS_AFTER, SPANS_AWAY, SPANS_READ, SPOOL_BLOCKS, as_real,
    leave_on_volume, lose_volume, read_all,
};
use super::{FEW, Family};
use crate::front::Way;
use crate::gate::Caught;
use crate::scene::{Expected, PATIENCE, Scene};
use crate::segments;
use crate::sink_front::{Passage, Verdict};
use e2e_fixtures::cluster::Seen;

/// Size of a volume that is to be full, KiB: some 120 blocks.
pub(super) const SMALL_KIB: u32 = 1_536;

/// The gateway's metric of blocks for which the volume had no room.
pub(super) const REFUSED: &str = "sluice_gateway_spool_refused_blocks_total";

/// Spans that fill the volume and the memory, and some more.
const SPANS_SMALL: u64 = 80_000;

/// The same if the limit is `queue.maxBytes`.
const SPANS_BYTES: u64 = 600_000;

/// Spans of one message, and so of one block.
const SPANS_DOUBTFUL: u64 = 100;

/// Time for which nothing is read once there is no room: many times what a block takes.
const STANDS_STILL: Duration = Duration::from_secs(3);

/// How long a volume and the memory may take to fill.
const FILL_PATIENCE: Duration = Duration::from_mins(4);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Spooled {
    /// SIGKILL, and the volume is lost; Kafka has everything
    Lost,
    /// the volume's file system is full: the gateway stops reading; SIGKILL meanwhile in every other round
    FullDevice,
    /// the same when queue.maxBytes is reached
    FullBytes,
    /// SIGKILL or SIGTERM, and Kafka deletes the messages of all blocks on the volume
    RetentionPasses,
    /// the same while the volume's gateway is down: another one owns its partitions, and has committed later offsets when it comes back
    RetentionPassesBehind,
    /// an INSERT is stored, its answer lost, its block goes to the volume, and its token is forgotten: its rows are doubled; SIGKILL
    /// meanwhile in every other round
    PastWindow,
    /// the same with a table that remembers four tokens, and a server that has lost its logs: the rows are doubled, and counted as possible
    /// duplicates
    WindowShortUntold,
}

impl Family for Spooled {
    const PREFIX: &'static str = "volume-";

    fn rounds(self) -> u32 {
        match self {
            Spooled::Lost | Spooled::RetentionPasses | Spooled::RetentionPassesBehind => u32::MAX,
            Spooled::PastWindow => 4,
            Spooled::FullDevice | Spooled::FullBytes | Spooled::WindowShortUntold => FEW,
        }
    }

    fn change(self) -> Value {
        let mut change = volume::change(false);
        match self {
            // 3 s before the deadline, all blocks go to the volume.
            Spooled::RetentionPasses => change["shutdown"]["deadline"] = json!("8s"),
            // The answer is held until the server has forgotten the token.
            Spooled::WindowShortUntold => change["sink"]["clickhouse"]["insert"]["timeout"] = json!("30s"),
            Spooled::FullBytes => {
                // Each block takes a whole chunk, so fewer blocks reach the limit.
                change["queue"]["maxBytes"] = json!("32MiB");
                change["sink"]["clickhouse"]["insert"]["maxRows"] = json!(1_000);
            }
            _ => {}
        }
        change
    }

    async fn play(self, scene: &mut Scene<'_>) -> Result<Expected> {
        let outcome = match self {
            Spooled::Lost => lose(scene).await,
            Spooled::FullDevice | Spooled::FullBytes => self.fill(scene).await,
            Spooled::RetentionPasses => forget_messages(scene).await,
            Spooled::RetentionPassesBehind => forget_messages_behind(scene).await,
            Spooled::PastWindow => forget_token(scene).await,
            Spooled::WindowShortUntold => forget_everything(scene).await,
        };
        scene.stage.servers.sink.go(Way::Open);
        outcome
    }
}

impl Spooled {
    /// Waits until there is no room for more, in memory or on the volume.
    async fn fill(self, scene: &mut Scene<'_>) -> Result<Expected> {
        let spans = if self == Spooled::FullDevice {
            scene.mount_volume(0, SMALL_KIB)?;
            SPANS_SMALL
        } else {
            SPANS_BYTES
        };
        begin(scene).await?;
        scene.stage.servers.sink.go(Way::Refused);
        scene.produce(spans).await?;
        scene.wait_metric_within(0, REFUSED, FILL_PATIENCE, |blocks| blocks > 0.0).await?;
        let read = stands_still(scene).await?;
        let produced = as_real(scene.stop_load().await?.acked.count());
        ensure!(read < produced, "all {produced} spans were read: there was room for them");
        let held = scene.wait_metric(0, SPOOL_BLOCKS, |blocks| blocks > 0.0).await?;
        if scene.round % 2 == 1 {
            scene.restart(0).await?;
        }
        scene.stage.servers.sink.go(Way::Open);
        let recovery = scene.recovered(Instant::now()).await?;
        scene.wait_committed_within(0, DRAIN_PATIENCE).await?;
        drained(scene).await?;
        let measures = vec![("blocks on the full volume", held), ("spans behind", produced - read)];
        Ok(Expected { recovery_s: Some(recovery), measures, ..Expected::default() })
    }
}

/// Starts a gateway; returns once it inserts.
pub(super) async fn begin(scene: &mut Scene<'_>) -> Result<()> {
    scene.start_under_load(Some("gateway-0")).await?;
    // Spans that are produced from here on continue the numbers of the load.
    scene.stop_load().await.map(drop)
}

/// Waits until the volume is empty, and more spans are inserted after it.
pub(super) async fn drained(scene: &mut Scene<'_>) -> Result<()> {
    scene.produce(SPANS_AFTER).await?;
    scene.wait_metric_within(0, SPOOL_BLOCKS, DRAIN_PATIENCE, |blocks| blocks == 0.0).await.map(drop)
}

/// ClickHouse is unreachable until everything is read. What does not fit into memory is on the volume.
pub(super) async fn read_all_while_away(scene: &mut Scene<'_>) -> Result<()> {
    begin(scene).await?;
    scene.stage.servers.sink.go(Way::Refused);
    read_all(scene).await.map(drop)
}

/// Restarts the gateway, and ClickHouse is reachable again.
pub(super) async fn come_back(scene: &mut Scene<'_>) -> Result<f64> {
    scene.start_again(0, Some("gateway-0"))?;
    scene.stage.servers.sink.go(Way::Open);
    let recovery = scene.recovered(Instant::now()).await?;
    drained(scene).await?;
    Ok(recovery)
}

async fn lose(scene: &mut Scene<'_>) -> Result<Expected> {
    read_all_while_away(scene).await?;
    scene.gateway(0).kill().await?;
    let volume = scene.volume(0);
    let blocks = segments::left(&volume)?.len();
    ensure!(blocks > 0, "no block was on the volume");
    lose_volume(&volume)?;
    let recovery = come_back(scene).await?;
    let measures = vec![("blocks lost with it", as_real(blocks as u64))];
    Ok(Expected { recovery_s: Some(recovery), measures, ..Expected::default() })
}

/// Kafka deletes the messages of blocks on the volume, as far as they follow the committed offset without a gap.
async fn forget_messages(scene: &mut Scene<'_>) -> Result<Expected> {
    read_all_while_away(scene).await?;
    if scene.round.is_multiple_of(2) {
        scene.gateway(0).kill().await?;
    } else {
        leave_on_volume(scene, 0, LEAVE_PATIENCE).await?;
    }
    let deleted = delete_heads(scene).await?;
    let recovery = come_back(scene).await?;
    let measures = vec![("messages on the volume alone", as_real(deleted.messages))];
    Ok(Expected { recovery_s: Some(recovery), measures, ..Expected::default() })
}

/// As [`forget_messages`], and another gateway takes over the partitions before this one is back. By then, everything is committed.
async fn forget_messages_behind(scene: &mut Scene<'_>) -> Result<Expected> {
    read_all_while_away(scene).await?;
    scene.gateway(0).kill().await?;
    scene.retire(0)?;
    let deleted = delete_heads(scene).await?;
    scene.stage.servers.sink.go(Way::Open);
    let other = scene.start_gateway(Some("gateway-1"))?;
    let messages = as_real(deleted.messages);
    scene.wait_metric(other, MESSAGES_LOST, |lost| is_same(lost, messages)).await?;
    scene.produce(SPANS_AFTER).await?;
    scene.wait_committed_within(0, DRAIN_PATIENCE).await?;

    scene.start_again(0, Some("gateway-0"))?;
    let recovery = scene.recovered(Instant::now()).await?;
    // What the other gateway has read waits on this volume, until it is clear that the partitions do not come back.
    let rows = as_real(deleted.rows);
    scene.wait_metric_within(0, MAY_BE_DOUBLED, DRAIN_PATIENCE, |told| is_same(told, rows)).await?;
    scene.produce(SPANS_AFTER).await?;
    let measures = vec![("messages on the volume alone", messages)];
    Ok(Expected { recovery_s: Some(recovery), measures, ..Expected::default() })
}

/// Messages that from now on only a volume has.
pub(super) struct Deleted {
    pub messages: u64,
    pub rows: u64,
}

/// Kafka deletes the messages of blocks on the volume that follow the committed offset without a gap.
pub(super) async fn delete_heads(scene: &Scene<'_>) -> Result<Deleted> {
    let mut ends = scene.committed().await?;
    let begins = ends.clone();
    let mut left = segments::left(&scene.volume(0))?;
    left.sort_by_key(|block| (block.partition, block.first));
    let mut rows = 0;
    for block in &left {
        if let Some(end) = ends.get_mut(&block.partition).filter(|end| **end == block.first) {
            *end = block.next;
            rows += block.rows;
        }
    }
    let deleted: i64 = ends.iter().map(|(partition, end)| end - begins[partition]).sum();
    ensure!(deleted > 0, "no block of {} follows a committed offset", left.len());
    scene.topic.delete_records(&ends.into_iter().collect::<Vec<_>>()).await?;
    Ok(Deleted { messages: deleted.unsigned_abs(), rows })
}

/// Waits until one block is stored and its answer is on its way.
async fn store_unanswered(scene: &mut Scene<'_>) -> Result<Caught<Passage, Verdict>> {
    begin(scene).await?;
    scene.wait_committed_within(0, PATIENCE).await?;
    let sink = &scene.stage.servers.sink;
    let trap = sink.gate().trap("stored insert", is_stored);
    scene.produce(SPANS_DOUBTFUL).await?;
    let caught = trap.caught(PATIENCE).await?;
    let rows = caught.passage.written_rows;
    ensure!(rows == SPANS_DOUBTFUL, "the server has stored {rows} rows of {SPANS_DOUBTFUL}");
    Ok(caught)
}

/// The server stores a block, and the answer is lost. The block waits on the volume until the server has forgotten all tokens.
async fn forget_token(scene: &mut Scene<'_>) -> Result<Expected> {
    let caught = store_unanswered(scene).await?;
    scene.stage.servers.sink.go(Way::Refused);
    caught.decide(Verdict::Reset);
    scene.produce(SPANS_AWAY).await?;
    // The oldest blocks are sent first, and the block in doubt is the oldest.
    scene.wait_metric(0, SPOOL_BLOCKS, |blocks| blocks >= volume::BLOCKS).await?;
    if scene.round % 2 == 1 {
        scene.restart(0).await?;
    }
    scene.forget_tokens().await?;
    scene.stage.servers.sink.go(Way::Open);
    let recovery = scene.recovered(Instant::now()).await?;
    drained(scene).await?;
    Ok(Expected { doubled: SPANS_DOUBTFUL, recovery_s: Some(recovery), ..Expected::default() })
}

/// The server stores a block, and the answer is lost. Later blocks make the server forget its token, and no log of it has the block. The
/// block waits on the volume and is sent again once the server accepts inserts.
async fn forget_everything(scene: &mut Scene<'_>) -> Result<Expected> {
    scene.remember_tokens(WINDOW_SHORT).await?;
    let caught = store_unanswered(scene).await?;
    insert_others(scene, 2 * WINDOW_SHORT).await?;
    // A broken connection would leave every block on its way in doubt. A block that the server refuses is not in doubt.
    let refusing = refusing(scene.stage);
    scene.lose_logs().await?;
    caught.decide(Verdict::Reset);
    scene.produce(SPANS_AWAY).await?;
    // The oldest blocks are sent first, and the block in doubt is the oldest.
    scene.wait_metric(0, SPOOL_BLOCKS, |blocks| blocks >= volume::BLOCKS).await?;
    drop(refusing);
    let recovery = scene.recovered(Instant::now()).await?;
    drained(scene).await?;
    scene.ensure_doubles_told(0, MAY_BE_DOUBLED).await?;
    scene.wait_metric(0, AT_LEAST_ONCE, |holds| holds > 0.5).await?;
    Ok(Expected { doubled: SPANS_DOUBTFUL, recovery_s: Some(recovery), ..Expected::default() })
}

/// Inserts `blocks` blocks of one message each. The gateway gets the answers for all of them, so none of these is in doubt.
async fn insert_others(scene: &mut Scene<'_>, blocks: u64) -> Result<()> {
    let stage = scene.stage;
    let wanted = stage.servers.sink.stored().borrow().inserts + blocks;
    scene.produce(blocks * SPANS_DOUBTFUL).await?;
    scene.wait_inserts_up_to(&stage.servers.sink, wanted).await
}

/// Waits until, in every partition that has blocks, the first block behind the committed offset is on the volume.
pub(super) async fn heads_are_spooled(scene: &mut Scene<'_>) -> Result<()> {
    scene
        .wait("the first block of each partition on the volume", PATIENCE, async |scene| {
            let left = segments::left(&scene.volume(0))?;
            let committed = scene.committed().await?;
            let is_spooled = |(partition, offset): &(&i32, &i64)| {
                left.iter().any(|block| block.partition == **partition && block.first == **offset)
            };
            let spooled = committed.iter().filter(is_spooled).count();
            let all = committed.len();
            Ok(Seen::when(spooled == all, || format!("{spooled} of {all}")))
        })
        .await
}

/// Waits until no span was read for [`STANDS_STILL`]; returns how many were read.
async fn stands_still(scene: &mut Scene<'_>) -> Result<f64> {
    let mut last = (-1.0, Instant::now());
    scene
        .wait("reading to stand still", FILL_PATIENCE, async |scene| {
            let read = scene.gateway(0).metric(SPANS_READ).await.unwrap_or(-1.0);
            if !is_same(read, last.0) {
                last = (read, Instant::now());
            }
            let is_still = read >= 0.0 && last.1.elapsed() >= STANDS_STILL;
            Ok(if is_still { Seen::Done(read) } else { Seen::NotYet(format!("{read} spans are read")) })
        })
        .await
}

/// Compares counts that metrics give as floating point.
pub(crate) fn is_same(one: f64, other: f64) -> bool {
    (one - other).abs() < 0.5
}
