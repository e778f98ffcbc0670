//! The edge of a pipeline: made beside the gateways, changed, taken away, and ended before them; whatever others do to it meanwhile.

use crate::{bench::Bench, scaling::Scene};
use serde_json::{Value, json};

const WORKLOAD: &str = "deployments/prod-edge";
const AUTOSCALER: &str = "horizontalpodautoscalers/prod-edge";
const SCALER: &str = "sluice-operator/scaler";
/// What an edge without an autoscaler has, beside its config.
const OBJECTS: [&str; 5] = [
    WORKLOAD,
    "services/prod-edge",
    "serviceaccounts/prod-edge",
    "networkpolicies/prod-edge",
    "poddisruptionbudgets/prod-edge",
];

impl Bench {
    fn set_edge(&self, edge: Value) {
        self.server.change("tracepipelines/prod", |pipeline| {
            pipeline["spec"]["edge"] = edge;
            let generation = pipeline["metadata"]["generation"].as_i64().unwrap_or(1);
            pipeline["metadata"]["generation"] = (generation + 1).into();
        });
    }

    async fn with_edge(edge: Value) -> Self {
        let bench = Self::start().await;
        bench.create("prod");
        bench.set_edge(edge);
        bench.settle("prod").await;
        bench
    }

    fn replicas_of_edge(&self) -> (Value, Vec<String>) {
        let workload = self.server.get(WORKLOAD).unwrap();
        let entries = workload["metadata"]["managedFields"].as_array().unwrap().clone();
        let having = entries.iter().filter(|entry| entry["fieldsV1"]["f:spec"]["f:replicas"].is_object());
        let managers = having.map(|entry| entry["manager"].as_str().unwrap().to_owned()).collect();
        (workload["spec"]["replicas"].clone(), managers)
    }

