//! What runs with requirements came to: a table for people, JSON for programs, and whether everything held.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use e2e_stack::paths::remove_folder;
use e2e_stack::process::interrupt;
use e2e_stack::say::{self, aligned};
use serde::Serialize;

use crate::command::{code, kept_in, write_json};

/// A column of a table: its name, and the cell of a run.
pub type Column<R> = (&'static str, fn(&R) -> String);

/// A table of runs, line by line; the first `words` columns stand to the left.
pub fn table<R>(columns: &[Column<R>], runs: &[R], words: usize) -> Vec<String> {
    table_of_known(columns, runs, words, |_| columns.len())
}

/// As [`table`]; of some runs only the first columns are known.
fn table_of_known<R>(
    columns: &[Column<R>],
    runs: &[R],
    words: usize,
    known: impl Fn(&R) -> usize,
) -> Vec<String> {
    let names: Vec<String> = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
    let cells = |run: &R| -> Vec<String> {
        let (known, columns) = (known(run), columns.iter().enumerate());
        columns.map(|(at, (_, cell))| if at < known { cell(run) } else { "-".to_owned() }).collect()
    };
    let lines: Vec<Vec<String>> = std::iter::once(names).chain(runs.iter().map(cells)).collect();
    aligned(&lines, words)
}

/// One run, which is a line of a table.
pub trait Run: Serialize + Sized + 'static {
    /// The first column is the run's name.
    const COLUMNS: &'static [Column<Self>];

    fn name(&self) -> &str;

    /// How many columns are known, from the left: fewer if it was not measured.
    fn known(&self) -> usize {
        Self::COLUMNS.len()
    }

    /// Its figures in a line of progress; `None` if only the failures say anything.
    fn said(&self) -> Option<String>;

    /// The requirements that were not met.
    fn failures(&self) -> &[String];

    /// One line of progress.
    fn summary(&self) -> String {
        let failures = self.failures();
        let failures = (!failures.is_empty()).then(|| format!("FAILED: {}", failures.join("; ")));
        self.said().into_iter().chain(failures).collect::<Vec<_>>().join("; ")
    }
}

/// All runs, in the order in which they ran.
#[derive(Clone, Debug, Serialize)]
pub struct Outcomes<R> {
    pub runs: Vec<R>,
}

impl<R: Run> Outcomes<R> {
    /// Whether everything held everywhere.
    pub fn holds(&self) -> bool {
        self.runs.iter().all(|run| run.failures().is_empty())
    }

    /// The table, line by line, and a line for each requirement that was not met.
    pub fn table(&self) -> Vec<String> {
        let failures = self.runs.iter().flat_map(|run| {
            run.failures().iter().map(move |failure| format!("{} FAILED: {failure}", run.name()))
        });
        table_of_known(R::COLUMNS, &self.runs, 1, R::known).into_iter().chain(failures).collect()
    }

    /// Adds a run, and prints its summary. `ended` makes the run of an error, unless the command was interrupted.
    pub(crate) fn add(&mut self, outcome: Result<R>, ended: impl FnOnce(&str) -> R) -> Result<()> {
        interrupt::check()?;
        let run = outcome.unwrap_or_else(|error| ended(&format!("{error:#}")));
        say::progress(run.name(), &run.summary());
        self.runs.push(run);
        Ok(())
    }

    /// Removes the folder of the runs if everything held; otherwise prints where it is.
    pub(crate) fn remove_or_keep(&self, part: &str, folder: &Path) -> Result<()> {
        if self.holds() {
            return remove_folder(folder);
        }
        say::progress(part, &kept_in(folder));
        Ok(())
    }

    /// Prints the table and writes the JSON file. Returns the exit code of the program.
    pub(crate) fn show(&self, json: Option<&Path>) -> Result<ExitCode> {
        say::lines(&self.table());
        write_json(json, self)?;
        Ok(code(self.holds()))
    }
}
