//! A gateway whose volume is in a zone that is gone.

use crate::{
    replaced::put_claim,
    scaling::{Scene, clock, pass},
};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

const POD: &str = "pods/prod-gateway-1";
const CLAIM: &str = "persistentvolumeclaims/queue-prod-gateway-1";

/// Two gateways whose volumes were empty, and then the second finds no node that reaches its volume.
async fn lost(on_zone_loss: &str) -> Scene {
    let mut scene = Scene::with(2, json!({"mode": "Fixed"})).await;
    scene.change_spec(|spec| spec["queue"] = json!({"onZoneLoss": on_zone_loss}));
    for ordinal in 0..2 {
        put_claim(&scene, ordinal, ("fast", "10Gi"), 1);
    }
    let empty = "sluice_gateway_spool_blocks 0\nsluice_gateway_spool_bytes 0\n";
    scene.pods.each(|gateway| gateway.more = empty.into());
    scene.bench.restart();
    scene.poll().await;
    scene.control().await;
    scene.bench.settle("prod").await;
    let status = scene.bench.server.get("tracepipelines/prod").unwrap()["status"].clone();
    assert!(status["volumes"]["cacheSince"].is_string(), "{status}");
    let now = Timestamp::from_millisecond(i64::try_from(clock().0).unwrap()).unwrap().to_string();
    scene.bench.server.change(POD, |pod| {
        pod["status"] = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "lastTransitionTime": now,
            "message": "0/2 nodes are available: 2 node(s) didn't match PersistentVolume's node affinity."}]});
    });
    scene.bench.server.change("statefulsets/prod-gateway", |workload| {
        workload["status"]["readyReplicas"] = 1.into();
    });
    scene.poll().await;
    assert_eq!(scene.bench.condition("prod", "Ready"), "False VolumeOutOfReach");
    scene
}

/// What is deleted in ten minutes and a bit.
async fn deleted(scene: &Scene) -> Vec<String> {
    scene.bench.server.take_writes();
    for _ in 0..10 {
        pass(60);
        scene.poll().await;
    }
    let writes = scene.bench.server.take_writes().into_iter();
    writes.filter(|write| write.method == "DELETE").map(|write| write.what).collect()
}

fn events(scene: &Scene) -> Vec<Value> {
    let events = scene.bench.server.take_events().into_iter();
    events.filter(|event| event["reason"] == "VolumeOutOfReach" && event["action"] == "Store").collect()
}

#[tokio::test]
async fn a_volume_in_a_zone_that_is_gone_is_made_anew_where_that_is_wanted() {
    let scene = lost("Recreate").await;
    assert_eq!(deleted(&scene).await, [CLAIM]);
    let events = events(&scene);
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0]["note"].as_str().unwrap().contains("no node takes prod-gateway-1"), "{events:?}");
}

#[tokio::test]
async fn a_volume_in_a_zone_that_is_gone_waits_for_a_person_by_default() {
    let scene = lost("Wait").await;
    assert_eq!(deleted(&scene).await, [""; 0]);
}

#[tokio::test]
async fn a_gateway_that_has_found_a_node_keeps_its_volume() {
    let scene = lost("Recreate").await;
    // The copies do not show it yet.
    scene.bench.server.change(POD, |pod| pod["spec"] = json!({"nodeName": "b", "containers": []}));
    assert_eq!(deleted(&scene).await, [""; 0]);
}
