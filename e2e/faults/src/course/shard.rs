//! One of two shards is lost and comes back, while a gateway is killed and replays what is in flight: without a queue volume, with one, and
//! with a full one.

use std::time::Instant;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use serde_json::{Value, json};

use super::Family;
use super::only_copy::{MAY_BE_DOUBLED, wait_enqueued};
use super::spooled::{self, REFUSED, SMALL_KIB};
use super::volume::{self, BLOCKS, DRAIN_PATIENCE, SPOOL_BLOCKS, as_real, read_all};
use crate::front::Way;
use crate::scene::{Expected, Scene};
use crate::segments;
use e2e_fixtures::cluster::Seen;

/// Spans while the shard is lost: half a minute of load. By then its blocks fill their share of the memory.
const SPANS_LOST: u64 = 150_000;

/// Inserts into the other shard at the end of that time: two seconds of inserts from four partitions.
const INSERTS_OF_OTHER: u64 = 24;

/// The smallest memory limit with a volume: inserts to two shards need more than those to one.
const MEMORY: &str = "161MiB";

/// Where blocks of the lost shard wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(clippy::doc_markdown, reason = "`--list` prints it as it is")]
pub enum Lost {
    /// SIGKILL of one of two shards, and of the gateway while the shard is down; the other shard continues
    AndBack,
    /// the same with a queue volume, where the blocks of the lost shard wait
    Spilled,
    /// the same, and they fill it: the other shard continues
    VolumeFull,
    /// commit: AfterEnqueue; both shards and the gateway are lost; one shard comes back first, and gets all only copies of its rows
    OnlyCopies,
}

impl Family for Lost {
    const PREFIX: &'static str = "shard-lost-";

    fn change(self) -> Value {
        if self == Lost::AndBack {
            return json!({});
        }
        let mut change = volume::change(self == Lost::OnlyCopies);
        change["memory"]["limit"] = json!(MEMORY);
        change
    }

    async fn play(self, scene: &mut Scene<'_>) -> Result<Expected> {
        scene.open_second_shard().await?;
        if self == Lost::VolumeFull {
            scene.mount_volume(0, SMALL_KIB)?;
        }
        scene.write_to_both_shards()?;
        scene.start_under_load(Some("gateway-0")).await?;
        ensure!(
            scene.second_shard()?.rows(scene.database.name()).await? > 0,
            "nothing goes to the second shard"
        );
        if self == Lost::OnlyCopies {
            return only_copies(scene).await;
        }

        scene.second_shard()?.kill().await?;
        scene.wait_acked(SPANS_LOST / 2).await?;
        if self != Lost::AndBack {
            scene.wait_metric(0, SPOOL_BLOCKS, |blocks| blocks >= BLOCKS).await?;
        }
        ensure_none_may_be_doubled(scene).await?;
        // Its successor finds ranges in flight for a shard that it cannot reach, and blocks for that shard on its volume.
        scene.restart(0).await?;
        scene.wait_acked(SPANS_LOST / 2).await?;
        if self == Lost::VolumeFull {
            scene.wait_metric(0, REFUSED, |blocks| blocks > 0.0).await?;
        }
        scene.wait_inserts(INSERTS_OF_OTHER).await?;

        scene.second_shard()?.begin().await?;
        let expected = scene.recover(Instant::now()).await?;
        if self != Lost::AndBack {
            scene.stop_load().await?;
            scene.wait_metric_within(0, SPOOL_BLOCKS, DRAIN_PATIENCE, |blocks| blocks == 0.0).await?;
        }
        // The other shard knows its tokens all the time, and this shard knows them once it is reachable again.
        ensure_none_may_be_doubled(scene).await?;
        Ok(expected)
    }
}

async fn ensure_none_may_be_doubled(scene: &mut Scene<'_>) -> Result<()> {
    let told = scene.wait_metric(0, MAY_BE_DOUBLED, |_| true).await?;
    ensure!(told < 0.5, "{told} rows are said to be doubled perhaps, though every token is remembered");
    Ok(())
}

/// The lost shard has more blocks than may be sent at a time. No block of the other shard waits behind them.
async fn only_copies(scene: &mut Scene<'_>) -> Result<Expected> {
    scene.stop_load().await?;
    // All inserted rows are committed now, so later commits are for blocks on the volume.
    scene.wait_committed(0).await?;
    let before = scene.committed_messages().await?;
    scene.second_shard()?.kill().await?;
    scene.while_sink_goes(Way::Refused, async |scene| leave_only_copies(scene, before).await).await?;
    scene.start_again(0, Some("gateway-0"))?;
    scene
        .wait("blocks of one shard alone", DRAIN_PATIENCE, async |scene| {
            let [even, odd] = blocks_of_shards(scene)?;
            let is_one = even.min(odd) == 0 && even.max(odd) > 0;
            Ok(Seen::when(is_one, || format!("{even} and {odd} blocks")))
        })
        .await?;
    scene.second_shard()?.begin().await?;
    spooled::drained(scene).await?;
    Ok(Expected::default())
}

/// The gateway reads everything, has written or committed it on the volume, and is killed.
async fn leave_only_copies(scene: &mut Scene<'_>, committed_before: i64) -> Result<()> {
    read_all(scene).await?;
    wait_enqueued(scene, committed_before).await?;
    scene.gateway(0).kill().await?;
    let blocks = blocks_of_shards(scene)?;
    ensure!(
        blocks.iter().all(|blocks| as_real(*blocks) >= BLOCKS / 2.0),
        "{blocks:?} blocks are on the volume"
    );
    Ok(())
}

/// Blocks on the volume by shard: partitions of a topic go to two shards in turn.
fn blocks_of_shards(scene: &Scene<'_>) -> Result<[u64; 2]> {
    let mut blocks = [0; 2];
    for block in segments::left(&scene.volume(0))? {
        blocks[usize::from(block.partition % 2 != 0)] += 1;
    }
    Ok(blocks)
}
