//! The states of a pipeline with which Argo CD and kstatus are tested: the expected result for each tool, and an object in that state.
//!
//! Job: read and write `config/argocd/testdata`. Place in the flow: between a live pipeline, or `cargo verify` without a cluster, and
//! gitopscheck. With [`UPDATE`] set, end-to-end tests wrote most of these objects from a cluster. The exceptions are the states of an edge
//! and of `source.otlp`, which the plan's tests compare. So are those of messages, of partitions without a reader, of a hanging transaction,
//! and of a schema Job that does not start.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use e2e_fixtures::pipeline::Settings;
use e2e_stack::paths;

/// The folder of the objects, below the workspace.
pub const FOLDER: &str = "config/argocd/testdata";

/// With this variable, end-to-end tests write the states that they see instead of comparing them.
pub const UPDATE: &str = "UPDATE_STATES";

/// Placeholders for what differs from run to run.
const TIME: &str = "2026-01-01T00:00:00Z";
const UID: &str = "6f1c0c3a-0000-4000-8000-000000000000";
const IMAGE: &str = "sluice-gateway:0.1.0";
const HASH: &str = "0123456789";

/// Names of fields with hashes and revisions, in any object.
const HASHES: [&str; 6] =
    ["configHash", "currentRevision", "updateRevision", "revision", "proved", "failedSpec"];

