//! ClickHouse is unreachable for minutes under full load; then the backlog is inserted from the volume while new spans arrive.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use serde_json::{Value, json};

use super::volume::{DRAIN_PATIENCE, SPANS_READ, SPOOL_BLOCKS, as_real};
use super::{Family, ONE};
use crate::front::Way;
use crate::scene::{Expected, INSERTS_BEFORE, SPANS_AFTER, Scene};
use e2e_fixtures::cluster::Seen;

/// Load, spans a second: what both workers can read and encode on two busy cores in a debug build; it makes a hundred blocks a minute.
const SPANS_PER_SECOND: u64 = 20_000;

/// Largest number of spans that are produced and not read, at any moment of the outage and at its end: fifteen seconds of load. Chosen: how
/// far a machine with other work falls behind; and a fortieth of the spans that wait if nothing is read for ten minutes.
const SPANS_BEHIND_MAX: f64 = 300_000.0;

/// The gateway's metric of failed tries after which the block may be in the table.
const FAILED_IN_DOUBT: &str = "sluice_gateway_insert_failures_total{class=\"in_doubt\"}";

/// How long a gateway may take to report how much it has read.
const SAY_PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LongOutage {
    /// ClickHouse is unreachable for ten minutes (--outage-s) under a continuous load of 20,000 spans a second
    VolumeOutageLong,
}

impl Family for LongOutage {
    fn rounds(self) -> u32 {
        ONE
    }

    /// Blocks of two seconds, so that those of ten minutes fit the volume's index.
    fn change(self) -> Value {
        json!({
            "queue": {"mode": "Spill", "maxBytes": "4GiB"},
            "sink": {"clickhouse": {"insert": {"maxRows": 100_000, "maxInterval": "2s"}}},
        })
    }

    async fn play(self, scene: &mut Scene<'_>) -> Result<Expected> {
        scene.start_gateway(Some("gateway-0"))?;
        scene.start_load_of(SPANS_PER_SECOND);
        scene.wait_inserts(INSERTS_BEFORE).await?;
        let behind = scene.while_sink_goes(Way::Refused, async |scene| wait_out(scene).await).await?;
        let since = Instant::now();
        let rows = scene.wait_metric(0, "sluice_gateway_spool_rows", |rows| rows > 0.0).await?;
        let recovery = scene.recovered(since).await?;
        // The load continues while the volume is emptied.
        scene.wait_metric_within(0, SPOOL_BLOCKS, DRAIN_PATIENCE, |blocks| blocks == 0.0).await?;
        let drained = since.elapsed().as_secs_f64();
        scene.wait_acked(SPANS_AFTER).await?;
        wait_up_with_load(scene).await?;
        let measures = vec![
            ("rows on the volume", rows),
            ("spans not read, at the most", behind),
            ("volume empty after s", drained),
            ("rows drained a second", rows / drained),
        ];
        Ok(Expected { recovery_s: Some(recovery), measures, ..Expected::default() })
    }
}

/// Waits until the outage is over; the gateway must read all the time. Returns the largest number of spans that it was behind.
async fn wait_out(scene: &mut Scene<'_>) -> Result<f64> {
    let until = Instant::now() + scene.stage.outage;
    let patience = scene.stage.outage + SAY_PATIENCE;
    let mut most = 0.0_f64;
    scene
        .wait("the end of the outage", patience, async |scene| {
            most = most.max(behind(scene).await?);
            let left = until.saturating_duration_since(Instant::now());
            let is_over = left.is_zero() || most > SPANS_BEHIND_MAX;
            Ok(Seen::when(is_over, || format!("{left:?} are left")))
        })
        .await?;
    ensure!(
        most <= SPANS_BEHIND_MAX,
        "{most} spans were not read while ClickHouse was away: reading does not go on"
    );
    still_fails(scene).await?;
    Ok(most)
}

/// Failed tries are counted for the whole outage: alerts and the operator's condition of the sink depend on that.
async fn still_fails(scene: &mut Scene<'_>) -> Result<()> {
    let before = scene.wait_metric(0, FAILED_IN_DOUBT, |_| true).await?;
    scene.wait_metric(0, FAILED_IN_DOUBT, |failed| failed > before).await.map(drop)
}

/// Waits until the gateway is no further behind than the limit during the outage.
async fn wait_up_with_load(scene: &mut Scene<'_>) -> Result<()> {
    scene
        .wait("a gateway that is up with its load", DRAIN_PATIENCE, async |scene| {
            let behind = behind(scene).await?;
            Ok(Seen::when(behind <= SPANS_BEHIND_MAX, || format!("{behind} spans are not read")))
        })
        .await
}

/// Spans that were produced and not read.
async fn behind(scene: &mut Scene<'_>) -> Result<f64> {
    let read = scene.gateway(0).metric(SPANS_READ).await.context("it does not say what it has read")?;
    Ok((as_real(scene.acked()) - read).max(0.0))
}
