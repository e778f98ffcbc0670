//! `plan` refuses what an API server would refuse, with its words: the same values that are tried on a real one.

#[allow(dead_code, reason = "rules about a change are not asked of a file")]
#[path = "../../../../crds/tests/it/cases.rs"]
mod cases;

use cases::{AFTER_ENQUEUE, REPLICAS, value_cases};
use serde_json::{Value, json};
use sluice_kubectl::plan::{Assumed, outline};

const SMALLEST: &str = include_str!("../../../../config/samples/tracepipeline.yaml");

#[test]
fn what_a_rule_takes_is_taken() {
    for case in value_cases() {
        for value in case.taken {
            let found = told(&with(case.pointer, value));
            assert!(!found.contains(case.message), "{} {value}: {found}", case.pointer);
        }
    }
}

#[test]
fn what_a_rule_refuses_is_refused_with_its_message() {
    for case in value_cases() {
        for value in case.refused {
            let found = told(&with(case.pointer, value));
            assert!(found.contains(case.message), "{} {value}: {found}", case.pointer);
        }
    }
}

#[test]
fn rules_between_fields_are_asked_with_every_default_filled_in() {
    for (replicas, mode, message) in REPLICAS {
        let mut object = with("/spec/scaling", &json!({"mode": mode}).to_string());
        object["spec"]["replicas"] = serde_json::from_str(replicas).unwrap();
        let found = told(&object);
        assert_eq!(found.is_empty(), message.is_empty(), "{mode} {replicas}: {found}");
        assert!(found.contains(message), "{mode} {replicas}: {found}");
    }
    for (mode, on_timeout, message) in AFTER_ENQUEUE {
        let mut object = with("/spec/delivery", r#"{"commit": "AfterEnqueue"}"#);
        object["spec"]["queue"] = json!({"mode": mode});
        object["spec"]["scaling"] = json!({"drain": {"onTimeout": on_timeout}});
        let found = told(&object);
        assert_eq!(found.is_empty(), message.is_empty(), "{mode} {on_timeout}: {found}");
        assert!(found.contains(message), "{mode} {on_timeout}: {found}");
    }
}

#[test]
fn every_violation_is_told_with_its_path() {
    let mut object = smallest();
    object["metadata"]["name"] = "1a".into();
    object["spec"]["partitionsPerReplica"] = 0.into();
    object["spec"]["queue"] = json!({"size": "1Ki", "maxBites": "3Gi"});
    object["spec"]["source"]["kafka"]["topics"] = json!(["", "c", "c"]);
    object["spec"]["gateway"] = json!({"resources": {"limits": {"memory": "64Mi"}}});
    let found = told(&object);
    let paths: Vec<_> = found.lines().filter_map(|line| line.split_once(": ")).map(|line| line.0).collect();
    let expected = [
        "spec.partitionsPerReplica",
        "spec.source.kafka.topics",
        "spec.source.kafka.topics[0]",
        "spec.queue.maxBites",
        "metadata.name",
        "spec.queue.size",
        "spec.gateway.resources.limits.memory",
    ];
    for path in expected {
        assert!(paths.contains(&path), "{path} is not in {found}");
    }
    assert!(paths.is_sorted(), "the order is the same in each run: {found}");
}

/// A rule of the CRD says it, beside what its schema says of other fields.
#[test]
fn a_topic_with_a_space_is_told_without_a_server() {
    let mut object = with("/spec/source/kafka/topics", r#"["a b"]"#);
    object["spec"]["partitionsPerReplica"] = 0.into();
    let found = told(&object);
    for told in
        ["spec.partitionsPerReplica: ", "spec.source.kafka.topics: each of topics is the name of a topic"]
    {
        assert!(found.lines().any(|line| line.starts_with(told)), "{told} is not in {found}");
    }
}

#[test]
fn values_of_wrong_types_are_all_told() {
    let mut object = smallest();
    object["spec"]["replicas"] = "three".into();
    object["spec"]["delivery"] = json!({"commit": "Sometimes"});
    object["spec"]["sink"] = json!({});
    let found = told(&object);
    for part in ["spec.replicas: ", "spec.delivery.commit: ", "spec.sink: "] {
        assert!(found.lines().any(|line| line.starts_with(part)), "{part} is not in {found}");
    }
    assert!(found.ends_with(MORE), "{found}");
}

/// The last line where fields must be corrected before others can be checked.
const MORE: &str = "\nchecks that depend on these fields follow once they are corrected";

#[test]
fn what_only_the_planner_refuses_is_told_beside_values_of_wrong_types() {
    let shards = r#"{"shards": [{"endpoints": ["http://a:8123"]}, {"endpoints": ["http://A:8123/"]}]}"#;
    let mut object = with("/spec/sink/clickhouse", shards);
    object["spec"]["replicas"] = "three".into();
    object["spec"]["delivery"] = json!({"commit": "Sometimes"});
    let found = told(&object);
    for part in [
        "spec.replicas: ",
        "spec.delivery.commit: ",
        "spec.sink.clickhouse.shards[1].endpoints: \"http://A:8123/\" and \"http://a:8123\" of shards[0] are one address",
    ] {
        assert!(found.lines().any(|line| line.starts_with(part)), "{part} is not in {found}");
    }
    assert!(found.ends_with(MORE), "{found}");
}

/// The planner ends early at what a rule refuses, too.
#[test]
fn what_a_rule_refuses_hides_nothing_that_does_not_depend_on_it() {
    let shards = json!([{"endpoints": ["http://a:8123"]}, {"endpoints": ["http://A:8123/"]}]);
    let column = json!([{"name": "ServiceName", "type": "String"}]);
    let of_column = "spec.sink.clickhouse.schema.columns.ServiceName: ";
    let of_memory = "spec.gateway.resources.limits.memory: ";
    let night =
        json!({"name": "a", "from": "25:00", "to": "18:00", "timeZone": "Mars/City", "minReplicas": 2});
    for (values, parts, is_partial) in [
        (
            vec![("/spec/scaling/schedules", json!([night]))],
            [
                "spec.scaling.schedules[0].from: ",
                "spec.scaling.schedules[0].timeZone: \"a\": timeZone \"Mars/City\"",
            ],
            true,
        ),
        (
            vec![("/spec/sink/clickhouse/schema", json!({"ttl": "forever", "columns": column}))],
            ["spec.sink.clickhouse.schema.ttl: ", of_column],
            false,
        ),
        (
            vec![
                ("/spec/sink/clickhouse/endpoints", json!(["http://u:p@h:8123"])),
                ("/spec/sink/clickhouse/schema", json!({"columns": column})),
            ],
            ["spec.sink.clickhouse.endpoints: ", of_column],
            false,
        ),
        (
            vec![
                ("/spec/queue", json!({"size": "1Gi", "maxBytes": "999Mi"})),
                ("/spec/gateway/workers", json!(32)),
            ],
            ["spec.queue: maxBytes must be at most 95 %", of_memory],
            true,
        ),
        (
            vec![("/metadata/name", json!("Bad_Name")), ("/spec/sink/clickhouse", json!({"shards": shards}))],
            ["metadata.name: ", "spec.sink.clickhouse.shards[1].endpoints: "],
            true,
        ),
        (
            vec![
                ("/spec/gateway/resources/limits/memory", json!("lots")),
                ("/spec/sink/clickhouse", json!({"shards": shards})),
            ],
            [of_memory, "spec.sink.clickhouse.shards[1].endpoints: "],
            true,
        ),
    ] {
        let mut object = smallest();
        for (pointer, value) in values {
            set(&mut object, pointer, value);
        }
        let found = told(&object);
        for part in parts {
            assert!(found.lines().any(|line| line.starts_with(part)), "{part} is not in {found}");
        }
        assert_eq!(found.ends_with(MORE), is_partial, "{found}");
    }
}

/// A rule stands at the object, and the planner names the field.
#[test]
fn one_cause_is_told_once() {
    for (values, field, rule) in [
        (
            vec![("/spec/queue", json!({"size": "1Gi", "maxBytes": "2Gi"}))],
            "spec.queue.maxBytes",
            "spec.queue: maxBytes must",
        ),
        (
            vec![("/spec/source", json!({"otlp": {}})), ("/spec/queue/mode", json!("Disabled"))],
            "spec.queue.mode",
            "spec: source.otlp needs queue.mode Spill",
        ),
        (
            vec![("/spec/source", json!({"otlp": {}})), ("/spec/scaling", json!({"mode": "Auto"}))],
            "spec.scaling.maxReplicas",
            "spec: source.otlp with scaling.mode Auto or Recommend needs scaling.maxReplicas",
        ),
        (
            vec![(
                "/spec/gateway/resources",
                json!({"limits": {"cpu": 1, "memory": "512Mi"}, "requests": {"cpu": 2}}),
            )],
            "spec.gateway.resources.limits.cpu",
            "spec.gateway.resources: limits.cpu must",
        ),
        (
            vec![(
                "/spec/gateway/resources",
                json!({"limits": {"memory": "512Mi"}, "requests": {"memory": "256Mi"}}),
            )],
            "spec.gateway.resources.requests.memory",
            "spec.gateway.resources: requests.memory must",
        ),
        (
            vec![("/spec/edge", json!({"topic": "other"}))],
            "spec.edge.topic",
            "spec: edge.topic is one of source.kafka.topics",
        ),
        (
            vec![("/spec/source/kafka/properties", json!({"enable.auto.commit": "true"}))],
            "spec.source.kafka.properties.enable.auto.commit",
            "spec.source.kafka.properties: properties has a name",
        ),
        (
            vec![("/spec/sink/clickhouse/endpoints", json!(["ftp://x"]))],
            "spec.sink.clickhouse.endpoints[0]",
            "spec.sink.clickhouse.endpoints: each of endpoints is",
        ),
    ] {
        let mut object = smallest();
        for (pointer, value) in values {
            set(&mut object, pointer, value);
        }
        let found = told(&object);
        assert!(found.lines().any(|line| line.starts_with(rule)), "{rule} is not in {found}");
        assert!(!found.contains(&format!("{field}: ")), "{found}");
    }
}

/// Values by their pointers, the field that the planner would name, and the beginning of what the rule says.
pub type Repeated = (&'static [(&'static str, &'static str)], &'static str, &'static str);

/// The rules say beside their expression at which field the planner refuses the same thing.
#[test]
fn what_a_rule_and_the_planner_refuse_is_told_once() {
    const SCHEMA: &str = "/spec/sink/clickhouse/schema";
    const OTLP: (&str, &str) = ("/spec/source", r#"{"otlp": {}}"#);
    let cases: [Repeated; 10] = [
        (
            &[("/spec/delivery/commit", r#""AfterEnqueue""#), ("/spec/queue/mode", r#""Disabled""#)],
            "spec.delivery.commit",
            "spec: delivery.commit AfterEnqueue needs",
        ),
        (
            &[("/spec/delivery/deadLetter/topic", r#""otlp_spans""#)],
            "spec.delivery.deadLetter.topic",
            "spec: delivery.deadLetter.topic is a topic",
        ),
        (
            &[("/spec/edge", "{}"), ("/spec/source/kafka/format", r#""OtlpJson""#)],
            "spec.edge",
            "spec: edge needs",
        ),
        (
            &[("/spec/edge", r#"{"requestBytesMax": "32Mi", "decompressedBytesMax": "16Mi"}"#)],
            "spec.edge.decompressedBytesMax",
            "spec.edge: edge.decompressedBytesMax must",
        ),
        (
            &[OTLP, ("/spec/delivery/commit", r#""AfterEnqueue""#)],
            "spec.delivery.commit",
            "spec: delivery.commit AfterEnqueue cannot",
        ),
        (
            &[OTLP, ("/spec/delivery/deadLetter/topic", r#""a""#)],
            "spec.delivery.deadLetter.topic",
            "spec: delivery.deadLetter.topic cannot",
        ),
        (
            &[("/spec/sink/clickhouse/tls", "{}")],
            "spec.sink.clickhouse.tls",
            "spec.sink.clickhouse: tls is set",
        ),
        (
            &[(SCHEMA, r#"{"layout": "Map", "maxDynamicPaths": 8}"#)],
            "spec.sink.clickhouse.schema.layout",
            "spec.sink.clickhouse.schema: layout must",
        ),
        (
            &[(SCHEMA, r#"{"preset": "ClickStack", "maxDynamicPaths": 8}"#)],
            "spec.sink.clickhouse.schema.preset",
            "spec.sink.clickhouse.schema: preset ClickStack stores",
        ),
        (
            &[("/spec/source/kafka/sasl", r#"{"mechanism": "OAuthBearer"}"#)],
            "spec.source.kafka.sasl.oauth",
            "spec.source.kafka.sasl: sasl.mechanism OAuthBearer needs",
        ),
    ];
    for (values, field, rule) in cases {
        told_once(values, field, rule);
    }
}

/// With these values, `plan` says the rule, and nothing else at the field.
pub fn told_once(values: &[(&str, &str)], field: &str, rule: &str) {
    let mut object = smallest();
    for (pointer, value) in values {
        set(&mut object, pointer, serde_json::from_str(value).unwrap());
    }
    let found = told(&object);
    assert!(found.lines().any(|line| line.starts_with(rule)), "{rule} is not in {found}");
    assert!(!found.contains(&format!("{field}: ")), "{found}");
}

/// The rule names the size, and demands something of `maxBytes`.
#[test]
fn a_field_that_a_rule_only_mentions_is_told() {
    let mut object = with("/spec/queue", r#"{"size": "64Mi", "maxBytes": "63Mi"}"#);
    set(&mut object, "/spec/source", json!({"otlp": {}}));
    set(&mut object, "/spec/gateway", json!({"resources": {"limits": {"memory": "1Gi"}}}));
    let found = told(&object);
    for part in [
        "spec.queue: maxBytes must be at most 95 % of size",
        "spec.queue.size: a volume of this size has less",
    ] {
        assert!(found.lines().any(|line| line.starts_with(part)), "{part} is not in {found}");
    }
}

#[test]
fn two_entries_that_only_the_planner_refuses_are_both_told() {
    let found = told(&with("/spec/sink/clickhouse/endpoints", r#"["http://a:99998", "http://b:99999"]"#));
    for part in ["http://a:99998", "http://b:99999"] {
        assert!(found.contains(part), "{part} is not in {found}");
    }
}

#[test]
fn what_follows_from_a_substitute_is_not_told() {
    let (rule, at) = ("spec.queue: maxBytes must", "spec.queue.maxBytes: ");
    let found = told(&with("/spec/queue", r#"{"size": "10Gi", "maxBytes": "20Gi"}"#));
    assert!(found.lines().any(|line| line.starts_with(rule)), "{found}");
    let found = told(&with("/spec/queue", r#"{"size": true, "maxBytes": "20Gi"}"#));
    assert!(found.starts_with("spec.queue.size: ") && !found.contains(at), "{found}");
    assert!(found.ends_with(MORE), "{found}");
}

/// The API server first names types and bounds alone. The message about a choice lists all values of it.
#[test]
fn values_of_wrong_types_do_not_hide_what_rules_and_names_say() {
    let mut object = with("/spec/source/kafka/topics", r#"["a b"]"#);
    object["metadata"]["labels"] = json!({"team": "a".repeat(64)});
    object["spec"]["replicas"] = "three".into();
    object["spec"]["scaling"] = json!({"mode": "Sometimes", "maxReplica": 3});
    let found = told(&object);
    for part in [
        "spec.replicas: ",
        "spec.scaling.mode: \"Sometimes\" is none of \"Fixed\", \"Auto\", \"Recommend\", \"External\"",
        "spec.scaling.maxReplica: there is no such field",
        "spec.source.kafka.topics: each of topics is the name of a topic",
        "metadata.labels: ",
    ] {
        assert!(found.lines().any(|line| line.starts_with(part)), "{part} is not in {found}");
    }
}

#[test]
fn entries_that_are_one_to_the_api_server_are_told() {
    for (pointer, value, expected) in [
        (
            "/spec/gateway/imagePullSecrets",
            r#"[{"name": "a"}, {"name": "a"}]"#,
            "[1]: another entry has name \"a\"",
        ),
        (
            "/spec/gateway/podTemplate/env",
            r#"[{"name": "A", "value": "1"}, {"name": "B"}, {"name": "A"}]"#,
            "[2]: another entry has name \"A\"",
        ),
        (
            "/spec/scaling/schedules",
            r#"[{"name": "a", "from": "08:00", "to": "09:00", "minReplicas": 2}, {"name": "a", "from": "10:00", "to": "11:00", "minReplicas": 2}]"#,
            "[1]: another entry has name \"a\"",
        ),
        ("/spec/source/kafka/topics", r#"["a", "b", "a"]"#, "[2]: \"a\" is listed twice"),
    ] {
        let found = told(&with(pointer, value));
        let expected = format!("{}{expected}", pointer.trim_start_matches('/').replace('/', "."));
        assert!(found.lines().any(|line| line.starts_with(&expected)), "{expected} is not in {found}");
    }
}

pub fn smallest() -> Value {
    serde_saphyr::from_str(SMALLEST).unwrap()
}

/// The smallest pipeline with one value in it.
fn with(pointer: &str, value: &str) -> Value {
    let mut object = smallest();
    set(&mut object, pointer, serde_json::from_str(value).unwrap());
    object
}

pub fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    for field in pointer.split('/').skip(1) {
        at = &mut at[field];
    }
    *at = value;
}

/// All that is wrong with it.
pub fn told(object: &Value) -> String {
    let assumed = Assumed {
        partitions: 12,
        server: None,
        gateway_image: "sluice-gateway:0.1.0".to_owned(),
        namespace: "default".to_owned(),
        pipeline: None,
        connections: Vec::new(),
    };
    outline(&object.to_string(), &assumed).err().map(|found| found.to_string()).unwrap_or_default()
}
