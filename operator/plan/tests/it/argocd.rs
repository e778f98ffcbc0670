//! The statuses in `config/argocd/testdata`, one for every state of a pipeline: `cargo verify` gives them to Argo CD's health script and
//! to kstatus (`e2e/tests/config/argocd.rs`). A cluster had each: the end-to-end tests compare what they see with them, and write them with
//! `UPDATE_STATES=1`.

use serde_json::Value;
use std::{collections::BTreeSet, fs, path::PathBuf};

fn config(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../config/argocd").join(file)
}

fn read(file: &str) -> String {
    fs::read_to_string(config(file)).unwrap_or_default()
}

/// The words that conditions use, as the contract has them.
fn reasons() -> BTreeSet<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crds/src/status.rs");
    let code = fs::read_to_string(path).unwrap();
    let (_, module) = code.split_once("pub mod reason {").unwrap();
    let constants = module.lines().filter(|line| line.trim_start().starts_with("pub const "));
    constants.map(|line| line.split('"').nth(1).unwrap().to_owned()).collect()
}

#[test]
fn every_reason_is_that_of_a_state() {
    let mut left = reasons();
    assert!(left.len() > 50, "{left:?}");
    for file in fs::read_dir(config("testdata")).unwrap() {
        let state: Value =
            serde_saphyr::from_str(&fs::read_to_string(file.unwrap().path()).unwrap()).unwrap();
        for condition in state["status"]["conditions"].as_array().into_iter().flatten() {
            left.remove(condition["reason"].as_str().unwrap());
        }
    }
    assert_eq!(left, BTreeSet::new(), "no state in config/argocd/testdata has these reasons");
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
    for option in ["PrunePropagationPolicy=background", "RespectIgnoreDifferences=true"] {
        assert!(options.iter().any(|one| one == option), "{options:?}");
    }
}
