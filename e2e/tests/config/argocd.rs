//! Argo CD's own code and kstatus read every state of a pipeline: what a sync and a `wait` report, and what the actions in Argo CD's menu
//! change.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::manifests;
use e2e::gitops::states::{ALL, FOLDER, stored};
use e2e::gitops::{self, Action, Health};
use e2e_fixtures::files;

/// The operator's Application, and one of pipelines.
const APPLICATIONS: &str = "config/argocd/applications.yaml";

/// An action: its name, its field of the spec, the field's value if the spec does not have it, and the new value.
type Expected = (&'static str, &'static str, fn() -> Value, fn() -> Value);

/// The expected actions, in the order of the names.
const ACTIONS: [Expected; 4] = [
    ("leave-alone", "managementState", || json!("Managed"), || json!("Unmanaged")),
    ("resume", "suspend", || json!(false), || json!(false)),
    ("suspend", "suspend", || json!(false), || json!(true)),
    ("take-over", "managementState", || json!("Managed"), || json!("Managed")),
];

/// Argo CD and kstatus report the expected result for each state.
#[test]
fn every_state_is_seen_as_it_is_meant() -> anyhow::Result<()> {
    let states = stored()?;
    let named: Vec<&str> = ALL.iter().map(|(name, ..)| *name).collect();
    let there: Vec<&str> = states.keys().map(String::as_str).collect();
    ensure!(there == named, "{FOLDER} has {there:?}, and the table {named:?}");
    let objects: Vec<Value> = states.into_values().collect();
    let seen = gitops::health(&objects)?;
    let wrong: Vec<String> =
        ALL.into_iter().zip(seen).filter_map(|(expected, seen)| wrong(expected, &seen)).collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn wrong((name, argo, kstatus): (&str, &str, &str), seen: &Health) -> Option<String> {
    let is_right = seen.argo == argo && seen.kstatus == kstatus && !seen.argo_message.is_empty();
    (!is_right).then(|| format!("{name} should be {argo} and {kstatus}: {seen:?}"))
}

/// Argo CD reads the Applications, a wave waits until an Application is healthy, and the chart accepts the values in the operator's
/// Application.
#[test]
fn applications_are_waited_for() -> anyhow::Result<()> {
    let applications = files::yamls(APPLICATIONS)?;
    let waves: Vec<&str> = applications
        .iter()
        .filter_map(|one| one["metadata"]["annotations"]["argocd.argoproj.io/sync-wave"].as_str())
        .collect();
    ensure!(waves == ["0", "1"], "the Applications go in the waves {waves:?}");
    let said = ["Healthy", "Degraded", "Progressing"];
    for application in &applications {
        let states = said.iter().map(|state| {
            let mut application = application.clone();
            application["status"] = json!({"health": {"status": state}, "sync": {"status": "Synced"}});
            application
        });
        let states: Vec<Value> = states.chain([application.clone()]).collect();
        let found: Vec<String> = gitops::health(&states)?.into_iter().map(|health| health.argo).collect();
        // An Application without a health yet is waited for.
        ensure!(found == ["Healthy", "Degraded", "Progressing", "Progressing"], "{application} is {found:?}");
    }
    let values = &applications[0]["spec"]["source"]["helm"]["valuesObject"];
    let given: Vec<String> = values
        .as_object()
        .context("the operator's Application has no values")?
        .iter()
        .flat_map(|(name, value)| ["--set-json".to_owned(), format!("{name}={value}")])
        .collect();
    let given: Vec<&str> = given.iter().map(String::as_str).collect();
    let objects = manifests::rendered(&given)?;
    let (image, text) = (&values["image"], manifests::the("Deployment", &objects)?.to_string());
    let [registry, tag] = ["registry", "tag"].map(|part| image[part].as_str().unwrap_or_default());
    ensure!(!registry.is_empty() && !tag.is_empty(), "the Application names no image: {image}");
    for name in ["operator", "gateway"] {
        let wanted = format!("{registry}/sluice-{name}:{tag}");
        ensure!(text.contains(&wanted), "{wanted} is not in {text}");
    }
    Ok(())
}

/// An action sets one field, whatever the state of the pipeline. It can be chosen if the field has another value, and changes nothing else
/// on the way through Lua.
#[test]
fn an_action_changes_what_it_says_and_nothing_else() -> anyhow::Result<()> {
    let states: Vec<(String, Value)> = stored()?.into_iter().collect();
    let chosen = |(name, field): (&str, &str)| {
        let object = states.iter().find(|(state, _)| state == name).map(|(_, object)| object);
        object.is_some_and(|object| !object["spec"][field].is_null())
    };
    ensure!(
        chosen(("suspended", "suspend")) && chosen(("left-alone", "managementState")),
        "{FOLDER} has no pipeline that rests, or none that is left alone"
    );
    let objects: Vec<Value> = states.iter().map(|(_, object)| object.clone()).collect();
    for ((state, object), offered) in states.iter().zip(gitops::actions(&objects)?) {
        ensure!(offered.len() == ACTIONS.len(), "{state}: offered are {offered:?}");
        for (action, expected) in offered.iter().zip(ACTIONS) {
            carried_out(object, action, expected).with_context(|| format!("the state {state}"))?;
        }
    }
    Ok(())
}

fn carried_out(object: &Value, action: &Action, (name, field, usual, value): Expected) -> anyhow::Result<()> {
    ensure!(action.name == name, "{} stands where {name} is expected", action.name);
    let found = object["spec"].get(field).cloned().unwrap_or_else(usual);
    let is_so = found == value();
    ensure!(
        action.disabled == is_so,
        "{name} is offered wrongly where {field} is {found}: {}",
        action.disabled
    );
    let mut expected = object.clone();
    expected["spec"][field] = value();
    // A table of Lua cannot contain nulls.
    drop_nulls(&mut expected);
    ensure!(action.result == expected, "{name} leaves {} of {object}", action.result);
    Ok(())
}

/// Removes the fields of objects that are null; without them, the object means the same.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(values) => values.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}
