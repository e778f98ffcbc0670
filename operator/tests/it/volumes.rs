//! Queue volumes: they grow around gateways that run, and those without a gateway are drained before they go. The operator is cut off
//! after each write in turn.

use crate::{
    api_server::Write,
    bench::{Bench, NAMESPACE},
};
use serde_json::{Value, json};
use sluice_crds::TracePipeline;
use sluice_operator::{read::observe::observe, volumes::grow::make_anew};
use sluice_plan::{Planned, Unresolved, plan};

const GIB: [&str; 2] = ["1Gi", "2Gi"];

/// A pipeline of two gateways with volumes of 1Gi, all running; `change` is made to its spec before.
async fn running(change: impl FnOnce(&mut Value)) -> Bench {
    let bench = Bench::start().await;
    let mut pipeline = bench.pipeline("prod");
    pipeline["spec"]["queue"] = json!({"size": GIB[0]});
    change(&mut pipeline["spec"]);
    bench.server.put("tracepipelines/prod", pipeline);
    bench.settle("prod").await;
    for ordinal in 0..2 {
        put_claim(&bench, ordinal);
        put_pod(&bench, ordinal);
    }
    bench.server.put(
        "storageclasses/fast",
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"},
            "provisioner": "p", "allowVolumeExpansion": true}),
    );
    bench.gateways_become_ready("prod");
    bench.settle("prod").await;
    assert_eq!(bench.condition("prod", "Ready"), "True Running");
    bench
}

fn put_claim(bench: &Bench, ordinal: u32) {
    let name = format!("queue-prod-gateway-{ordinal}");
    bench.server.put(
        &format!("persistentvolumeclaims/{name}"),
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {
                "app.kubernetes.io/name": "sluice-gateway", "app.kubernetes.io/instance": "prod",
                "app.kubernetes.io/component": "gateway",
            }},
            "spec": {
                "storageClassName": "fast", "volumeName": "v",
                "resources": {"requests": {"storage": GIB[0]}},
            },
            "status": {"capacity": {"storage": GIB[0]}},
        }),
    );
}

/// A gateway that cannot be asked, since it has no address.
fn put_pod(bench: &Bench, ordinal: u32) {
    let name = format!("prod-gateway-{ordinal}");
    bench.server.put(
        &format!("pods/{name}"),
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {
                "app.kubernetes.io/managed-by": "sluice-operator", "app.kubernetes.io/instance": "prod",
                "app.kubernetes.io/component": "gateway",
            }},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        }),
    );
}

fn change(bench: &Bench, change: impl FnOnce(&mut Value)) {
    bench.server.change("tracepipelines/prod", |pipeline| {
        change(&mut pipeline["spec"]);
        let generation = pipeline["metadata"]["generation"].as_i64().unwrap();
        pipeline["metadata"]["generation"] = (generation + 1).into();
    });
}

fn claim(bench: &Bench, ordinal: u32) -> Value {
    bench.server.get(&format!("persistentvolumeclaims/queue-prod-gateway-{ordinal}")).unwrap_or_default()
}

fn requested(bench: &Bench) -> Vec<Value> {
    (0..2).map(|ordinal| claim(bench, ordinal)["spec"]["resources"]["requests"]["storage"].clone()).collect()
}

/// What a resizer does.
fn resize(bench: &Bench) {
    for ordinal in 0..2 {
        bench.server.change(&format!("persistentvolumeclaims/queue-prod-gateway-{ordinal}"), |claim| {
            claim["status"]["capacity"]["storage"] =
                claim["spec"]["resources"]["requests"]["storage"].clone();
        });
    }
}

fn template(bench: &Bench) -> Value {
    let workload = bench.server.get("statefulsets/prod-gateway").unwrap_or_default();
    workload["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"].clone()
}

fn of_kind<'a>(writes: &'a [Write], kind: &str) -> Vec<&'a Write> {
    writes.iter().filter(|write| write.what.starts_with(kind)).collect()
}

