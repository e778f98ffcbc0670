//! The number of gateways follows the load, knows when more of them would not help, and takes none away before it is empty; or it
//! is somebody else's, by the scale subresource.
//!
//! A gateway gets so little of a processor that one of them cannot do what two shared cores can produce. Numbered spans flow through
//! all of it: none is lost, none doubled.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::faults::{Leg, SinkFront, SinkVerdict};
use e2e::stack::kubernetes;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use sluice_crds::status::condition::{SCALING_ACTIVE, SCALING_LIMITED};
use sluice_crds::{TracePipeline, TracePipelineStatus};

use crate::environment::{self, READY};
use crate::scene::{self, Scene, Uses};

/// Partitions: 1, 2, 3 and 4 gateways are useful steps.
const PARTITIONS: i32 = 12;

/// What one gateway may use of a processor; what it does with that is less than half of the load.
const CPU_LIMIT: &str = "40m";

/// Load of numbered spans, a kilobyte each: a quarter of a core to produce.
const SPANS_PER_SECOND: u64 = 12_000;

/// How long one insert takes while the server is slow: with so few at a time, a fraction of what the load needs.
const SLOW: Duration = Duration::from_secs(10);

/// Time for a decision to be made and carried out: 30 s of a load, three polls, pods that start on busy cores.
const DECIDED: Duration = Duration::from_mins(5);

/// How long the server stays slow once that is said: longer than it takes to add gateways for any other cause.
const SLOW_FOR: Duration = Duration::from_mins(1);

#[tokio::test(flavor = "multi_thread")]
async fn replicas_follow_the_load_and_leave_when_empty() -> Result<()> {
    let body = async |scene: &mut Scene| {
        let front = front(scene).await?;
        let spec = |mode: &str| spec(mode, &front.url());
        scene.start(&spec("Recommend")).await?;
        let load = scene.load(SPANS_PER_SECOND);
        let status = seen(scene, "recommends more", |status| recommended(status) > Some(1)).await?;
        ensure!(status.desired_replicas == Some(1), "Recommend changed the number of gateways: {status:?}");

        scene.pipeline.apply(&spec("Auto")).await?;
        seen(scene, "has more gateways", |status| status.ready_replicas > Some(1)).await?;
        let status = seen(scene, "has caught up", |status| {
            lag_seconds(status).is_some_and(|lag| lag <= 30)
                && status.desired_replicas == status.ready_replicas
        })
        .await?;
        scene.pipeline.wait_condition(SCALING_ACTIVE, ("True", "Active"), DECIDED).await?;

        let before = status.desired_replicas;
        slow_server(scene, &front, before).await?;
        let verdict = scene.assert_nothing_lost(&load.stop().await?).await?;
        ensure!(verdict.doubled == 0, "{} spans are doubled", verdict.doubled);
        seen(scene, "has fewer gateways", |status| {
            let leaves = status.scaling.as_ref().is_some_and(|scaling| scaling.drain.is_some());
            status.replicas < before && !leaves
        })
        .await
        .map(drop)
    };
    scene::run("replicas_follow_the_load", Uses::ServersAlone, PARTITIONS, body).await
}

/// More gateways never follow from a slow server, and the status says why.
async fn slow_server(scene: &Scene, front: &SinkFront, before: Option<u32>) -> Result<()> {
    let slow = front.gate().rule(u32::MAX, SinkVerdict::Late(SLOW), |passage| passage.leg == Leg::Head);
    scene.pipeline.wait_condition(SCALING_LIMITED, ("True", "SinkLimited"), DECIDED).await?;
    // The time with a slow server is the fault itself, not a wait for something.
    tokio::time::sleep(SLOW_FOR).await;
    let status = scene.pipeline.get().await?.status.context("the pipeline has no status")?;
    let cause = status.scaling.as_ref().and_then(|scaling| scaling.cause.as_deref());
    ensure!(cause == Some("SinkLimited"), "the cause is {cause:?} while the server is slow");
    ensure!(
        status.desired_replicas == before,
        "{before:?} gateways became {:?} while the server was slow",
        status.desired_replicas
    );
    ensure!(slow.applied() > 0, "no insert was slow");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scale_subresource_is_anybodys_in_external() -> Result<()> {
    let body = async |scene: &mut Scene| {
        scene.start(&json!({"scaling": {"mode": "External"}, "replicas": 1})).await?;
        scene.pipeline.wait_condition(SCALING_ACTIVE, ("False", "External"), READY).await?;
        let load = scene.load(1_000);
        // What `kubectl scale tp/traces --replicas=3` writes.
        let pipelines: Api<TracePipeline> = scene.namespace.api();
        let scale = json!({"spec": {"replicas": 3}});
        pipelines
            .patch_scale(scene.pipeline.name(), &PatchParams::default(), &Patch::Merge(&scale))
            .await
            .context("write the scale subresource")?;
        seen(scene, "has three gateways", |status| status.ready_replicas == Some(3)).await?;
        // Without metrics an HPA only keeps its bounds, which is enough to see that it finds and writes the number.
        scene.namespace.apply(&autoscaler(scene.pipeline.name())).await?;
        seen(scene, "has two gateways", |status| {
            status.replicas == Some(2) && status.ready_replicas == Some(2)
        })
        .await?;
        let hpas: Api<HorizontalPodAutoscaler> = scene.namespace.api();
        let hpa = hpas.get("traces").await.context("get the HorizontalPodAutoscaler")?;
        let current = hpa.status.and_then(|status| status.current_replicas);
        ensure!(current.is_some(), "the autoscaler does not see how many gateways there are");
        let verdict = scene.assert_nothing_lost(&load.stop().await?).await?;
        ensure!(verdict.doubled == 0, "{} spans are doubled", verdict.doubled);
        Ok(())
    };
    scene::run("scale_subresource", Uses::Servers, PARTITIONS, body).await
}

fn autoscaler(pipeline: &str) -> Value {
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "traces"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "sluice.dev/v1alpha1", "kind": "TracePipeline", "name": pipeline},
            "minReplicas": 1, "maxReplicas": 2,
            "metrics": [{"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}}],
        },
    })
}

/// A front for the server, where the local stack's pods reach this machine.
async fn front(scene: &Scene) -> Result<SinkFront> {
    scene.environment.local_clickhouse_only()?;
    let server = environment::servers().await?.clickhouse;
    let upstream = server.strip_prefix("http://").context("ClickHouse's URL is not http")?;
    SinkFront::start_on(kubernetes::NODE_ADDRESS, upstream).await
}

fn spec(mode: &str, clickhouse: &str) -> Value {
    json!({
        "sink": {"clickhouse": {"endpoints": [clickhouse]}},
        "partitionsPerReplica": PARTITIONS,
        "scaling": {
            "mode": mode, "minReplicas": 1, "maxReplicas": 4,
            "targetLag": "30s", "scaleDownAfter": "1m", "drain": {"timeout": "2m"},
        },
        "gateway": {"resources": {"cpuRequest": "20m", "cpuLimit": CPU_LIMIT}},
    })
}

async fn seen(
    scene: &Scene,
    what: &str,
    wanted: impl Fn(&TracePipelineStatus) -> bool,
) -> Result<TracePipelineStatus> {
    scene.pipeline.wait(what, DECIDED, wanted).await
}

fn recommended(status: &TracePipelineStatus) -> Option<u32> {
    status.scaling.as_ref()?.recommended_replicas
}

fn lag_seconds(status: &TracePipelineStatus) -> Option<i64> {
    status.scaling.as_ref()?.lag_seconds
}
