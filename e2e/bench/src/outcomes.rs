//! What runs with requirements came to: a table for people, JSON for programs, and whether everything held.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use e2e_stack::say::{self, aligned};
use serde::Serialize;

/// Columns of words, which stand to the left.
const WORDS: usize = 1;

/// One run, with its line in a table of so many columns.
pub trait Run<const COLUMNS: usize>: Serialize {
    /// The columns' names; the first one is the run's.
    const HEADINGS: [&'static str; COLUMNS];

    /// Its name.
    fn name(&self) -> &str;

    /// Its line.
    fn cells(&self) -> [String; COLUMNS];

    /// The requirements that were not met.
    fn failures(&self) -> &[String];
}

/// All runs.
#[derive(Clone, Debug, Serialize)]
pub struct Outcomes<R> {
    /// In the order in which they were run.
    pub runs: Vec<R>,
}

impl<R> Outcomes<R> {
    /// Whether everything held everywhere.
    pub fn holds<const COLUMNS: usize>(&self) -> bool
    where
        R: Run<COLUMNS>,
    {
        self.runs.iter().all(|run| run.failures().is_empty())
    }

    /// The table, line by line, and a line for each requirement that was not met.
    pub fn table<const COLUMNS: usize>(&self) -> Vec<String>
    where
        R: Run<COLUMNS>,
    {
        let mut lines = vec![R::HEADINGS.map(str::to_owned)];
        lines.extend(self.runs.iter().map(R::cells));
        let failures = self.runs.iter().flat_map(|run| {
            run.failures().iter().map(move |failure| format!("{} FAILED: {failure}", run.name()))
        });
        aligned(&lines, WORDS).into_iter().chain(failures).collect()
    }

    /// Prints the table and writes the JSON file. Returns the exit code of the program.
    pub(crate) fn show<const COLUMNS: usize>(&self, json: Option<&Path>) -> Result<ExitCode>
    where
        R: Run<COLUMNS>,
    {
        for line in self.table() {
            say::line(&line);
        }
        if let Some(file) = json {
            let text = serde_json::to_string(self).context("write the outcomes as JSON")?;
            fs::write(file, text + "\n").with_context(|| format!("write {}", file.display()))?;
        }
        Ok(if self.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
