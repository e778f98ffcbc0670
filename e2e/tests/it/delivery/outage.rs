//! Servers that go away under load and come back: nothing is lost, and no gateway is restarted for it. They go away for one pipeline alone:
//! `ClickHouse` behind a front of the scene's, the broker as one of the scene's own.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e_faults::Way;
use e2e_fixtures::cluster::{Seen, metric_sum, until};
use e2e_stack::process::Signal;

use crate::own_broker::OwnBroker;
use crate::scene::{self, FLOW, Scene, Uses};

/// Gateways: four of eight partitions for each.
const GATEWAYS: u32 = 2;

/// How long `ClickHouse` is away.
const OUTAGE: Duration = Duration::from_mins(1);

/// Load of these tests: a minute of it is 120,000 spans, or 120 MB, more than the gateways' memory holds.
const SPANS_PER_SECOND: u64 = 2_000;

/// Spans that must come after a fault before the load stops: five seconds' worth.
const SPANS_AFTER: u64 = 10_000;

/// Rows that must be there before a fault.
const ROWS_BEFORE: u64 = 6_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_minute_without_clickhouse_loses_nothing() -> Result<()> {
    scene::run("a_minute_without_clickhouse", Uses::Servers, 8, async |scene: &mut Scene| {
        let front = scene.front().await?;
        scene.start_default().await?;
        let load = scene.flowing_load(SPANS_PER_SECOND, ROWS_BEFORE, FLOW).await?;
        front.go(Way::Refused);
        let before = until("gateways that are behind", FLOW, async || {
            let waits = Waits::of(scene).await?;
            Ok(if (waits.gateways, waits.behind) == (GATEWAYS, GATEWAYS) {
                Seen::Done(waits)
            } else {
                Seen::NotYet(format!("{waits:?}"))
            })
        })
        .await?;
        // The time without the server is the fault itself, not a wait for something.
        tokio::time::sleep(OUTAGE).await;
        assert_waited_for_the_sink(before, Waits::of(scene).await?)?;
        front.go(Way::Open);
        scene.wait_acked(&load, SPANS_AFTER, FLOW).await?;
        scene.end(load).await?;
        let inserted = scene.pipeline.gateways().metric_sum("sluice_gateway_freshness_seconds_count").await?;
        ensure!(inserted > 0.0, "no block says how fresh it was");
        assert_no_restarts(scene).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_broker_loses_nothing() -> Result<()> {
    scene::run("a_restarted_broker_loses_nothing", Uses::Servers, 8, async |scene: &mut Scene| {
        let broker = OwnBroker::start(scene).await?;
        scene.start_default().await?;
        let load = scene.flowing_load(SPANS_PER_SECOND, ROWS_BEFORE, FLOW).await?;
        for signal in [Signal::TERM, Signal::KILL] {
            broker.restart(signal).await?;
            scene.wait_acked(&load, SPANS_AFTER, FLOW).await?;
        }
        scene.end(load).await?;
        assert_no_restarts(scene).await?;
        // While its broker is there.
        scene.pipeline.delete(FLOW).await?;
        broker.remove()
    })
    .await
}

/// What the gateways say of the time of their workers, in seconds, all together.
#[derive(Clone, Copy, Debug)]
struct Waits {
    gateways: u32,
    /// Of those, how many say that they are behind.
    behind: u32,
    /// For messages.
    source: f64,
    /// For memory, or for the sink.
    sink: f64,
}

impl Waits {
    async fn of(scene: &Scene) -> Result<Waits> {
        let mut waits = Waits { gateways: 0, behind: 0, source: 0.0, sink: 0.0 };
        let gateways = scene.pipeline.gateways();
        for name in gateways.uids().await?.keys() {
            let text = gateways.metrics(name).await?;
            let seconds = |state: &str| {
                let label = format!("state=\"{state}\"");
                let lines: Vec<_> = text.lines().filter(|line| line.contains(&label)).collect();
                let seconds = metric_sum(&lines.join("\n"), "sluice_gateway_worker_seconds_total");
                seconds.with_context(|| format!("{name} does not say how long its workers were {state}"))
            };
            waits.gateways += 1;
            waits.behind += u32::from(metric_sum(&text, "sluice_gateway_sink_behind") == Some(1.0));
            waits.source += seconds("source")?;
            waits.sink += seconds("buffers")? + seconds("sink")?;
        }
        Ok(waits)
    }
}

/// While the sink is away, a worker that has nothing to do waits for it, though messages are read as they come. For how long it has something
/// to do depends on the machine: on busy cores it waits for a core in the middle of its work, and memory may not be full before the end. So
/// what is asked is whom it waited for, if only for a part of a second.
fn assert_waited_for_the_sink(before: Waits, after: Waits) -> Result<()> {
    let (source, sink) = (after.source - before.source, after.sink - before.sink);
    ensure!(
        sink > 0.0 && source < 0.1 * sink.max(1.0),
        "while the sink was away, workers waited {source:.1} s for messages and {sink:.1} s for the sink"
    );
    Ok(())
}

/// A server that is away is no reason to restart a gateway.
async fn assert_no_restarts(scene: &Scene) -> Result<()> {
    let gateways = scene.pipeline.gateways();
    let all = gateways.uids().await?;
    ensure!(u32::try_from(all.len()) == Ok(GATEWAYS), "the gateways are {all:?}");
    for name in all.keys() {
        gateways.ensure_not_restarted(name).await?;
    }
    Ok(())
}
