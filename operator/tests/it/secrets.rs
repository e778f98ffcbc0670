//! Which changes of a Secret replace gateways: those of what gateways use of it, and no others.

use crate::bench::{Bench, NAMESPACE};
use serde_json::{Value, json};

/// A pipeline whose every connection to `ClickHouse` is by one Secret, which it uses in two ways; and its gateways are there.
struct Scene {
    bench: Bench,
}

impl Scene {
    async fn start() -> Self {
        let bench = Bench::start().await;
        let mut pipeline = bench.pipeline("prod");
        let clickhouse = &mut pipeline["spec"]["sink"]["clickhouse"];
        clickhouse["endpoints"] = json!(["https://clickhouse:8443"]);
        clickhouse["schema"] = json!({"management": "Validate"});
        clickhouse["tls"] =
            json!({"caSecretRef": {"name": "tls"}, "clientCertificateSecretRef": {"name": "tls"}});
        bench.server.put("tracepipelines/prod", pipeline);
        bench.server.put("secrets/tls", secret());
        let scene = Self { bench };
        scene.settle().await;
        scene.job_succeeds().await;
        scene.bench.gateways_become_ready("prod");
        scene.settle().await;
        scene
    }

    /// The schema Job that the table was compared by last; the operator deletes those before.
    fn job(&self) -> String {
        let jobs = self.bench.server.list("jobs");
        assert_eq!(jobs.len(), 1, "{jobs:?}");
        jobs[0]["metadata"]["name"].as_str().unwrap().to_owned()
    }

    async fn job_succeeds(&self) {
        self.bench.server.change(&format!("jobs/{}", self.job()), |job| {
            job["status"] = json!({"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]});
        });
        self.settle().await;
    }

    fn workload(&self) -> Value {
        self.bench.server.get("statefulsets/prod-gateway").unwrap()
    }

    fn template(&self) -> Value {
        self.workload()["spec"]["template"].clone()
    }

    /// Uses whose version outlived its object, as the StatefulSet notes them.
    fn kept(&self) -> Vec<String> {
        let noted = self.workload()["metadata"]["annotations"]["sluice.dev/secrets-kept"].clone();
        let noted: Value = serde_json::from_str(noted.as_str().unwrap_or("{}")).unwrap();
        noted.as_object().unwrap().keys().cloned().collect()
    }

    /// Looks until nothing is written any more, and gives what was.
    async fn change(&self, change: impl FnOnce(&mut Value)) -> Vec<String> {
        self.bench.server.change("secrets/tls", change);
        self.settle().await
    }

    async fn settle(&self) -> Vec<String> {
        let writes = self.bench.settle("prod").await;
        writes.into_iter().map(|write| write.what).filter(|what| what != "events").collect()
    }
}

fn secret() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tls", "namespace": NAMESPACE},
        "data": {"ca.crt": "Y2E=", "tls.crt": "Y2VydA==", "tls.key": "a2V5", "other": "b3RoZXI="},
    })
}

#[tokio::test]
async fn labels_annotations_and_keys_that_are_not_used_replace_no_gateway() {
    let mut scene = Scene::start().await;
    let template = scene.template();
    let changes: [fn(&mut Value); 4] = [
        |secret| secret["metadata"]["labels"] = json!({"team": "traces"}),
        |secret| secret["metadata"]["annotations"] = json!({"checked-at": "2026-01-01"}),
        |secret| secret["data"]["other"] = "YW5vdGhlcg==".into(),
        |secret| secret["data"]["keystore.jks"] = "amtz".into(),
    ];
    for change in changes {
        assert_eq!(scene.change(change).await, ["statefulsets/prod-gateway"], "a note, and no other Job");
        assert_eq!(scene.template(), template);
        assert_eq!(scene.kept(), ["clickhouse-ca", "clickhouse-certificate"]);
        // The next operator reads there what this one remembers.
        scene.bench.restart();
        assert_eq!(scene.settle().await, [] as [&str; 0]);
        assert_eq!(scene.template(), template);
    }
}