    /// What the controllers of Deployments would do: one pod, which is ready or not.
    fn edge_runs(&self, is_ready: bool) {
        let workload = self.server.get(WORKLOAD).unwrap();
        let template = &workload["spec"]["template"];
        let status = if is_ready { "True" } else { "False" };
        // A name whose random end has digits only is not taken for that of a gateway.
        self.server.put(
            "pods/prod-edge-5f6d8-24567",
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": "prod-edge-5f6d8-24567", "namespace": "tracing", "labels": template["metadata"]["labels"],
                },
                "spec": template["spec"],
                "status": {"conditions": [{"type": "Ready", "status": status}]},
            }),
        );
        let replicas = workload["spec"]["replicas"].clone();
        self.server.change(WORKLOAD, |workload| {
            workload["status"] = json!({
                "observedGeneration": workload["metadata"]["generation"], "replicas": replicas, "updatedReplicas": replicas,
                "readyReplicas": if is_ready { replicas.clone() } else { json!(0) },
            });
        });
    }

    fn edge_configs(&self) -> Vec<String> {
        let configs = self.server.list("configmaps").into_iter();
        let of_edge =
            configs.filter(|config| config["metadata"]["labels"]["app.kubernetes.io/component"] == "edge");
        of_edge.map(|config| config["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }
}

#[tokio::test]
pub async fn an_edge_is_made_told_of_and_taken_away_and_gateways_do_not_notice() {
    let mut bench = Bench::start().await;
    bench.create("prod");
    bench.settle("prod").await;
    bench.gateways_become_ready("prod");
    bench.settle("prod").await;
    let gateways = bench.server.get("statefulsets/prod-gateway").unwrap();
    assert_eq!(bench.condition("prod", "EdgeReady"), "");
    bench.set_edge(json!({"autoscaling": {"minReplicas": 3, "maxReplicas": 9}}));
    let writes = bench.settle("prod").await;
    let of_edge: Vec<&str> =
        writes.iter().map(|write| write.what.as_str()).filter(|what| what.contains("prod-edge")).collect();
    assert!(of_edge[1].starts_with("configmaps/prod-edge-config-"), "{of_edge:?}");
    let rest = [&of_edge[..1], &of_edge[2..]].concat();
    let expected = [
        "serviceaccounts/prod-edge",
        "services/prod-edge",
        "networkpolicies/prod-edge",
        "poddisruptionbudgets/prod-edge",
        WORKLOAD,
        WORKLOAD,
        WORKLOAD,
        AUTOSCALER,
    ];
    assert_eq!(rest, expected);
    assert_eq!(bench.replicas_of_edge(), (3.into(), vec![SCALER.to_owned()]));
    bench.edge_runs(true);
    bench.settle("prod").await;
    assert_eq!(bench.condition("prod", "EdgeReady"), "True Running");
    assert_eq!(bench.condition("prod", "Ready"), "True Running");
    let status = bench.server.get("tracepipelines/prod").unwrap()["status"]["edge"].clone();
    assert_eq!(status, json!({"replicas": 3, "readyReplicas": 3}));
    // An operator that starts finds nothing to write.
    bench.restart();
    bench.reconcile("prod").await.unwrap();
    assert_eq!(bench.server.take_writes(), []);
    bench.set_edge(Value::Null);
    bench.settle("prod").await;
    assert_eq!((bench.server.get(WORKLOAD), bench.server.get(AUTOSCALER)), (None, None));
    assert!(bench.server.get("serviceaccounts/prod-edge").is_some(), "its pod still ends");
    assert_eq!(bench.condition("prod", "EdgeReady"), "False Progressing");
    bench.server.remove("pods/prod-edge-5f6d8-24567");
    bench.settle("prod").await;
    for object in OBJECTS {
        assert_eq!(bench.server.get(object), None, "{object}");
    }
    assert_eq!((bench.edge_configs(), bench.condition("prod", "EdgeReady")), (vec![], String::new()));
    assert_eq!(bench.server.get("statefulsets/prod-gateway").unwrap(), gateways);
}

#[tokio::test]
async fn another_config_rolls_the_pods_and_leaves_no_config_behind_that_nothing_mounts() {
    let bench = Bench::with_edge(json!({})).await;
    bench.edge_runs(true);
    let first = bench.edge_configs();
    let template = || bench.server.get(WORKLOAD).unwrap()["spec"]["template"].clone();
    let before = template();
    bench.set_edge(json!({"messageBytesTarget": "512Ki"}));
    bench.settle("prod").await;
    assert_ne!(template(), before);
    assert!(bench.edge_configs().len() == 2 && bench.edge_configs().contains(&first[0]), "a pod mounts it");
    bench.edge_runs(true);
    bench.settle("prod").await;
    assert!(!bench.edge_configs().contains(&first[0]), "{:?}", bench.edge_configs());
    // The number of pods and the ports of the Service are no part of the template.
    let before = template();
    bench.set_edge(json!({"messageBytesTarget": "512Ki", "replicas": 4, "grpc": {"port": 14317}}));
    bench.settle("prod").await;
    assert_eq!((template(), bench.replicas_of_edge().0), (before, 4.into()));
}

#[tokio::test]
async fn a_number_of_the_spec_is_kept_and_an_autoscaler_takes_and_gives_it_without_a_gap() {
    let bench = Bench::with_edge(json!({"replicas": 5})).await;
    assert_eq!(bench.replicas_of_edge(), (5.into(), vec![SCALER.to_owned()]));
    bench.server.scale_by("kubectl", WORKLOAD, 1);
    bench.settle("prod").await;
    assert_eq!(bench.replicas_of_edge(), (5.into(), vec![SCALER.to_owned()]), "the spec says so");
    bench.set_edge(json!({"autoscaling": {"minReplicas": 2, "maxReplicas": 9}}));
    bench.settle("prod").await;
    assert_eq!(bench.replicas_of_edge().0, 5, "until the autoscaler decides");
    let hpa = "kube-controller-manager";
    bench.server.scale_by(hpa, WORKLOAD, 7);
    bench.settle("prod").await;
    assert_eq!(bench.replicas_of_edge(), (7.into(), vec![hpa.to_owned()]), "its number is left alone");
    bench.set_edge(json!({"replicas": 4}));
    bench.settle("prod").await;
    assert_eq!(bench.server.get(AUTOSCALER), None);
    assert_eq!(bench.replicas_of_edge(), (4.into(), vec![SCALER.to_owned()]));
}

#[tokio::test]
async fn an_operator_that_is_cut_off_at_any_write_makes_the_same_edge_in_the_end() {
    for writes in 0..24 {
        let mut bench = Bench::start().await;
        bench.create("prod");
        bench.set_edge(json!({"autoscaling": {"minReplicas": 3, "maxReplicas": 9}}));
        bench.server.cut_off_after(writes);
        drop(bench.reconcile("prod").await);
        bench.server.go_on();
        bench.restart();
        bench.settle("prod").await;
        assert_eq!(bench.replicas_of_edge(), (3.into(), vec![SCALER.to_owned()]), "{writes}");
        assert!(bench.server.get(AUTOSCALER).is_some(), "{writes}");
    }
}

#[tokio::test]
async fn an_object_of_somebody_else_keeps_the_edge_and_no_gateway_waiting() {
    let bench = Bench::start().await;
    bench.create("prod");
    bench.set_edge(json!({}));
    let theirs = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "prod-edge", "namespace": "tracing"},
        "spec": {"theirs": true},
    });
    bench.server.put("services/prod-edge", theirs);
    let failed = bench.reconcile("prod").await.unwrap_err().to_string();
    assert!(failed.contains("there is a Service prod-edge that does not belong"), "{failed}");
    assert!(bench.server.get("statefulsets/prod-gateway").is_some(), "gateways run all the same");
    assert_eq!(bench.server.get("services/prod-edge").unwrap()["spec"], json!({"theirs": true}));
    assert_eq!(bench.server.get(WORKLOAD), None);
    assert_eq!(bench.condition("prod", "Ready"), "False ApplyFailed");
}

