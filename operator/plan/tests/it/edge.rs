//! The edge: its objects, what it has to do with gateways (nothing), and what is said of it.

use crate::{defaults, observed, planned, sample, secret_seen, with};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use sluice_crds::{EdgeStatus, SecretUse, TracePipeline};
use sluice_gateway_config::parse;
use sluice_plan::{
    EdgeParts, EdgeSeen, Observed, SecretSeen, SourceFailure, TopicSeen, WorkloadSeen, build, objects, plan,
    pod_monitor, status,
};
use std::collections::BTreeMap;

fn with_edge(edge: Value) -> TracePipeline {
    with("/spec/edge", edge)
}

fn parts(pipeline: &TracePipeline) -> EdgeParts {
    build(&planned(pipeline, &observed(pipeline, 12))).into_parts().edge.unwrap()
}

fn labels(value: &Value) -> BTreeMap<String, String> {
    serde_json::from_value(value.clone()).unwrap()
}

/// Every map of labels in an object that selects pods.
fn selectors(value: &Value, found: &mut Vec<BTreeMap<String, String>>) {
    if let Some(fields) = value.as_object() {
        for (name, inner) in fields {
            match name.as_str() {
                "matchLabels" => found.push(labels(inner)),
                // That of a Service has no `matchLabels`.
                "selector" if inner.get("matchLabels").is_none() => found.push(labels(inner)),
                _ => selectors(inner, found),
            }
        }
    }
    value.as_array().into_iter().flatten().for_each(|item| selectors(item, found));
}

#[test]
fn no_selector_of_gateways_selects_the_edge_and_none_of_the_edge_selects_gateways() {
    let pipeline = sample("tracepipeline-full.yaml");
    let plan = planned(&pipeline, &observed(&pipeline, 12));
    let documents = build(&plan).into_parts().documents();
    let is_of_edge =
        |object: &&Value| object["metadata"]["labels"]["app.kubernetes.io/component"] == json!("edge");
    let pods = |objects: &[&Value]| -> Vec<_> {
        let templates = objects.iter().filter_map(|object| object.pointer("/spec/template/metadata/labels"));
        templates.map(labels).collect()
    };
    let selected = |selector: &BTreeMap<String, String>, pods: &[BTreeMap<String, String>]| {
        pods.iter().any(|pod| selector.iter().all(|(key, value)| pod.get(key) == Some(value)))
    };
    let (edge, others): (Vec<&Value>, Vec<&Value>) = documents.iter().partition(is_of_edge);
    let (edge_pods, other_pods) = (pods(&edge), pods(&others));
    assert_eq!((edge_pods.len(), other_pods.len()), (1, 2), "gateways and the schema Job");
    for (objects, own, theirs) in [(edge, &edge_pods, &other_pods), (others, &other_pods, &edge_pods)] {
        let mut all = Vec::new();
        for object in &objects {
            selectors(object, &mut all);
        }
        // Those of a NetworkPolicy's peers select neither.
        let ours: Vec<_> = all.iter().filter(|selector| selected(selector, own)).collect();
        assert!(ours.len() >= 4, "{all:?}");
        for selector in ours {
            assert!(!selected(selector, theirs), "{selector:?}");
        }
    }
}

#[test]
fn without_an_edge_there_is_no_object_of_it() {
    let pipeline = sample("tracepipeline.yaml");
    assert_eq!(build(&planned(&pipeline, &observed(&pipeline, 12))).into_parts().edge, None);
}

#[test]
fn the_config_is_one_that_the_edge_accepts() {
    for pipeline in
        [sample("tracepipeline-edge.yaml"), sample("tracepipeline-full.yaml"), with_edge(json!({}))]
    {
        let data = parts(&pipeline).config_map.data.unwrap();
        let checked = parse::edge_from_yaml(&data["edge.yaml"]).unwrap().check().unwrap();
        assert_eq!(checked.config().kafka.topic, pipeline.spec.source.kafka.as_ref().unwrap().topics[0]);
        let tls = checked.config().listen.tls.is_some();
        assert_eq!(tls, pipeline.spec.edge.unwrap().tls.is_some());
    }
}

