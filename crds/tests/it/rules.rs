//! Every CEL rule, with values that it takes and values that it refuses.

use crate::{defaulted, sample, schema, smallest};
use kube_cel::{Validator, compile_schema, estimate_rule_cost};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// One rule: where the value stands, what is taken, what is refused, and a part of the message.
struct Case {
    pointer: &'static str,
    taken: &'static [&'static str],
    refused: &'static [&'static str],
    message: &'static str,
}

/// Rules about a value by itself. Values are JSON.
const VALUES: &[Case] = &[
    Case {
        pointer: "/metadata/name",
        taken: &[r#""a""#, r#""prod-traces""#, r#""a2345678901234567890123456789012345678901234""#],
        refused: &[r#""a23456789012345678901234567890123456789012345""#, r#""a.b""#, r#""1a""#, r#""a-""#],
        message: "the name of a TracePipeline",
    },
    Case {
        pointer: "/spec/source/kafka/bootstrapServers",
        taken: &[r#"["kafka:9092"]"#, r#"["kafka-0.kafka.svc:9092", "[::1]:9093"]"#],
        refused: &[
            r#"["kafka"]"#,
            r#"["kafka:9092", "kafka:0"]"#,
            r#"["PLAINTEXT://kafka:9092"]"#,
            r#"["a:1,b:2"]"#,
        ],
        message: "each of bootstrapServers is host:port",
    },
    Case {
        pointer: "/spec/source/kafka/recordBatchBytesMax",
        taken: &[r#""64Ki""#, r#""1Mi""#, r#""256Mi""#],
        refused: &[r#""63Ki""#, r#""257Mi""#, r#""1M""#, r#""0Mi""#, r#""1.5Mi""#, r#""""#],
        message: "recordBatchBytesMax is a whole number",
    },
    Case {
        pointer: "/spec/sink/clickhouse/endpoints",
        taken: &[
            r#"["http://clickhouse:8123"]"#,
            r#"["http://10.0.0.1:8123/", "http://b:80"]"#,
            r#"["https://clickhouse:8443"]"#,
        ],
        refused: &[
            r#"["clickhouse:8123"]"#,
            r#"["https://clickhouse"]"#,
            r#"["tcp://clickhouse:9440"]"#,
            r#"["http://clickhouse"]"#,
            r#"["http://user:password@clickhouse:8123"]"#,
            r#"["http://clickhouse:8123/path"]"#,
        ],
        message: "each of endpoints is http://host:port",
    },
    Case {
        pointer: "/spec/sink/clickhouse/endpoints",
        taken: &[r#"["https://a:8443", "https://b:8443"]"#],
        refused: &[r#"["https://a:8443", "http://b:8123"]"#],
        message: "endpoints are all http or all https",
    },
    Case {
        pointer: "/spec/sink/clickhouse",
        taken: &[
            r#"{"endpoints": ["https://a:8443"], "tls": {}}"#,
            r#"{"endpoints": ["https://a:8443"], "tls": {"caSecretRef": {"name": "ca"}}}"#,
            r#"{"endpoints": ["https://a:8443"]}"#,
            r#"{"endpoints": ["http://a:8123"]}"#,
        ],
        refused: &[r#"{"endpoints": ["http://a:8123"], "tls": {}}"#],
        message: "tls is set, but endpoints are http",
    },
    Case {
        pointer: "/spec/sink/clickhouse/schema",
        taken: &[
            r#"{"maxDynamicPaths": 0}"#,
            r#"{"layout": "Json", "maxDynamicPaths": 8, "typedPaths": {"span": {"a": "Int64"}}}"#,
            r#"{"layout": "Map"}"#,
        ],
        refused: &[
            r#"{"layout": "Map", "maxDynamicPaths": 8}"#,
            r#"{"layout": "Nested", "typedPaths": {"span": {"a": "Int64"}}}"#,
            r#"{"layout": "Nested", "typedPaths": {"resource": {"a": "Int64"}}}"#,
        ],
        message: "layout must be Json",
    },
    Case {
        pointer: "/spec/sink/clickhouse/schema",
        taken: &[
            r#"{"engine": "Null", "views": ["Operations"]}"#,
            r#"{"engine": "ReplicatedMergeTree", "ttl": "30d", "orderBy": ["toStartOfHour(Timestamp)"]}"#,
        ],
        refused: &[r#"{"engine": "Null", "ttl": "30d"}"#, r#"{"engine": "Null", "orderBy": ["TraceId"]}"#],
        message: "engine Null stores nothing",
    },
    Case {
        pointer: "/spec/sink/clickhouse/schema/ttl",
        taken: &[r#""1h""#, r#""720h""#, r#""30d""#, r#""36500d""#],
        refused: &[r#""0d""#, r#""30""#, r#""1d12h""#, r#""90m""#, r#""100000d""#],
        message: "ttl is a whole number of h or d",
    },
    Case {
        pointer: "/spec/sink/clickhouse/insert/settings",
        taken: &["{}", r#"{"insert_quorum": "2", "max_partitions_per_insert_block": "10"}"#],
        refused: &[
            r#"{"async_insert": "1"}"#,
            r#"{"insert_quorum": "2", "max_insert_block_size_rows": "10"}"#,
            r#"{"insert_deduplication_token": "a"}"#,
            r#"{"deduplicate_insert": "disable"}"#,
            r#"{"input_format_allow_errors_num": "1"}"#,
            r#"{"wait_end_of_query": "0"}"#,
            r#"{"query": "DROP TABLE a"}"#,
        ],
        message: "settings has a name that the gateway decides",
    },
    Case {
        pointer: "/spec/gateway/image",
        taken: &[r#""""#, r#""sluice-gateway:0.1.0""#, r#""r.example.com:5000/a/b@sha256:00ff""#],
        refused: &[r#"" a:1""#, r#""a:1\n""#, r#""é:1""#, r#""a b""#],
        message: "image is a reference",
    },
    Case {
        pointer: "/spec/queue/storageClassName",
        taken: &[r#""fast""#, r#""csi.example.com""#, r#""0""#],
        refused: &[r#""Fast""#, r#""éast""#, r#""-fast""#, r#""fast\n""#, r#""a/b""#],
        message: "storageClassName is the name of a StorageClass",
    },
    Case {
        pointer: "/spec/gateway/resources/memory",
        taken: &[r#""128Mi""#, r#""512Mi""#, r#""2Gi""#],
        refused: &[r#""127Mi""#, r#""512""#, r#""512M""#, r#""0.5Gi""#, r#""524288Ki""#, r#""much""#],
        message: "memory is a whole number of Mi or Gi",
    },
    Case {
        pointer: "/spec/gateway/resources/cpuRequest",
        taken: &[r#""10m""#, r#""500m""#, r#""1.5""#, r#""64""#],
        refused: &[r#""9m""#, r#""65""#, r#""1k""#, r#""-1""#, r#""""#],
        message: "cpuRequest is a number of cores",
    },
    Case {
        pointer: "/spec/gateway/resources/cpuLimit",
        taken: &[r#""500m""#, r#""256""#],
        refused: &[r#""257""#, r#""many""#],
        message: "cpuLimit is a number of cores",
    },
    Case {
        pointer: "/spec/gateway/resources",
        taken: &[
            r#"{"cpuRequest": "500m", "cpuLimit": "0.5"}"#,
            r#"{"cpuRequest": "2"}"#,
            r#"{"cpuRequest": "1", "cpuLimit": "1500m"}"#,
        ],
        refused: &[r#"{"cpuRequest": "2", "cpuLimit": "1999m"}"#, r#"{"cpuLimit": "100m"}"#],
        message: "cpuLimit must not be less than cpuRequest",
    },
    Case {
        pointer: "/spec/gateway/terminationGracePeriod",
        taken: &[r#""15s""#, r#""2m""#, r#""1h""#],
        refused: &[r#""14s""#, r#""2h""#, r#""60""#, r#""1m30s""#, r#""1500ms""#],
        message: "terminationGracePeriod is a whole number",
    },
    Case {
        pointer: "/spec/queue/size",
        taken: &[r#""64Mi""#, r#""10Gi""#, r#""1Ti""#],
        refused: &[r#""63Mi""#, r#""10G""#, r#""10""#, r#""0Gi""#],
        message: "size is a whole number of Mi, Gi or Ti",
    },
    Case {
        pointer: "/spec/scaling",
        taken: &["{}", r#"{"maxReplicas": 1}"#, r#"{"minReplicas": 3, "maxReplicas": 3, "mode": "Auto"}"#],
        refused: &[
            r#"{"minReplicas": 2, "maxReplicas": 1}"#,
            r#"{"minReplicas": 4, "maxReplicas": 3, "mode": "Auto"}"#,
        ],
        message: "minReplicas must not be more than maxReplicas",
    },
    Case {
        pointer: "/spec/scaling/targetLag",
        taken: &[r#""30s""#, r#""10m""#, r#""24h""#],
        refused: &[r#""29s""#, r#""25h""#, r#""600""#, r#""1m30s""#],
        message: "targetLag is a whole number",
    },
    Case {
        pointer: "/spec/scaling/scaleDownAfter",
        taken: &[r#""60s""#, r#""1h""#],
        refused: &[r#""59s""#, r#""61m""#, r#""0m""#],
        message: "scaleDownAfter is a whole number",
    },
    Case {
        pointer: "/spec/scaling/drain/timeout",
        taken: &[r#""10s""#, r#""6h""#],
        refused: &[r#""9s""#, r#""7h""#, r#""long""#],
        message: "timeout is a whole number",
    },
    Case {
        pointer: "/spec/scaling/schedules",
        taken: &[
            r#"[{"name": "a", "from": "00:00", "to": "23:59", "minReplicas": 2}]"#,
            r#"[{"name": "a", "from": "22:00", "to": "06:00", "minReplicas": 2, "maxReplicas": 2, "days": ["Sunday"]}]"#,
        ],
        refused: &[r#"[{"name": "a", "from": "00:00", "to": "23:59", "minReplicas": 3, "maxReplicas": 2}]"#],
        message: "minReplicas of a schedule must not be more",
    },
    Case {
        pointer: "/spec/scaling/schedules",
        taken: &[r#"[{"name": "a", "from": "00:00", "to": "23:59", "maxReplicas": 2}]"#],
        refused: &[r#"[{"name": "a", "from": "00:00", "to": "23:59"}]"#],
        message: "a schedule has minReplicas or maxReplicas",
    },
    Case {
        pointer: "/spec/scaling/schedules",
        taken: &[r#"[{"name": "a", "from": "09:05", "to": "10:00", "maxReplicas": 2}]"#],
        refused: &[
            r#"[{"name": "a", "from": "9:05", "to": "10:00", "maxReplicas": 2}]"#,
            r#"[{"name": "a", "from": "24:00", "to": "10:00", "maxReplicas": 2}]"#,
        ],
        message: "from is hours and minutes",
    },
    Case {
        pointer: "/spec/scaling/schedules",
        taken: &[r#"[{"name": "a", "from": "09:05", "to": "23:59", "maxReplicas": 2}]"#],
        refused: &[r#"[{"name": "a", "from": "09:05", "to": "10:60", "maxReplicas": 2}]"#],
        message: "to is hours and minutes",
    },
    Case {
        pointer: "/spec/scaling/schedules",
        taken: &[
            r#"[{"name": "a", "from": "09:05", "to": "23:59", "maxReplicas": 2, "utcOffset": "-03:30"}]"#,
        ],
        refused: &[
            r#"[{"name": "a", "from": "09:05", "to": "23:59", "maxReplicas": 2, "utcOffset": "2"}]"#,
            r#"[{"name": "a", "from": "09:05", "to": "23:59", "maxReplicas": 2, "utcOffset": "+15:00"}]"#,
        ],
        message: "utcOffset is a sign, hours and minutes",
    },
];

/// Rules about replicas and who sets it: `replicas`, the mode, and a part of the message when it is refused.
const REPLICAS: &[(&str, &str, &str)] = &[
    ("null", "Fixed", ""),
    ("3", "Fixed", ""),
    ("null", "Auto", ""),
    ("3", "Auto", "replicas is the operator's while scaling.mode is Auto"),
    ("null", "Recommend", ""),
    ("3", "Recommend", ""),
    ("3", "External", ""),
    ("null", "External", "replicas must be set while scaling.mode is External"),
];

/// Rules about a change: from, to, whether it is taken, and a part of the message.
const CHANGES: &[(&str, &str, &str, bool, &str)] = &[
    ("/spec/source/kafka/consumerGroup", r#""""#, r#""a""#, true, ""),
    ("/spec/source/kafka/consumerGroup", r#""a""#, r#""a""#, true, ""),
    ("/spec/source/kafka/consumerGroup", r#""a""#, r#""b""#, false, "consumerGroup cannot be changed"),
    ("/spec/source/kafka/consumerGroup", r#""a""#, r#""""#, false, "consumerGroup cannot be changed"),
    ("/spec/queue", "{}", r#"{"size": "10Gi", "mode": "Spill"}"#, true, ""),
    ("/spec/queue", "{}", r#"{"size": "11Gi"}"#, false, "queue cannot be changed"),
    ("/spec/queue", "{}", r#"{"mode": "Disabled"}"#, false, "queue cannot be changed"),
    ("/spec/queue", "{}", r#"{"storageClassName": "fast"}"#, false, "queue cannot be changed"),
    ("/spec/replicas", "1", "2", true, ""),
    ("/spec/gateway/resources/memory", r#""512Mi""#, r#""256Mi""#, true, ""),
];

#[test]
fn the_samples_keep_every_rule() {
    for name in ["tracepipeline.yaml", "tracepipeline-full.yaml"] {
        assert_eq!(failures(&sample(name), None), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn each_rule_takes_what_is_right() {
    for case in VALUES {
        for value in case.taken {
            let found = failures(&with(case.pointer, value), None);
            assert!(found.is_empty(), "{} {value}: {found:?}", case.pointer);
        }
    }
}

#[test]
fn each_rule_refuses_what_is_wrong_with_its_message() {
    for case in VALUES {
        for value in case.refused {
            let found = failures(&with(case.pointer, value), None);
            assert!(found.iter().any(|m| m.contains(case.message)), "{} {value}: {found:?}", case.pointer);
        }
    }
}

#[test]
fn each_transition_rule_sees_the_change() {
    for (pointer, from, to, taken, message) in CHANGES {
        let found = failures(&with(pointer, to), Some(&with(pointer, from)));
        assert_eq!(found.is_empty(), *taken, "{pointer} {from} -> {to}: {found:?}");
        assert!(*taken || found.iter().any(|m| m.contains(message)), "{pointer} {from} -> {to}: {found:?}");
    }
}

#[test]
fn replicas_belongs_to_whoever_sets_it() {
    for (replicas, mode, message) in REPLICAS {
        let mut object = with("/spec/scaling", &json!({"mode": mode}).to_string());
        if *replicas != "null" {
            object["spec"]["replicas"] = serde_json::from_str(replicas).unwrap();
        }
        let found = failures(&object, None);
        assert_eq!(found.is_empty(), message.is_empty(), "{mode} {replicas}: {found:?}");
        assert!(found.iter().all(|m| m.contains(message)), "{mode} {replicas}: {found:?}");
    }
}

#[test]
fn every_rule_compiles_stays_cheap_and_is_tried() {
    let refused: Vec<_> = VALUES
        .iter()
        .map(|case| case.message)
        .chain(CHANGES.iter().map(|c| c.4))
        .chain(REPLICAS.iter().map(|c| c.2))
        .collect();
    let mut rules = BTreeSet::new();
    collect(&schema(), &mut rules);
    assert!(rules.len() >= 12, "{rules:?}");
    for (schema, message) in &rules {
        let compiled = compile_schema(&serde_json::from_str(schema).unwrap());
        assert!(!compiled.has_errors(), "{:?}", compiled.compilation_errors());
        for rule in compiled.validations.iter().flatten() {
            let warnings = estimate_rule_cost(&rule.rule.rule, &compiled);
            assert!(warnings.is_empty(), "{warnings:?}");
        }
        let tried = refused.iter().any(|part| !part.is_empty() && message.contains(part));
        assert!(tried, "no test is refused by: {message}");
    }
}

/// The smallest pipeline with one value in it.
fn with(pointer: &str, value: &str) -> Value {
    let mut object = defaulted(&smallest());
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[field] = serde_json::from_str(value).unwrap();
    object
}

/// The messages of the rules that a pipeline breaks.
fn failures(object: &Value, old: Option<&Value>) -> Vec<String> {
    let old = old.map(defaulted);
    match Validator::new().validate(&schema(), &defaulted(object), old.as_ref()) {
        Ok(()) => Vec::new(),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

/// Every schema node that has rules, as text, with the message of each rule.
fn collect(value: &Value, into: &mut BTreeSet<(String, String)>) {
    if let Some(rules) = value.get("x-kubernetes-validations").and_then(Value::as_array) {
        for rule in rules {
            let message = rule["message"].as_str().expect("each rule has a message");
            assert!(!message.contains('\n'), "{message}");
            into.insert((value.to_string(), message.to_owned()));
        }
    }
    match value {
        Value::Object(fields) => fields.values().for_each(|field| collect(field, into)),
        Value::Array(items) => items.iter().for_each(|item| collect(item, into)),
        _ => {}
    }
}

#[test]
fn the_defaults_of_the_test_are_those_of_the_server() {
    let queue = defaulted(&json!({"spec": {}}));
    assert_eq!(
        queue["spec"]["gateway"]["resources"]["memory"], "512Mi",
        "defaults within defaults are filled in"
    );
}
