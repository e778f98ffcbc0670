//! What tools that sync from Git make of objects, by their own code: gitopscheck is asked, and answers in the order of the questions.
//! It also syncs, as Argo CD does.
//!
//! Blocking, like everything about processes; call it from a blocking task where a runtime runs.

pub mod states;

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use e2e_stack::process::command;
use e2e_stack::{gitopscheck, paths};

/// What Argo CD is told about our kind.
const SETTINGS: &str = "config/argocd/argocd-cm.yaml";

/// The Applications that we ship, and the one of them that has the pipelines.
const APPLICATIONS: &str = "config/argocd/applications.yaml";
const PIPELINES: &str = "pipelines";

/// Time for any number of looks that a caller asks for: each takes half a second and some requests.
const LOOKS_TAKE: Duration = Duration::from_mins(5);

/// How an object is.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// To Argo CD; empty for no opinion.
    pub argo: String,
    /// In words.
    pub argo_message: String,
    /// To kstatus, and so to Flux and whoever waits by it.
    pub kstatus: String,
    /// In words.
    pub kstatus_message: String,
}

/// What Argo CD offers to do with an object.
#[derive(Clone, Debug, Deserialize)]
pub struct Action {
    /// Its name in the menu.
    pub name: String,
    /// Whether it is shown and cannot be chosen.
    pub disabled: bool,
    /// The object after it.
    pub result: Value,
}

/// What a sync would change, by each of the ways in which Argo CD looks; empty for nothing.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// Kind and name.
    pub name: String,
    /// By a dry run.
    pub server_side: String,
    /// By schema and owners of fields, as for Applications with `ServerSideApply=true`.
    pub structured: String,
    /// By the two objects alone, as for Applications without it.
    pub plain: String,
}

impl Difference {
    /// In words, when there is one.
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

/// What became of a sync.
#[derive(Clone, Debug, Deserialize)]
pub struct Operation {
    /// `Succeeded`, `Failed`, `Error`, or `Running` when it was given up.
    pub phase: String,
    /// What it waits for, or how it ended.
    pub message: String,
    /// In the order in which they were; a manifest whose wave was not reached is missing.
    pub applied: Vec<Applied>,
}

/// What became of one manifest.
#[derive(Clone, Debug, Deserialize)]
pub struct Applied {
    /// Kind and name.
    pub name: String,
    pub wave: i64,
    /// `Synced` or `SyncFailed`.
    pub code: String,
    /// In words; of an object with a health, the last that was said of it.
    pub message: String,
    /// Whether the object is another one than before the sync, its status aside.
    pub changed: bool,
}

/// How each object is, by the settings in `config/argocd`.
pub fn health(objects: &[Value]) -> anyhow::Result<Vec<Health>> {
    ask("health", &paths::workspace().join(SETTINGS), objects)
}

/// What is offered for each object, by the settings in `config/argocd`.
pub fn actions(objects: &[Value]) -> anyhow::Result<Vec<Vec<Action>>> {
    ask("actions", &paths::workspace().join(SETTINGS), objects)
}

/// What a sync of each manifest would change in the cluster, where it is applied already.
pub fn differences(kubeconfig: &Path, manifests: &[Value]) -> anyhow::Result<Vec<Difference>> {
    ask("differences", kubeconfig, manifests)
}

/// When a sync is given up that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// After this time: for one that should end.
    Time(Duration),
    /// After so many looks at the objects, each with the decision what to do next: for one that should not get on.
    Looks(u32),
}

impl Limit {
    /// The time, and the number of looks, 0 for any.
    fn words(self) -> [String; 2] {
        let (time, looks) = match self {
            Limit::Time(time) => (time, 0),
            Limit::Looks(looks) => (LOOKS_TAKE, looks),
        };
        [format!("{}s", time.as_secs()), looks.to_string()]
    }
}

/// Syncs the manifests into a namespace with Argo CD's engine, wave by wave, by the settings in `config/argocd` and with the options of
/// its Application of pipelines; gives up at `limit`.
///
/// # Errors
/// As [`health`]. That the sync fails or does not end is no error, but its phase.
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

/// Of the Application of pipelines, separated by commas.
fn sync_options() -> anyhow::Result<String> {
    let text = fs::read_to_string(paths::workspace().join(APPLICATIONS)).context("read the Applications")?;
    let applications: Vec<Value> =
        serde_saphyr::from_multiple(&text).context("understand the Applications")?;
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
    let mut child = program
        .arg(what)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("start gitopscheck")?;
    let mut input = child.stdin.take().context("the input of gitopscheck is not piped")?;
    // It answers when it has read all: neither waits for the other.
    let told = input.write_all(&serde_json::to_vec(items)?);
    drop(input);
    let done = child.wait_with_output().context("wait for gitopscheck")?;
    ensure!(done.status.success(), "gitopscheck {what}: {}", done.status);
    told.context("tell gitopscheck the objects")?;
    serde_json::from_slice(&done.stdout).context("understand gitopscheck")
}
