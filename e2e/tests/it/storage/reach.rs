//! For the scheduler, the zone of a queue volume no longer exists, while its gateway holds blocks that it could not insert. The operator
//! gives the volume up, the gateway runs again with another one, and numbered spans show that Kafka had all messages.
//!
//! The zone is this test's own: a label of the node to which only this test's class of volumes is bound.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::prelude::*;
use crate::storage::replaced::with_class;
use crate::storage::volumes::{uids, wait_claims};

/// Spans that are produced while `ClickHouse` is unreachable, so that both gateways hold some.
const SPANS_AWAY: u64 = 10_000;

/// The node label to which a volume of this test is bound.
const ZONE: &str = "sluice.dev/e2e-reach";

const ZONED_CLASS: &str = "e2e-reach";

/// Longer than the operator waits for a node.
const LONG_AGO: SignedDuration = SignedDuration::from_mins(11);

#[test]
#[ignore = "group storage"]
fn a_volume_whose_zone_is_gone_is_made_anew_and_nothing_is_lost() -> Result<()> {
    scene::run("reach", Uses::Servers, 4, async |scene: &mut Scene| {
        let front = scene.front().await?;
        let cluster = scene.namespace.cluster().clone();
        let nodes: Api<Node> = Api::all(cluster.client());
        for node in nodes.list(&ListParams::default()).await.context("list nodes")? {
            zone(&nodes, &node.name_any(), Some(&node.name_any())).await?;
        }
        with_class(&cluster, (ZONED_CLASS, Some(ZONE)), Box::pin(play(scene, &front))).await?;
        // Its volumes need their zone until the pipeline is deleted.
        scene.pipeline.delete(READY).await?;
        for node in nodes.list(&ListParams::default()).await.context("list nodes")? {
            zone(&nodes, &node.name_any(), None).await?;
        }
        Ok(())
    })
}

async fn play(scene: &Scene, front: &SinkFront) -> Result<()> {
    let queue = json!({"size": "1Gi", "storageClassName": ZONED_CLASS, "onZoneLoss": "Recreate"});
    scene.start(&json!({"queue": queue, "replicas": 2})).await?;
    let is_known = |status: &TracePipelineStatus| {
        status.volumes.as_ref().is_some_and(|volumes| volumes.cache_since.is_some())
    };
    scene.pipeline.wait("with all volumes seen empty", READY, is_known).await?;
    let load = scene.load(SPANS_PER_SECOND);
    front.go(Way::Refused);
    let lost = format!("{}-1", scene.pipeline.workload_name());
    scene.wait_acked(&load, SPANS_AWAY, READY).await?;
    give_up(scene, &lost).await?;
    front.go(Way::Open);
    scene.pipeline.wait_ready(READY).await?;
    scene.end(load).await
}

/// No node is in the volume's zone, until the volume is given up.
async fn give_up(scene: &Scene, lost: &str) -> Result<()> {
    let nodes: Api<Node> = Api::all(scene.namespace.cluster().client());
    let pods = scene.pipeline.gateways().list().await?;
    let pod = pods.iter().find(|pod| pod.name_any() == lost).context("there is no such gateway")?;
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).context("it runs nowhere")?;
    zone(&nodes, &node, Some("gone")).await?;
    let played = async {
        scene.pipeline.gateways().delete(lost).await?;
        let lost_reach = ("False", reason::VOLUME_OUT_OF_REACH);
        scene.pipeline.wait_told(kind::READY, lost_reach, READY, "the operator recreates it at").await?;
        // The inserts of the other gateway fail too; the status reports that after two checks.
        reached(&scene.pipeline, "volume-out-of-reach", READY, |status| {
            has(status, kind::SINK_REACHABLE, reason::INSERTS_FAILING)
                && has(status, kind::READY, reason::VOLUME_OUT_OF_REACH)
        })
        .await?;
        let before = uids(scene).await?;
        let claim = format!("queue-{lost}");
        waited_long(scene, lost).await?;
        let is_new = |now: &Uids| now.get(&claim).is_some_and(|uid| before.get(&claim) != Some(uid));
        wait_claims(scene, "another claim", READY, is_new).await
    };
    let played = played.await;
    zone(&nodes, &node, Some(&node)).await?;
    played
}

/// Sets the test's zone label of a node.
async fn zone(nodes: &Api<Node>, node: &str, zone: Option<&str>) -> Result<()> {
    merge(nodes, node, json!({"metadata": {"labels": {ZONE: zone}}})).await
}

/// The scheduler must have found no node for longer than the operator waits. The test sets this time in the status instead of waiting.
async fn waited_long(scene: &Scene, pod: &str) -> Result<()> {
    let pods: Api<Pod> = scene.namespace.api();
    let since = Timestamp::now().checked_sub(LONG_AGO).context("the clock is at its beginning")?;
    let mut status = serde_json::to_value(pods.get_status(pod).await.context("get the pod")?.status)?;
    let conditions = status["conditions"].as_array_mut().context("the scheduler has said nothing")?;
    for condition in conditions.iter_mut().filter(|one| one["type"] == "PodScheduled") {
        condition["lastTransitionTime"] = Value::String(since.to_string());
    }
    merge_status(&pods, pod, json!({"conditions": conditions})).await
}
