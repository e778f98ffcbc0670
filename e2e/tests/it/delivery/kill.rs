//! Nothing is lost if a gateway or the operator is killed under load.

use crate::prelude::*;

/// Load of these tests: several messages a second and partition, and little of two shared cores.
const SPANS_PER_SECOND: u64 = 2_000;

/// Spans that must come after a fault before the load stops: ten seconds of load.
const SPANS_AFTER: u64 = 20_000;

/// Rows that must be there before a fault: both gateways have inserted and committed by then.
const ROWS_BEFORE: u64 = 6_000;

#[test]
fn a_killed_gateway_loses_nothing() -> Result<()> {
    scene::run("a_killed_gateway_loses_nothing", Uses::Servers, 8, async |scene: &mut Scene| {
        scene.start_default().await?;
        let load = scene.flowing_load(SPANS_PER_SECOND, ROWS_BEFORE, FLOW).await?;
        let gateways = scene.pipeline.gateways();
        let victim = gateways.first().await?;
        gateways.kill(&victim.name_any()).await?;
        wait_replaced(&gateways, &victim).await?;
        scene.wait_acked(&load, SPANS_AFTER, FLOW).await?;
        // Then once the usual way, with time to drain.
        let leaving = gateways.first().await?;
        gateways.delete(&leaving.name_any()).await?;
        wait_replaced(&gateways, &leaving).await?;
        scene.wait_acked(&load, SPANS_AFTER, FLOW).await?;
        scene.pipeline.wait_ready(READY).await?;
        scene.end(load).await
    })
}

#[test]
fn a_killed_operator_leaves_the_gateways_alone() -> Result<()> {
    scene::run("a_killed_operator_leaves_the_gateways", Uses::ServersAlone, 8, async |scene: &mut Scene| {
        scene.start_default().await?;
        let load = scene.flowing_load(SPANS_PER_SECOND, ROWS_BEFORE, FLOW).await?;
        let before = scene.pipeline.gateways().uids().await?;
        scene.environment.operator.kill_and_wait(READY).await?;
        scene.wait_acked(&load, SPANS_AFTER, FLOW).await?;
        scene.pipeline.wait_ready(READY).await?;
        scene.assert_same_gateways(&before).await?;
        // The new operator works: it carries out a change.
        scene.pipeline.apply(&json!({"replicas": 1})).await?;
        scene.pipeline.wait_replicas(1, READY).await?;
        scene.end(load).await
    })
}

/// Waits until another pod has the name of `gone` and is ready.
async fn wait_replaced(pods: &Pods, gone: &Pod) -> Result<()> {
    let name = gone.name_any();
    until(&format!("another pod {name}"), READY, async || {
        let pods = pods.list().await?;
        let found = pods.iter().find(|pod| pod.name_any() == name).context("no pod")?;
        let mut conditions = found.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let ready = conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True");
        let other = found.uid() != gone.uid();
        Ok(Seen::when(other && ready, || format!("another pod: {other}, ready: {ready}")))
    })
    .await
}
