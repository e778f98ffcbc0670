//! What is wrong with a config or a spec: every finding at once, each with the path of its field.

use std::fmt;

/// One finding: which field, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Path of the field, as a user would write it: `source.kafka.topics`.
    pub path: String,
    /// What is wrong and what would do, in one sentence.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// All findings, in the order of the fields; empty when all is well.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Violations(Vec<Violation>);

impl Violations {
    /// Adds a finding.
    pub fn add(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.0.push(Violation { path: path.into(), message: message.into() });
    }

    /// Adds a finding when `wrong` holds.
    pub fn add_if(&mut self, wrong: bool, path: &str, message: impl FnOnce() -> String) {
        if wrong {
            self.add(path, message());
        }
    }

    /// Adds the findings of another list behind those of this one.
    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// `Ok` with the value when nothing was found, else the findings.
    pub fn or<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The findings in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Violation> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a Violations {
    type Item = &'a Violation;
    type IntoIter = std::slice::Iter<'a, Violation>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, violation) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            violation.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Violations {}