#[tokio::test]
async fn what_others_change_of_the_edge_is_changed_back() {
    let bench = Bench::with_edge(json!({"autoscaling": {"minReplicas": 2, "maxReplicas": 9}})).await;
    bench.server.change("services/prod-edge", |service| service["spec"]["ports"][0]["port"] = 1.into());
    bench.server.change(AUTOSCALER, |autoscaler| autoscaler["spec"]["maxReplicas"] = 90.into());
    bench.server.remove("poddisruptionbudgets/prod-edge");
    let writes = bench.settle("prod").await;
    let mut what: Vec<&str> = writes.iter().map(|write| write.what.as_str()).collect();
    what.sort_unstable();
    assert_eq!(what, [AUTOSCALER, "poddisruptionbudgets/prod-edge", "services/prod-edge"]);
}

#[tokio::test]
async fn policy_and_budget_of_the_edge_go_and_come_back_with_their_switches() {
    let bench = Bench::with_edge(json!({})).await;
    let objects = ["networkpolicies/prod-edge", "poddisruptionbudgets/prod-edge"];
    for is_on in [false, true] {
        bench.server.change("tracepipelines/prod", |pipeline| {
            pipeline["spec"]["networkPolicy"] = json!({"enabled": is_on});
            pipeline["spec"]["podDisruptionBudget"] = json!({"enabled": is_on});
        });
        bench.settle("prod").await;
        for object in objects {
            assert_eq!(bench.server.get(object).is_some(), is_on, "{object}");
        }
    }
}

