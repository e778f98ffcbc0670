//! Gateways whose StatefulSet is gone, such as while it is made again for larger volumes. They read on. Until the operator has drained them
//! like any others, it neither reports the pipeline as suspended nor removes its finalizer.

use crate::scaling::Scene;
use serde_json::json;

/// Two gateways that hold something, without their StatefulSet.
async fn left_alone() -> Scene {
    let scene = Scene::with(2, json!({"mode": "Fixed"})).await;
    scene.pods.each(|gateway| gateway.blocks = 1);
    scene.bench.server.remove("statefulsets/prod-gateway");
    scene
}

impl Scene {
    fn has_no_pods(&self) -> bool {
        self.bench.server.list("pods").is_empty()
    }
}

#[tokio::test]
async fn gateways_without_their_workload_are_drained_and_ended_before_their_pipeline_goes() {
    let mut scene = left_alone().await;
    scene.delete();
    for _ in 0..3 {
        scene.bench.reconcile("prod").await.unwrap();
    }
    assert!(!scene.is_gone() && !scene.has_no_pods());
    assert!(scene.told(0).contains(&"/drain".to_owned()) && scene.told(1).contains(&"/drain".to_owned()));
    scene.pods.each(|gateway| gateway.blocks = 0);
    scene.by_many_operators(Scene::is_gone).await;
    assert!(scene.has_no_pods(), "they would read on without an owner");
}

#[tokio::test]
async fn a_pipeline_does_not_rest_before_gateways_without_their_workload_are_gone() {
    let mut scene = left_alone().await;
    scene.change_spec(|spec| spec["suspend"] = true.into());
    for _ in 0..3 {
        scene.bench.reconcile("prod").await.unwrap();
        assert_eq!(scene.bench.condition("prod", "Ready"), "False Suspended");
    }
    assert!(!scene.has_no_pods());
    scene.pods.each(|gateway| gateway.blocks = 0);
    scene.by_many_operators(Scene::has_no_pods).await;
    scene.bench.settle("prod").await;
    assert_eq!(scene.bench.condition("prod", "Suspended"), "True Suspended");
    // As many come back as there were.
    scene.change_spec(|spec| spec["suspend"] = false.into());
    scene.bench.settle("prod").await;
    assert_eq!(scene.replicas(), 2);
}
