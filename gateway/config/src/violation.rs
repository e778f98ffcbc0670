//! Violations: all errors in a config or a spec, each with the path of its field.

use std::fmt;

/// One violation: a field, and what is expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Path of the field, as a user would write it: `source.kafka.topics`.
    pub path: String,
    /// What is wrong and what is expected, in one sentence.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// All violations, in the order of the fields; empty if there are none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Violations(Vec<Violation>);

impl Violations {
    /// Adds a violation.
    pub fn add(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.0.push(Violation { path: path.into(), message: message.into() });
    }

    /// Adds a violation if `wrong` is true.
    pub fn add_if(&mut self, wrong: bool, path: &str, message: impl FnOnce() -> String) {
        if wrong {
            self.add(path, message());
        }
    }

    /// Appends the violations of another list.
    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Sorts them by path, for lists whose order would differ between two runs.
    pub fn sort_by_path(&mut self) {
        self.0.sort_by(|one, other| one.path.cmp(&other.path).then_with(|| one.message.cmp(&other.message)));
    }

    /// `Ok` with the value if there are no violations, else the violations.
    pub fn or<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }

    /// Whether there are no violations.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The violations in order.
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
