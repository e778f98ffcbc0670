//! ClickHouse is away while blocks go to the queue volume; and what can happen to those.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use super::INSERTS_BEFORE;
use crate::faults::kafka_front::Way;
use crate::faults::scene::{Expected, Scene};

/// The smallest memory limit for one worker and these inserts, so that the pool of chunks is as small as it gets: 24 MiB.
const MEMORY: &str = "137MiB";

/// Spans that come while ClickHouse is away: 480 messages, each a block and a chunk of 64 KiB; seven eighths of the pool are 400.
const SPANS_AWAY: u64 = 48_000;

/// Spans that come after it.
const SPANS_AFTER: u64 = 4_000;

/// Blocks that must be on the volume before anything else happens.
const BLOCKS: f64 = 50.0;

/// Blocks that must have been drained before the gateway is killed while it drains.
const BLOCKS_DRAINED: f64 = 20.0;

/// How long the volume may take to be empty again: 500 inserts on a machine that does something else as well.
const DRAIN_PATIENCE: Duration = Duration::from_mins(8);

/// The gateway's metric of blocks on its volume.
const SPOOL_BLOCKS: &str = "sluice_gateway_spool_blocks";

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Volume {
    /// Nothing else: it comes back.
    Outage,
    /// SIGKILL while blocks go to the volume.
    KillInSpill,
    /// SIGKILL while they are inserted from there.
    KillInDrain,
}

impl Volume {
    /// All of them, with a scenario's name, rounds at the most and words.
    pub const ALL: [(Volume, &'static str, u32, &'static str); 3] = [
        (
            Volume::Outage,
            "volume-outage",
            3,
            "connections to the sink are refused until blocks of 48,000 spans wait on the volume",
        ),
        (Volume::KillInSpill, "volume-kill-in-spill", u32::MAX, "SIGKILL while blocks go to the volume"),
        (
            Volume::KillInDrain,
            "volume-kill-in-drain",
            u32::MAX,
            "SIGKILL while blocks are inserted from the volume",
        ),
    ];

    /// What gateways are told otherwise than usual.
    pub fn change() -> Value {
        let queue = json!({"mode": "Spill", "maxBytes": "1GiB"});
        // A block a message: many of them at little cost.
        let insert = json!({"maxRows": 1, "concurrency": 8});
        json!({"queue": queue, "sink": {"clickhouse": {"insert": insert}}, "workers": 1, "memory": {"limit": MEMORY}})
    }

    /// Plays it.
    ///
    /// # Errors
    /// When what is waited for does not come.
    pub async fn play(self, scene: &mut Scene<'_>) -> Result<Expected> {
        scene.start_gateway(Some("gateway-0"))?;
        scene.start_load();
        scene.wait_inserts(INSERTS_BEFORE).await?;
        // What is produced at once goes on with the numbers of the load.
        scene.stop_load().await?;
        scene.stage.servers.sink.go(Way::Refused);
        let filled = self.fill(scene).await;
        scene.stage.servers.sink.go(Way::Open);
        filled?;
        let since = Instant::now();
        if self == Volume::KillInDrain {
            let drained = |drained| drained >= BLOCKS_DRAINED;
            scene.wait_metric(0, "sluice_gateway_spool_drained_blocks_total", drained).await?;
            kill(scene).await?;
        }
        if matches!(self, Volume::KillInSpill | Volume::KillInDrain) {
            let taken = |taken| taken > 0.0;
            scene.wait_metric(0, "sluice_gateway_spool_taken_over_blocks_total", taken).await?;
        }
        let recovery = scene.recovered(since).await?;
        scene.produce(SPANS_AFTER).await?;
        scene.wait_metric_within(0, SPOOL_BLOCKS, DRAIN_PATIENCE, |blocks| blocks == 0.0).await?;
        Ok(Expected { recovery_s: Some(recovery), ..Expected::default() })
    }

    /// While ClickHouse is away.
    async fn fill(self, scene: &mut Scene<'_>) -> Result<()> {
        scene.produce(SPANS_AWAY).await?;
        scene.wait_metric(0, SPOOL_BLOCKS, |blocks| blocks >= BLOCKS).await?;
        if self == Volume::KillInSpill { kill(scene).await } else { Ok(()) }
    }
}

/// The gateway dies and comes back as the same member, with its volume.
async fn kill(scene: &mut Scene<'_>) -> Result<()> {
    scene.gateway(0).kill().await?;
    scene.start_again(0, Some("gateway-0"))
}
