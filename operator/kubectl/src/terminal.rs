//! Where a command writes its answer and its progress.

use crate::cluster::Error;
use serde::Serialize;
use std::io::Write;

/// Standard output and standard error.
pub struct Terminal<'a> {
    /// Standard output: answers only.
    pub out: &'a mut dyn Write,
    /// Standard error: progress and errors.
    pub told: &'a mut dyn Write,
}

impl Terminal<'_> {
    /// Writes an answer as a text, or as JSON.
    pub(crate) fn answer(&mut self, json: bool, value: &impl Serialize, text: &str) -> Result<(), Error> {
        let text = if json {
            serde_json::to_string(value).map_err(std::io::Error::other).map_err(Error::Write)?
        } else {
            text.trim_end().to_owned()
        };
        writeln!(self.out, "{text}").map_err(Error::Write)
    }

    /// Writes a line of progress.
    pub(crate) fn tell(&mut self, line: &str) -> Result<(), Error> {
        writeln!(self.told, "{line}").map_err(Error::Write)
    }
}
