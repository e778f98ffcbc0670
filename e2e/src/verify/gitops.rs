//! Every state of a pipeline, looked at by Argo CD's own code and by kstatus: what a sync and a `wait` make of it, and what Argo CD's menu
//! does to it.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::gitops::states::{ALL, FOLDER, stored};
use crate::gitops::{self, Action, Health};

/// An action: its name, whether it is shown and cannot be chosen for a pipeline that runs, the field that it sets, and to what.
type Expected = (&'static str, bool, &'static str, fn() -> Value);

/// What is offered, in the order of the names.
const ACTIONS: [Expected; 4] = [
    ("leave-alone", false, "/spec/managementState", || json!("Unmanaged")),
    ("resume", true, "/spec/suspend", || json!(false)),
    ("suspend", false, "/spec/suspend", || json!(true)),
    ("take-over", true, "/spec/managementState", || json!("Managed")),
];

/// Argo CD and kstatus see each state as it is meant.
pub fn every_state_is_seen_as_it_is() -> anyhow::Result<()> {
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

/// An action sets one field, offers itself when it would, and changes nothing else on the way through Lua.
pub fn actions_change_what_they_say() -> anyhow::Result<()> {
    let states = stored()?;
    let running = states.get("running").with_context(|| format!("{FOLDER} has no running.yaml"))?;
    let mut altered = running.clone();
    altered["spec"]["suspend"] = json!(true);
    altered["spec"]["managementState"] = json!("Unmanaged");
    let answers = gitops::actions(&[running.clone(), altered.clone()])?;
    for ((object, offered), is_altered) in [running, &altered].into_iter().zip(&answers).zip([false, true]) {
        ensure!(offered.len() == ACTIONS.len(), "offered are {offered:?}");
        for (action, expected) in offered.iter().zip(ACTIONS) {
            carried_out(object, action, expected, is_altered)?;
        }
    }
    Ok(())
}

fn carried_out(
    object: &Value,
    action: &Action,
    (name, disabled, field, value): Expected,
    is_altered: bool,
) -> anyhow::Result<()> {
    ensure!(action.name == name, "{} stands where {name} is expected", action.name);
    ensure!(action.disabled == (disabled != is_altered), "{name} is offered wrongly: {}", action.disabled);
    let mut expected = object.clone();
    let (parent, last) = field.rsplit_once('/').context("a field without a parent")?;
    let parent = expected.pointer_mut(parent).with_context(|| format!("{parent} is missing"))?;
    parent[last] = value();
    ensure!(action.result == expected, "{name} leaves {} of {object}", action.result);
    Ok(())
}
