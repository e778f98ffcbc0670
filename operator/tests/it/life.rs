//! A pipeline is suspended and comes back, is left alone and taken over, is deleted, and waits for another one: what is written,
//! by an operator that may end at every step.

use crate::{
    bench::{Bench, NAMESPACE},
    pods::Pods,
    scaling::{Scene, pass},
};
use serde_json::{Value, json};

/// Reconciles after which a drain must have come to its end.
const ROUNDS_MAX: usize = 12;
/// `scaling.drain.timeout` when a spec does not say.
const LIMIT_SECONDS: u64 = 900;
/// The kinds of objects that a pipeline of the bench has.
const KINDS: [&str; 7] = [
    "statefulsets",
    "configmaps",
    "services",
    "serviceaccounts",
    "poddisruptionbudgets",
    "networkpolicies",
    "podmonitors",
];

impl Scene {
    /// Reconciles by another operator each time until `done`, two seconds apart, and gives how many it took.
    pub async fn by_many_operators(&mut self, done: impl Fn(&Self) -> bool) -> usize {
        for round in 0..ROUNDS_MAX {
            if done(self) {
                return round;
            }
            self.bench.restart();
            pass(2);
            self.bench.reconcile("prod").await.unwrap();
        }
        panic!("not done after {ROUNDS_MAX} operators: {}", self.pipeline().unwrap_or_default()["status"])
    }

    pub fn pipeline(&self) -> Option<Value> {
        self.bench.server.get("tracepipelines/prod")
    }

    pub fn is_gone(&self) -> bool {
        self.pipeline().is_none()
    }

    /// What the API server does when a pipeline with a finalizer is deleted.
    pub fn delete(&self) {
        let now = crate::scaling::clock().0 / 1_000;
        let now = k8s_openapi::jiff::Timestamp::from_second(i64::try_from(now).unwrap()).unwrap();
        self.bench.server.change("tracepipelines/prod", |pipeline| {
            pipeline["metadata"]["deletionTimestamp"] = now.to_string().into();
        });
    }

    /// Reasons of the events that were published, oldest first.
    pub fn events(&self) -> Vec<String> {
        let writes = self.bench.server.take_events();
        writes.iter().filter_map(|event| Some(event["reason"].as_str()?.to_owned())).collect()
    }

    fn uids(&self) -> Vec<Value> {
        KINDS
            .iter()
            .flat_map(|kind| self.bench.server.list(kind))
            .map(|object| object["metadata"]["uid"].clone())
            .collect()
    }
}

#[tokio::test]
async fn a_pipeline_is_suspended_and_comes_back_with_as_many_gateways_in_every_mode() {
    for mode in ["Fixed", "Auto", "Recommend", "External"] {
        let mut scene = Scene::with(2, json!({"mode": "Fixed"})).await;
        scene.change_spec(|spec| {
            spec["scaling"]["mode"] = mode.into();
            if mode == "External" {
                spec["replicas"] = 2.into();
            }
        });
        scene.bench.settle("prod").await;
        scene.pods.each(|gateway| gateway.blocks = 1);
        let before = scene.uids();
        scene.change_spec(|spec| spec["suspend"] = true.into());
        // The operator writes first how many gateways there were, then which of them are to leave. Only then it drains them.
        for _ in 0..2 {
            scene.bench.restart();
            scene.bench.reconcile("prod").await.unwrap();
            assert_eq!((scene.replicas(), scene.told(0), scene.told(1)), (2, vec![], vec![]), "{mode}");
        }
        scene.bench.reconcile("prod").await.unwrap();
        assert_eq!(
            (scene.told(0).pop(), scene.told(1).pop()),
            (Some("/drain".into()), Some("/drain".into()))
        );
        assert_eq!(scene.bench.condition("prod", "Reconciling"), "True Draining");
        scene.pods.each(|gateway| gateway.blocks = 0);
        scene.by_many_operators(|scene| scene.replicas() == 0).await;
        scene.control().await;
        scene.bench.settle("prod").await;
        for (kind, expected) in [
            ("Ready", "True Suspended"),
            ("Reconciling", "False Suspended"),
            ("Stalled", "False Ok"),
            ("Suspended", "True Suspended"),
        ] {
            assert_eq!(scene.bench.condition("prod", kind), expected, "{mode}");
        }
        assert_eq!(scene.uids(), before, "everything else stays: {mode}");
        scene.bench.reconcile("prod").await.unwrap();
        assert_eq!(scene.bench.server.take_writes(), [], "at rest: {mode}");
        scene.change_spec(|spec| spec["suspend"] = false.into());
        scene.by_many_operators(|scene| scene.replicas() == 2).await;
        scene.control().await;
        scene.bench.settle("prod").await;
        assert_eq!(scene.bench.condition("prod", "Ready"), "True Running", "{mode}");
        assert!(scene.pipeline().unwrap()["status"]["suspension"].is_null(), "{mode}");
    }
}

