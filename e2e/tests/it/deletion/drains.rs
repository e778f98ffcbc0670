//! `ClickHouse` is unreachable, so a gateway cannot insert its blocks in time. With `onTimeout: Abort` it stays and joins its group again.
//! With `Force` it is removed, and Kafka has its messages. Numbered spans flow the whole time: none is lost, none doubled.

use crate::prelude::*;

/// Spans that are produced while `ClickHouse` is unreachable, so that both gateways hold some.
const SPANS_AWAY: u64 = 10_000;

/// Time limit of a drain: longer than a gateway needs if it can insert, and short for a test.
const TIMEOUT: &str = "10s";

#[test]
#[ignore = "group deletion"]
fn a_gateway_that_is_not_empty_in_time_stays_or_goes_as_the_spec_says() -> Result<()> {
    scene::run("drains", Uses::Servers, 8, async |scene: &mut Scene| {
        let front = scene.front().await?;
        scene.start(&spec(2, "Abort")).await?;
        let load = scene.load(SPANS_PER_SECOND);
        away(scene, &front, &load).await?;
        needed(scene).await?;
        abort(scene).await?;
        front.go(Way::Open);
        // The operator retries without a change.
        scene.pipeline.wait("with one gateway", FLOW, |status| status.replicas == Some(1)).await?;
        scene.change(&spec(2, "Abort")).await?;
        away(scene, &front, &load).await?;
        // It is removed together with its blocks.
        scene.pipeline.apply(&spec(1, "Force")).await?;
        scene.pipeline.wait("with one gateway", FLOW, |status| status.replicas == Some(1)).await?;
        front.go(Way::Open);
        scene.end(load).await
    })
}

fn spec(replicas: u32, on_timeout: &str) -> Value {
    json!({"replicas": replicas, "scaling": {"drain": {"onTimeout": on_timeout, "timeout": TIMEOUT}}})
}

/// Both gateways read, and then cannot insert what they read.
async fn away(scene: &Scene, front: &SinkFront, load: &Load) -> Result<()> {
    let rows = scene.oracle().rows().await? + SPANS_AWAY;
    scene.wait_rows(rows, FLOW).await?;
    front.go(Way::Refused);
    scene.wait_acked(load, SPANS_AWAY, FLOW).await
}

/// The draining gateway is wanted again before it is empty: it joins its group again, and is not restarted.
async fn needed(scene: &Scene) -> Result<()> {
    let before = scene.pipeline.gateways().uids().await?;
    let patient = |replicas: u32| json!({"replicas": replicas, "scaling": {"drain": {"onTimeout": "Abort", "timeout": "10m"}}});
    scene.pipeline.apply(&patient(1)).await?;
    // It is draining if it is not ready.
    let drains = |status: &TracePipelineStatus| {
        drain(status).is_some_and(|drain| drain.state == DrainState::Draining)
            && status.ready_replicas == Some(1)
    };
    scene.pipeline.wait("with a gateway that drains", FLOW, drains).await?;
    scene.pipeline.apply(&patient(2)).await?;
    scene.pipeline.wait("with two gateways that take part", FLOW, |status| drain(status).is_none()).await?;
    scene.pipeline.wait_ready(FLOW).await?;
    scene.assert_same_gateways(&before).await
}

/// No gateway is removed. The status says why, and the draining gateway joins its group again.
async fn abort(scene: &Scene) -> Result<()> {
    let before = scene.pipeline.gateways().uids().await?;
    scene.pipeline.apply(&spec(1, "Abort")).await?;
    let state = |wanted: DrainState| {
        move |status: &TracePipelineStatus| drain(status).is_some_and(|drain| drain.state == wanted)
    };
    let late = scene.pipeline.wait("with a drain that waits", FLOW, state(DrainState::Waiting)).await?;
    let drain = late.scaling.and_then(|scaling| scaling.drain).context("a drain")?;
    ensure!(drain.reason.contains("not empty after 10 s: gateway 1 "), "it says {:?}", drain.reason);
    ensure!(late.replicas == Some(2), "there are {:?} gateways", late.replicas);
    scene.pipeline.wait("with a drain that is tried again", FLOW, state(DrainState::Draining)).await?;
    scene.assert_same_gateways(&before).await?;
    assert_event(scene, "DrainTimedOut").await
}