#[tokio::test]
pub async fn claims_grow_and_the_workload_is_made_anew_without_its_pods() {
    let bench = running(|_| {}).await;
    change(&bench, |spec| spec["queue"]["size"] = GIB[1].into());
    bench.reconcile("prod").await.unwrap();
    assert_eq!(requested(&bench), [GIB[1], GIB[1]]);
    assert_eq!(template(&bench), GIB[0], "claims first");
    assert_eq!(bench.condition("prod", "VolumesResized"), "False Resizing");
    let writes = bench.server.take_writes();
    let managers: Vec<_> =
        of_kind(&writes, "persistentvolumeclaims").iter().map(|write| write.field_manager.as_str()).collect();
    assert_eq!(managers, ["sluice-operator/volumes"; 2]);
    bench.reconcile("prod").await.unwrap();
    let writes = bench.server.take_writes();
    let deleted = of_kind(&writes, "statefulsets");
    assert_eq!((deleted.len(), deleted[0].method.as_str()), (1, "DELETE"));
    assert_eq!(deleted[0].propagation, "Orphan");
    assert!(of_kind(&writes, "pods").is_empty());
    bench.settle("prod").await;
    bench.gateways_become_ready("prod");
    assert_eq!(template(&bench), GIB[1]);
    assert_eq!(bench.server.get("statefulsets/prod-gateway").unwrap()["spec"]["replicas"], 2);
    bench.settle("prod").await;
    assert_eq!(bench.condition("prod", "VolumesResized"), "False Resizing");
    assert_eq!(bench.condition("prod", "Reconciling"), "True ResizingVolumes");
    resize(&bench);
    bench.settle("prod").await;
    assert_eq!(bench.condition("prod", "VolumesResized"), "True UpToDate");
    assert_eq!(bench.condition("prod", "Ready"), "True Running");
    let status = bench.server.get("tracepipelines/prod").unwrap()["status"]["volumes"].clone();
    assert_eq!(status, json!({"desired": GIB[1], "resized": 2, "pending": 0, "drained": 0, "orphaned": 0}));
}

#[tokio::test]
async fn growing_goes_on_from_wherever_the_operator_was_cut_off() {
    for writes_before in 0..12 {
        let mut bench = running(|spec| spec["scaling"] = json!({"mode": "Auto", "minReplicas": 2})).await;
        change(&bench, |spec| spec["queue"]["size"] = GIB[1].into());
        bench.server.cut_off_after(writes_before);
        for _ in 0..4 {
            // Cut off or not: the next operator knows nothing of it.
            drop(bench.reconcile("prod").await);
        }
        bench.server.go_on();
        bench.restart();
        for _ in 0..3 {
            bench.reconcile("prod").await.unwrap();
            if bench.server.get("statefulsets/prod-gateway").is_some() {
                bench.gateways_become_ready("prod");
            }
        }
        resize(&bench);
        bench.settle("prod").await;
        let workload = bench.server.get("statefulsets/prod-gateway").unwrap();
        assert_eq!(workload["spec"]["replicas"], 2, "after {writes_before} writes");
        assert_eq!(template(&bench), GIB[1], "after {writes_before} writes");
        assert_eq!(
            bench.condition("prod", "VolumesResized"),
            "True UpToDate",
            "after {writes_before} writes"
        );
    }
}

/// Looks at the pipeline, lets something happen, and makes the workload anew.
async fn made_anew(bench: &Bench, meanwhile: impl FnOnce(&Bench)) {
    let world = bench.world();
    let pipeline = bench.server.get("tracepipelines/prod").unwrap();
    let pipeline: TracePipeline = serde_json::from_value(pipeline).unwrap();
    let facts = observe((&pipeline, Unresolved::default()), &world, &bench.sources).await.unwrap();
    let Ok(Planned::Ready(plan)) = plan(&pipeline, &facts.observed, &world.shared.defaults) else {
        panic!("nothing is planned")
    };
    meanwhile(bench);
    make_anew(&plan, facts.stateful_set.as_deref(), &world).await.unwrap();
}