/// A state: its name, and its result in Argo CD and in kstatus.
type State = (&'static str, &'static str, &'static str);

pub const ALL: [State; 70] = [
    ("about-to-change", "Progressing", "InProgress"),
    ("apply-failing", "Progressing", "InProgress"),
    ("apply-refused", "Degraded", "Failed"),
    ("canary", "Progressing", "InProgress"),
    ("claim-deleted", "Healthy", "Current"),
    ("connection-missing", "Progressing", "InProgress"),
    ("database-missing", "Progressing", "InProgress"),
    ("draining", "Progressing", "Terminating"),
    ("edge-not-ready", "Progressing", "InProgress"),
    ("file-systems-pending", "Progressing", "InProgress"),
    ("group-taken", "Progressing", "InProgress"),
    ("idle", "Healthy", "Current"),
    ("inserts-failing", "Progressing", "InProgress"),
    ("left-alone", "Healthy", "Current"),
    // The operator leaves it alone, but it may still become ready: for both tools it is not failed.
    ("left-alone-unready", "Progressing", "InProgress"),
    ("malformed", "Degraded", "Failed"),
    ("messages-rejected", "Progressing", "InProgress"),
    ("messages-without-spans", "Healthy", "Current"),
    ("not-asked", "Progressing", "InProgress"),
    ("not-expandable", "Degraded", "Failed"),
    ("otlp-drained", "Suspended", "Current"),
    // A person has to make its pod run, or to give up the data on its volume.
    ("otlp-gateway-stopped", "Progressing", "InProgress"),
    ("otlp-running", "Healthy", "Current"),
    ("otlp-starting", "Progressing", "InProgress"),
    // The gateway accepts requests, but inserts no row.
    ("otlp-table-missing", "Progressing", "InProgress"),
    ("outdated", "Progressing", "InProgress"),
    ("partitions-lost", "Progressing", "InProgress"),
    ("partitions-unread", "Progressing", "InProgress"),
    ("pods-refused", "Progressing", "InProgress"),
    ("replicas-not-ready", "Progressing", "InProgress"),
    ("rolled-back", "Degraded", "Failed"),
    ("rolling", "Progressing", "InProgress"),
    ("rollout-failed", "Degraded", "Failed"),
    ("rows-refused", "Progressing", "InProgress"),
    ("running", "Healthy", "Current"),
    ("scaled-by-others", "Healthy", "Current"),
    ("scaled-by-the-operator", "Healthy", "Current"),
    ("scaling", "Progressing", "InProgress"),
    ("scaling-contested", "Healthy", "Current"),
    ("schema-job-at-work", "Progressing", "InProgress"),
    ("schema-job-failed", "Progressing", "InProgress"),
    ("schema-job-not-started", "Progressing", "InProgress"),
    ("secret-incomplete", "Progressing", "InProgress"),
    ("secret-missing", "Progressing", "InProgress"),
    ("servers-not-reached", "Healthy", "Current"),
    ("sink-refuses-user", "Progressing", "InProgress"),
    ("sink-unreachable", "Progressing", "InProgress"),
    ("sink-without-tls", "Progressing", "InProgress"),
    ("source-away", "Progressing", "InProgress"),
    ("source-refuses-user", "Progressing", "InProgress"),
    ("source-unreachable", "Progressing", "InProgress"),
    ("source-without-tls", "Progressing", "InProgress"),
    ("spec-invalid", "Degraded", "Failed"),
    ("storage-class-missing", "Progressing", "InProgress"),
    // It matches the spec, so no tool waits for it. Argo CD also shows that nothing runs.
    ("suspended", "Suspended", "Current"),
    ("suspending", "Progressing", "InProgress"),
    ("table-awaited", "Progressing", "InProgress"),
    ("table-differs", "Healthy", "Current"),
    ("table-missing", "Progressing", "InProgress"),
    ("table-not-managed", "Healthy", "Current"),
    ("table-unfit", "Progressing", "InProgress"),
    ("topic-missing", "Progressing", "InProgress"),
    ("transaction-hanging", "Healthy", "Current"),
    ("unseen", "Progressing", "InProgress"),
    ("volume-out-of-reach", "Progressing", "InProgress"),
    ("volumes-growing", "Progressing", "InProgress"),
    ("volumes-not-deleted", "Healthy", "Current"),
    ("volumes-not-drained", "Healthy", "Current"),
    ("volumes-replacing", "Progressing", "InProgress"),
    ("without-volumes", "Healthy", "Current"),
];

/// The expected result of a state in Argo CD, and in kstatus.
pub fn meant(name: &str) -> Result<(&'static str, &'static str)> {
    let found = ALL.iter().find(|(state, ..)| *state == name);
    found.map(|(_, argo, kstatus)| (*argo, *kstatus)).with_context(|| format!("no state is named {name}"))
}

/// The objects of all states, by name.
pub fn stored() -> Result<BTreeMap<String, Value>> {
    let mut states = BTreeMap::new();
    for file in fs::read_dir(paths::workspace().join(FOLDER)).context("list the states")? {
        let path = file.context("list the states")?.path();
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let object =
            serde_saphyr::from_str(&text).with_context(|| format!("understand {}", path.display()))?;
        states.insert(name, object);
    }
    Ok(states)
}

/// How the conditions of an object differ from those of another one, in type, status and reason; `None` when they do not.
#[must_use]
pub fn difference(expected: &Value, found: &Value) -> Option<String> {
    let (expected, found) = (conditions(expected), conditions(found));
    let differing: Vec<String> = expected
        .keys()
        .chain(found.keys().filter(|kind| !expected.contains_key(*kind)))
        .filter(|kind| expected.get(*kind) != found.get(*kind))
        .map(|kind| format!("{kind} is {:?}, and {:?} in {FOLDER}", found.get(kind), expected.get(kind)))
        .collect();
    (!differing.is_empty()).then(|| differing.join("; "))
}

/// `Status/Reason` of each condition, by its type.
fn conditions(object: &Value) -> BTreeMap<String, String> {
    let word = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions
        .map(|one| (word(one, "type"), format!("{}/{}", word(one, "status"), word(one, "reason"))))
        .collect()
}

/// Writes a live object into a folder, with placeholders for names, UIDs and times.
pub fn write(folder: &Path, name: &str, live: &Value, settings: &Settings) -> Result<()> {
    let text = serde_saphyr::to_string(&normalized(live, settings)).context("write a state")?;
    fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    let file = folder.join(format!("{name}.yaml"));
    let text = format!("# Read off a cluster by an end-to-end test with {UPDATE}=1.\n{text}");
    fs::write(&file, text).with_context(|| format!("write {}", file.display()))
}

fn normalized(live: &Value, settings: &Settings) -> Value {
    let names = [
        (settings.clickhouse.as_str(), "http://clickhouse:8123"),
        (settings.image.as_str(), IMAGE),
        (settings.database.as_str(), "otel"),
        (settings.topic.as_str(), "tracing"),
    ];
    let brokers = settings.brokers.iter().map(|broker| (broker.as_str(), "kafka:9092"));
    let names: Vec<(&str, &str)> = brokers.chain(names).filter(|(name, _)| !name.is_empty()).collect();
    let mut object = rewritten("", live, &names);
    let metadata = object["metadata"].as_object().cloned().unwrap_or_default();
    let kept =
        ["name", "namespace", "generation", "uid", "creationTimestamp", "deletionTimestamp", "finalizers"];
    object["metadata"] = metadata.into_iter().filter(|(key, _)| kept.contains(&key.as_str())).collect();
    object["metadata"]["namespace"] = json!("tracing");
    object
}

fn rewritten(key: &str, value: &Value, names: &[(&str, &str)]) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| (key.clone(), rewritten(key, value, names)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(|item| rewritten(key, item, names)).collect(),
        Value::String(_) if HASHES.contains(&key) => json!(HASH),
        Value::String(_) if key == "uid" => json!(UID),
        // The operator's default image, whatever the spec names.
        Value::String(_) if key == "defaultImage" => json!(IMAGE),
        // Its name ends with a hash of its contents.
        Value::String(text) if matches!(key, "job" | "schemaJob") => {
            json!(format!("{}-{HASH}", text.rsplit_once('-').map_or(text.as_str(), |(name, _)| name)))
        }
        Value::String(text) if text.parse::<Timestamp>().is_ok() => json!(TIME),
        Value::String(text) => {
            let text = with_any_identity(text);
            json!(names.iter().fold(text, |text, (name, instead)| text.replace(name, instead)))
        }
        other => other.clone(),
    }
}