#[tokio::test]
async fn a_pipeline_rests_also_when_it_could_not_be_planned() {
    let mut scene = Scene::with(2, json!({"mode": "Auto"})).await;
    // Kafka's topic is gone, the table's user is gone, and gateways do not get empty.
    scene.pods.each(|gateway| gateway.blocks = 7);
    scene.change_spec(|spec| {
        spec["suspend"] = true.into();
        spec["source"]["kafka"]["topics"] = json!(["another"]);
        spec["sink"]["clickhouse"]["credentials"] = json!({"secretRef": {"name": "missing"}});
    });
    for _ in 0..4 {
        scene.bench.reconcile("prod").await.unwrap();
    }
    assert_eq!((scene.replicas(), scene.bench.condition("prod", "Ready").as_str()), (2, "False Suspended"));
    pass(LIMIT_SECONDS);
    scene.by_many_operators(|scene| scene.replicas() == 0).await;
    let reason = scene.said()["drain"]["reason"].clone();
    assert!(
        reason
            .as_str()
            .unwrap()
            .starts_with("removed before they were empty, and their volumes stay: gateway 0 holds 7 blocks"),
        "{reason}"
    );
    scene.control().await;
    scene.bench.settle("prod").await;
    assert_eq!(scene.bench.condition("prod", "Suspended"), "True Suspended");
}

#[tokio::test]
async fn a_pipeline_that_is_made_suspended_makes_nothing() {
    let bench = Bench::start().await;
    let mut pipeline = bench.pipeline("prod");
    pipeline["spec"]["suspend"] = true.into();
    bench.server.put("tracepipelines/prod", pipeline);
    let writes = bench.settle("prod").await;
    assert!(
        writes.iter().all(|write| write.what == "events" || write.what == "tracepipelines/prod/status"),
        "{writes:?}"
    );
    assert_eq!(bench.condition("prod", "Suspended"), "True Suspended");
}

#[tokio::test]
async fn a_pipeline_that_is_left_alone_is_told_of_and_taken_over_again() {
    let mut scene = Scene::with(2, json!({"mode": "Auto"})).await;
    scene.change_spec(|spec| {
        spec["managementState"] = "Unmanaged".into();
        spec["gateway"] = json!({"logLevel": "debug"});
    });
    scene.bench.server.take_writes();
    let writes = scene.bench.settle("prod").await;
    assert!(
        writes.iter().all(|write| write.what == "events" || write.what == "tracepipelines/prod/status"),
        "{writes:?}"
    );
    assert_eq!(scene.bench.condition("prod", "ReconciliationPaused"), "True Unmanaged");
    assert_eq!(scene.bench.condition("prod", "Ready"), "True Running");
    // A user makes a change that the operator would undo; the status reports it, and the change stays.
    scene
        .bench
        .server
        .change("statefulsets/prod-gateway", |workload| workload["spec"]["replicas"] = 3.into());
    scene
        .bench
        .server
        .change("services/prod-gateway", |service| service["spec"]["ports"][0]["port"] = 1.into());
    scene.control().await;
    let writes = scene.bench.settle("prod").await;
    assert!(writes.iter().all(|write| write.what.starts_with("tracepipelines/prod/status")), "{writes:?}");
    assert_eq!(
        (scene.replicas(), scene.pipeline().unwrap()["status"]["readyReplicas"].clone()),
        (3, 3.into())
    );
    let template = |scene: &Scene| {
        scene.bench.server.get("statefulsets/prod-gateway").unwrap()["spec"]["template"].clone()
    };
    let before = template(&scene);
    scene.change_spec(|spec| {
        spec["managementState"] = "Managed".into();
        spec["gateway"] = json!({});
        spec["scaling"] = json!({"mode": "Fixed"});
    });
    // What cannot be written yet is tried again in the same way.
    scene.bench.server.refuse("services", 500);
    scene.bench.fail("prod").await;
    assert_eq!(scene.bench.condition("prod", "ReconciliationPaused"), "True Unmanaged");
    scene.bench.server.relent();
    scene.by_many_operators(|scene| scene.replicas() == 2).await;
    scene.control().await;
    scene.bench.settle("prod").await;
    assert_eq!(scene.bench.condition("prod", "ReconciliationPaused"), "False Managed");
    assert_eq!(scene.bench.condition("prod", "Ready"), "True Running");
    let service = scene.bench.server.get("services/prod-gateway").unwrap();
    assert_ne!(service["spec"]["ports"][0]["port"], 1);
    assert_eq!(template(&scene), before, "no gateway was restarted");
}

