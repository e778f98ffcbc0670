//! Queue volumes are replaced, one gateway at a time, by an operator that may end at every step.

use crate::{
    bench::NAMESPACE,
    scaling::{Scene, pass},
};
use serde_json::{Value, json};

/// Reconciles after which both volumes must have been replaced.
const ROUNDS_MAX: u32 = 40;

/// Two gateways that run with volumes of 10Gi and the class "fast".
async fn running() -> Scene {
    let mut scene = Scene::with(2, json!({"mode": "Fixed"})).await;
    for ordinal in 0..2 {
        put_claim(&scene, ordinal, ("fast", "10Gi"), 1);
        scene.bench.server.change(&pod(ordinal), |pod| {
            pod["status"]["containerStatuses"][0]["containerID"] = format!("c://{ordinal}-1").into();
        });
    }
    scene.bench.server.put(
        "storageclasses/new",
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "new"}, "provisioner": "p"}),
    );
    scene.control().await;
    scene.bench.settle("prod").await;
    scene
}

fn pod(ordinal: u32) -> String {
    format!("pods/prod-gateway-{ordinal}")
}

fn claim(ordinal: u32) -> String {
    format!("persistentvolumeclaims/queue-prod-gateway-{ordinal}")
}

pub fn put_claim(scene: &Scene, ordinal: u32, (class, size): (&str, &str), made: u32) {
    let name = format!("queue-prod-gateway-{ordinal}");
    scene.bench.server.put(
        &claim(ordinal),
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": NAMESPACE, "uid": format!("claim-{ordinal}-{made}"), "labels": {
                "app.kubernetes.io/name": "sluice-gateway", "app.kubernetes.io/instance": "prod",
                "app.kubernetes.io/component": "gateway",
            }},
            "spec": {"storageClassName": class, "volumeName": "v", "resources": {"requests": {"storage": size}}},
            "status": {"capacity": {"storage": size}},
        }),
    );
}

/// While the StatefulSet is made anew there is none.
fn become_ready(scene: &Scene) {
    if scene.bench.server.get("statefulsets/prod-gateway").is_some() {
        scene.bench.gateways_become_ready("prod");
    }
}

/// The kubelet, the StatefulSet controller and a provisioner do what they are to do. Gives the gateway that is made again.
fn control(scene: &Scene, pods: &[Value], made: u32) -> Option<u32> {
    let server = &scene.bench.server;
    become_ready(scene);
    let mut again = None;
    for ordinal in 0..2 {
        match server.get(&pod(ordinal)) {
            Some(found) if !found["metadata"]["deletionTimestamp"].is_null() => {
                server.change(&pod(ordinal), |pod| {
                    let container = &mut pod["status"]["containerStatuses"][0];
                    container["state"] =
                        json!({"terminated": {"exitCode": 0, "containerID": container["containerID"]}});
                    pod["status"]["phase"] = "Succeeded".into();
                    pod["metadata"]["deletionGracePeriodSeconds"] = 0.into();
                });
            }
            Some(_) => {}
            None => {
                let mut anew = pods[ordinal as usize].clone();
                anew["metadata"]["uid"] = format!("pod-{ordinal}-{made}").into();
                anew["status"]["containerStatuses"][0]["containerID"] =
                    format!("c://{ordinal}-{made}").into();
                server.put(&pod(ordinal), anew);
                if server.get(&claim(ordinal)).is_none() {
                    put_claim(scene, ordinal, ("new", "1Gi"), made);
                }
                again = Some(ordinal);
            }
        }
    }
    again
}

/// Rounds of ever new operators until volumes are as they are wanted; gives the gateways that were made again.
async fn replaced(scene: &mut Scene, pods: &[Value]) -> Vec<u32> {
    let mut again = Vec::new();
    for round in 2..ROUNDS_MAX {
        scene.bench.restart();
        pass(2);
        scene.bench.reconcile("prod").await.unwrap();
        again.extend(control(scene, pods, round));
        let is_done = scene.bench.condition("prod", "VolumesResized") == "True UpToDate";
        if is_done && scene.bench.condition("prod", "Ready") == "True Running" {
            return again;
        }
    }
    panic!("not done: {}", scene.bench.server.get("tracepipelines/prod").unwrap()["status"])
}

fn objects(scene: &Scene) -> Vec<Value> {
    (0..2).map(|ordinal| scene.bench.server.get(&pod(ordinal)).unwrap()).collect()
}

