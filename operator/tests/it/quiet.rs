//! What is written, by whom, in which order; and that nothing is when nothing changed.

use crate::bench::Bench;
use serde_json::json;

#[tokio::test]
async fn objects_are_written_in_the_order_in_which_they_are_needed() {
    let bench = Bench::start().await;
    bench.create("prod");
    bench.reconcile("prod").await.unwrap();
    let writes = bench.server.take_writes();
    let kinds: Vec<&str> = writes.iter().map(|write| write.what.split('/').next().unwrap()).collect();
    let expected = [
        "tracepipelines",
        "serviceaccounts",
        "configmaps",
        "services",
        "networkpolicies",
        "poddisruptionbudgets",
        "statefulsets",
        "statefulsets",
        "statefulsets",
        "tracepipelines",
        "events",
    ];
    assert_eq!(kinds, expected);
    assert_eq!(writes[0].field_manager, "sluice-operator/finalizer");
    let managers: Vec<&str> = writes[5..10].iter().map(|write| write.field_manager.as_str()).collect();
    let ours = "sluice-operator";
    assert_eq!(managers, [ours, ours, "sluice-operator/scaler", ours, "sluice-operator/status"]);
    let workload = bench.server.get("statefulsets/prod-gateway").unwrap();
    assert_eq!(workload["spec"]["replicas"], 2, "8 partitions, 4 for each");
}

#[tokio::test]
async fn a_start_that_was_cut_off_is_finished_without_losing_gateways() {
    let bench = Bench::start().await;
    bench.create("prod");
    bench.settle("prod").await;
    // Made with its replicas, and the operator died before the scaler had taken them.
    bench.server.change("statefulsets/prod-gateway", |workload| {
        workload["metadata"]["managedFields"] = json!([]);
        workload["metadata"]["annotations"]["sluice.dev/applied-hash"] = "of the first step".into();
    });
    bench.reconcile("prod").await.unwrap();
    let writes = bench.server.take_writes();
    let managers: Vec<&str> = writes.iter().map(|write| write.field_manager.as_str()).collect();
    assert_eq!(managers, ["sluice-operator/scaler", "sluice-operator"]);
}