#[tokio::test]
async fn a_deleted_pipeline_goes_once_its_gateways_are_empty_whoever_goes_on() {
    let mut scene = Scene::with(4, json!({"mode": "Auto"})).await;
    assert_eq!(scene.pipeline().unwrap()["metadata"]["finalizers"], json!(["sluice.dev/drain"]));
    scene.pods.each(|gateway| gateway.blocks = 3);
    // Neither the Secrets nor Kafka matter any more.
    scene.change_spec(|spec| {
        spec["sink"]["clickhouse"]["credentials"] = json!({"secretRef": {"name": "missing"}});
        spec["source"]["kafka"]["bootstrapServers"] = json!(["127.0.0.1:1"]);
    });
    scene.delete();
    scene.events();
    scene.bench.reconcile("prod").await.unwrap();
    assert_eq!(scene.told(0), Vec::<String>::new(), "what is not written has not begun");
    assert_eq!(scene.bench.condition("prod", "Ready"), "False Deleting");
    for _ in 0..3 {
        scene.bench.restart();
        scene.bench.reconcile("prod").await.unwrap();
    }
    assert!((0..4).all(|ordinal| scene.told(ordinal).contains(&"/drain".to_owned())));
    assert_eq!((scene.replicas(), scene.said()["drain"]["reason"].clone()), (4, "0 of 4 are empty".into()));
    scene.bench.server.take_writes();
    scene.bench.reconcile("prod").await.unwrap();
    assert_eq!(scene.bench.server.take_writes(), [], "nothing new is nothing to write");
    scene.pods.each(|gateway| gateway.blocks = 0);
    // The server takes the finalizer only the second time.
    scene.bench.server.refuse("tracepipelines/prod", 409);
    scene.bench.fail("prod").await;
    scene.bench.server.relent();
    assert_eq!(scene.by_many_operators(Scene::is_gone).await, 1);
    let events = scene.events();
    assert_eq!((&events[0][..], &events[events.len() - 1][..]), ("Deleting", "Drained"), "{events:?}");
}

#[tokio::test]
async fn a_deleted_pipeline_is_held_no_longer_than_its_limit() {
    let mut scene = Scene::with(2, json!({"mode": "Fixed"})).await;
    scene.pods.each(|gateway| gateway.blocks = 3);
    scene.delete();
    for _ in 0..3 {
        scene.bench.reconcile("prod").await.unwrap();
    }
    pass(LIMIT_SECONDS - 1);
    scene.bench.reconcile("prod").await.unwrap();
    assert!(!scene.is_gone());
    pass(1);
    scene.events();
    // Also when nothing but the finalizer may be written any more, as in a namespace that is deleted.
    for kind in KINDS.into_iter().chain(["tracepipelines/prod/status", "events"]) {
        scene.bench.server.refuse(kind, 403);
    }
    assert_eq!(scene.by_many_operators(Scene::is_gone).await, 1);
    assert_eq!(scene.events(), ["DrainTimedOut"]);
}

/// The limit counts from a time that the API server has written, by the API server's clock.
#[tokio::test]
async fn a_clock_that_is_ahead_takes_no_time_from_the_drain_of_a_deletion() {
    let mut scene = Scene::with(2, json!({"mode": "Fixed"})).await;
    scene.pods.each(|gateway| gateway.blocks = 3);
    scene.delete();
    pass(LIMIT_SECONDS);
    let ahead_ms = i64::try_from(LIMIT_SECONDS * 1_000).unwrap();
    scene.bench.shared.server_time.set_ahead(-ahead_ms);
    for _ in 0..3 {
        scene.bench.reconcile("prod").await.unwrap();
    }
    assert!(!scene.is_gone(), "the gateways still hold blocks");
    pass(LIMIT_SECONDS - 1);
    scene.bench.reconcile("prod").await.unwrap();
    assert!(!scene.is_gone());
    pass(1);
    assert_eq!(scene.by_many_operators(Scene::is_gone).await, 1);
}

