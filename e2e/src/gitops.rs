//! How tools that sync from Git see objects. gitopscheck runs these tools' own code: it gets requests and answers in their order. It also
//! syncs, as Argo CD does.
//!
//! Blocking, like everything about processes; within a runtime, call it from a blocking task.

pub mod states;

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use e2e_fixtures::files;
use e2e_stack::process::command;
use e2e_stack::{gitopscheck, paths};

use crate::asked::asked;

/// Argo CD's settings for our kind.
const SETTINGS: &str = "config/argocd/argocd-cm.yaml";

/// The Applications that we ship, and the name of the one for pipelines.
const APPLICATIONS: &str = "config/argocd/applications.yaml";
const PIPELINES: &str = "pipelines";

/// Time limit for a number of checks: each takes half a second and some requests.
const LOOKS_TAKE: Duration = Duration::from_mins(5);

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// Argo CD's status; empty if it has none.
    pub argo: String,
    pub argo_message: String,
    /// The status for kstatus, and so for Flux and other tools that use kstatus.
    pub kstatus: String,
    pub kstatus_message: String,
}

/// An action that Argo CD offers for an object.
#[derive(Clone, Debug, Deserialize)]
pub struct Action {
    pub name: String,
    /// Whether it is shown but cannot be chosen.
    pub disabled: bool,
    pub result: Value,
}

/// What a sync would change, by each of Argo CD's ways to compare; empty for no change.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    pub name: String,
    /// Compared with a dry run.
    pub server_side: String,
    /// Compared by schema and field owners, as for Applications with `ServerSideApply=true`.
    pub structured: String,
    /// Compared by the two objects only, as for Applications without it.
    pub plain: String,
}

impl Difference {
    /// The difference as text, if there is one.
    #[must_use]
    pub fn words(&self) -> Option<String> {
        let ways =
            [("server-side", &self.server_side), ("structured", &self.structured), ("plain", &self.plain)];
        let found: Vec<String> = ways
            .into_iter()
            .filter(|(_, found)| !found.is_empty())
            .map(|(way, found)| format!("{} ({way}): {found}", self.name))
            .collect();
        (!found.is_empty()).then(|| found.join("\n"))
    }
}

#[derive(Clone, Debug, Deserialize)]
pub struct Operation {
    /// `Succeeded`, `Failed`, `Error`, or `Running` if the limit was reached.
    pub phase: String,
    /// What it waits for, or why it ended.
    pub message: String,
    /// The manifests in the order in which they were applied. Those of waves that were not reached are missing.
    pub applied: Vec<Applied>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Applied {
    pub name: String,
    pub wave: i64,
    /// `Synced` or `SyncFailed`.
    pub code: String,
    /// The message; for an object with a health, its last one.
    pub message: String,
    /// Whether the object changed during the sync, apart from its status.
    pub changed: bool,
}

/// The health of each object, with the settings in `config/argocd`.
pub fn health(objects: &[Value]) -> anyhow::Result<Vec<Health>> {
    ask("health", &paths::workspace().join(SETTINGS), objects)
}

/// The actions for each object, with the settings in `config/argocd`.
pub fn actions(objects: &[Value]) -> anyhow::Result<Vec<Vec<Action>>> {
    ask("actions", &paths::workspace().join(SETTINGS), objects)
}

/// What a sync of each manifest would change in the cluster. The manifests must be applied.
pub fn differences(kubeconfig: &Path, manifests: &[Value]) -> anyhow::Result<Vec<Difference>> {
    ask("differences", kubeconfig, manifests)
}

/// When to give up a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// After this time: for a sync that should end.
    Time(Duration),
    /// After this many checks of the objects and decisions what to do next: for a sync that should make no progress.
    Looks(u32),
}

impl Limit {
    /// The time, and the number of checks; 0 means no limit.
    fn words(self) -> [String; 2] {
        let (time, looks) = match self {
            Limit::Time(time) => (time, 0),
            Limit::Looks(looks) => (LOOKS_TAKE, looks),
        };
        [format!("{}s", time.as_secs()), looks.to_string()]
    }
}

/// Syncs the manifests into a namespace with Argo CD's engine, wave by wave, with the settings in `config/argocd` and the options of the
/// Application for pipelines; gives up at `limit`.
///
/// # Errors
/// As [`health`]. A sync that fails or does not end is no error: its phase says so.
pub fn sync(
    kubeconfig: &Path,
    namespace: &str,
    manifests: &[Value],
    limit: Limit,
) -> anyhow::Result<Operation> {
    let settings = paths::workspace().join(SETTINGS);
    let (options, [time, looks]) = (sync_options()?, limit.words());
    let words = [
        settings.as_os_str(),
        kubeconfig.as_os_str(),
        namespace.as_ref(),
        options.as_ref(),
        time.as_ref(),
        looks.as_ref(),
    ];
    run("sync", &words, manifests)
}

/// The sync options of the Application for pipelines, separated by commas.
fn sync_options() -> anyhow::Result<String> {
    let applications = files::yamls(APPLICATIONS)?;
    let pipelines = applications.iter().find(|one| one["metadata"]["name"] == PIPELINES);
    let pipelines = pipelines.with_context(|| format!("{APPLICATIONS} has no {PIPELINES}"))?;
    let options = pipelines["spec"]["syncPolicy"]["syncOptions"].as_array();
    let options = options.with_context(|| format!("{PIPELINES} has no syncOptions"))?;
    Ok(options.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","))
}

fn ask<Answer: DeserializeOwned>(what: &str, file: &Path, items: &[Value]) -> anyhow::Result<Vec<Answer>> {
    let answers: Vec<Answer> = run(what, &[file.as_os_str()], items)?;
    ensure!(answers.len() == items.len(), "{} answers for {} objects", answers.len(), items.len());
    Ok(answers)
}

fn run<Answer: DeserializeOwned>(what: &str, words: &[&OsStr], items: &[Value]) -> anyhow::Result<Answer> {
    let mut program = command(gitopscheck::path()?);
    asked(&format!("gitopscheck {what}"), program.arg(what).args(words), items)
}
