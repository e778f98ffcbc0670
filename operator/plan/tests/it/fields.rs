//! Fields that reach one place of one object, and no place when they are not set.

use crate::{defaults, observed, planned, with};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};
use sluice_crds::TracePipeline;
use sluice_plan::{Observed, Parts, WorkloadSeen, build, plan, pod_monitor};

/// The gateways' config of a pipeline with 12 partitions.
fn config(pipeline: &TracePipeline) -> Value {
    let config_map = build(&planned(pipeline, &observed(pipeline, 12))).into_parts().config_map;
    serde_saphyr::from_str(&config_map.data.unwrap()["gateway.yaml"]).unwrap()
}

#[test]
fn autoscaling_begins_within_its_bounds() {
    // Partitions, partitionsPerReplica 4, and the bounds, before anything is decided.
    for (partitions, scaling, expected) in [
        (96, json!({"mode": "Auto"}), 24),
        (96, json!({"mode": "Auto", "maxReplicas": 3}), 3),
        (96, json!({"mode": "Auto", "minReplicas": 30}), 30),
        (8, json!({"mode": "Auto", "minReplicas": 30}), 8),
        (96, json!({"mode": "Fixed"}), 24),
    ] {
        let pipeline = with("/spec/scaling", scaling.clone());
        let seen = Observed { workload: None, ..observed(&pipeline, partitions) };
        assert_eq!(planned(&pipeline, &seen).replicas(), expected, "{scaling}");
    }
}

#[test]
fn the_queue_is_bounded_where_the_spec_bounds_it() {
    for (queue, expected) in [
        // The gateway takes what its volume has.
        (json!({"size": "10Gi"}), Value::Null),
        (json!({"size": "10Gi", "maxBytes": "8Gi"}), json!("8GiB")),
        (json!({"mode": "Disabled", "size": "10Gi", "maxBytes": "8Gi"}), Value::Null),
    ] {
        assert_eq!(config(&with("/spec/queue", queue.clone()))["queue"]["maxBytes"], expected, "{queue}");
    }
}

#[test]
fn letters_of_all_topics_go_where_the_spec_says() {
    let at = |dead_letter: Value| {
        config(&with("/spec/delivery", json!({"deadLetter": dead_letter})))["delivery"]["deadLetter"]["topic"]
            .clone()
    };
    // A topic beside each of the source's, by the gateway's own rule.
    assert_eq!(at(json!({})), Value::Null);
    assert_eq!(at(json!({"topic": "unread"})), json!("unread"));
}

#[test]
fn rules_for_attributes_reach_the_gateways_and_none_leaves_their_config_as_it_was() {
    assert!(config(&with("/spec/queue", json!({}))).get("attributes").is_none());
    assert!(config(&with("/spec/attributes", json!({}))).get("attributes").is_none());
    let rule = |sets: Value| {
        let mut rule = json!({"action": "Hash", "keys": ["user.id", "http.*"]});
        if !sets.is_null() {
            rule["in"] = sets;
        }
        let attributes =
            json!({"valueBytesMax": "4Ki", "rules": [rule], "unreadableLetters": "WithoutValue"});
        config(&with("/spec/attributes", attributes))["attributes"].clone()
    };
    let all = json!({"valueBytesMax": "4KiB", "rules": [{"action": "Hash", "keys": ["user.id", "http.*"]}],
                     "unreadableLetters": "WithoutValue"});
    assert_eq!(rule(Value::Null), all);
    assert_eq!(rule(json!(["Link", "Event", "Span", "Scope", "Resource"])), all);
    assert_eq!(rule(json!(["Event", "Span"]))["rules"][0]["in"], json!(["Span", "Event"]));
}

#[test]
fn a_durability_of_tables_is_the_schema_jobs_and_a_quorum_is_the_gateways_too() {
    let parts = |schema: Value| {
        let pipeline = with("/spec/sink/clickhouse/schema", schema);
        let parts = build(&planned(&pipeline, &observed(&pipeline, 12))).into_parts();
        (config(&pipeline)["sink"]["clickhouse"]["schema"]["durability"].clone(), parts)
    };
    let (none, plain) = parts(json!({}));
    assert_eq!(none, Value::Null);
    for (durability, of_gateways, same_workload, same_job) in [
        ("Process", Value::Null, true, true),
        ("Fsync", Value::Null, true, false),
        ("Quorum", json!("Quorum"), false, false),
    ] {
        let (found, parts) = parts(json!({"durability": durability}));
        assert_eq!(found, of_gateways, "{durability}");
        assert_eq!(parts.workload == plain.workload, same_workload, "{durability}");
        assert_eq!(parts.schema_job == plain.schema_job, same_job, "{durability}");
    }
}

