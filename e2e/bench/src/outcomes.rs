//! What runs with requirements came to: a table for people, JSON for programs, and whether everything held.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use e2e_stack::paths::remove_folder;
use e2e_stack::say::{self, aligned};
use serde::Serialize;

use crate::command::{kept_in, write_json};

/// Columns of words, which stand to the left.
const WORDS: usize = 1;

/// A column of a table: its name, and the cell of a run.
pub type Column<R> = (&'static str, fn(&R) -> String);

/// The names of columns.
pub const fn headings<R, const COLUMNS: usize>(columns: &[Column<R>; COLUMNS]) -> [&'static str; COLUMNS] {
    let mut names = [""; COLUMNS];
    let mut place = 0;
    while place < COLUMNS {
        names[place] = columns[place].0;
        place += 1;
    }
    names
}

/// The cells of a run.
pub fn cells<R, const COLUMNS: usize>(columns: &[Column<R>; COLUMNS], run: &R) -> [String; COLUMNS] {
    columns.map(|(_, cell)| cell(run))
}

/// A table of runs, line by line; the first `words` columns stand to the left.
pub fn table<R, const COLUMNS: usize>(
    columns: &[Column<R>; COLUMNS],
    runs: &[R],
    words: usize,
) -> Vec<String> {
    let mut lines = vec![headings(columns).map(str::to_owned)];
    lines.extend(runs.iter().map(|run| cells(columns, run)));
    aligned(&lines, words)
}

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

    /// Adds a run, and prints its failures, or `held` if it has none.
    pub(crate) fn add<const COLUMNS: usize>(&mut self, run: R, held: &str)
    where
        R: Run<COLUMNS>,
    {
        let said = match run.failures() {
            [] => held.to_owned(),
            failures => format!("FAILED: {}", failures.join("; ")),
        };
        say::progress(run.name(), &said);
        self.runs.push(run);
    }

    /// Removes the folder of the runs if everything held; otherwise prints where it is.
    pub(crate) fn remove_or_keep<const COLUMNS: usize>(&self, part: &str, folder: &Path) -> Result<()>
    where
        R: Run<COLUMNS>,
    {
        if self.holds() {
            return remove_folder(folder);
        }
        say::progress(part, &kept_in(folder));
        Ok(())
    }

    /// Prints the table and writes the JSON file. Returns the exit code of the program.
    pub(crate) fn show<const COLUMNS: usize>(&self, json: Option<&Path>) -> Result<ExitCode>
    where
        R: Run<COLUMNS>,
    {
        for line in self.table() {
            say::line(&line);
        }
        write_json(json, self)?;
        Ok(if self.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
