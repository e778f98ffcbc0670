//! Servers that go away under load and come back: nothing is lost, and no gateway is restarted for it.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::process::Signal;

use crate::scene::{self, Scene, Uses};

/// How long `ClickHouse` is away.
const OUTAGE: Duration = Duration::from_mins(1);

/// Load of these tests: a minute of it is 120,000 spans, or 120 MB, more than the gateways' memory holds.
const SPANS_PER_SECOND: u64 = 2_000;

/// Spans that must come after a fault before the load stops: five seconds' worth.
const SPANS_AFTER: u64 = 10_000;

/// Rows that must be there before a fault.
const ROWS_BEFORE: u64 = 6_000;

/// Time for a load to pass; it takes seconds on an idle machine.
const FLOW: Duration = Duration::from_mins(2);

#[tokio::test(flavor = "multi_thread")]
async fn a_minute_without_clickhouse_loses_nothing() -> Result<()> {
    scene::run("a_minute_without_clickhouse", Uses::ServersAlone, 8, async |scene: &mut Scene| {
        scene.start_default().await?;
        let load = scene.load(SPANS_PER_SECOND);
        scene.wait_rows(ROWS_BEFORE, FLOW).await?;
        scene.environment.stop_clickhouse().await?;
        // The time without the server is the fault itself, not a wait for something.
        tokio::time::sleep(OUTAGE).await;
        scene.environment.start_clickhouse().await?;
        scene.wait_acked(&load, SPANS_AFTER, FLOW).await?;
        scene.assert_nothing_lost(&load.stop().await?).await?;
        assert_no_restarts(scene).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_broker_loses_nothing() -> Result<()> {
    scene::run("a_restarted_broker_loses_nothing", Uses::ServersAlone, 8, async |scene: &mut Scene| {
        scene.start_default().await?;
        let load = scene.load(SPANS_PER_SECOND);
        scene.wait_rows(ROWS_BEFORE, FLOW).await?;
        for signal in [Signal::TERM, Signal::KILL] {
            scene.environment.restart_kafka(signal).await?;
            scene.wait_acked(&load, SPANS_AFTER, FLOW).await?;
        }
        scene.assert_nothing_lost(&load.stop().await?).await?;
        assert_no_restarts(scene).await
    })
    .await
}

/// A server that is away is no reason to restart a gateway.
async fn assert_no_restarts(scene: &Scene) -> Result<()> {
    let gateways = scene.pipeline.gateways();
    for name in gateways.uids().await?.keys() {
        let restarts = gateways.restarts(name).await?;
        ensure!(restarts == 0, "gateway {name} was restarted {restarts} times");
    }
    Ok(())
}