#[test]
fn a_quorum_without_replicas_is_refused() {
    let refused = |schema: Value, insert: Value| {
        let mut object = serde_json::to_value(with("/spec/sink/clickhouse/schema", schema)).unwrap();
        object["spec"]["sink"]["clickhouse"]["insert"] = insert;
        let pipeline: TracePipeline = serde_json::from_value(object).unwrap();
        let found = plan(&pipeline, &observed(&pipeline, 12), &defaults()).err();
        found.iter().flatten().map(|one| one.path.clone()).collect::<Vec<_>>()
    };
    let one = json!({"settings": {"insert_quorum": "1"}});
    assert_eq!(refused(json!({"durability": "Quorum"}), json!({})), [""; 0]);
    assert_eq!(
        refused(json!({"durability": "Quorum", "engine": "MergeTree"}), json!({})),
        ["spec.sink.clickhouse.schema.engine"]
    );
    assert_eq!(
        refused(json!({"durability": "Quorum"}), one),
        ["spec.sink.clickhouse.insert.settings.insert_quorum"]
    );
}

#[test]
fn what_surrounds_gateways_can_be_switched_off_and_changes_no_gateway() {
    let parts = |field: &str, value: Value| {
        let pipeline = with(&format!("/spec/{field}"), value);
        build(&planned(&pipeline, &observed(&pipeline, 12))).into_parts()
    };
    let plain = parts("podDisruptionBudget", Value::Null);
    let most = |parts: &Parts| {
        parts.disruption_budget.as_ref().map(|budget| budget.spec.clone().unwrap().max_unavailable.unwrap())
    };
    for (field, value, evicted_max, has_policy) in [
        ("podDisruptionBudget", Value::Null, Some(1), true),
        ("podDisruptionBudget", json!({}), Some(1), true),
        ("podDisruptionBudget", json!({"maxUnavailable": 3}), Some(3), true),
        ("podDisruptionBudget", json!({"enabled": false, "maxUnavailable": 3}), None, true),
        ("networkPolicy", json!({}), Some(1), true),
        ("networkPolicy", json!({"enabled": false}), Some(1), false),
        ("networkPolicy", json!({"metricsFrom": [{"podSelector": {}}]}), Some(1), true),
        ("networkPolicy", json!({"egressTo": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}), Some(1), true),
    ] {
        let parts = parts(field, value.clone());
        assert_eq!(most(&parts), evicted_max.map(IntOrString::Int), "{field} {value}");
        assert_eq!(parts.network_policy.is_some(), has_policy, "{field} {value}");
        assert_eq!(parts.workload, plain.workload, "{field} {value}");
        assert_eq!(parts.schema_job, plain.schema_job, "{field} {value}");
    }
}

#[test]
fn peers_that_the_server_would_refuse_are_named_also_where_there_is_no_policy() {
    for enabled in [true, false] {
        let rules =
            json!({"enabled": enabled, "metricsFrom": [{}], "egressTo": [{"ipBlock": {"cidr": "a"}}]});
        let pipeline = with("/spec/networkPolicy", rules);
        let found = plan(&pipeline, &observed(&pipeline, 12), &defaults()).unwrap_err();
        let paths: Vec<&str> = found.iter().map(|one| one.path.as_str()).collect();
        assert_eq!(paths, ["spec.networkPolicy.metricsFrom", "spec.networkPolicy.egressTo"]);
    }
}

/// One that stays unready would take the only place there is, and no node with another gateway could be drained.
#[test]
fn gateways_that_stay_unready_keep_no_other_from_being_evicted() {
    for (enabled, stay_unready, expected) in [(true, 0, Some(1)), (true, 2, Some(3)), (false, 2, None)] {
        let pipeline = with("/spec/podDisruptionBudget", json!({"enabled": enabled}));
        let mut seen = observed(&pipeline, 12);
        seen.workload = Some(WorkloadSeen { stay_unready, ..seen.workload.unwrap_or_default() });
        let budget = build(&planned(&pipeline, &seen)).into_parts().disruption_budget;
        let most = budget.map(|budget| budget.spec.unwrap().max_unavailable.unwrap());
        assert_eq!(most, expected.map(IntOrString::Int), "{enabled} {stay_unready}");
    }
}

