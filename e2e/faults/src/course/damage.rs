//! Damaged blocks on the queue volume: torn, cut off, or with a flipped bit.
//!
//! The volume's files show which blocks are hit ([`segments`], which reads them by their documented layout). Under `AfterInsert`, Kafka
//! still has their messages, so none is lost. Under `AfterEnqueue`, exactly the messages of damaged only copies are lost.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use serde_json::{Value, json};

use super::Family;
use super::spooled::{begin, come_back, drained, heads_are_spooled, is_same, read_all_while_away};
use super::volume::{self, SPANS_AWAY, SPOOL_BLOCKS, as_real};
use crate::front::Way;
use crate::gate::Rule;
use crate::scene::{Expected, Scene, Stage};
use crate::segments::{self, Left, Part};
use crate::sink_front::{Answer, Leg, Passage, Verdict};

/// Blocks that each of two runs must put on the volume before the damage: enough to hit some in the middle.
const BLOCKS: f64 = 40.0;

/// Blocks with a flipped bit whose messages no gateway reads again.
const FLIPPED: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(clippy::doc_markdown, reason = "`--list` prints it as it is")]
pub enum Damage {
    /// SIGKILL, and the second half of the last record on the volume is missing or zero
    Torn,
    /// SIGKILL, and a segment of the volume ends in the middle of a record
    Truncated,
    /// SIGKILL, and a bit is flipped in a body, in a header and in a mark on the volume
    BitFlips,
    /// a bit is flipped in the first block of each partition on the volume under the running gateway, which has tried them
    BitFlipsLive,
    /// commit: AfterEnqueue; the same in three bodies whose offsets are committed: their rows are lost, and counted; the next start has
    /// commit: AfterInsert in every other round
    BitFlipsAfterEnqueue,
}

impl Family for Damage {
    const PREFIX: &'static str = "volume-";

    fn rounds(self) -> u32 {
        u32::MAX
    }

    fn change(self) -> Value {
        volume::change(self == Damage::BitFlipsAfterEnqueue)
    }

    async fn play(self, scene: &mut Scene<'_>) -> Result<Expected> {
        let outcome = match self {
            Damage::Torn | Damage::Truncated | Damage::BitFlips => self.at_rest(scene).await,
            Damage::BitFlipsLive => flip_live(scene).await,
            Damage::BitFlipsAfterEnqueue => flip_only_copies(scene).await,
        };
        scene.stage.servers.sink.go(Way::Open);
        outcome
    }
}

impl Damage {
    /// Two runs leave blocks on the volume. Some of these blocks are damaged before the third run.
    async fn at_rest(self, scene: &mut Scene<'_>) -> Result<Expected> {
        begin(scene).await?;
        // It answers other queries, so that the second run begins.
        let refusing = refusing(scene.stage);
        fill_and_kill(scene).await?;
        scene.start_again(0, Some("gateway-0"))?;
        fill_and_kill(scene).await?;
        let since = Instant::now();
        let left = segments::left(&scene.volume(0))?;
        let hit = self.hit(&left, scene.round)?;
        drop(refusing);
        scene.start_again(0, Some("gateway-0"))?;
        let recovery = scene.recovered(since).await?;
        drained(scene).await?;
        let taken = scene.wait_metric(0, "sluice_gateway_spool_taken_over_blocks_total", |_| true).await?;
        let damaged = scene.wait_metric(0, "sluice_gateway_spool_damaged_blocks_total", |_| true).await?;
        ensure!(taken > 0.0, "no block was gone on with");
        let whole = as_real((left.len() - hit) as u64);
        ensure!(
            taken - damaged <= whole,
            "{taken} blocks less {damaged} were gone on with, {whole} are whole"
        );
        if self != Damage::Torn {
            ensure!(has_damaged(&scene.volume(0))?, "no segment was set aside");
        }
        let measures = vec![("blocks hit", as_real(hit as u64)), ("blocks taken over", taken)];
        Ok(Expected { recovery_s: Some(recovery), measures, ..Expected::default() })
    }

    /// Damages some of these blocks; returns how many can no longer be read.
    fn hit(self, left: &[Left], round: u32) -> Result<usize> {
        let (first, last) = left.first().zip(left.last()).context("no block is on the volume")?;
        ensure!(!first.is_beside(last), "all blocks are in one segment");
        let older: Vec<&Left> = left.iter().filter(|block| block.is_beside(first)).collect();
        let place = |step: usize| (round as usize * 7 + step) % older.len();
        match self {
            Damage::Torn if round.is_multiple_of(2) => last.cut().map(|()| 1),
            Damage::Torn => last.tear().map(|()| 1),
            Damage::Truncated => {
                older[place(3)].cut()?;
                Ok(older.len() - place(3))
            }
            _ => {
                older[place(3)].flip(Part::Body)?;
                older[place(4)].flip(Part::Header)?;
                older[place(5)].flip(Part::Mark)?;
                Ok(2)
            }
        }
    }
}

