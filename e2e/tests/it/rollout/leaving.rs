//! While `ClickHouse` is unreachable, no gateway can leave. The status reports that inserts fail. A pipeline with fewer wanted gateways, or
//! none, reports which gateways leave and how far they are; so does a pipeline that is deleted meanwhile. Once the server is back, it is
//! drained and deleted. Numbered spans flow the whole time: none is lost, none doubled.

use crate::prelude::*;

/// Load of numbered spans: small, because gateways keep everything that arrives while the server is unreachable.
const SPANS_PER_SECOND: u64 = 500;

/// Rows that must be in the table before the outage.
const ROWS_BEFORE: u64 = 2_000;

#[test]
#[ignore = "group deletion"]
fn who_cannot_leave_is_named_and_goes_once_the_server_is_back() -> Result<()> {
    scene::run("leaving", Uses::Servers, 4, async |scene: &mut Scene| {
        let front = scene.front().await?;
        scene.start(&spec(2, false)).await?;
        let load = scene.flowing_load(SPANS_PER_SECOND, ROWS_BEFORE, FLOW).await?;
        front.go(Way::Refused);
        let fails = |status: &TracePipelineStatus| has(status, kind::SINK_REACHABLE, reason::INSERTS_FAILING);
        reached(&scene.pipeline, "inserts-failing", FLOW, fails).await?;
        let before = scene.pipeline.gateways().uids().await?;
        scene.pipeline.apply(&spec(1, false)).await?;
        reached(&scene.pipeline, "scaling", FLOW, drains_to(1)).await?;
        scene.pipeline.apply(&spec(2, true)).await?;
        reached(&scene.pipeline, "suspending", FLOW, drains_to(0)).await?;
        deleted(scene, &front).await?;
        scene.start(&spec(2, false)).await?;
        let after = scene.pipeline.gateways().uids().await?;
        ensure!(after.keys().eq(before.keys()), "the gateways are {after:?}, were {before:?}");
        scene.end(load).await
    })
}

fn spec(replicas: u32, suspend: bool) -> Value {
    json!({"replicas": replicas, "suspend": suspend, "scaling": {"drain": {"timeout": "10m"}}})
}

/// The gateways above this number are being drained.
fn drains_to(target: u32) -> impl Fn(&TracePipelineStatus) -> bool {
    move |status| {
        drain(status).is_some_and(|drain| (drain.state, drain.target) == (DrainState::Draining, target))
    }
}

/// It is held while its gateways are not empty, and is deleted with its volumes when they are.
async fn deleted(scene: &Scene, front: &SinkFront) -> Result<()> {
    let pipelines: Api<TracePipeline> = scene.namespace.api();
    pipelines.delete(scene.pipeline.name(), &DeleteParams::default()).await.context("delete the pipeline")?;
    reached(&scene.pipeline, "draining", FLOW, drains_to(0)).await?;
    front.go(Way::Open);
    wait_gone(&pipelines, scene.pipeline.name(), FLOW).await?;
    assert_event(scene, "Drained").await?;
    scene.wait_without(&[kind_of::<Pod>(), kind_of::<PersistentVolumeClaim>()], FLOW).await
}
