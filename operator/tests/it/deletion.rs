//! What becomes of gateways when a pipeline is deleted: the options of the deletion and the spec at that time decide it.

use crate::{bench::Bench, scaling::Scene};
use serde_json::{Value, json};

/// `kubectl delete --cascade=orphan`: Kubernetes takes the pipeline out of the owners of all, and holds it by a finalizer until it has.
#[tokio::test]
async fn gateways_that_are_to_stay_by_the_way_of_deletion_read_on() {
    for is_over in [false, true] {
        let mut scene = Scene::with(2, json!({"mode": "Fixed"})).await;
        scene.events();
        scene.delete();
        if is_over {
            scene.bench.server.change("statefulsets/prod-gateway", |workload| {
                workload["metadata"]["ownerReferences"] = json!([]);
            });
        } else {
            scene.bench.server.change("tracepipelines/prod", |pipeline| {
                pipeline["metadata"]["finalizers"] = json!(["sluice.dev/drain", "orphan"]);
            });
        }
        let held_by = |scene: &Scene| scene.pipeline().map(|it| it["metadata"]["finalizers"].clone());
        let is_done = |scene: &Scene| held_by(scene).is_none_or(|left| left == json!(["orphan"]));
        scene.by_many_operators(is_done).await;
        assert_eq!(scene.events(), ["Orphaned"]);
        assert_eq!((scene.replicas(), scene.told(0)), (2, vec![]), "nobody is asked to leave");
        let workload = scene.bench.server.get("statefulsets/prod-gateway").unwrap();
        assert_eq!(workload["metadata"]["ownerReferences"], json!([]));
    }
}

/// Kubernetes has deleted its objects before the pipeline itself, and lets nothing be made.
#[tokio::test]
async fn a_pipeline_whose_namespace_is_deleted_says_so_at_once() {
    let bench = Bench::start().await;
    bench.create("prod");
    let refusal = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": "statefulsets.apps is forbidden: unable to create new content in namespace tracing because it is being terminated",
        "details": {"causes": [{
            "reason": "NamespaceTerminating", "message": "namespace tracing is being terminated", "field": "metadata.namespace",
        }]},
    });
    bench.server.refuse_saying("statefulsets/prod-gateway PATCH", 403, refusal);
    bench.fail("prod").await;
    assert_eq!(bench.condition("prod", "Ready"), "False Deleting");
    assert_eq!(bench.condition("prod", "Stalled"), "False Ok");
}

#[tokio::test]
async fn a_policy_that_is_changed_while_nothing_can_be_planned_counts() {
    let bench = Bench::start().await;
    let mut pipeline = bench.pipeline("prod");
    pipeline["spec"]["deletionPolicy"] = "Immediate".into();
    bench.server.put("tracepipelines/prod", pipeline);
    bench.settle("prod").await;
    bench.gateways_become_ready("prod");
    bench.settle("prod").await;
    let set = |suspend: bool, credentials: Value| {
        bench.server.change("tracepipelines/prod", |pipeline| {
            pipeline["metadata"]["finalizers"] = json!([]);
            pipeline["spec"]["deletionPolicy"] = "Drain".into();
            pipeline["spec"]["suspend"] = suspend.into();
            pipeline["spec"]["sink"]["clickhouse"]["credentials"] = credentials;
            let generation = pipeline["metadata"]["generation"].as_i64().unwrap();
            pipeline["metadata"]["generation"] = (generation + 1).into();
        });
    };
    let finalizers = || bench.server.get("tracepipelines/prod").unwrap()["metadata"]["finalizers"].clone();
    set(false, json!({"secretRef": {"name": "nowhere"}}));
    bench.settle("prod").await;
    assert_eq!(bench.condition("prod", "Ready"), "False SinkUnavailable");
    assert_eq!(finalizers(), json!(["sluice.dev/drain"]));
    set(true, Value::Null);
    bench.settle("prod").await;
    assert_eq!(finalizers(), json!(["sluice.dev/drain"]), "at rest");
}
