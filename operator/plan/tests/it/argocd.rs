//! What Argo CD makes of the statuses that are written here: `config/argocd/health.lua`, run by Lua 5.1, which Argo CD's own interpreter
//! speaks.

use crate::statuses::{running, said};
use mlua::{Lua, LuaSerdeExt as _, SerializeOptions};
use serde::Deserialize;
use serde_json::{Value, json};
use sluice_crds::{ManagementState, TracePipeline};
use sluice_plan::{Observed, SchemaFailure, SchemaSeen, SourceFailure, TopicSeen};
use std::{fs, path::PathBuf, time::Duration};

#[derive(Debug, Deserialize, PartialEq, Eq)]
struct Health {
    status: String,
    message: String,
}

fn read(file: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../config/argocd").join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
}

fn health(object: &Value) -> Health {
    let lua = Lua::new();
    // As the API server gives it: what is not set is not there, and no null.
    let options = SerializeOptions::new().serialize_none_to_null(false).serialize_unit_to_null(false);
    lua.globals().set("obj", lua.to_value_with(object, options).unwrap()).unwrap();
    lua.from_value(lua.load(read("health.lua")).eval().unwrap()).unwrap()
}

/// The object with this status.
fn object(pipeline: &TracePipeline, status: &Value) -> Value {
    let mut object = serde_json::to_value(pipeline).unwrap();
    object["status"] = status.clone();
    object
}

/// Situations with the health that a sync wave waits for or stops at.
fn states() -> Vec<(&'static str, TracePipeline, Observed)> {
    let (pipeline, well) = running(&json!({}), &[]);
    let state = |health, (pipeline, facts)| (health, pipeline, facts);
    let seen = |topic| Observed { partitions: [("otlp_spans".into(), topic)].into(), ..well.clone() };
    let away = TopicSeen::Unavailable { failure: SourceFailure::Timeout, message: "no answer".into() };
    let failure = SchemaFailure { reason: "ColumnMismatch", message: "another type".into() };
    let unfit = Observed { schema: SchemaSeen::Failed { failure, ago: Duration::ZERO }, ..well.clone() };
    let mut wrong = pipeline.clone();
    wrong.spec.gateway.resources.memory = "64Mi".into();
    let mut suspended = pipeline.clone();
    suspended.spec.suspend = true;
    let rests = Observed { workload: None, ..well.clone() };
    let mut left_alone = pipeline.clone();
    left_alone.spec.management_state = ManagementState::Unmanaged;
    let rival = Observed { rival: Some("tracing/older".into()), ..well.clone() };
    vec![
        state("Healthy", running(&json!({}), &[])),
        state("Progressing", running(&json!({"updatedReplicas": 1, "updateRevision": "b"}), &[])),
        state("Progressing", running(&json!({"replicas": 2, "readyReplicas": 2}), &[])),
        ("Progressing", pipeline.clone(), seen(TopicSeen::Missing)),
        ("Progressing", pipeline.clone(), seen(away)),
        ("Progressing", pipeline.clone(), unfit),
        ("Progressing", pipeline, rival),
        ("Progressing", suspended.clone(), well.clone()),
        ("Suspended", suspended, rests),
        ("Healthy", left_alone, well.clone()),
        ("Degraded", wrong, well),
    ]
}

#[test]
fn every_state_of_a_pipeline_has_a_health_and_a_message() {
    for (expected, pipeline, facts) in states() {
        let status = serde_json::to_value(said(&pipeline, &facts)).unwrap();
        let found = health(&object(&pipeline, &status));
        assert_eq!(found.status, expected, "{found:?} of {status}");
        assert!(!found.message.is_empty(), "{status}");
    }
}

#[test]
fn a_pipeline_that_nobody_looked_at_since_it_changed_is_on_its_way() {
    let (pipeline, facts) = running(&json!({}), &[]);
    let well = object(&pipeline, &serde_json::to_value(said(&pipeline, &facts)).unwrap());
    let changed = |pointer: &str, field: &str, value: Value| {
        let mut object = well.clone();
        object.pointer_mut(pointer).unwrap()[field] = value;
        object
    };
    assert_eq!(health(&well).status, "Healthy");
    for object in [
        object(&pipeline, &json!({})),
        changed("/metadata", "generation", json!(2)),
        changed("/metadata", "deletionTimestamp", json!("2026-01-01T00:00:00Z")),
    ] {
        assert_eq!(health(&object).status, "Progressing", "{object}");
    }
}

#[test]
fn the_config_map_has_the_script_that_is_tested() {
    let patch: Value = serde_saphyr::from_str(&read("argocd-cm.yaml")).unwrap();
    assert_eq!(patch["data"]["resource.customizations.health.sluice.dev_TracePipeline"], read("health.lua"));
    let ignored =
        patch["data"]["resource.customizations.ignoreDifferences.sluice.dev_TracePipeline"].as_str();
    let ignored: Value = serde_saphyr::from_str(ignored.unwrap()).unwrap();
    assert_eq!(ignored["managedFieldsManagers"][0], "kube-controller-manager");
}