#[tokio::test]
async fn a_deleted_pipeline_without_gateways_goes_at_once() {
    for gone in [&["pods/prod-gateway-0", "statefulsets/prod-gateway"][..], &["pods/prod-gateway-0"]] {
        let mut scene = Scene::with(1, json!({"mode": "Fixed"})).await;
        for what in gone {
            scene.bench.server.remove(what);
        }
        scene.delete();
        assert_eq!(scene.by_many_operators(Scene::is_gone).await, 1, "{gone:?}");
    }
}

#[tokio::test]
async fn a_pipeline_that_cannot_be_read_is_let_go_when_it_is_deleted() {
    let bench = Bench::start().await;
    let mut pipeline = bench.pipeline("prod");
    pipeline["spec"]["source"]["kafka"]["topics"] = "not a list".into();
    pipeline["metadata"]["finalizers"] = json!(["another", "sluice.dev/drain"]);
    pipeline["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    bench.server.put("tracepipelines/prod", pipeline);
    bench.reconcile("prod").await.unwrap();
    let left = bench.server.get("tracepipelines/prod").unwrap()["metadata"]["finalizers"].clone();
    assert_eq!(left, json!(["another"]), "others have theirs");
}

#[tokio::test]
async fn a_policy_that_is_changed_while_a_pipeline_is_deleted_counts() {
    let mut scene = Scene::with(2, json!({"mode": "Fixed"})).await;
    scene.pods.each(|gateway| gateway.blocks = 3);
    scene.delete();
    for _ in 0..3 {
        scene.bench.reconcile("prod").await.unwrap();
    }
    scene.change_spec(|spec| spec["deletionPolicy"] = "Immediate".into());
    assert_eq!(scene.by_many_operators(Scene::is_gone).await, 1);
}

#[tokio::test]
async fn a_pipeline_that_goes_at_once_is_not_held() {
    let bench = Bench::start().await;
    let mut pipeline = bench.pipeline("prod");
    pipeline["spec"]["deletionPolicy"] = "Immediate".into();
    bench.server.put("tracepipelines/prod", pipeline);
    let finalizers = || bench.server.get("tracepipelines/prod").unwrap()["metadata"]["finalizers"].clone();
    let set = |policy: &str| {
        bench
            .server
            .change("tracepipelines/prod", |pipeline| pipeline["spec"]["deletionPolicy"] = policy.into());
    };
    bench.settle("prod").await;
    assert_eq!(finalizers(), Value::Null);
    set("Orphan");
    bench.settle("prod").await;
    assert_eq!(finalizers(), json!(["sluice.dev/drain"]));
    set("Immediate");
    bench.settle("prod").await;
    assert_eq!(finalizers(), json!([]));
}

#[tokio::test]
pub async fn orphans_go_on_and_are_taken_over_by_a_pipeline_of_the_same_name() {
    let mut scene = Scene::with(2, json!({"mode": "Fixed"})).await;
    scene.change_spec(|spec| {
        spec["deletionPolicy"] = "Orphan".into();
        spec["observability"] = json!({"podMonitor": {"enabled": true}});
    });
    scene.bench.settle("prod").await;
    let before = scene.uids();
    assert_eq!(scene.bench.server.list("podmonitors").len(), 1);
    let spec = scene.pipeline().unwrap()["spec"].clone();
    scene.delete();
    // The first time it does not come to the end.
    scene.bench.server.refuse("networkpolicies", 500);
    scene.bench.fail("prod").await;
    scene.bench.server.relent();
    scene.events();
    assert_eq!(scene.by_many_operators(Scene::is_gone).await, 1);
    assert_eq!(scene.events(), ["Orphaned"]);
    let objects: Vec<Value> = KINDS.iter().flat_map(|kind| scene.bench.server.list(kind)).collect();
    assert!(objects.iter().all(|object| object["metadata"]["ownerReferences"] == json!([])), "{objects:?}");
    let options =
        |object: &Value| object["metadata"]["annotations"]["argocd.argoproj.io/sync-options"].clone();
    assert!(objects.iter().all(|object| options(object) == "Prune=false,Delete=false"), "{objects:?}");
    assert_eq!((scene.replicas(), scene.told(0)), (2, vec![]), "nobody is asked to leave");
    let again = json!({"apiVersion": "sluice.dev/v1alpha1", "kind": "TracePipeline", "spec": spec,
        "metadata": {"name": "prod", "namespace": NAMESPACE, "uid": "another"}});
    scene.bench.server.put("tracepipelines/prod", again);
    scene.bench.server.change("tracepipelines/prod", |pipeline| {
        pipeline["metadata"]["generation"] = 1.into();
        pipeline["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z".into();
    });
    scene.bench.settle("prod").await;
    assert_eq!(scene.bench.condition("prod", "Ready"), "True Running");
    assert_eq!(scene.uids(), before, "the same objects");
    let workload = scene.bench.server.get("statefulsets/prod-gateway").unwrap();
    assert_eq!(workload["metadata"]["ownerReferences"][0]["uid"], "another");
}

#[tokio::test]
async fn of_two_pipelines_with_one_group_the_older_runs_on_and_the_younger_waits() {
    let bench = Bench::start().await;
    let put = |name: &str, created: &str| {
        let mut pipeline = bench.pipeline(name);
        pipeline["spec"]["source"]["kafka"]["consumerGroup"] = "spans".into();
        bench.server.put(&format!("tracepipelines/{name}"), pipeline);
        bench.server.change(&format!("tracepipelines/{name}"), |pipeline| {
            pipeline["metadata"]["creationTimestamp"] = created.into();
        });
    };
    put("zebra", "2026-01-01T00:00:00Z");
    bench.settle("zebra").await;
    bench.gateways_become_ready("zebra");
    bench.settle("zebra").await;
    put("ant", "2026-01-02T00:00:00Z");
    let writes = bench.settle("ant").await;
    assert!(
        writes.iter().all(|write| write.what == "events" || write.what == "tracepipelines/ant/status"),
        "{writes:?}"
    );
    assert_eq!(bench.condition("ant", "Ready"), "False ConsumerGroupTaken");
    bench.reconcile("zebra").await.unwrap();
    assert_eq!(bench.server.take_writes(), [], "the older one is not touched");
    bench.server.remove("tracepipelines/zebra");
    bench.settle("ant").await;
    assert!(bench.server.get("statefulsets/ant-gateway").is_some());
}

#[tokio::test]
async fn a_storage_class_that_comes_is_seen() {
    let bench = Bench::start().await;
    let mut pipeline = bench.pipeline("prod");
    pipeline["spec"]["queue"] = json!({"storageClassName": "fast"});
    bench.server.put("tracepipelines/prod", pipeline);
    bench.settle("prod").await;
    assert_eq!(bench.condition("prod", "Ready"), "False StorageClassMissing");
    assert!(bench.server.get("statefulsets/prod-gateway").is_none());
    let class =
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"}});
    bench.server.put("storageclasses/fast", class);
    bench.settle("prod").await;
    assert!(bench.server.get("statefulsets/prod-gateway").is_some());
}

#[tokio::test]
async fn an_operator_that_may_not_see_storage_classes_goes_on() {
    let bench = Bench::start().await;
    let mut pipeline = bench.pipeline("prod");
    pipeline["spec"]["queue"] = json!({"storageClassName": "fast"});
    bench.server.put("tracepipelines/prod", pipeline);
    bench.server.refuse("storageclasses", 403);
    bench.settle("prod").await;
    assert!(bench.server.get("statefulsets/prod-gateway").is_some());
}

#[tokio::test]
async fn a_secret_that_changes_rolls_the_gateways_once() {
    let bench = Bench::start().await;
    let mut pipeline = bench.pipeline("prod");
    pipeline["spec"]["sink"]["clickhouse"]["credentials"] = json!({"secretRef": {"name": "user"}});
    bench.server.put("tracepipelines/prod", pipeline);
    let secret = |password: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "user", "namespace": NAMESPACE},
            "data": {"username": "dQ==", "password": password}})
    };
    bench.server.put("secrets/user", secret("cA=="));
    bench.settle("prod").await;
    bench.gateways_become_ready("prod");
    bench.settle("prod").await;
    bench.server.change("secrets/user", |user| user["data"]["password"] = "cQ==".into());
    let writes = bench.settle("prod").await;
    let of_workload: Vec<_> = writes.iter().filter(|write| write.what.starts_with("statefulsets")).collect();
    assert_eq!(of_workload.len(), 1, "{writes:?}");
    bench.gateways_become_ready("prod");
    bench.settle("prod").await;
    bench.reconcile("prod").await.unwrap();
    assert_eq!(bench.server.take_writes(), []);
}

#[tokio::test]
async fn gateways_of_another_pipeline_are_not_asked() {
    let mut scene = Scene::with(1, json!({"mode": "Fixed"})).await;
    scene.bench.create("other");
    scene.bench.settle("other").await;
    let mut others = Pods::of(&scene.bench.server, "other");
    others.become_ready(1, 8).await;
    scene.delete();
    scene.by_many_operators(Scene::is_gone).await;
    assert_eq!(others.all[0].behaviour.lock().unwrap().told, Vec::<String>::new());
}
