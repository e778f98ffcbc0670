//! What the commands do alike: they find the gateway's program, run on the local stack, and write results.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use serde::Serialize;

use e2e_stack::programs;

/// The gateway's program, and the file of the results.
#[derive(Args, Clone, Debug)]
pub struct FileArgs {
    /// Write the results to a file, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Gateway program to run; default: compiled from this checkout
    #[arg(long, value_name = "FILE")]
    gateway: Option<PathBuf>,
}

impl FileArgs {
    /// The gateway's program, compiled if none is named.
    pub fn program(&self) -> Result<PathBuf> {
        self.gateway.as_deref().map_or_else(programs::release_gateway, named)
    }

    pub fn write(&self, results: &impl Serialize) -> Result<()> {
        write_json(self.json.as_deref(), results)
    }
}

/// The absolute path of a file on the command line.
pub fn named(file: &Path) -> Result<PathBuf> {
    std::path::absolute(file).with_context(|| format!("find {}", file.display()))
}

/// Writes results to a file, if there is one.
pub fn write_json(file: Option<&Path>, results: &impl Serialize) -> Result<()> {
    let Some(file) = file else { return Ok(()) };
    let text = serde_json::to_string(results).context("write the results as JSON")?;
    fs::write(file, text + "\n").with_context(|| format!("write {}", file.display()))
}

/// Whether a name contains one of these words; without words, every name does.
pub fn is_wanted(name: &str, only: &[String]) -> bool {
    only.is_empty() || only.iter().any(|word| name.contains(word.as_str()))
}

/// The name of a value on the command line and in reports.
pub fn value_name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Does the work while the local stack runs.
pub fn on_stack<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    e2e_stack::session(|| in_runtime(work))
}

/// Does the work in a runtime of its own.
pub fn in_runtime<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Runtime::new().context("start the runtime")?.block_on(work)
}

/// The exit code of a command whose requirements are met or not.
pub fn code(holds: bool) -> ExitCode {
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Tells where the files of a run are, if they are kept.
pub fn kept_in(folder: &Path) -> String {
    format!("configs and logs are in {}", folder.display())
}
