//! A server that refuses, objects of others, and what is missing or away. How it is reported is in `apply_failure.rs`.

use crate::bench::{Bench, NAMESPACE};
use serde_json::{Value, json};
use sluice_operator::world::api_error::ErrorClass;

#[tokio::test]
async fn each_refusal_has_its_class_and_is_tried_again_later_and_later() {
    let bench = Bench::start().await;
    for (name, code, class) in [
        ("a", 409, ErrorClass::Conflict),
        ("b", 422, ErrorClass::Refused),
        ("c", 403, ErrorClass::Forbidden),
        ("d", 500, ErrorClass::Unavailable),
    ] {
        bench.create(name);
        bench.server.refuse(&format!("configmaps/{name}-"), code);
        let failures = [bench.fail(name).await, bench.fail(name).await, bench.fail(name).await];
        assert_eq!(failures, [(class, 1), (class, 2), (class, 4)], "{code}");
        assert!(bench.server.get(&format!("statefulsets/{name}-gateway")).is_none());
        bench.server.relent();
        bench.settle(name).await;
        bench.server.refuse(&format!("tracepipelines/{name}"), code);
        bench.gateways_become_ready(name);
        if class == ErrorClass::Conflict {
            bench
                .reconcile(name)
                .await
                .expect("a conflict about the status means that it is another pipeline's");
        } else {
            assert_eq!(bench.fail(name).await, (class, 1), "a success begins the delays again");
        }
        bench.server.relent();
    }
}

#[tokio::test]
async fn an_object_of_somebody_else_is_left_alone() {
    let bench = Bench::start().await;
    bench.create("prod");
    let theirs = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "prod-gateway", "namespace": NAMESPACE}, "spec": {"clusterIP": "10.0.0.1"},
    });
    bench.server.put("services/prod-gateway", theirs);
    let before = bench.server.get("services/prod-gateway");
    assert_eq!(bench.fail("prod").await.0, ErrorClass::Foreign);
    assert_eq!(bench.server.get("services/prod-gateway"), before);
}

#[tokio::test]
async fn a_refused_spec_keeps_what_runs() {
    let bench = Bench::start().await;
    bench.create("prod");
    bench.settle("prod").await;
    bench.gateways_become_ready("prod");
    bench.settle("prod").await;
    let before = bench.server.get("statefulsets/prod-gateway");
    bench.server.change("tracepipelines/prod", |pipeline| {
        pipeline["spec"]["gateway"] = json!({"workers": 64, "resources": {"memory": "128Mi"}});
        pipeline["metadata"]["generation"] = 2.into();
    });
    bench.settle("prod").await;
    assert_eq!(bench.server.get("statefulsets/prod-gateway"), before);
    assert_eq!(bench.condition("prod", "Ready"), "False SpecInvalid");
    assert_eq!(bench.condition("prod", "Stalled"), "True SpecInvalid");
}

#[tokio::test]
async fn a_secret_that_is_missing_is_waited_for() {
    let bench = Bench::start().await;
    let mut pipeline = bench.pipeline("prod");
    pipeline["spec"]["sink"]["clickhouse"]["credentials"] = json!({"secretRef": {"name": "clickhouse"}});
    bench.server.put("tracepipelines/prod", pipeline);
    bench.settle("prod").await;
    assert_eq!(bench.condition("prod", "Ready"), "False SinkUnavailable");
    assert!(bench.server.get("statefulsets/prod-gateway").is_none());
    bench.server.put(
        "secrets/clickhouse",
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "clickhouse", "namespace": NAMESPACE},
            "data": {"username": "dQ==", "password": "cA=="},
        }),
    );
    bench.settle("prod").await;
    assert!(bench.server.get("statefulsets/prod-gateway").is_some());
}

#[tokio::test]
async fn brokers_that_do_not_answer_are_not_given_to_gateways_that_read() {
    let bench = Bench::start().await;
    bench.create("prod");
    bench.settle("prod").await;
    bench.gateways_become_ready("prod");
    bench.settle("prod").await;
    let workload = bench.server.get("statefulsets/prod-gateway");
    let well = bench.server.get("tracepipelines/prod").unwrap()["spec"].clone();
    let edit = |change: &dyn Fn(&mut Value)| {
        bench.server.change("tracepipelines/prod", |pipeline| {
            pipeline["spec"] = well.clone();
            change(&mut pipeline["spec"]);
            let generation = pipeline["metadata"]["generation"].as_i64().unwrap();
            pipeline["metadata"]["generation"] = (generation + 1).into();
        });
    };
    // No broker listens there.
    edit(&|spec| spec["source"]["kafka"]["bootstrapServers"] = json!(["127.0.0.1:1"]));
    bench.settle("prod").await;
    assert_eq!(bench.server.get("statefulsets/prod-gateway"), workload, "gateways read on");
    assert_eq!(bench.condition("prod", "Ready"), "False SourceUnavailable");
    let status = bench.server.get("tracepipelines/prod").unwrap()["status"].clone();
    let ready = status["conditions"].as_array().unwrap().iter().find(|one| one["type"] == "Ready").unwrap();
    assert!(ready["message"].as_str().unwrap().contains("keep their present brokers"), "{ready}");
    // Back to what they have, there is nothing to be done; with what Kafka answers to, they get it.
    edit(&|_| ());
    bench.settle("prod").await;
    assert_eq!(bench.server.get("statefulsets/prod-gateway"), workload);
    edit(&|spec| spec["source"]["kafka"]["properties"] = json!({"socket.receive.buffer.bytes": "65536"}));
    bench.settle("prod").await;
    assert_ne!(bench.server.get("statefulsets/prod-gateway"), workload);
}

#[tokio::test]
async fn a_group_that_gateways_read_in_is_not_left() {
    let bench = Bench::start().await;
    bench.create("prod");
    bench.settle("prod").await;
    bench.gateways_become_ready("prod");
    bench.settle("prod").await;
    let workload = bench.server.get("statefulsets/prod-gateway");
    for (group, condition) in [
        ("other", "True SpecInvalid"),
        ("tracing.prod", "False Ok"),
        ("", "False Ok"),
        ("other", "True SpecInvalid"),
    ] {
        bench.server.change("tracepipelines/prod", |pipeline| {
            pipeline["spec"]["source"]["kafka"]["consumerGroup"] = group.into();
        });
        bench.settle("prod").await;
        assert_eq!(bench.condition("prod", "Stalled"), condition, "{group}");
        assert_eq!(bench.server.get("statefulsets/prod-gateway"), workload, "{group}");
    }
}