#[tokio::test]
async fn a_workload_that_changed_since_it_was_looked_at_is_not_made_anew() {
    let bench = running(|_| {}).await;
    change(&bench, |spec| spec["queue"]["size"] = GIB[1].into());
    bench.reconcile("prod").await.unwrap();
    let is_there = || bench.server.get("statefulsets/prod-gateway").is_some();
    // Such as one that was given another template, and remembers the one before.
    made_anew(&bench, |bench| {
        bench.server.change("statefulsets/prod-gateway", |workload| {
            workload["metadata"]["annotations"]["sluice.dev/proved-template"] = "{}".into();
        });
    })
    .await;
    assert!(is_there());
    made_anew(&bench, |_| {}).await;
    assert!(!is_there());
}

#[tokio::test]
async fn a_class_that_lets_nothing_grow_is_said_once_and_nothing_is_written() {
    let bench = running(|_| {}).await;
    bench.server.change("storageclasses/fast", |class| class["allowVolumeExpansion"] = false.into());
    let before = bench.server.get("statefulsets/prod-gateway");
    change(&bench, |spec| spec["queue"]["size"] = GIB[1].into());
    let writes = bench.settle("prod").await;
    assert!(writes.iter().all(|write| write.what.starts_with("tracepipelines") || write.what == "events"));
    assert_eq!(bench.server.get("statefulsets/prod-gateway"), before);
    for (kind, expected) in [
        ("VolumesResized", "False NotExpandable"),
        ("Ready", "False NotExpandable"),
        ("Stalled", "True NotExpandable"),
    ] {
        assert_eq!(bench.condition("prod", kind), expected);
    }
    // Without the right to look at classes the API server's refusal says the same, and the rest of the spec is carried out.
    bench.server.refuse("storageclasses", 403);
    bench.server.refuse("persistentvolumeclaims", 422);
    change(&bench, |spec| spec["gateway"] = json!({"logLevel": "debug"}));
    bench.reconcile("prod").await.unwrap();
    assert_eq!(bench.condition("prod", "VolumesResized"), "False NotExpandable");
    assert_ne!(bench.server.get("statefulsets/prod-gateway"), before);
    assert_eq!(template(&bench), GIB[0]);
}

/// Two gateways become one, and the claim of the other stays.
async fn left_behind(bench: &Bench) {
    change(bench, |spec| spec["replicas"] = 1.into());
    bench.server.remove("pods/prod-gateway-1");
    bench.reconcile("prod").await.unwrap();
    bench.gateways_become_ready("prod");
    bench.reconcile("prod").await.unwrap();
}

fn job_ends(bench: &Bench, how: &str, at: &str) {
    bench.server.change("jobs/prod-drain-1", |job| {
        job["status"] =
            json!({"conditions": [{"type": how, "status": "True", "lastTransitionTime": at, "message": "late"}]});
    });
}

fn retained(scaled: &str) -> impl FnOnce(&mut Value) {
    let scaled = scaled.to_owned();
    move |spec| {
        spec["queue"]["retentionPolicy"] = json!({"whenScaled": scaled});
        spec["scaling"] = json!({"drain": {"onTimeout": "Job"}});
    }
}

#[tokio::test]
pub async fn a_volume_without_a_gateway_is_drained_and_then_goes_or_stays() {
    for (policy, stays) in [("Delete", false), ("Retain", true)] {
        let bench = running(retained(policy)).await;
        left_behind(&bench).await;
        let job = bench.server.get("jobs/prod-drain-1").unwrap();
        let claim_of = &job["spec"]["template"]["spec"]["volumes"][1]["persistentVolumeClaim"]["claimName"];
        assert_eq!(claim_of, "queue-prod-gateway-1");
        bench.settle("prod").await;
        assert_eq!(bench.condition("prod", "VolumesDrained"), "False Draining");
        // Servers are away: it is run again.
        job_ends(&bench, "Failed", "2026-01-01T00:00:00Z");
        bench.reconcile("prod").await.unwrap();
        assert_eq!(bench.condition("prod", "VolumesDrained"), "False DrainFailed");
        assert!(bench.server.get("jobs/prod-drain-1").is_none());
        bench.settle("prod").await;
        job_ends(&bench, "Complete", "2026-01-01T00:00:00Z");
        bench.server.take_writes();
        let writes = bench.settle("prod").await;
        assert_eq!(claim(&bench, 1).is_null(), !stays, "{policy}");
        let on_claim = of_kind(&writes, "persistentvolumeclaims");
        assert_eq!(on_claim[0].field_manager, "sluice-operator/drained", "marked before anything else");
        assert_eq!(on_claim.len(), if stays { 1 } else { 2 });
        assert!(bench.server.get("jobs/prod-drain-1").is_none(), "{policy}");
        assert_eq!(bench.condition("prod", "VolumesDrained"), "True Ok");
        let status = bench.server.get("tracepipelines/prod").unwrap()["status"]["volumes"].clone();
        assert_eq!((&status["drained"], &status["orphaned"]), (&u32::from(stays).into(), &0.into()));
    }
}