#[tokio::test]
pub async fn what_is_switched_off_goes_and_comes_back_with_the_switch() {
    let bench = Bench::start().await;
    bench.create("prod");
    bench.settle("prod").await;
    let objects = ["networkpolicies/prod-gateway", "poddisruptionbudgets/prod-gateway"];
    for is_on in [true, false, true] {
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
pub async fn a_pod_monitor_comes_and_goes_with_its_switch_and_is_looked_at_no_more_than_that() {
    let mut bench = Bench::start().await;
    bench.create("prod");
    bench.settle("prod").await;
    let object = "podmonitors/prod-gateway";
    let server = bench.server.clone();
    let looks = || server.take_reads().into_iter().filter(|read| read == object).count();
    assert_eq!(looks(), 1, "one may be left of before");
    for (generation, is_on) in [(2, true), (3, false), (4, true)] {
        bench.server.change("tracepipelines/prod", |pipeline| {
            pipeline["metadata"]["generation"] = generation.into();
            pipeline["spec"]["observability"] = json!({"podMonitor": {"enabled": is_on}});
        });
        bench.settle("prod").await;
        bench.reconcile("prod").await.unwrap();
        assert_eq!(bench.server.get(object).is_some(), is_on, "{generation}");
        assert_eq!(looks(), 1, "{generation}");
    }
    // A restarted operator, which remembers nothing, finds the object unchanged. It undoes the change of another client.
    bench
        .server
        .change(object, |monitor| monitor["spec"]["podMetricsEndpoints"][0]["interval"] = "1h".into());
    bench.restart();
    bench.reconcile("prod").await.unwrap();
    let monitor = bench.server.get(object).unwrap();
    assert_eq!(monitor["spec"]["podMetricsEndpoints"][0]["interval"], "30s");
}

#[tokio::test]
async fn a_cluster_without_pod_monitors_is_told_of_once_and_keeps_nothing_waiting() {
    let mut bench = Bench::start().await;
    bench.create("prod");
    bench.server.change("tracepipelines/prod", |pipeline| {
        pipeline["spec"]["observability"] = json!({"podMonitor": {"enabled": true}});
    });
    // What a server says of a kind that it does not know is no status.
    bench.server.refuse_saying("podmonitors", 404, json!("404 page not found"));
    bench.settle("prod").await;
    bench.reconcile("prod").await.unwrap();
    assert!(bench.server.get("statefulsets/prod-gateway").is_some());
    let told = bench.server.take_events();
    let told: Vec<_> = told.iter().filter(|event| event["reason"] == "NoPodMonitors").collect();
    assert_eq!(told.len(), 1, "{told:#?}");
    bench.restart();
    bench.server.relent();
    bench.reconcile("prod").await.unwrap();
    assert!(bench.server.get("podmonitors/prod-gateway").is_some());
}

#[tokio::test]
async fn a_pod_monitor_of_somebody_else_is_left_alone_and_gateways_run() {
    let bench = Bench::start().await;
    bench.create("prod");
    bench.server.put(
        "podmonitors/prod-gateway",
        json!({
            "apiVersion": "monitoring.coreos.com/v1", "kind": "PodMonitor",
            "metadata": {"name": "prod-gateway", "namespace": "tracing"}, "spec": {"theirs": true},
        }),
    );
    bench.server.change("tracepipelines/prod", |pipeline| {
        pipeline["spec"]["observability"] = json!({"podMonitor": {"enabled": true}});
    });
    let failed = bench.reconcile("prod").await.unwrap_err().to_string();
    assert!(failed.contains("there is a PodMonitor prod-gateway that does not belong"), "{failed}");
    assert!(bench.server.get("statefulsets/prod-gateway").is_some(), "gateways run all the same");
    assert_eq!(bench.server.get("podmonitors/prod-gateway").unwrap()["spec"], json!({"theirs": true}));
}

#[tokio::test]
async fn what_is_switched_off_goes_also_when_a_pipeline_before_has_left_it_to_itself() {
    let bench = Bench::start().await;
    bench.create("prod");
    bench.settle("prod").await;
    let objects = ["networkpolicies/prod-gateway", "poddisruptionbudgets/prod-gateway"];
    for object in objects {
        bench.server.change(object, |object| object["metadata"]["ownerReferences"] = json!([]));
        let mut others = bench.server.get(object).unwrap();
        others["metadata"]["name"] = "other".into();
        others["metadata"]["labels"]["app.kubernetes.io/instance"] = "other".into();
        bench.server.put(&object.replace("prod-gateway", "other"), others);
    }
    bench.server.change("tracepipelines/prod", |pipeline| {
        pipeline["spec"]["networkPolicy"] = json!({"enabled": false});
        pipeline["spec"]["podDisruptionBudget"] = json!({"enabled": false});
    });
    bench.settle("prod").await;
    for object in objects {
        assert_eq!(bench.server.get(object), None, "{object}");
        assert!(
            bench.server.get(&object.replace("prod-gateway", "other")).is_some(),
            "another's is left alone"
        );
    }
}

#[tokio::test]
async fn a_second_reconcile_writes_nothing() {
    let mut bench = Bench::start().await;
    bench.create("prod");
    bench.settle("prod").await;
    bench.gateways_become_ready("prod");
    bench.settle("prod").await;
    assert_eq!(bench.condition("prod", "Ready"), "True Running");
    let written = bench.metrics().writes();
    bench.reconcile("prod").await.unwrap();
    assert_eq!(bench.server.take_writes(), []);
    assert_eq!(bench.metrics().writes(), written);
    // Nor does an operator that starts.
    bench.restart();
    bench.reconcile("prod").await.unwrap();
    assert_eq!(bench.server.take_writes(), []);
    assert_eq!(bench.metrics().writes(), 0);
}

#[tokio::test]
async fn what_somebody_else_changed_is_changed_back_and_nothing_else_is_written() {
    let bench = Bench::start().await;
    bench.create("prod");
    bench.settle("prod").await;
    bench.server.change("services/prod-gateway", |service| service["spec"]["ports"][0]["port"] = 1.into());
    let writes = bench.settle("prod").await;
    let what: Vec<&str> = writes.iter().map(|write| write.what.as_str()).collect();
    assert_eq!(what, ["services/prod-gateway"]);
}

#[tokio::test]
async fn a_network_policy_that_somebody_widened_is_taken_back() {
    let bench = Bench::start().await;
    bench.create("prod");
    bench.settle("prod").await;
    let ours = bench.server.get("networkpolicies/prod-gateway").unwrap()["spec"].clone();
    for (list, more) in
        [("/spec/ingress", json!({})), ("/spec/ingress/0/ports", json!({"port": 22, "protocol": "TCP"}))]
    {
        bench.server.change("networkpolicies/prod-gateway", |policy| {
            policy.pointer_mut(list).unwrap().as_array_mut().unwrap().push(more);
        });
        let writes = bench.settle("prod").await;
        let what: Vec<&str> = writes.iter().map(|write| write.what.as_str()).collect();
        assert_eq!(what, ["networkpolicies/prod-gateway"], "{list}");
        assert_eq!(bench.server.get("networkpolicies/prod-gateway").unwrap()["spec"], ours, "{list}");
    }
}

#[tokio::test]
pub async fn another_spec_rolls_the_gateways_and_leaves_few_configs_behind() {
    let bench = Bench::start().await;
    let mut pipeline = bench.pipeline("prod");
    pipeline["spec"]["rollout"] = json!({"strategy": "RollingUpdate"});
    bench.server.put("tracepipelines/prod", pipeline);
    bench.settle("prod").await;
    bench.gateways_become_ready("prod");
    bench.settle("prod").await;
    for memory in ["600Mi", "700Mi", "800Mi", "1024Mi"] {
        bench.server.change("tracepipelines/prod", |pipeline| {
            pipeline["spec"]["gateway"] = json!({"resources": {"memory": memory}});
            let generation = pipeline["metadata"]["generation"].as_i64().unwrap();
            pipeline["metadata"]["generation"] = (generation + 1).into();
        });
        bench.settle("prod").await;
        bench.gateways_become_ready("prod");
        bench.settle("prod").await;
    }
    let configs = bench.server.list("configmaps");
    assert_eq!(configs.len(), 3, "the current one and two to go back to");
    let workload = bench.server.get("statefulsets/prod-gateway").unwrap();
    let mounted = &workload["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"];
    assert!(configs.iter().any(|config| &config["metadata"]["name"] == mounted));
}

#[tokio::test]
async fn a_pipeline_that_is_being_deleted_is_left_alone() {
    let bench = Bench::start().await;
    let mut pipeline = bench.pipeline("prod");
    pipeline["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    bench.server.put("tracepipelines/prod", pipeline);
    bench.reconcile("prod").await.unwrap();
    assert_eq!(bench.server.take_writes(), []);
}

#[tokio::test]
pub async fn a_secret_is_read_again_once_it_has_changed() {
    let bench = Bench::start().await;
    let mut pipeline = bench.pipeline("prod");
    pipeline["spec"]["sink"]["clickhouse"]["credentials"] = json!({"secretRef": {"name": "writer"}});
    bench.server.put("tracepipelines/prod", pipeline);
    let secret = |password: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "writer", "namespace": crate::bench::NAMESPACE},
            "data": {"username": "dQ==", "password": password},
        })
    };
    bench.server.put("secrets/writer", secret("cA=="));
    bench.settle("prod").await;
    let reads = || {
        let reads = bench.server.take_reads();
        reads.iter().filter(|what| *what == "secrets/writer").count()
    };
    assert_eq!(reads(), 1, "once, however many looks that took");
    let version = || {
        let workload = bench.server.get("statefulsets/prod-gateway").unwrap();
        workload["spec"]["template"]["metadata"]["annotations"]["sluice.dev/secrets-version"].clone()
    };
    let before = version();
    bench.reconcile("prod").await.unwrap();
    assert_eq!(reads(), 0, "at rest");
    bench.server.change("secrets/writer", |secret| secret["data"]["password"] = "cQ==".into());
    bench.settle("prod").await;
    assert_eq!(reads(), 1);
    assert_ne!(version(), before, "gateways are given the new one");
    bench.server.remove("secrets/writer");
    bench.reconcile("prod").await.unwrap();
    assert_eq!((reads(), bench.condition("prod", "SinkReachable").as_str()), (0, "False SecretMissing"));
}