#[test]
fn the_spec_or_an_autoscaler_sets_the_number_of_pods() {
    for (edge, fixed, first) in [
        (json!({}), Some(2), 2),
        (json!({"replicas": 5}), Some(5), 5),
        (json!({"autoscaling": {"minReplicas": 3, "maxReplicas": 9}}), None, 3),
    ] {
        let pipeline = with_edge(edge);
        let plan = planned(&pipeline, &observed(&pipeline, 12));
        let scale = plan.edge().ready().unwrap().scale();
        assert_eq!((scale.fixed(), scale.first()), (fixed, first));
        let parts = parts(&pipeline);
        assert_eq!(parts.workload.spec.unwrap().replicas, None, "a field manager of its own has it");
        assert_eq!(parts.autoscaler.is_some(), fixed.is_none());
    }
}

/// Prometheus reads both, each pod once.
#[test]
fn the_pod_monitor_of_a_pipeline_selects_its_edge_too() {
    let selector = |pipeline: &TracePipeline| {
        let plan = planned(pipeline, &observed(pipeline, 12));
        json!(pod_monitor(&plan).unwrap())["spec"]["selector"].clone()
    };
    let mut pipeline = sample("tracepipeline-full.yaml");
    let name = pipeline.metadata.name.clone().unwrap();
    let both = selector(&pipeline);
    assert_eq!(both["matchLabels"]["app.kubernetes.io/instance"], json!(name));
    assert_eq!(both["matchExpressions"][0]["key"], "app.kubernetes.io/component");
    assert_eq!(both["matchExpressions"][0]["values"], json!(["gateway", "edge"]));
    pipeline.spec.edge = None;
    let gateways = selector(&pipeline);
    assert_eq!(gateways["matchLabels"]["app.kubernetes.io/component"], "gateway");
    assert_eq!(gateways["matchExpressions"], Value::Null);
}

#[test]
fn ports_that_are_off_are_nowhere_and_others_are_those_of_the_service() {
    let pipeline = with_edge(json!({"grpc": {"enabled": false}, "http": {"port": 80}}));
    let edge = parts(&pipeline);
    let ports = edge.service.spec.unwrap().ports.unwrap();
    let found: Vec<_> = ports.iter().map(|port| (port.port, port.app_protocol.as_deref())).collect();
    assert_eq!(found, [(80, Some("http"))]);
    let pod = edge.workload.spec.unwrap().template.spec.unwrap();
    let ports: Vec<_> = pod.containers[0].ports.iter().flatten().map(|port| port.container_port).collect();
    assert_eq!(ports, [4318, 9090]);
    let edge = parts(&sample("tracepipeline-full.yaml"));
    let ports = edge.service.spec.unwrap().ports.unwrap();
    assert!(ports.iter().all(|port| port.app_protocol.as_deref() == Some("https")), "{ports:?}");
}

#[test]
fn a_network_policy_lets_clients_in_and_follows_its_switch() {
    let mut pipeline = sample("tracepipeline-edge.yaml");
    let ingress =
        |pipeline: &TracePipeline| parts(pipeline).network_policy.unwrap().spec.unwrap().ingress.unwrap();
    assert!(ingress(&pipeline)[0].from.is_none(), "any client");
    let rules = json!({"otlpFrom": [{"podSelector": {}}]});
    pipeline.spec.network_policy = Some(serde_json::from_value(rules).unwrap());
    assert_eq!(ingress(&pipeline)[0].from.as_ref().unwrap().len(), 1);
    pipeline.spec.network_policy.as_mut().unwrap().enabled = false;
    pipeline.spec.pod_disruption_budget.as_mut().unwrap().enabled = false;
    let parts = parts(&pipeline);
    assert!(parts.network_policy.is_none() && parts.disruption_budget.is_none());
}