/// It was left behind by a pipeline of the same name, or is on its way out: what it found, it found before a gateway used the volume again.
#[tokio::test]
async fn a_job_that_is_there_already_is_not_taken_for_the_one_that_is_wanted() {
    for is_going in [false, true] {
        let bench = running(retained("Delete")).await;
        left_behind(&bench).await;
        let mut old = bench.server.get("jobs/prod-drain-1").unwrap();
        change(&bench, |spec| spec["replicas"] = 2.into());
        bench.settle("prod").await;
        put_pod(&bench, 1);
        bench.gateways_become_ready("prod");
        bench.settle("prod").await;
        assert!(bench.server.get("jobs/prod-drain-1").is_none());
        old["status"] = json!({"conditions": [{"type": "Complete", "status": "True"}]});
        old["metadata"]["uid"] = "old".into();
        old["metadata"]["annotations"]["sluice.dev/workload-version"] = "another".into();
        old["metadata"]["ownerReferences"] = json!([]);
        if is_going {
            old["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            old["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
        }
        bench.server.put("jobs/prod-drain-1", old);
        left_behind(&bench).await;
        bench.settle("prod").await;
        assert!(!claim(&bench, 1).is_null(), "deleted before it was drained");
        assert!(claim(&bench, 1)["metadata"]["labels"]["sluice.dev/drained"].is_null());
        if is_going {
            let there = bench.server.get("jobs/prod-drain-1").unwrap();
            assert_eq!(there["metadata"]["uid"], "old", "it is waited for");
            bench.server.remove("jobs/prod-drain-1");
            bench.settle("prod").await;
        }
        let there = bench.server.get("jobs/prod-drain-1").unwrap();
        assert_ne!(there["metadata"]["uid"], "old");
        assert!(there["status"].is_null());
        job_ends(&bench, "Complete", "2026-01-01T00:00:00Z");
        bench.settle("prod").await;
        assert!(claim(&bench, 1).is_null());
    }
}

#[tokio::test]
async fn draining_goes_on_from_wherever_the_operator_was_cut_off() {
    for writes_before in 0..8 {
        let mut bench = running(retained("Delete")).await;
        bench.server.cut_off_after(writes_before);
        change(&bench, |spec| spec["replicas"] = 1.into());
        bench.server.remove("pods/prod-gateway-1");
        for _ in 0..3 {
            drop(bench.reconcile("prod").await);
        }
        bench.server.go_on();
        bench.restart();
        for _ in 0..8 {
            bench.gateways_become_ready("prod");
            bench.reconcile("prod").await.unwrap();
            if bench.server.get("jobs/prod-drain-1").is_some_and(|job| job["status"].is_null()) {
                assert!(!claim(&bench, 1).is_null(), "deleted before it was drained");
                job_ends(&bench, "Complete", "2026-01-01T00:00:00Z");
            }
        }
        assert!(claim(&bench, 1).is_null(), "after {writes_before} writes");
        assert!(bench.server.list("jobs").is_empty(), "after {writes_before} writes");
    }
}

#[tokio::test]
async fn a_gateway_that_is_wanted_again_waits_for_the_job_that_has_its_volume() {
    let bench = running(retained("Delete")).await;
    left_behind(&bench).await;
    assert!(bench.server.get("jobs/prod-drain-1").is_some());
    bench.server.take_writes();
    change(&bench, |spec| spec["replicas"] = 2.into());
    bench.reconcile("prod").await.unwrap();
    let writes = bench.server.take_writes();
    let ended = of_kind(&writes, "jobs");
    assert_eq!((ended.len(), ended[0].propagation.as_str()), (1, "Foreground"));
    let replicas = || bench.server.get("statefulsets/prod-gateway").unwrap()["spec"]["replicas"].clone();
    assert_eq!(replicas(), 1, "the Job was there when this began");
    bench.settle("prod").await;
    assert_eq!(replicas(), 2);
}

#[tokio::test]
async fn what_a_gateway_has_meanwhile_is_not_touched() {
    let bench = running(retained("Delete")).await;
    change(&bench, |spec| spec["replicas"] = 1.into());
    bench.reconcile("prod").await.unwrap();
    bench.gateways_become_ready("prod");
    // The copies do not have the pod yet; the server has.
    bench.server.change("pods/prod-gateway-1", |pod| pod["metadata"]["labels"] = json!({}));
    bench.settle("prod").await;
    assert!(bench.server.list("jobs").is_empty());
    assert!(!claim(&bench, 1).is_null());
}

#[tokio::test]
async fn without_the_right_to_delete_claims_drained_ones_are_kept() {
    let bench = running(retained("Delete")).await;
    left_behind(&bench).await;
    job_ends(&bench, "Complete", "2026-01-01T00:00:00Z");
    bench.reconcile("prod").await.unwrap();
    assert_eq!(claim(&bench, 1)["metadata"]["labels"]["sluice.dev/drained"], "true");
    bench.server.refuse("persistentvolumeclaims/queue-prod-gateway-1 DELETE", 403);
    bench.settle("prod").await;
    assert!(!claim(&bench, 1).is_null());
    assert!(bench.server.get("jobs/prod-drain-1").is_none(), "the note says that it needs none");
    assert_eq!(bench.condition("prod", "VolumesDrained"), "True NotDeleted");
    // It is neither asked for at each look, nor drained again when others are scaled.
    bench.reconcile("prod").await.unwrap();
    assert_eq!(bench.server.take_writes(), []);
    bench
        .server
        .change("statefulsets/prod-gateway", |workload| workload["metadata"]["generation"] = 7.into());
    bench.gateways_become_ready("prod");
    bench.settle("prod").await;
    assert!(bench.server.list("jobs").is_empty());
    assert_eq!(bench.condition("prod", "VolumesDrained"), "True NotDeleted");
}

#[tokio::test]
async fn a_drained_claim_goes_once_it_may_be_deleted() {
    let mut bench = running(retained("Delete")).await;
    left_behind(&bench).await;
    job_ends(&bench, "Complete", "2026-01-01T00:00:00Z");
    bench.server.refuse("persistentvolumeclaims/queue-prod-gateway-1 DELETE", 403);
    bench.settle("prod").await;
    let note = || claim(&bench, 1)["metadata"]["annotations"]["sluice.dev/not-deleted"].clone();
    assert!(note().as_str().unwrap().contains("scripted"));
    bench.server.relent();
    bench.settle("prod").await;
    assert!(!note().is_null(), "it is asked once in a while");
    bench.restart();
    bench.settle("prod").await;
    // Another Job is needed: it is not known what has been put on the volume since.
    assert!(!claim(&bench, 1).is_null() && bench.server.get("jobs/prod-drain-1").is_some());
    job_ends(&bench, "Complete", "2026-01-01T00:00:00Z");
    bench.settle("prod").await;
    assert!(claim(&bench, 1).is_null());
    assert_eq!(bench.condition("prod", "VolumesDrained"), "True Ok");
}

#[tokio::test]
async fn a_gateway_that_uses_a_kept_volume_again_takes_the_note_away() {
    let bench = running(retained("Delete")).await;
    left_behind(&bench).await;
    job_ends(&bench, "Complete", "2026-01-01T00:00:00Z");
    bench.server.refuse("persistentvolumeclaims/queue-prod-gateway-1 DELETE", 403);
    bench.settle("prod").await;
    change(&bench, |spec| spec["replicas"] = 2.into());
    bench.settle("prod").await;
    let metadata = claim(&bench, 1)["metadata"].clone();
    assert!(metadata["annotations"]["sluice.dev/not-deleted"].is_null(), "{metadata}");
    assert!(metadata["labels"]["sluice.dev/drained"].is_null(), "{metadata}");
}
