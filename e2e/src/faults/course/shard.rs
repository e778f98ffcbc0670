//! One of two shards is lost and comes back, while a gateway dies and replays what is in flight; without a queue volume, with one, and with a
//! full one.

use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::only_copy::MAY_BE_DOUBLED;
use super::spooled::{REFUSED, SMALL_KIB};
use super::volume::{self, BLOCKS, DRAIN_PATIENCE, SPOOL_BLOCKS};
use super::{INSERTS_BEFORE, SPANS_AFTER};
use crate::faults::scene::{Expected, Scene};

/// Spans while the shard is lost: half a minute of load, in which its blocks fill their share of the memory.
const SPANS_LOST: u64 = 150_000;

/// Inserts into the other shard at the end of that time: two seconds' worth, of four partitions.
const INSERTS_OF_OTHER: u64 = 24;

/// The smallest memory limit with a volume: inserts to two shards need more than those to one.
const MEMORY: &str = "161MiB";

/// Where blocks of the shard wait that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// In memory: there is no queue volume.
    InMemory,
    /// On a queue volume.
    OnVolume,
    /// The same, until that is full.
    OnFullVolume,
}

impl Lost {
    /// All of them, with a scenario's name and words.
    pub const ALL: [(Lost, &'static str, &'static str); 3] = [
        (
            Lost::InMemory,
            "shard-lost-and-back",
            "SIGKILL of one of two shards, and of the gateway while it is lost; the other shard goes on",
        ),
        (
            Lost::OnVolume,
            "shard-lost-spilled",
            "the same with a queue volume, where the blocks of the lost shard wait",
        ),
        (
            Lost::OnFullVolume,
            "shard-lost-volume-full",
            "the same, and they fill it: the other shard goes on all the same",
        ),
    ];

    /// What gateways are told otherwise than usual.
    pub fn change(self) -> Value {
        if self == Lost::InMemory {
            return json!({});
        }
        let mut change = volume::change(false);
        change["memory"]["limit"] = json!(MEMORY);
        change
    }
}

/// Plays it.
///
/// # Errors
/// When what is waited for does not come, or a server could not be handled.
pub async fn play(scene: &mut Scene<'_>, lost: Lost) -> Result<Expected> {
    scene.open_second_shard().await?;
    if lost == Lost::OnFullVolume {
        scene.mount_volume(0, SMALL_KIB)?;
    }
    let urls = [scene.stage.servers.sink.url(), scene.second_shard()?.front.url()];
    let shards: Vec<[&String; 1]> = urls.iter().map(|url| [url]).collect();
    scene.reconfigure(&json!({"sink": {"clickhouse": {"endpoints": [], "shards": shards}}}))?;
    scene.start_gateway(Some("gateway-0"))?;
    scene.start_load();
    scene.wait_inserts(INSERTS_BEFORE).await?;
    let database = scene.database.name().to_owned();
    ensure!(scene.second_shard()?.rows(&database).await? > 0, "nothing goes to the second shard");

    scene.second_shard()?.kill().await?;
    scene.wait_acked(SPANS_LOST / 2).await?;
    if lost != Lost::InMemory {
        scene.wait_metric(0, SPOOL_BLOCKS, |blocks| blocks >= BLOCKS).await?;
    }
    ensure_none_may_be_doubled(scene).await?;
    // Its successor finds ranges in flight for a shard that it cannot ask, and blocks for it on its volume.
    scene.gateway(0).kill().await?;
    scene.start_again(0, Some("gateway-0"))?;
    scene.wait_acked(SPANS_LOST / 2).await?;
    if lost == Lost::OnFullVolume {
        scene.wait_metric(0, REFUSED, |blocks| blocks > 0.0).await?;
    }
    scene.wait_inserts(INSERTS_OF_OTHER).await?;

    scene.second_shard()?.begin().await?;
    let back = Instant::now();
    let recovery = scene.recovered(back).await?;
    scene.wait_acked(SPANS_AFTER).await?;
    if lost != Lost::InMemory {
        scene.stop_load().await?;
        scene.wait_metric_within(0, SPOOL_BLOCKS, DRAIN_PATIENCE, |blocks| blocks == 0.0).await?;
    }
    // The tokens of the other shard are known all the time, and those of this one once it can be asked.
    ensure_none_may_be_doubled(scene).await?;
    Ok(Expected { recovery_s: Some(recovery), ..Expected::default() })
}

async fn ensure_none_may_be_doubled(scene: &mut Scene<'_>) -> Result<()> {
    let told = scene.wait_metric(0, MAY_BE_DOUBLED, |_| true).await?;
    ensure!(told < 0.5, "{told} rows are said to be doubled perhaps, though every token is remembered");
    Ok(())
}