#[test]
fn pods_mount_the_secrets_of_kafka_and_of_clients_and_only_those_of_kafka_restart_them() {
    let pipeline = sample("tracepipeline-full.yaml");
    let template = |facts: &Observed| {
        let parts = build(&planned(&pipeline, facts)).into_parts();
        serde_json::to_value(parts.edge.unwrap().workload.spec.unwrap().template).unwrap()
    };
    let facts = observed(&pipeline, 12);
    let before = template(&facts);
    let volumes: Vec<_> =
        before["spec"]["volumes"].as_array().unwrap().iter().map(|v| v["name"].as_str().unwrap()).collect();
    for name in [
        "kafka-user",
        "sluice-edge-certificate",
        "sluice-edge-client-ca",
        "sluice-edge-tokens",
        "sluice-edge-users",
    ] {
        assert!(volumes.contains(&name), "{volumes:?}");
    }
    assert!(!volumes.iter().any(|name| name.starts_with("clickhouse")), "{volumes:?}");
    for (of, is_restarted) in [
        (SecretUse::KafkaUser, true),
        (SecretUse::EdgeCertificate, false),
        (SecretUse::EdgeBearerTokens, false),
        (SecretUse::ClickHouseUser, false),
    ] {
        let mut facts = facts.clone();
        facts.secrets.insert(of, secret_seen("2222222222"));
        assert_eq!(template(&facts) != before, is_restarted, "{of:?}");
    }
}

#[test]
fn a_secret_of_clients_that_is_missing_holds_the_edge_and_no_gateway() {
    let pipeline = sample("tracepipeline-edge.yaml");
    let mut facts = observed(&pipeline, 12);
    facts.secrets.insert(SecretUse::EdgeBearerTokens, SecretSeen::Missing);
    let parts = build(&planned(&pipeline, &facts)).into_parts();
    assert!(parts.workload.is_some() && parts.edge.is_none());
}

#[test]
fn an_edit_of_the_edge_changes_nothing_of_gateways() {
    let without = sample("tracepipeline.yaml");
    let of_gateways = |pipeline: &TracePipeline| {
        let plan = planned(pipeline, &observed(pipeline, 12));
        let parts = sluice_plan::Parts { edge: None, ..build(&plan).into_parts() };
        (objects::plan_hash(&plan), parts.documents())
    };
    let expected = of_gateways(&without);
    for edge in [json!({}), json!({"replicas": 7, "tenants": {"header": "a", "spansPerSecond": 1}})] {
        assert_eq!(of_gateways(&with_edge(edge)), expected);
    }
}

#[test]
fn another_config_replaces_pods_and_none_leaves_before_another_one_is_ready() {
    let workload = |edge: Value| parts(&with_edge(edge)).workload.spec.unwrap();
    let before = workload(json!({}));
    let rolling = before.strategy.unwrap().rolling_update.unwrap();
    assert_eq!(serde_json::to_value(&rolling).unwrap(), json!({"maxSurge": 1, "maxUnavailable": 0}));
    let pod = before.template.spec.clone().unwrap();
    assert_eq!(
        pod.termination_grace_period_seconds,
        Some(65),
        "5 s for endpoints, 50 s for requests, 10 s to end"
    );
    let limit = |memory: &str| {
        let resources = json!({"resources": {"limits": {"memory": memory}}});
        let container = workload(resources).template.spec.unwrap().containers.remove(0);
        serde_json::to_value(container.resources.unwrap()).unwrap()
    };
    for memory in ["192Mi", "300Mi"] {
        let resources = limit(memory);
        assert_eq!(resources["limits"]["memory"], resources["requests"]["memory"], "{memory}");
    }
    for (edge, is_replaced) in [
        (json!({"messageBytesTarget": "512Ki"}), true),
        (json!({"tenants": {"header": "a", "spansPerSecond": 1}}), true),
        (json!({"replicas": 7}), false),
        (json!({"grpc": {"port": 14317}}), false),
        (json!({"service": {"type": "LoadBalancer"}}), false),
    ] {
        assert_eq!(workload(edge.clone()).template != before.template, is_replaced, "{edge}");
    }
}

