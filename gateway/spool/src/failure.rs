//! The first fatal error of whoever owns files: the state of the volume is unknown behind it, so that nothing is done any more.

use crate::files::Fatal;

/// Whether a call has failed, and with what words.
#[derive(Debug, Default)]
pub(crate) struct Failure(Option<String>);

impl Failure {
    /// Refuses what `owner` is asked for after a fatal error.
    ///
    /// # Errors
    /// [`Fatal`] with the words of the first one.
    pub(crate) fn check(&self, owner: &str) -> Result<(), Fatal> {
        match &self.0 {
            None => Ok(()),
            Some(words) => {
                Err(Fatal::of("go on after a failure", owner)(std::io::Error::other(words.clone())))
            }
        }
    }

    /// Remembers a fatal error.
    pub(crate) fn note(&mut self, fatal: &Fatal) {
        self.0 = Some(fatal.to_string());
    }

    /// Remembers that an outcome is fatal, and returns it.
    pub(crate) fn keep<T>(&mut self, outcome: Result<T, Fatal>) -> Result<T, Fatal> {
        outcome.inspect_err(|fatal| self.note(fatal))
    }
}
