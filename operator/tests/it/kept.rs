//! Queue volumes of gateways that are removed for good. Kafka may already have deleted the messages whose rows are on a volume. So a volume
//! is deleted only if it is known to be empty, and the status names the volumes that stay.

use crate::{
    bench::NAMESPACE,
    scaling::{Scene, pass},
};
use serde_json::{Value, json};

/// `scaling.drain.timeout` when a spec does not say.
const LIMIT_SECONDS: u64 = 900;

/// Two gateways that answer, with a volume each.
async fn with_claims() -> Scene {
    let scene = Scene::with(2, json!({"mode": "Fixed"})).await;
    for ordinal in 0..2 {
        let name = format!("queue-prod-gateway-{ordinal}");
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {
                "app.kubernetes.io/name": "sluice-gateway", "app.kubernetes.io/instance": "prod",
                "app.kubernetes.io/component": "gateway",
            }},
            "spec": {"volumeName": "v", "resources": {"requests": {"storage": "10Gi"}}},
            "status": {"capacity": {"storage": "10Gi"}},
        });
        scene.bench.server.put(&format!("persistentvolumeclaims/{name}"), claim);
    }
    scene
}

impl Scene {
    fn claims(&self) -> Vec<String> {
        let claims = self.bench.server.list("persistentvolumeclaims");
        claims.iter().map(|claim| claim["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Its container ends as soon as it is started.
    fn crashes(&self, ordinal: usize) {
        self.bench.server.change(&format!("pods/prod-gateway-{ordinal}"), |pod| {
            pod["status"]["containerStatuses"][0]["state"] =
                json!({"waiting": {"reason": "CrashLoopBackOff"}});
        });
    }

    /// As after `deletionPolicy: Immediate`: the StatefulSet throws its claims away, and is among their owners.
    fn throws_claims_away(&self) {
        self.bench.server.change("statefulsets/prod-gateway", |workload| {
            workload["spec"]["persistentVolumeClaimRetentionPolicy"] =
                json!({"whenDeleted": "Delete", "whenScaled": "Retain"});
        });
        let owner =
            |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": name});
        for claim in self.claims() {
            self.bench.server.change(&format!("persistentvolumeclaims/{claim}"), |claim| {
                claim["metadata"]["ownerReferences"] =
                    json!([owner("StatefulSet", "prod-gateway"), owner("Backup", "nightly")]);
            });
        }
    }

    /// Kinds of the owners of a claim.
    fn owners(&self, ordinal: u32) -> Vec<String> {
        let claim = self.bench.server.get(&format!("persistentvolumeclaims/queue-prod-gateway-{ordinal}"));
        let owners = claim.unwrap()["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        owners.iter().map(|owner| owner["kind"].as_str().unwrap().to_owned()).collect()
    }

    /// Its pod finds no node, since its claim gets no volume.
    fn waits_for_a_volume(&self, ordinal: usize) {
        self.crashes(ordinal);
        let claim = format!("persistentvolumeclaims/queue-prod-gateway-{ordinal}");
        self.bench.server.change(&claim, |claim| {
            claim["spec"]["volumeName"] = Value::Null;
            claim["status"] = json!({"phase": "Pending"});
        });
    }

    /// What the StatefulSet does with claims.
    fn retention(&self) -> Value {
        let workload = self.bench.server.get("statefulsets/prod-gateway").unwrap();
        workload["spec"]["persistentVolumeClaimRetentionPolicy"].clone()
    }

    /// Reason and note of the event that was published last.
    fn last_event(&self) -> (String, String) {
        let event = self.bench.server.take_events().pop().unwrap();
        let word = |field: &str| event[field].as_str().unwrap().to_owned();
        (word("reason"), word("note"))
    }
}

#[tokio::test]
async fn a_deleted_pipeline_takes_its_empty_volumes_with_it() {
    let mut scene = with_claims().await;
    scene.delete();
    scene.by_many_operators(Scene::is_gone).await;
    assert_eq!(scene.claims(), Vec::<String>::new());
    assert_eq!(scene.last_event().0, "Drained");
}

#[tokio::test]
async fn a_volume_of_a_gateway_that_does_not_run_outlives_the_pipeline_and_is_named() {
    let mut scene = with_claims().await;
    scene.crashes(1);
    scene.delete();
    scene.by_many_operators(Scene::is_gone).await;
    assert_eq!(scene.claims(), ["queue-prod-gateway-1"]);
    let (reason, note) = scene.last_event();
    assert_eq!(reason, "DrainIncomplete");
    assert!(note.contains("queue volumes queue-prod-gateway-1, which may hold the only copy"), "{note}");
}

#[tokio::test]
async fn a_volume_that_is_not_empty_at_the_limit_outlives_the_pipeline_and_is_named() {
    let mut scene = with_claims().await;
    scene.pods.all[1].behaviour.lock().unwrap().blocks = 3;
    scene.delete();
    for _ in 0..3 {
        scene.bench.reconcile("prod").await.unwrap();
    }
    assert!(!scene.is_gone());
    pass(LIMIT_SECONDS);
    scene.by_many_operators(Scene::is_gone).await;
    assert_eq!(scene.claims(), ["queue-prod-gateway-1"]);
    let (reason, note) = scene.last_event();
    assert_eq!(reason, "DrainTimedOut");
    assert!(note.contains("queue-prod-gateway-1, which may hold the only copy"), "{note}");
}

#[tokio::test]
async fn a_gateway_that_may_commit_what_is_on_its_volume_keeps_it() {
    let mut scene = with_claims().await;
    let template = scene.bench.server.get("statefulsets/prod-gateway").unwrap()["spec"]["template"].clone();
    let volumes = template["spec"]["volumes"].as_array().unwrap();
    let config = volumes.iter().find_map(|volume| volume["configMap"]["name"].as_str()).unwrap();
    scene.bench.server.change(&format!("configmaps/{config}"), |config| {
        config["data"] = json!({"gateway.yaml": "delivery: {commit: AfterEnqueue}"});
    });
    scene.delete();
    scene.by_many_operators(Scene::is_gone).await;
    assert_eq!(scene.claims().len(), 2);
}

#[tokio::test]
async fn what_the_server_does_not_let_go_is_kept_and_named() {
    let mut scene = with_claims().await;
    scene.bench.server.refuse("persistentvolumeclaims/queue-prod-gateway-0 DELETE", 403);
    scene.delete();
    scene.by_many_operators(Scene::is_gone).await;
    assert_eq!(scene.claims(), ["queue-prod-gateway-0"]);
    assert!(scene.last_event().1.contains("except the queue volumes, which are empty"));
}

#[tokio::test]
async fn a_workload_of_an_operator_before_is_told_to_keep_its_claims_before_anybody_leaves() {
    let kept = json!({"whenDeleted": "Retain", "whenScaled": "Retain"});
    for is_deleted in [false, true] {
        let scene = with_claims().await;
        assert_eq!(scene.retention(), kept);
        scene.bench.server.change("statefulsets/prod-gateway", |workload| {
            workload["spec"]["persistentVolumeClaimRetentionPolicy"] =
                json!({"whenDeleted": "Delete", "whenScaled": "Delete"});
        });
        // It cannot be planned any more, so that its objects are not applied.
        scene.change_spec(|spec| {
            spec["suspend"] = true.into();
            spec["source"]["kafka"]["topics"] = json!(["another"]);
        });
        if is_deleted {
            scene.delete();
        }
        scene.bench.reconcile("prod").await.unwrap();
        assert_eq!((scene.retention(), scene.replicas()), (kept.clone(), 2), "{is_deleted}");
    }
}

#[tokio::test]
async fn whoever_wants_everything_gone_at_once_waits_for_no_claim() {
    let mut scene = with_claims().await;
    scene.bench.server.change("statefulsets/prod-gateway", |workload| {
        workload["spec"]["persistentVolumeClaimRetentionPolicy"] =
            json!({"whenDeleted": "Delete", "whenScaled": "Delete"});
    });
    scene.bench.server.refuse("statefulsets/prod-gateway PATCH", 422);
    scene.delete();
    scene.change_spec(|spec| spec["deletionPolicy"] = "Immediate".into());
    scene.by_many_operators(Scene::is_gone).await;
    assert!(scene.last_event().1.contains("Kafka no longer has"));
}

#[tokio::test]
async fn volumes_of_a_pipeline_that_rests_outlive_it_and_are_named() {
    let mut scene = with_claims().await;
    scene.change_spec(|spec| spec["suspend"] = true.into());
    scene.by_many_operators(|scene| scene.replicas() == 0).await;
    scene.control().await;
    scene.delete();
    scene.by_many_operators(Scene::is_gone).await;
    assert_eq!((scene.claims().len(), scene.last_event().0), (2, "DrainIncomplete".to_owned()));
}

#[tokio::test]
async fn a_gateway_that_does_not_run_leaves_its_volume_to_a_job() {
    let mut scene = with_claims().await;
    scene.crashes(1);
    scene.change_spec(|spec| spec["replicas"] = 1.into());
    scene.by_many_operators(|scene| scene.replicas() == 1).await;
    scene.control().await;
    scene.by_many_operators(|scene| scene.bench.server.get("jobs/prod-drain-1").is_some()).await;
    assert_eq!(scene.claims().len(), 2);
}

#[tokio::test]
async fn a_volume_without_a_gateway_outlives_a_workload_that_is_told_to_keep_it() {
    let mut scene = with_claims().await;
    scene.change_spec(|spec| spec["suspend"] = true.into());
    scene.by_many_operators(|scene| scene.replicas() == 0).await;
    scene.control().await;
    scene.bench.settle("prod").await;
    scene.throws_claims_away();
    // First the StatefulSet is changed: otherwise it would add itself as an owner again.
    scene.bench.reconcile("prod").await.unwrap();
    assert_eq!(scene.owners(0), ["StatefulSet", "Backup"]);
    scene.bench.server.take_writes();
    let writes = scene.bench.settle("prod").await;
    let managers: Vec<&str> = writes.iter().map(|write| write.field_manager.as_str()).collect();
    assert_eq!(managers, ["sluice-operator/owners"; 2]);
    assert_eq!((scene.owners(0), scene.owners(1)), (vec!["Backup".to_owned()], vec!["Backup".to_owned()]));
}

#[tokio::test]
async fn volumes_of_gateways_that_run_are_left_to_kubernetes() {
    let scene = with_claims().await;
    scene.throws_claims_away();
    scene.bench.settle("prod").await;
    assert_eq!(scene.retention()["whenDeleted"], "Retain");
    assert_eq!(scene.owners(0), ["StatefulSet", "Backup"]);
}

#[tokio::test]
async fn a_deleted_pipeline_waits_until_no_volume_goes_with_its_workload() {
    for is_late in [false, true] {
        let mut scene = with_claims().await;
        scene.crashes(0);
        scene.crashes(1);
        scene.throws_claims_away();
        scene.delete();
        pass(if is_late { LIMIT_SECONDS } else { 0 });
        scene.bench.server.refuse("persistentvolumeclaims/queue-prod-gateway-1 PATCH", 500);
        while scene.bench.reconcile("prod").await.is_ok() {
            assert!(!scene.is_gone(), "with its volumes, {is_late}");
        }
        assert_eq!((scene.owners(0).len(), scene.owners(1).len()), (1, 2), "none keeps another waiting");
        scene.bench.server.relent();
        // Taken off, and seen to be.
        scene.bench.reconcile("prod").await.unwrap();
        assert!(!scene.is_gone(), "{is_late}");
        scene.by_many_operators(Scene::is_gone).await;
        assert_eq!((scene.claims().len(), scene.owners(1)), (2, vec!["Backup".to_owned()]), "{is_late}");
        let note = scene.last_event().1;
        assert!(
            note.contains("except the queue volumes queue-prod-gateway-0, queue-prod-gateway-1, which"),
            "{note}"
        );
    }
}

#[tokio::test]
async fn a_deleted_pipeline_waits_for_its_volumes_no_longer_than_a_minute_beyond_its_limit() {
    let mut scene = with_claims().await;
    scene.pods.each(|gateway| gateway.blocks = 1);
    scene.throws_claims_away();
    scene.delete();
    pass(LIMIT_SECONDS + 59);
    scene.bench.server.refuse("persistentvolumeclaims/queue-prod-gateway-1 PATCH", 500);
    scene.bench.reconcile("prod").await.unwrap();
    scene.bench.fail("prod").await;
    pass(1);
    scene.by_many_operators(Scene::is_gone).await;
    let (reason, note) = scene.last_event();
    assert_eq!(reason, "DrainTimedOut");
    assert!(note.contains("also the queue volumes, which may hold rows"), "{note}");
}

#[tokio::test]
async fn an_operator_that_comes_when_all_time_is_over_still_keeps_the_volumes() {
    let scene = with_claims().await;
    scene.pods.each(|gateway| gateway.blocks = 1);
    scene.throws_claims_away();
    scene.delete();
    pass(LIMIT_SECONDS * 2);
    scene.bench.reconcile("prod").await.unwrap();
    assert!(scene.is_gone());
    assert_eq!(
        (scene.retention()["whenDeleted"].clone(), scene.owners(0)),
        ("Retain".into(), vec!["Backup".to_owned()])
    );
    assert!(scene.last_event().1.contains("which may hold the only copy"));
}

#[tokio::test]
async fn a_claim_that_never_had_a_volume_goes_with_its_pipeline_and_is_not_made_again() {
    let mut scene = with_claims().await;
    scene.waits_for_a_volume(1);
    scene.change_spec(|spec| spec["queue"] = json!({"retentionPolicy": {"whenDeleted": "Retain"}}));
    scene.delete();
    scene.bench.server.take_writes();
    scene.by_many_operators(Scene::is_gone).await;
    assert_eq!(scene.claims(), ["queue-prod-gateway-0"]);
    let writes = scene.bench.server.take_writes();
    let deleted = writes.iter().filter(|write| write.method == "DELETE");
    let deleted: Vec<&str> = deleted.map(|write| write.what.as_str()).collect();
    assert_eq!((deleted.len(), deleted[0]), (4, "statefulsets/prod-gateway"), "{deleted:?}");
    assert!(deleted[1..3].iter().all(|what| what.starts_with("pods/")), "{deleted:?}");
    assert_eq!(
        deleted[3], "persistentvolumeclaims/queue-prod-gateway-1",
        "nobody is left who would make it again"
    );
}

#[tokio::test]
async fn a_claim_that_never_had_a_volume_and_may_not_be_deleted_is_named() {
    for policy in ["Drain", "Immediate"] {
        let mut scene = with_claims().await;
        scene.waits_for_a_volume(1);
        scene.bench.server.refuse("persistentvolumeclaims/queue-prod-gateway-1 DELETE", 403);
        scene.delete();
        scene.change_spec(|spec| spec["deletionPolicy"] = policy.into());
        scene.by_many_operators(Scene::is_gone).await;
        let note = scene.last_event().1;
        assert!(note.contains("The claims queue-prod-gateway-1 never had a volume"), "{policy}: {note}");
    }
}