#[tokio::test]
async fn a_key_that_is_used_replaces_gateways_also_after_changes_that_did_not() {
    let scene = Scene::start().await;
    let (template, job) = (scene.template(), scene.job());
    scene.change(|secret| secret["metadata"]["labels"] = json!({"team": "traces"})).await;
    scene.change(|secret| secret["data"]["tls.crt"] = "YW5vdGhlcg==".into()).await;
    assert_ne!(scene.job(), job, "the table is compared with the new certificate first");
    scene.job_succeeds().await;
    assert_ne!(scene.template(), template);
    assert_eq!(scene.kept(), ["clickhouse-ca"], "the authorities are those that they were");
}

/// A wrong password is corrected before any gateway got it: the schema Job refuses it.
#[tokio::test]
async fn a_content_that_comes_back_before_a_gateway_had_another_one_replaces_no_gateway() {
    let old = "2026-01-01T00:00:00Z";
    let just_now = "2999-01-01T00:00:00Z";
    for (started, is_replaced) in [(None, false), (Some(old), false), (Some(just_now), true)] {
        let scene = Scene::start().await;
        let template = scene.template();
        if let Some(started) = started {
            scene.bench.server.put("pods/prod-gateway-0", gateway(started));
            scene.settle().await;
        }
        scene.change(|secret| secret["data"]["tls.crt"] = "d3Jvbmc=".into()).await;
        scene.change(|secret| secret["data"]["tls.crt"] = "Y2VydA==".into()).await;
        scene.job_succeeds().await;
        assert_eq!(scene.template() != template, is_replaced, "{started:?}");
    }
}

/// The first gateway's pod, whose process began then.
fn gateway(started: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "prod-gateway-0", "namespace": NAMESPACE, "uid": "of-the-pod",
            "labels": {
                "app.kubernetes.io/managed-by": "sluice-operator", "app.kubernetes.io/instance": "prod",
                "app.kubernetes.io/component": "gateway",
            },
        },
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{
                "name": "gateway", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "state": {"running": {"startedAt": started}},
            }],
        },
    })
}

#[tokio::test]
async fn a_secret_that_is_made_again_with_the_same_content_replaces_no_gateway() {
    let scene = Scene::start().await;
    let template = scene.template();
    scene.bench.server.remove("secrets/tls");
    scene.settle().await;
    assert_eq!(scene.bench.condition("prod", "SinkReachable"), "False SecretMissing");
    let mut again = secret();
    again["metadata"]["uid"] = "another".into();
    let whole = again["data"].clone();
    again["data"].as_object_mut().unwrap().remove("tls.key");
    scene.bench.server.put("secrets/tls", again);
    scene.settle().await;
    assert_eq!(scene.bench.condition("prod", "SinkReachable"), "False SecretIncomplete");
    scene.bench.server.take_reads();
    scene.settle().await;
    assert!(!scene.bench.server.take_reads().contains(&"secrets/tls".to_owned()), "at rest it is not read");
    scene.change(|secret| secret["data"] = whole).await;
    assert_eq!((scene.template(), scene.kept().len()), (template, 2));
}

#[tokio::test]
async fn what_changed_while_no_operator_looked_is_another_version() {
    let mut scene = Scene::start().await;
    scene.change(|secret| secret["metadata"]["labels"] = json!({"team": "traces"})).await;
    let (template, job) = (scene.template(), scene.job());
    scene.bench.restart();
    scene.change(|secret| secret["metadata"]["labels"] = json!({"team": "others"})).await;
    assert_ne!(scene.job(), job, "nobody can tell that it was the labels alone");
    scene.job_succeeds().await;
    assert_ne!(scene.template(), template);
    assert_eq!(scene.kept(), [] as [&str; 0], "the object's own version is noted nowhere");
}