/// From now on, until this is dropped, ClickHouse refuses inserts and answers everything else.
pub(super) fn refusing(stage: &Stage) -> Rule<'_, Passage, Verdict> {
    let busy = Answer::exception(500, 202, "TOO_MANY_SIMULTANEOUS_QUERIES", "Too many queries");
    stage.servers.sink.gate().rule(u32::MAX, Verdict::Answer(busy), |passage| passage.leg == Leg::Head)
}

/// Blocks go to the volume, behind the existing ones, and the gateway is killed.
async fn fill_and_kill(scene: &mut Scene<'_>) -> Result<()> {
    let wanted = as_real(segments::left(&scene.volume(0))?.len() as u64) + BLOCKS;
    scene.produce(SPANS_AWAY).await?;
    scene.wait_metric(0, SPOOL_BLOCKS, |blocks| blocks >= wanted).await?;
    scene.gateway(0).kill().await
}

async fn flip_live(scene: &mut Scene<'_>) -> Result<Expected> {
    begin(scene).await?;
    let refusing = refusing(scene.stage);
    scene.produce(SPANS_AWAY).await?;
    scene.wait_metric(0, SPOOL_BLOCKS, |blocks| blocks >= BLOCKS).await?;
    heads_are_spooled(scene).await?;
    let mut heads: BTreeMap<i32, Left> = BTreeMap::new();
    for block in segments::left(&scene.volume(0))? {
        let first = heads.entry(block.partition).or_insert_with(|| block.clone());
        if block.first < first.first {
            *first = block;
        }
    }
    heads.values().try_for_each(|block| block.flip(Part::Body))?;
    let hit = as_real(heads.len() as u64);
    drop(refusing);
    let recovery = scene.recovered(Instant::now()).await?;
    drained(scene).await?;
    let damaged = scene.wait_metric(0, "sluice_gateway_spool_damaged_blocks_total", |_| true).await?;
    ensure!(is_same(damaged, hit), "{damaged} blocks were found to be damaged, {hit} are");
    Ok(Expected { recovery_s: Some(recovery), measures: vec![("blocks hit", hit)], ..Expected::default() })
}

async fn flip_only_copies(scene: &mut Scene<'_>) -> Result<Expected> {
    read_all_while_away(scene).await?;
    scene.gateway(0).kill().await?;
    let committed = scene.committed().await?;
    let left = segments::left(&scene.volume(0))?;
    // An unsynced block would be cut off with all blocks behind it. An uncommitted one would be read again. One that was sent may be in the
    // table.
    let is_only_copy = |block: &&Left| {
        let is_elsewhere = block.was_sent || !block.is_synced;
        !is_elsewhere && committed.get(&block.partition).is_some_and(|committed| block.next <= *committed)
    };
    let only: Vec<&Left> = left.iter().filter(is_only_copy).collect();
    ensure!(only.len() >= FLIPPED, "{} of {} blocks are only copies for sure", only.len(), left.len());
    let mut lost = 0;
    for hit in 0..FLIPPED {
        let block = only[(scene.round as usize * 7 + hit * only.len() / FLIPPED) % only.len()];
        block.flip(Part::Body)?;
        lost += block.rows;
    }
    if scene.round % 2 == 1 {
        // With `AfterInsert` from now on; these blocks were committed before.
        scene.reconfigure_gateway(0, &json!({"delivery": {"commit": "AfterInsert"}}))?;
    }
    let recovery = come_back(scene).await?;
    // The gateway finds each damaged block when it is about to send it.
    let wanted = as_real(lost);
    let counted = scene.wait_metric(0, "sluice_gateway_rows_lost_total", |rows| rows >= wanted).await?;
    ensure!(is_same(counted, wanted), "rows_lost_total says {counted}, {lost} rows are lost");
    let measures = vec![("only copies", as_real(only.len() as u64))];
    Ok(Expected { lost, recovery_s: Some(recovery), measures, ..Expected::default() })
}

/// Whether a segment in this folder was set aside.
pub(super) fn has_damaged(volume: &Path) -> Result<bool> {
    for entry in std::fs::read_dir(volume).with_context(|| format!("look into {}", volume.display()))? {
        let path = entry.with_context(|| format!("look into {}", volume.display()))?.path();
        if path.extension().is_some_and(|kind| kind == "damaged") {
            return Ok(true);
        }
    }
    Ok(false)
}
