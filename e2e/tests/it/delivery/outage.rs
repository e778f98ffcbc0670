//! Servers become unreachable under load and come back: nothing is lost, and no gateway is restarted. They are unreachable only for one
//! pipeline: `ClickHouse` has a front of the scene's, and the broker is the scene's own.

use e2e_stack::process::Signal;

use crate::own_broker::OwnBroker;
use crate::prelude::*;

/// Gateways: four of eight partitions for each.
const GATEWAYS: u32 = 2;

const OUTAGE: Duration = Duration::from_mins(1);

/// Load of these tests: a minute of it is 120,000 spans, or 120 MB, more than the gateways' memory holds.
const SPANS_PER_SECOND: u64 = 2_000;

/// Spans that must come after a fault before the load stops: five seconds of load.
const SPANS_AFTER: u64 = 10_000;

/// Rows that must be in the table before a fault.
const ROWS_BEFORE: u64 = 6_000;

#[test]
fn a_minute_without_clickhouse_loses_nothing() -> Result<()> {
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
        // The time without the server is the fault itself, so this waits for no condition.
        tokio::time::sleep(OUTAGE).await;
        assert_waited_for_the_sink(before, Waits::of(scene).await?)?;
        front.go(Way::Open);
        scene.wait_acked(&load, SPANS_AFTER, FLOW).await?;
        scene.end(load).await?;
        let inserted = scene.pipeline.gateways().metric_sum("sluice_gateway_freshness_seconds_count").await?;
        ensure!(inserted > 0.0, "no block says how fresh it was");
        assert_no_restarts(scene).await
    })
}

#[test]
fn a_restarted_broker_loses_nothing() -> Result<()> {
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
        // Now, because its broker runs.
        scene.pipeline.delete(FLOW).await?;
        broker.remove()
    })
}

/// The time that the gateways' workers wait, in seconds, over all gateways.
#[derive(Clone, Copy, Debug)]
struct Waits {
    gateways: u32,
    behind: u32,
    /// Time of waiting for messages.
    source: f64,
    /// Time of waiting for memory, or for the sink.
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

/// While the sink is unreachable, a worker without work waits for the sink, although messages are read as they come. How long it has work
/// depends on the machine: on busy cores it waits for a core in the middle of its work, and memory may be full only at the end. So this
/// checks only for what it waited, even if for a part of a second.
fn assert_waited_for_the_sink(before: Waits, after: Waits) -> Result<()> {
    let (source, sink) = (after.source - before.source, after.sink - before.sink);
    ensure!(
        sink > 0.0 && source < 0.1 * sink.max(1.0),
        "while the sink was away, workers waited {source:.1} s for messages and {sink:.1} s for the sink"
    );
    Ok(())
}

/// An unreachable server is no reason to restart a gateway.
async fn assert_no_restarts(scene: &Scene) -> Result<()> {
    let gateways = scene.pipeline.gateways();
    let all = gateways.uids().await?;
    ensure!(u32::try_from(all.len()) == Ok(GATEWAYS), "the gateways are {all:?}");
    for name in all.keys() {
        gateways.ensure_not_restarted(name).await?;
    }
    Ok(())
}