#[tokio::test]
async fn a_secret_of_the_clients_that_is_missing_keeps_the_edge_and_no_gateway_waiting() {
    let tokens = json!({"authentication": {"bearerTokensSecretRef": {"name": "clients"}}});
    let bench = Bench::with_edge(tokens).await;
    assert_eq!(bench.condition("prod", "EdgeReady"), "False SecretMissing");
    assert_eq!(bench.server.get(WORKLOAD), None);
    assert!(bench.server.get("statefulsets/prod-gateway").is_some());
    bench.server.put(
        "secrets/clients",
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "clients", "namespace": "tracing"},
            "data": {"tokens": "YQ=="},
        }),
    );
    bench.settle("prod").await;
    let template = || bench.server.get(WORKLOAD).unwrap()["spec"]["template"].clone();
    let before = template();
    // Another token restarts no pod: the edge reads the file again.
    bench.server.change("secrets/clients", |secret| secret["data"]["tokens"] = "Yg==".into());
    bench.settle("prod").await;
    assert_eq!(template(), before);
}

#[tokio::test]
async fn the_edge_goes_on_while_gateways_rest() {
    let bench = Bench::with_edge(json!({})).await;
    bench.gateways_become_ready("prod");
    bench.settle("prod").await;
    bench.server.change("tracepipelines/prod", |pipeline| {
        pipeline["spec"]["suspend"] = true.into();
        pipeline["spec"]["edge"]["replicas"] = 3.into();
    });
    for _ in 0..3 {
        bench.reconcile("prod").await.unwrap();
    }
    assert_eq!(bench.replicas_of_edge().0, 3);
}

#[tokio::test]
async fn the_edge_ends_before_the_gateways_of_a_deleted_pipeline_drain() {
    let scene = Scene::with(2, json!({"mode": "Fixed"})).await;
    scene.change_spec(|spec| spec["edge"] = json!({"autoscaling": {"minReplicas": 2, "maxReplicas": 9}}));
    scene.bench.settle("prod").await;
    scene.bench.edge_runs(true);
    scene.bench.settle("prod").await;
    scene.pods.each(|gateway| gateway.blocks = 1);
    scene.delete();
    for _ in 0..3 {
        scene.bench.reconcile("prod").await.unwrap();
    }
    assert_eq!((scene.bench.server.get(WORKLOAD), scene.bench.server.get(AUTOSCALER)), (None, None));
    assert_eq!(
        (scene.told(0), scene.told(1)),
        (vec![], vec![]),
        "a pod of the edge still writes to the topic"
    );
    let ready = scene.bench.written("prod", "Ready").unwrap();
    assert!(ready["message"].as_str().unwrap().contains("of the edge"), "{ready}");
    scene.bench.server.remove("pods/prod-edge-5f6d8-24567");
    for _ in 0..4 {
        scene.bench.reconcile("prod").await.unwrap();
    }
    assert_eq!(scene.told(0).pop(), Some("/drain".to_owned()));
}

#[tokio::test]
pub async fn an_edge_that_is_left_behind_goes_on_and_is_taken_over() {
    let mut scene = Scene::with(2, json!({"mode": "Fixed"})).await;
    scene.change_spec(|spec| {
        spec["edge"] = json!({"autoscaling": {"minReplicas": 2, "maxReplicas": 9}});
        spec["deletionPolicy"] = "Orphan".into();
    });
    scene.bench.settle("prod").await;
    let pipeline = scene.pipeline().unwrap();
    scene.delete();
    scene.by_many_operators(Scene::is_gone).await;
    for object in OBJECTS.into_iter().chain([AUTOSCALER]) {
        let left = scene.bench.server.get(object).unwrap();
        assert_eq!(left["metadata"]["ownerReferences"], json!([]), "{object}");
    }
    let mut next = pipeline;
    next["metadata"] = json!({"name": "prod", "namespace": "tracing", "uid": "next", "generation": 1});
    next["status"] = Value::Null;
    scene.bench.server.put("tracepipelines/prod", next);
    scene.bench.settle("prod").await;
    for object in OBJECTS.into_iter().chain([AUTOSCALER]) {
        let owner = scene.bench.server.get(object).unwrap()["metadata"]["ownerReferences"][0]["uid"].clone();
        assert_eq!(owner, "next", "{object}");
    }
}
