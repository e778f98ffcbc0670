//! The table's columns change while the queue volume has the only copy of blocks that were encoded for the former columns.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use serde_json::Value;

use super::Family;
use super::broker::EXIT_NEW_START;
use super::only_copy::wait_enqueued;
use super::spooled;
use super::volume::{self, DRAIN_PATIENCE, SPANS_AFTER, SPOOL_BLOCKS, as_real, read_all, run_drain_of};
use crate::front::Way;
use crate::report::Ends;
use crate::scene::{Expected, Scene};
use crate::segments;
use e2e_fixtures::cluster::Seen;
use e2e_fixtures::pipeline::TABLE;

/// The gateway's metric of blocks that wait for a person to act.
const WAITING: &str = "sluice_gateway_blocks_waiting_for_action";

/// The gateway logs this when it exits because the table has other columns than it encodes for.
const SAYS_CHANGED: &str = "the columns of table";

/// How often the gateway is restarted while its blocks wait.
const RESTARTS: u32 = 2;

/// The end of a statement that gives the links' attributes another type.
const LINKS_AS_MAP: &str = "Array(Map(LowCardinality(String), String))";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(clippy::doc_markdown, reason = "`--list` prints it as it is")]
pub enum Columns {
    /// commit: AfterEnqueue; a column's type has another name when blocks on the volume are inserted
    Renamed,
    /// the same with another type: they wait, new rows do not, and they are inserted once the column is restored
    Replaced,
    /// blocks whose messages Kafka has deleted wait for a column; later offsets are committed, and the blocks survive restarts and a
    /// `drain`
    ReplacedRetentionPasses,
}

impl Family for Columns {
    const PREFIX: &'static str = "volume-column-";

    fn change(self) -> Value {
        volume::change(self != Columns::ReplacedRetentionPasses)
    }

    async fn play(self, scene: &mut Scene<'_>) -> Result<Expected> {
        let played = match self {
            Columns::Renamed | Columns::Replaced => self.change_table(scene).await,
            Columns::ReplacedRetentionPasses => forget(scene).await,
        };
        scene.stage.servers.sink.go(Way::Open);
        played
    }
}

impl Columns {
    async fn change_table(self, scene: &mut Scene<'_>) -> Result<Expected> {
        spooled::begin(scene).await?;
        // All inserted rows are committed now, so later commits are for blocks on the volume.
        scene.wait_committed(0).await?;
        let left = scene.while_sink_goes(Way::Refused, async |scene| leave_only_copies(scene).await).await?;
        let measures = vec![("blocks on the volume", as_real(left))];
        let since = Instant::now();
        let (recovery_s, ends) = if self == Columns::Renamed {
            scene.alter("MODIFY COLUMN StatusMessage LowCardinality(String)").await?;
            scene.start_again(0, Some("gateway-0"))?;
            (Some(scene.recovered(since).await?), Ends::default())
        } else {
            let before = links_type(scene).await?;
            replace_links(scene, LINKS_AS_MAP).await?;
            scene.start_again(0, Some("gateway-0"))?;
            scene.wait_metric(0, WAITING, |blocks| blocks > 0.0).await?;
            // These blocks do not delay new rows.
            scene.produce(SPANS_AFTER).await?;
            scene.wait_committed_within(0, DRAIN_PATIENCE).await?;
            wait_for_table_alone(scene).await?;
            replace_links(scene, &before).await?;
            // Blocks for the removed columns are not committed, so the next start reads their messages again.
            scene.produce(SPANS_AFTER).await?;
            scene.wait_logged(SAYS_CHANGED).await?;
            scene.wait_committed_within(0, DRAIN_PATIENCE).await?;
            (None, Ends::With(&[EXIT_NEW_START]))
        };
        spooled::drained(scene).await?;
        Ok(Expected { ends, recovery_s, measures, ..Expected::default() })
    }
}

/// The gateway found the blocks to be only copies before a later offset was committed. If it judged them later by Kafka's offsets, they
/// would look settled.
async fn forget(scene: &mut Scene<'_>) -> Result<Expected> {
    spooled::read_all_while_away(scene).await?;
    scene.gateway(0).kill().await?;
    let deleted = spooled::delete_heads(scene).await?;
    let before = links_type(scene).await?;
    replace_links(scene, LINKS_AS_MAP).await?;
    scene.stage.servers.sink.go(Way::Open);
    scene.start_again(0, Some("gateway-0"))?;
    scene.wait_metric(0, WAITING, |blocks| blocks > 0.0).await?;
    scene.produce(SPANS_AFTER).await?;
    scene.wait_committed_within(0, DRAIN_PATIENCE).await?;
    wait_for_table_alone(scene).await?;
    let blocks = scene.wait_metric(0, WAITING, |blocks| blocks > 0.0).await?;
    for _ in 0..RESTARTS {
        scene.restart(0).await?;
        scene.wait_metric(0, WAITING, |waiting| spooled::is_same(waiting, blocks)).await?;
    }
    scene.gateway(0).kill().await?;
    let (code, report) = run_drain_of(scene, 0, "5s").await?;
    let left = report["left"]["blocks"].as_f64().context("no blocks in the report of drain")?;
    ensure!(code == 1 && spooled::is_same(left, blocks), "{blocks} blocks wait, and drain says: {report}");
    replace_links(scene, &before).await?;
    let (code, report) = run_drain_of(scene, 0, "60s").await?;
    let inserted = report["inserted"]["blocks"].as_f64().context("no blocks in the report of drain")?;
    ensure!(
        code == 0 && spooled::is_same(inserted, blocks),
        "{blocks} blocks waited, and drain says: {report}"
    );
    scene.start_again(0, Some("gateway-0"))?;
    spooled::drained(scene).await?;
    let measures =
        vec![("messages on the volume alone", as_real(deleted.messages)), ("blocks that waited", blocks)];
    Ok(Expected { measures, ..Expected::default() })
}

/// The gateway reads everything, writes or commits it on the volume, and is killed. Returns how many blocks are left.
async fn leave_only_copies(scene: &mut Scene<'_>) -> Result<u64> {
    let before = scene.committed_messages().await?;
    read_all(scene).await?;
    wait_enqueued(scene, before).await?;
    scene.gateway(0).kill().await?;
    let blocks = segments::left(&scene.volume(0))?.len();
    ensure!(blocks > 0, "no block was on the volume");
    Ok(u64::try_from(blocks)?)
}

/// Waits until the volume has only blocks that wait for the table.
async fn wait_for_table_alone(scene: &mut Scene<'_>) -> Result<()> {
    scene
        .wait("only blocks on the volume that wait for the table", DRAIN_PATIENCE, async |scene| {
            let seen = scene.gateway(0).metrics([WAITING, SPOOL_BLOCKS]).await;
            let is_so =
                seen.is_some_and(|[waiting, blocks]| waiting > 0.0 && spooled::is_same(waiting, blocks));
            Ok(Seen::when(is_so, || format!("{seen:?} wait and are there")))
        })
        .await
}

async fn links_type(scene: &Scene<'_>) -> Result<String> {
    let question = format!(
        "SELECT type FROM system.columns WHERE database = '{}' AND table = '{TABLE}' AND name = 'Links.Attributes'",
        scene.database.name()
    );
    Ok(scene.stage.servers.server.text(&question, "TSV").await?.trim().to_owned())
}

/// The load's spans have no links, so no value is lost.
async fn replace_links(scene: &Scene<'_>, type_name: &str) -> Result<()> {
    scene.alter("DROP COLUMN `Links.Attributes`").await?;
    scene.alter(&format!("ADD COLUMN `Links.Attributes` {type_name}")).await
}
