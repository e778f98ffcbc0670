//! The statuses in `config/argocd/testdata`, one for every state of a pipeline: `cargo verify` gives them to Argo CD's health script and
//! to kstatus (`e2e/src/verify/gitops.rs`). Here it is seen that they are what is written.
//! `UPDATE_GOLDEN=1 cargo test -p sluice-plan` writes the files.

use crate::statuses::{running, said};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use sluice_crds::status::NEVER_OBSERVED;
use sluice_crds::{ManagementState, RolloutState, RolloutStatus, TracePipeline};
use sluice_plan::{Observed, SchemaFailed, SchemaFailure, SchemaSeen, SourceFailure, TopicSeen};
use std::{collections::BTreeSet, fs, path::PathBuf};

fn config(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../config/argocd").join(file)
}

fn read(file: &str) -> String {
    fs::read_to_string(config(file)).unwrap_or_default()
}

/// Situations, by the name of the file that has them.
fn states() -> Vec<(&'static str, TracePipeline, Observed)> {
    let (pipeline, well) = running(&json!({}), &[]);
    let state = |name, (pipeline, facts)| (name, pipeline, facts);
    let seen = |topic| Observed { partitions: [("otlp_spans".into(), topic)].into(), ..well.clone() };
    let away = TopicSeen::Unavailable { failure: SourceFailure::Timeout, message: "no answer".into() };
    let failure = SchemaFailure { reason: "ColumnMismatch", message: "another type".into() };
    let unfit = Observed {
        schema: SchemaSeen::Failed(SchemaFailed { failure, times: 1, ..SchemaFailed::default() }),
        ..well.clone()
    };
    let mut wrong = pipeline.clone();
    wrong.spec.gateway.resources.memory = "64Mi".into();
    let mut suspended = pipeline.clone();
    suspended.spec.suspend = true;
    let rests = Observed { workload: None, ..well.clone() };
    let mut left_alone = pipeline.clone();
    left_alone.spec.management_state = ManagementState::Unmanaged;
    let rollout = |state| {
        let since = Time("2026-01-01T00:00:00Z".parse().unwrap());
        let message = "a gateway is tried".into();
        let (revision, proved, healthy_since, failed_spec) = ("a".into(), None, None, None);
        let rollout = RolloutStatus { state, revision, proved, since, healthy_since, message, failed_spec };
        Observed { rollout: Some(rollout), ..well.clone() }
    };
    let rival = Observed { rival: Some("tracing/older".into()), ..well.clone() };
    vec![
        state("running", running(&json!({}), &[])),
        state("rolling", running(&json!({"updatedReplicas": 1, "updateRevision": "b"}), &[])),
        state("scaling", running(&json!({"replicas": 2, "readyReplicas": 2}), &[])),
        ("topic-missing", pipeline.clone(), seen(TopicSeen::Missing)),
        ("source-away", pipeline.clone(), seen(away)),
        ("table-unfit", pipeline.clone(), unfit),
        ("canary", pipeline.clone(), rollout(RolloutState::Canary)),
        ("rolled-back", pipeline.clone(), rollout(RolloutState::RolledBack)),
        ("rollout-failed", pipeline.clone(), rollout(RolloutState::Failed)),
        ("group-taken", pipeline, rival),
        ("suspending", suspended.clone(), well.clone()),
        ("suspended", suspended, rests),
        ("left-alone", left_alone, well.clone()),
        ("spec-invalid", wrong, well),
    ]
}

/// The objects as the API server gives them, by name: those of [`states`], and what it shows before and beside them.
fn objects() -> Vec<(&'static str, Value)> {
    let mut all: Vec<(&'static str, Value)> = Vec::new();
    for (name, pipeline, facts) in states() {
        let mut object = serde_json::to_value(&pipeline).unwrap();
        object["status"] = serde_json::to_value(said(&pipeline, &facts)).unwrap();
        all.push((name, without_null(object)));
    }
    let changed = |pointer: &str, value: Value| {
        let mut object = all[0].1.clone();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[field] = value;
        object
    };
    let others = [
        ("unseen", changed("/status", json!({"observedGeneration": NEVER_OBSERVED}))),
        ("outdated", changed("/metadata/generation", json!(2))),
        ("deleted", changed("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"))),
    ];
    all.into_iter().chain(others).collect()
}

/// What is not set is not there.
fn without_null(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let set = fields.into_iter().filter(|(_, field)| !field.is_null());
            set.map(|(name, field)| (name, without_null(field))).collect()
        }
        Value::Array(items) => items.into_iter().map(without_null).collect(),
        other => other,
    }
}

#[test]
fn the_statuses_that_argo_cd_is_tested_with_are_what_is_written() {
    let objects = objects();
    for (name, object) in &objects {
        let (file, found) = (format!("testdata/{name}.yaml"), serde_saphyr::to_string(object).unwrap());
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(config(&file), &found).unwrap();
        }
        assert!(
            found == read(&file),
            "config/argocd/{file} differs: run `UPDATE_GOLDEN=1 cargo test -p sluice-plan` and look at the diff"
        );
    }
    let files = fs::read_dir(config("testdata")).unwrap();
    let files: BTreeSet<_> =
        files.map(|file| file.unwrap().file_name().to_string_lossy().into_owned()).collect();
    assert_eq!(files, objects.iter().map(|(name, _)| format!("{name}.yaml")).collect());
}

#[test]
fn the_config_map_has_the_script_as_a_file_has_it() {
    let patch: Value = serde_saphyr::from_str(&read("argocd-cm.yaml")).unwrap();
    assert_eq!(patch["data"]["resource.customizations.health.sluice.dev_TracePipeline"], read("health.lua"));
    let ignored =
        patch["data"]["resource.customizations.ignoreDifferences.sluice.dev_TracePipeline"].as_str();
    let ignored: Value = serde_saphyr::from_str(ignored.unwrap()).unwrap();
    assert_eq!(ignored["managedFieldsManagers"][0], "kube-controller-manager");
}

#[test]
fn waves_wait_for_applications_and_no_pipeline_is_pruned_in_the_foreground() {
    let patch: Value = serde_saphyr::from_str(&read("argocd-cm.yaml")).unwrap();
    let script = patch["data"]["resource.customizations.health.argoproj.io_Application"].as_str();
    assert!(script.is_some_and(|script| script.contains("obj.status.health.status")), "{script:?}");
    let file = read("applications.yaml");
    let applications: Vec<Value> =
        file.split("\n---\n").map(|text| serde_saphyr::from_str(text).unwrap()).collect();
    let of = |pointer: &str| -> Vec<String> {
        let found = applications.iter().map(|one| one.pointer(pointer).unwrap().as_str().unwrap().to_owned());
        found.collect()
    };
    assert_eq!(of("/metadata/name"), ["sluice", "pipelines"]);
    assert_eq!(of("/metadata/annotations/argocd.argoproj.io~1sync-wave"), ["0", "1"]);
    let options = applications[1]["spec"]["syncPolicy"]["syncOptions"].as_array().unwrap();
    assert_eq!(applications[1]["spec"]["syncPolicy"]["automated"]["prune"], true);
    assert!(options.iter().any(|option| option == "PrunePropagationPolicy=background"), "{options:?}");
}
