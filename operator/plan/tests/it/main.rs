//! Samples in, objects and status out.

#![allow(clippy::unwrap_used, reason = "tests may unwrap; the lint knows test functions, not their helpers")]

mod argocd;
mod connections;
mod edge;
mod fields;
mod flows;
mod golden;
mod group_owner;
mod images;
mod life;
mod mutated;
mod one_time_events;
mod otlp;
mod otlp_volumes;
mod plans;
mod pod_template;
mod reasons;
mod refusals;
mod resize;
mod restarts;
mod revisions;
mod rollout;
mod scale;
mod schema_job;
mod secrets;
mod shards;
mod source;
mod statuses;
mod statuses_of_messages;
mod statuses_of_not_ready;
mod statuses_of_readers;
mod stored;
mod together;
mod unconnected;
mod unfetched;
mod volumes;
mod wording;

use serde_json::{Value, json};
use sluice_crds::{KeyUse, TracePipeline, UsedKey};
use sluice_plan::{
    Defaults, Observed, OperatorPods, Plan, Planned, ScalingSeen, SchemaSeen, SecretSeen, StorageClassSeen,
    TopicSeen, Unresolved, VolumesSeen, observed::inserts::SinkSeen, plan,
};
use std::collections::BTreeMap;

/// A sample of `config/samples` as the API server would return it.
fn sample(name: &str) -> TracePipeline {
    let path = format!("{}/../../config/samples/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut pipeline: Value = serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let metadata = pipeline["metadata"].as_object_mut().unwrap();
    metadata.entry("namespace").or_insert_with(|| "default".into());
    metadata.insert("uid".into(), "6f1c0c3a-0000-4000-8000-000000000000".into());
    metadata.insert("generation".into(), 1.into());
    serde_json::from_value(pipeline).unwrap()
}

/// The demo's pipeline with another value at a JSON pointer.
fn with(pointer: &str, value: Value) -> TracePipeline {
    let mut pipeline = serde_json::to_value(sample("tracepipeline.yaml")).unwrap();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    pipeline.pointer_mut(parent).unwrap()[field] = value;
    serde_json::from_value(pipeline).unwrap()
}

/// The demo's pipeline with credentials.
fn with_credentials() -> TracePipeline {
    with("/spec/sink/clickhouse/credentials", json!({"secretRef": {"name": "writer"}}))
}

/// A Secret that lacks the key of this name, and has another key that is not used.
fn lacking(of: KeyUse) -> SecretSeen {
    let key = UsedKey { of, key: of.default_key().into() };
    SecretSeen::KeysMissing { keys: vec![key], found: vec!["other".into()] }
}

/// A complete Secret whose version is its object's own.
fn secret_seen(object: &str) -> SecretSeen {
    SecretSeen::Present { version: object.into(), object: object.into() }
}

/// Facts with which every topic of the pipeline has this many partitions and everything else is well.
fn observed(pipeline: &TracePipeline, partitions: u32) -> Observed {
    let topics = pipeline.spec.source.kafka.iter().flat_map(|kafka| &kafka.topics);
    let secrets = pipeline.spec.secrets().into_iter();
    Observed {
        partitions: topics.map(|topic| (topic.clone(), TopicSeen::Known(partitions))).collect(),
        unresolved: Unresolved::default(),
        servers: Vec::new(),
        refused_properties: BTreeMap::new(),
        secrets: secrets.map(|named| (named.of, secret_seen("1111111111"))).collect(),
        schema: SchemaSeen::Succeeded,
        schema_job: None,
        workload: None,
        edge: None,
        lag: None,
        has_committed: false,
        has_uncommitted: false,
        delivery: None,
        queue: None,
        has_empty_queue: false,
        messages_lost: BTreeMap::new(),
        messages: None,
        open_transactions: None,
        unread: None,
        silent: Vec::new(),
        unconnected: None,
        unfetched: None,
        full_volumes: Vec::new(),
        sink: SinkSeen::NotKnown,
        inserts_in_doubt: false,
        insert_error: None,
        missing_table: None,
        unusable_table: None,
        scaling: ScalingSeen::default(),
        group_owner: None,
        asks_for_group: false,
        storage_class: StorageClassSeen::NotAsked,
        volumes: VolumesSeen::default(),
        rollout: None,
        memory_resizes: None,
        reconcile_failure: None,
        pods_refused: None,
    }
}

fn defaults() -> Defaults {
    let labels = [("app.kubernetes.io/name", "sluice-operator"), ("app.kubernetes.io/instance", "sluice")];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    Defaults {
        gateway_image: "sluice-gateway:0.1.0".into(),
        gateway_image_pull_secrets: Vec::new(),
        operator_version: "0.1.0".into(),
        operator_pods: Some(OperatorPods { namespace: "sluice-system".into(), labels }),
    }
}

fn planned(pipeline: &TracePipeline, observed: &Observed) -> Plan {
    match plan(pipeline, observed, &defaults()) {
        Ok(Planned::Ready(plan)) => *plan,
        other => panic!("{other:?}"),
    }
}

/// Whether a field is written that has no value. Such a field is left out.
fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.values().any(has_null),
        Value::Array(items) => items.iter().any(has_null),
        _ => false,
    }
}