/// The smallest limit that the message names is accepted, so that a person needs one edit.
#[test]
fn a_memory_limit_without_room_is_refused_with_one_that_has_room() {
    let with_limit = |memory: &str| {
        with_edge(json!({"decompressedBytesMax": "64Mi", "resources": {"limits": {"memory": memory}}}))
    };
    let pipeline = with_limit("160Mi");
    let facts = observed(&pipeline, 12);
    let found = plan(&pipeline, &facts, &defaults()).unwrap_err().to_string();
    let (_, smallest) = found.split_once("the smallest limit that would do is ").unwrap();
    let smallest = format!("{}i", smallest.split('i').next().unwrap());
    assert!(found.contains("lower requestBytesMax and decompressedBytesMax"), "{found}");
    assert!(plan(&with_limit(&smallest), &facts, &defaults()).is_ok(), "{smallest}");
    let condition = condition(&said(&pipeline, &facts), "EdgeReady").cloned().unwrap();
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", "SpecInvalid"));
}

#[test]
fn a_connection_that_is_missing_is_the_reason_and_pods_stay() {
    let pipeline = sample("tracepipeline-edge.yaml");
    let mut facts = observed(&pipeline, 12);
    facts.unresolved.source = Some("there is no TraceConnection \"main\"".into());
    facts.edge = Some(seen(3));
    let condition = condition(&said(&pipeline, &facts), "EdgeReady").cloned().unwrap();
    assert_eq!(condition.reason, "ConnectionMissing");
    assert!(condition.message.ends_with("3 of 3 pods of the edge are ready and stay unchanged until then"));
}

#[test]
fn what_is_wrong_names_its_field() {
    for (edge, path) in [
        (json!({"resources": {"limits": {"memory": "128Mi"}}}), "spec.edge.resources.limits.memory"),
        (json!({"messageBytesTarget": "2Mi"}), "spec.edge.messageBytesTarget"),
        (json!({"requestBytesMax": "1"}), "spec.edge.requestBytesMax"),
        (json!({"topic": "another"}), "spec.edge.topic"),
        (json!({"tenants": {"header": "A B", "spansPerSecond": 1}}), "spec.edge.tenants.header"),
        (json!({"service": {"labels": {"a b": "c"}}}), "spec.edge.service.labels"),
        (json!({"podTemplate": {"nodeSelector": {"a b": "c"}}}), "spec.edge.podTemplate.nodeSelector"),
        (json!({"resources": {"limits": {"cpu": "100m"}}}), "spec.edge.resources.limits.cpu"),
        (json!({"grpc": {"enabled": false}, "http": {"enabled": false}}), "spec.edge"),
        (json!({"authentication": {}}), "spec.edge.authentication"),
    ] {
        let pipeline = with_edge(edge.clone());
        let found = plan(&pipeline, &observed(&pipeline, 12), &defaults()).unwrap_err();
        assert!(found.iter().any(|one| one.path == path), "{edge}: {found}");
    }
}

/// The gateways of the pipeline, all of them ready.
fn running(pipeline: &TracePipeline, facts: &Observed) -> WorkloadSeen {
    let plan = planned(pipeline, facts);
    WorkloadSeen {
        plan_hash: Some(objects::plan_hash(&plan)),
        is_observed: true,
        wanted: plan.replicas(),
        replicas: plan.replicas(),
        ready: plan.replicas(),
        updated: plan.replicas(),
        ..WorkloadSeen::default()
    }
}

fn seen(ready: u32) -> EdgeSeen {
    EdgeSeen {
        is_made: true,
        is_observed: true,
        wanted: 3,
        ready,
        updated: 3,
        replicas: 3,
        pods: 3,
        ..EdgeSeen::default()
    }
}

