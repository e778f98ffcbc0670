//! Copies that lag behind the server: what they lack, and what has changed since.

use crate::{
    bench::{Bench, NAMESPACE},
    scaling::Scene,
};
use kube::runtime::reflector::ObjectRef;
use serde_json::json;
use sluice_operator::reconcile::reconcile;
use std::sync::Arc;

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

#[tokio::test]
async fn a_pipeline_that_was_made_again_gets_nothing_of_the_one_before() {
    let bench = Bench::start().await;
    bench.create("prod");
    let world = bench.world();
    let before = world.cache.pipelines.get(&ObjectRef::new("prod").within(NAMESPACE)).unwrap();
    let mut again = bench.pipeline("prod");
    again["metadata"]["uid"] = "another".into();
    bench.server.put("tracepipelines/prod", again);
    drop(reconcile(before, Arc::new(world)).await);
    assert!(bench.server.get("tracepipelines/prod").unwrap()["status"].is_null());
}
