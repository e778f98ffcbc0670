//! Copies that lag behind the server: what they lack, and what has changed since.

use crate::{
    bench::{Bench, NAMESPACE},
    scaling::Scene,
};
use kube::runtime::reflector::ObjectRef;
use serde_json::json;
use sluice_operator::reconcile::reconcile;

#[tokio::test]
async fn what_the_copies_lack_is_left_to_itself_too() {
    let mut scene = Scene::with(1, json!({"mode": "Fixed"})).await;
    scene.change_spec(|spec| spec["deletionPolicy"] = "Orphan".into());
    scene.bench.settle("prod").await;
    // The bench's copies are of what has this label.
    scene.bench.server.change("services/prod-gateway", |service| {
        service["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "unseen".into();
    });
    scene.delete();
    scene.by_many_operators(Scene::is_gone).await;
    let service = scene.bench.server.get("services/prod-gateway").unwrap();
    assert_eq!(service["metadata"]["ownerReferences"], json!([]));
}

#[tokio::test]
async fn a_pipeline_that_cannot_be_left_to_itself_wholly_is_held() {
    let mut scene = Scene::with(1, json!({"mode": "Fixed"})).await;
    scene.change_spec(|spec| spec["deletionPolicy"] = "Orphan".into());
    scene.bench.settle("prod").await;
    scene.delete();
    scene.bench.server.refuse("jobs GET", 500);
    scene.bench.fail("prod").await;
    assert!(!scene.is_gone());
    scene.bench.server.relent();
    scene.by_many_operators(Scene::is_gone).await;
}

/// Two gateways run and three are wanted. At this moment, a user scales to five.
#[tokio::test]
async fn a_number_that_somebody_sets_at_the_same_moment_is_theirs() {
    for changes_template in [false, true] {
        let bench = Bench::start().await;
        bench.create("prod");
        bench.settle("prod").await;
        bench.gateways_become_ready("prod");
        bench.settle("prod").await;
        bench.server.change("tracepipelines/prod", |pipeline| {
            pipeline["spec"]["replicas"] = 3.into();
            if changes_template {
                pipeline["spec"]["networkPolicy"] = json!({"enabled": false});
                pipeline["spec"]["gateway"] = json!({"podTemplate": {"metadata": {"labels": {"a": "b"}}}});
            }
            pipeline["metadata"]["generation"] = 2.into();
        });
        let world = bench.world();
        let pipeline = world.cache.pipelines.get(&ObjectRef::new("prod").within(NAMESPACE)).unwrap();
        bench.server.scale_by("kubectl", "statefulsets/prod-gateway", 5);
        reconcile(pipeline, bench.reconciler(world)).await.unwrap_err();
        let replicas = || bench.server.get("statefulsets/prod-gateway").unwrap()["spec"]["replicas"].clone();
        assert_eq!(replicas(), 5, "{changes_template}");
        bench.settle("prod").await;
        assert_eq!(
            (replicas(), bench.condition("prod", "ScalingLimited")),
            (5.into(), "True ScalingConflict".into())
        );
    }
}

/// A StatefulSet's version changes with each change of its pods. That must not prevent scaling.
#[tokio::test]
async fn a_workload_whose_pods_come_and_go_is_scaled_all_the_same() {
    let bench = Bench::start().await;
    bench.create("prod");
    bench.settle("prod").await;
    bench.gateways_become_ready("prod");
    bench.settle("prod").await;
    bench.server.change("tracepipelines/prod", |pipeline| {
        pipeline["spec"]["replicas"] = 3.into();
        pipeline["metadata"]["generation"] = 2.into();
    });
    let world = bench.world();
    let pipeline = world.cache.pipelines.get(&ObjectRef::new("prod").within(NAMESPACE)).unwrap();
    bench.gateways_are_ready("prod", 1);
    reconcile(pipeline, bench.reconciler(world)).await.unwrap();
    assert_eq!(bench.server.get("statefulsets/prod-gateway").unwrap()["spec"]["replicas"], 3);
}

/// Without a number it would have one gateway, which would take over and end all others.
#[tokio::test]
async fn a_workload_that_is_gone_is_not_made_by_what_was_meant_to_change_it() {
    for spec in [
        json!({"image": "sluice-gateway:another"}),
        json!({"image": "sluice-gateway:another", "replicas": 3}),
    ] {
        let bench = Bench::start().await;
        bench.create("prod");
        bench.settle("prod").await;
        bench.gateways_become_ready("prod");
        bench.settle("prod").await;
        bench.server.change("tracepipelines/prod", |pipeline| {
            pipeline["spec"]["gateway"] = json!({"image": spec["image"]});
            pipeline["spec"]["replicas"] = spec["replicas"].clone();
            pipeline["metadata"]["generation"] = 2.into();
        });
        let world = bench.world();
        let pipeline = world.cache.pipelines.get(&ObjectRef::new("prod").within(NAMESPACE)).unwrap();
        bench.server.remove("statefulsets/prod-gateway");
        reconcile(pipeline, bench.reconciler(world)).await.unwrap_err();
        assert_eq!(bench.server.get("statefulsets/prod-gateway"), None);
        bench.settle("prod").await;
        let replicas = bench.server.get("statefulsets/prod-gateway").unwrap()["spec"]["replicas"].clone();
        assert_eq!(replicas, if spec["replicas"].is_null() { json!(2) } else { json!(3) });
    }
}

#[tokio::test]
async fn a_pipeline_that_was_made_again_gets_nothing_of_the_one_before() {
    let bench = Bench::start().await;
    bench.create("prod");
    let world = bench.world();
    let before = world.cache.pipelines.get(&ObjectRef::new("prod").within(NAMESPACE)).unwrap();
    let mut again = bench.pipeline("prod");
    again["metadata"]["uid"] = "another".into();
    bench.server.put("tracepipelines/prod", again);
    drop(reconcile(before, bench.reconciler(world)).await);
    assert!(bench.server.get("tracepipelines/prod").unwrap()["status"].is_null());
}