#[test]
fn a_person_is_told_what_keeps_the_edge_and_the_pipeline_is_ready_while_one_pod_is() {
    let pipeline = sample("tracepipeline-edge.yaml");
    let pulling =
        EdgeSeen { troubles: vec![("a".into(), "ImagePullBackOff, no such image".into())], ..seen(0) };
    let refused = EdgeSeen { refused: Some("exceeded quota: pods=3".into()), ..seen(1) };
    let changed = EdgeSeen { is_observed: false, ..seen(3) };
    for (edge, secret, topic, expected, ready, words) in [
        (Some(seen(3)), true, None, ("True", "Running"), "Running", "3 pods of the edge accept spans"),
        (
            Some(seen(2)),
            true,
            None,
            ("False", "ReplicasNotReady"),
            "Running",
            "2 of 3 pods of the edge are ready",
        ),
        (Some(changed), true, None, ("False", "Progressing"), "Running", "about to be changed"),
        (Some(pulling), true, None, ("False", "ReplicasNotReady"), "EdgeNotReady", "a: ImagePullBackOff"),
        (Some(refused), true, None, ("False", "PodsRefused"), "Running", "exceeded quota"),
        (None, true, None, ("False", "Progressing"), "EdgeNotReady", "about to be started"),
        (
            None,
            false,
            None,
            ("False", "SecretMissing"),
            "EdgeNotReady",
            "the Secret \"edge-clients\" does not exist (spec.edge.",
        ),
        (
            Some(seen(3)),
            false,
            None,
            ("False", "SecretMissing"),
            "Running",
            "3 of 3 pods of the edge are ready",
        ),
        (
            Some(seen(3)),
            true,
            Some(TopicSeen::Missing),
            ("False", "TopicMissing"),
            "SourceUnavailable",
            "otlp_spans",
        ),
    ] {
        let mut facts = observed(&pipeline, 12);
        facts.workload = Some(running(&pipeline, &facts));
        facts.edge = edge;
        if !secret {
            facts.secrets.insert(SecretUse::EdgeBearerTokens, SecretSeen::Missing);
        }
        if let Some(seen) = topic {
            facts.partitions.insert("otlp_spans".into(), seen);
        }
        let said = said(&pipeline, &facts);
        let found = condition(&said, "EdgeReady").unwrap();
        assert_eq!((found.status.as_str(), found.reason.as_str()), expected, "{found:?}");
        assert!(found.message.contains(words), "{words}: {}", found.message);
        assert_eq!(condition(&said, "Ready").unwrap().reason, ready, "{words}");
    }
}

fn said(pipeline: &TracePipeline, facts: &Observed) -> sluice_crds::TracePipelineStatus {
    let now = Time("2026-01-01T00:00:00Z".parse().unwrap());
    status(pipeline, facts, plan(pipeline, facts, &defaults()).as_ref(), &now)
}

fn condition<'a>(
    said: &'a sluice_crds::TracePipelineStatus,
    kind: &str,
) -> Option<&'a k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition> {
    said.conditions.iter().find(|one| one.type_ == kind)
}

#[test]
fn brokers_that_are_away_are_the_reason_only_where_no_pod_is_ready() {
    let pipeline = sample("tracepipeline-edge.yaml");
    for (ready, reason) in [(3, "Running"), (0, "Unreachable")] {
        let mut facts = observed(&pipeline, 12);
        let away = TopicSeen::Unavailable { failure: SourceFailure::Unreachable, message: "no route".into() };
        facts.partitions.insert("otlp_spans".into(), away);
        facts.edge = Some(seen(ready));
        assert_eq!(condition(&said(&pipeline, &facts), "EdgeReady").unwrap().reason, reason);
    }
}

#[test]
fn the_status_has_an_edge_while_there_is_one() {
    let pipeline = sample("tracepipeline.yaml");
    let mut facts = observed(&pipeline, 12);
    let none = said(&pipeline, &facts);
    assert!(condition(&none, "EdgeReady").is_none() && none.edge.is_none());
    facts.edge = Some(EdgeSeen { pods: 2, ..EdgeSeen::default() });
    let leaving = said(&pipeline, &facts);
    assert!(condition(&leaving, "EdgeReady").unwrap().message.contains("2 pods end"));
    let pipeline = sample("tracepipeline-edge.yaml");
    let facts = Observed { edge: Some(seen(2)), ..observed(&pipeline, 12) };
    assert_eq!(said(&pipeline, &facts).edge, Some(EdgeStatus { replicas: 3, ready_replicas: 2 }));
}
