//! Argo CD that tracks by label leaves queue volumes, and what an orphaned pipeline leaves behind, alone.

use crate::bench::{Bench, NAMESPACE};
use serde_json::{Value, json};

const SYNC: &str = "argocd.argoproj.io/sync-options";
const COMPARE: &str = "argocd.argoproj.io/compare-options";

/// A claim as Kubernetes makes it, of a gateway of a pipeline.
fn put_claim(bench: &Bench, name: &str, instance: &str, annotations: &Value) {
    let labels = json!({
        "app.kubernetes.io/name": "sluice-gateway", "app.kubernetes.io/instance": instance,
        "app.kubernetes.io/component": "gateway",
    });
    bench.server.put(
        &format!("persistentvolumeclaims/{name}"),
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels, "annotations": annotations},
            "spec": {"volumeName": "v", "resources": {"requests": {"storage": "10Gi"}}},
            "status": {"capacity": {"storage": "10Gi"}},
        }),
    );
}

/// Argo CD's options on a claim.
fn options(bench: &Bench, claim: &str) -> [Option<String>; 2] {
    let claim = bench.server.get(&format!("persistentvolumeclaims/{claim}")).unwrap();
    [SYNC, COMPARE].map(|key| claim["metadata"]["annotations"][key].as_str().map(str::to_owned))
}

fn ours() -> [Option<String>; 2] {
    [Some("Prune=false,Delete=false".into()), Some("IgnoreExtraneous".into())]
}

#[tokio::test]
async fn argo_cd_is_told_to_leave_each_claim_alone_once() {
    let bench = Bench::start().await;
    bench.create("prod");
    bench.settle("prod").await;
    // Of an operator before this, of a person who has options of their own, of one that ends, and none of ours.
    put_claim(&bench, "queue-prod-gateway-0", "prod", &json!({}));
    put_claim(&bench, "queue-prod-gateway-1", "prod", &json!({SYNC: "ServerSideApply=true"}));
    put_claim(&bench, "queue-prod-gateway-2", "prod", &json!({}));
    bench.server.change("persistentvolumeclaims/queue-prod-gateway-2", |claim| {
        claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    });
    put_claim(&bench, "queue-other-gateway-0", "other", &json!({}));
    put_claim(&bench, "data-prod-gateway-0", "prod", &json!({}));
    bench.settle("prod").await;
    assert_eq!(options(&bench, "queue-prod-gateway-0"), ours());
    let [_, compare] = ours();
    assert_eq!(options(&bench, "queue-prod-gateway-1"), [Some("ServerSideApply=true".into()), compare]);
    for claim in ["queue-prod-gateway-2", "queue-other-gateway-0", "data-prod-gateway-0"] {
        assert_eq!(options(&bench, claim), [None, None], "{claim}");
    }
    // A gateway that is added gets a new claim; nothing else is written for it.
    put_claim(&bench, "queue-prod-gateway-3", "prod", &json!({}));
    let managers: Vec<_> = bench.settle("prod").await.into_iter().map(|write| write.field_manager).collect();
    let guards = managers.iter().filter(|manager| *manager == "sluice-operator/argocd").count();
    assert_eq!((options(&bench, "queue-prod-gateway-3"), guards), (ours(), 1), "{managers:?}");
}

/// The scheduler and the provisioner write the version of a new claim that they have read, and fail if another one is there.
#[tokio::test]
async fn a_claim_is_written_when_it_is_bound_and_not_before() {
    let bench = Bench::start().await;
    bench.create("prod");
    bench.settle("prod").await;
    let claim = "persistentvolumeclaims/queue-prod-gateway-0";
    put_claim(&bench, "queue-prod-gateway-0", "prod", &json!({}));
    for (volume, phase, expected) in [
        (Value::Null, "Pending", [None, None]),
        // The volume is chosen, and the controller is about to confirm it.
        ("v".into(), "Pending", [None, None]),
        ("v".into(), "Bound", ours()),
    ] {
        bench.server.change(claim, |claim| {
            claim["spec"]["volumeName"] = volume.clone();
            claim["status"]["phase"] = phase.into();
        });
        bench.settle("prod").await;
        assert_eq!(options(&bench, "queue-prod-gateway-0"), expected, "{volume} {phase}");
    }
}

#[tokio::test]
async fn claims_are_kept_from_argo_cd_whatever_the_spec_says_but_that_they_are_to_be_left_alone() {
    for (change, is_guarded) in [
        (json!({"suspend": true}), true),
        (json!({"queue": {"mode": "Disabled"}}), true),
        (json!({"gateway": {"workers": 64, "resources": {"memory": "128Mi"}}}), true),
        (json!({"managementState": "Unmanaged"}), false),
    ] {
        let bench = Bench::start().await;
        let mut pipeline = bench.pipeline("prod");
        for (field, value) in change.as_object().unwrap() {
            pipeline["spec"][field] = value.clone();
        }
        bench.server.put("tracepipelines/prod", pipeline);
        put_claim(&bench, "queue-prod-gateway-0", "prod", &json!({}));
        bench.reconcile("prod").await.unwrap();
        let expected = if is_guarded { ours() } else { [None, None] };
        assert_eq!(options(&bench, "queue-prod-gateway-0"), expected, "{change}");
    }
}

#[tokio::test]
async fn a_claim_that_cannot_be_written_keeps_nothing_else_waiting() {
    let bench = Bench::start().await;
    bench.create("prod");
    put_claim(&bench, "queue-prod-gateway-0", "prod", &json!({}));
    put_claim(&bench, "queue-prod-gateway-1", "prod", &json!({}));
    bench.server.refuse("persistentvolumeclaims/queue-prod-gateway-0 PATCH", 403);
    bench.reconcile("prod").await.unwrap();
    assert!(bench.server.get("statefulsets/prod-gateway").is_some());
    assert_eq!(options(&bench, "queue-prod-gateway-0"), [None, None]);
}
