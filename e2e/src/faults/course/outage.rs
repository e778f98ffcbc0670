//! ClickHouse is away for minutes under full load; then the backlog leaves the volume beside what goes on coming.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::volume::{DRAIN_PATIENCE, SPANS_READ, SPOOL_BLOCKS, as_real};
use super::{INSERTS_BEFORE, SPANS_AFTER};
use crate::cluster::Seen;
use crate::faults::kafka_front::Way;
use crate::faults::scene::{Expected, Scene};
use crate::process::interrupt;

/// Load, spans a second: what both workers can read and encode on two busy cores in a debug build, and a hundred blocks a minute.
const SPANS_PER_SECOND: u64 = 20_000;

/// How often it is looked whether the outage is over.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// What gateways are told otherwise than usual: blocks of two seconds, so that those of ten minutes fit the volume's index.
pub fn change() -> Value {
    json!({
        "queue": {"mode": "Spill", "maxBytes": "4GiB"},
        "sink": {"clickhouse": {"insert": {"maxRows": 100_000, "maxInterval": "2s"}}},
    })
}

/// Plays it.
///
/// # Errors
/// When what is waited for does not come.
pub async fn play(scene: &mut Scene<'_>) -> Result<Expected> {
    scene.start_gateway(Some("gateway-0"))?;
    scene.start_load_of(SPANS_PER_SECOND);
    scene.wait_inserts(INSERTS_BEFORE).await?;
    scene.stage.servers.sink.go(Way::Refused);
    let waited = wait_out(scene).await;
    scene.stage.servers.sink.go(Way::Open);
    waited?;
    let since = Instant::now();
    let (rows, behind) = held(scene).await;
    ensure!(rows > 0.0, "nothing is on the volume after {:?}", scene.stage.outage);
    let recovery = scene.recovered(since).await?;
    // The load goes on while the volume is emptied.
    scene.wait_metric_within(0, SPOOL_BLOCKS, DRAIN_PATIENCE, |blocks| blocks == 0.0).await?;
    let drained = since.elapsed().as_secs_f64();
    scene.wait_acked(SPANS_AFTER).await?;
    let measures = vec![
        ("rows on the volume", rows),
        ("spans not read at its end", behind),
        ("volume empty after s", drained),
        ("rows drained a second", rows / drained),
    ];
    Ok(Expected { recovery_s: Some(recovery), measures, ..Expected::default() })
}

/// Until the outage is over; the gateway must read on all the time.
async fn wait_out(scene: &mut Scene<'_>) -> Result<()> {
    let until = Instant::now() + scene.stage.outage;
    let patience = scene.stage.outage * 2;
    scene
        .wait("the end of the outage", patience, async |_| {
            interrupt::check()?;
            tokio::time::sleep(LOOK_AGAIN).await;
            let left = until.saturating_duration_since(Instant::now());
            Ok(if left.is_zero() { Seen::Done(()) } else { Seen::NotYet(format!("{left:?} are left")) })
        })
        .await
}

/// Rows on the volume, and spans that were produced and not read.
async fn held(scene: &mut Scene<'_>) -> (f64, f64) {
    let rows = scene.gateway(0).metric("sluice_gateway_spool_rows").await.unwrap_or(0.0);
    let read = scene.gateway(0).metric(SPANS_READ).await.unwrap_or(0.0);
    (rows, (as_real(scene.acked()) - read).max(0.0))
}