#[test]
fn a_pod_monitor_is_made_where_it_is_asked_for_and_selects_the_gateways_alone() {
    let monitor = |observability: Value| {
        let pipeline = with("/spec/observability", observability);
        let plan = planned(&pipeline, &observed(&pipeline, 12));
        pod_monitor(&plan).map(|monitor| (json!(monitor), build(&plan).into_parts().workload.unwrap()))
    };
    for none in
        [Value::Null, json!({}), json!({"podMonitor": {}}), json!({"podMonitor": {"interval": "10s"}})]
    {
        assert_eq!(monitor(none.clone()), None, "{none}");
    }
    let asked =
        json!({"podMonitor": {"enabled": true, "labels": {"release": "prometheus"}, "interval": "10s"}});
    let (monitor, workload) = monitor(asked).unwrap();
    assert_eq!(monitor["metadata"]["labels"]["release"], "prometheus");
    assert_eq!(monitor["metadata"]["labels"]["app.kubernetes.io/managed-by"], "sluice-operator");
    let selected = &monitor["spec"]["selector"]["matchLabels"];
    let template = workload.spec.unwrap().template;
    let labels = json!(template.metadata.unwrap().labels.unwrap());
    assert!(selected.as_object().unwrap().iter().all(|(key, value)| labels[key] == *value), "{selected}");
    assert_eq!(selected["app.kubernetes.io/component"], "gateway", "the pods of Jobs have no such port");
    let endpoint = &monitor["spec"]["podMetricsEndpoints"][0];
    assert_eq!(endpoint["interval"], "10s");
    let ports = template.spec.unwrap().containers.remove(0).ports.unwrap();
    assert!(ports.iter().any(|port| json!(port.name) == endpoint["port"]), "{ports:?}");
}

#[test]
fn labels_of_a_pod_monitor_that_are_spelt_wrong_are_refused() {
    for labels in [json!({"a b": "c"}), json!({"a": "b c"}), json!({"app.kubernetes.io/name": "a"})] {
        let pipeline = with("/spec/observability", json!({"podMonitor": {"labels": labels}}));
        let found = plan(&pipeline, &observed(&pipeline, 12), &defaults()).unwrap_err();
        let paths: Vec<&str> = found.iter().map(|one| one.path.as_str()).collect();
        assert_eq!(paths, ["spec.observability.podMonitor.labels"], "{labels}");
    }
}

/// The rules of the definition about a field, which is named by its path in the spec.
fn rules(field: &str) -> Vec<String> {
    let crd = sluice_crds::crd();
    let at = format!(
        "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/{field}/x-kubernetes-validations"
    );
    let rules = crd.pointer(&at).unwrap().as_array().unwrap();
    rules.iter().map(|rule| rule["rule"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_definition_refuses_the_settings_of_inserts_that_the_gateway_would() {
    use sluice_gateway_config::insert_settings::{OWNED, owner};
    let rules = rules("sink/properties/clickhouse/properties/insert/properties/settings");
    let beginnings = rules.iter().flat_map(|rule| rule.split("startsWith('").skip(1));
    let beginnings: Vec<&str> = beginnings.map(|rest| rest.split('\'').next().unwrap()).collect();
    let lists = rules.iter().filter_map(|rule| rule.split_once("k in [")?.1.split(']').next());
    let names: Vec<&str> = lists.flat_map(|list| list.split('\'').skip(1).step_by(2)).collect();
    assert!(!names.is_empty() && !beginnings.is_empty(), "{rules:?}");
    for name in &names {
        assert!(owner(name).is_some(), "{name} is refused, and nothing else decides it");
    }
    for (name, _) in OWNED {
        let is_refused =
            names.contains(&name) || beginnings.iter().any(|beginning| name.starts_with(beginning));
        assert!(is_refused, "{name} is taken, although something else decides it");
    }
}

#[test]
fn the_definition_refuses_the_settings_of_kafka_that_the_gateway_would() {
    use sluice_gateway_config::kafka_properties::{OWNED, TUNED, owner};
    let rules = rules("source/properties/kafka/properties/properties");
    let names: Vec<&str> = rules.iter().flat_map(|rule| rule.split('\'').skip(1).step_by(2)).collect();
    for name in &names {
        let example = if name.ends_with('.') { format!("{name}x") } else { (*name).to_owned() };
        assert!(owner(&example).is_some(), "{name} is refused, and nothing else decides it");
    }
    for name in OWNED.iter().map(|(name, _)| *name).chain(TUNED) {
        let is_refused = names
            .iter()
            .any(|refused| *refused == name || refused.ends_with('.') && name.starts_with(refused));
        assert!(is_refused, "{name} is taken, although something else decides it");
    }
}