/// Replaces every UID in a text, such as that of a claim in the name of its volume.
fn with_any_identity(text: &str) -> String {
    let mut whole = text.to_owned();
    for place in (0..text.len()).map(|at| at..at + UID.len()) {
        if text.get(place.clone()).is_some_and(is_identity) {
            whole.replace_range(place, UID);
        }
    }
    whole
}

fn is_identity(text: &str) -> bool {
    let is_so = |(found, any): (u8, u8)| if any == b'-' { found == b'-' } else { found.is_ascii_hexdigit() };
    text.bytes().zip(UID.bytes()).all(is_so)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            name: "traces".to_owned(),
            brokers: vec!["10.0.0.1:9092".to_owned()],
            topic: "e2e-life-1f-0".to_owned(),
            clickhouse: "http://10.0.0.1:8123".to_owned(),
            database: "e2e_life_1f_0".to_owned(),
            image: "sluice.local/gateway:abc".to_owned(),
            storage_class: None,
        }
    }

    #[test]
    fn nothing_of_a_run_is_left_in_what_is_written() {
        let live = json!({
            "metadata": {"name": "traces", "namespace": "e2e-life-1f-0", "uid": "x", "generation": 2,
                "resourceVersion": "7", "managedFields": [], "creationTimestamp": "2026-05-05T01:02:03Z"},
            "spec": {"source": {"kafka": {"topics": ["e2e-life-1f-0"], "bootstrapServers": ["10.0.0.1:9092"]}}},
            "status": {"configHash": "ab", "image": "sluice.local/gateway:abc", "defaultImage": "sluice.local/gateway:def",
                "schemaJob": "traces-schema-ab12", "schema": {"job": "traces-schema-ab12"}, "conditions": [
                {"type": "Ready", "status": "True", "reason": "Running",
                    "message": "no topic e2e-life-1f-0 since 5, nor pvc-1ab300ef-81d4-407d-b275-6dadb9b0da35",
                    "lastTransitionTime": "2026-05-05T01:02:03Z"}]},
        });
        let found = normalized(&live, &settings());
        let expected = json!({
            "metadata": {"name": "traces", "namespace": "tracing", "uid": UID, "generation": 2,
                "creationTimestamp": TIME},
            "spec": {"source": {"kafka": {"topics": ["tracing"], "bootstrapServers": ["kafka:9092"]}}},
            "status": {"configHash": HASH, "image": IMAGE, "defaultImage": IMAGE,
                "schemaJob": format!("traces-schema-{HASH}"), "schema": {"job": format!("traces-schema-{HASH}")},
                "conditions": [
                {"type": "Ready", "status": "True", "reason": "Running",
                    "message": format!("no topic tracing since 5, nor pvc-{UID}"),
                    "lastTransitionTime": TIME}]},
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn conditions_are_compared_by_type_status_and_reason() {
        let object = |reason: &str, message: &str| {
            json!({"status": {"conditions": [
                {"type": "Ready", "status": "True", "reason": reason, "message": message}]}})
        };
        assert_eq!(difference(&object("Running", "a"), &object("Running", "b")), None);
        let words = difference(&object("Running", ""), &object("Suspended", "")).unwrap();
        assert!(words.contains("True/Running") && words.contains("True/Suspended"), "{words}");
        assert!(difference(&object("Running", ""), &json!({})).is_some());
        assert!(difference(&json!({}), &object("Running", "")).is_some());
    }
}