fn wants_others(scene: &Scene) {
    scene.change_spec(|spec| spec["queue"] = json!({"size": "1Gi", "storageClassName": "new"}));
}

fn assert_replaced(scene: &Scene) {
    for ordinal in 0..2 {
        let spec = scene.bench.server.get(&claim(ordinal)).unwrap()["spec"].clone();
        assert_eq!(
            (&spec["storageClassName"], &spec["resources"]["requests"]["storage"]),
            (&"new".into(), &"1Gi".into())
        );
        let metadata = scene.bench.server.get(&pod(ordinal)).unwrap()["metadata"].clone();
        assert!(metadata["deletionTimestamp"].is_null() && metadata["finalizers"].is_null(), "{metadata}");
    }
    assert!(
        scene.bench.server.get("tracepipelines/prod").unwrap()["status"]["volumes"]["replacing"].is_null()
    );
}

#[tokio::test]
pub async fn each_volume_is_replaced_once_its_gateway_is_empty() {
    let mut scene = running().await;
    let pods = objects(&scene);
    scene.pods.each(|gateway| gateway.blocks = 3);
    wants_others(&scene);
    scene.bench.server.take_writes();
    for round in 0..8 {
        scene.bench.reconcile("prod").await.unwrap();
        assert_eq!(control(&scene, &pods, round), None);
    }
    let writes = scene.bench.server.take_writes();
    assert!(writes.iter().all(|write| !write.what.starts_with("pods")), "{writes:?}");
    assert_eq!((scene.told(1).last().map(String::as_str), scene.told(0).len()), (Some("/drain"), 0));
    assert_eq!(scene.bench.condition("prod", "VolumesResized"), "False Replacing");
    scene.pods.each(|gateway| gateway.blocks = 0);
    scene.bench.server.take_events();
    assert_eq!(replaced(&mut scene, &pods).await, [1, 0], "the highest first, each once");
    assert_replaced(&scene);
    let events = scene.bench.server.take_events();
    assert_eq!(events.iter().filter(|event| event["reason"] == "VolumeReplaced").count(), 2);
}

#[tokio::test]
async fn without_the_right_to_delete_claims_nobody_is_drained() {
    let scene = running().await;
    scene.bench.server.refuse("persistentvolumeclaims/queue-prod-gateway-1 DELETE", 403);
    wants_others(&scene);
    for _ in 0..6 {
        scene.bench.reconcile("prod").await.unwrap();
        become_ready(&scene);
    }
    let status = scene.bench.server.get("tracepipelines/prod").unwrap()["status"].to_string();
    assert!(status.contains("grant delete of persistentvolumeclaims"), "{status}");
    assert_eq!((scene.told(0), scene.told(1)), (vec![], vec![]));
    assert!(
        scene.bench.server.get("tracepipelines/prod").unwrap()["status"]["volumes"]["replacing"].is_null()
    );
}

#[tokio::test]
async fn replacing_goes_on_from_wherever_the_operator_was_cut_off() {
    for writes_before in 0..18 {
        let mut scene = running().await;
        let pods = objects(&scene);
        wants_others(&scene);
        scene.bench.server.cut_off_after(writes_before);
        for round in 100..110 {
            pass(2);
            drop(scene.bench.reconcile("prod").await);
            control(&scene, &pods, round);
        }
        scene.bench.server.go_on();
        replaced(&mut scene, &pods).await;
        assert_replaced(&scene);
    }
}

#[tokio::test]
async fn a_gateway_that_was_started_again_keeps_its_volume_until_it_is_empty_again() {
    let mut scene = running().await;
    let pods = objects(&scene);
    wants_others(&scene);
    let mut rounds = 0;
    while scene.bench.server.get(&pod(1)).unwrap()["metadata"]["deletionTimestamp"].is_null() {
        scene.bench.reconcile("prod").await.unwrap();
        become_ready(&scene);
        rounds += 1;
        assert!(rounds < 20, "it is not told to end");
    }
    // Its process ended before it got the request, and a new process took part for a moment.
    scene.bench.server.change(&pod(1), |pod| {
        pod["status"]["containerStatuses"][0]["containerID"] = "c://1-restarted".into();
    });
    control(&scene, &pods, 50);
    scene.bench.reconcile("prod").await.unwrap();
    assert!(scene.bench.server.get(&pod(1)).is_none(), "it is let go of");
    assert_eq!(scene.bench.server.get(&claim(1)).unwrap()["metadata"]["uid"], "claim-1-1", "with its volume");
    replaced(&mut scene, &pods).await;
    assert_replaced(&scene);
}
