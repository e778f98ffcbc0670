//! Why there is no plan, for people and as JSON.

use serde_json::{Value, json};
use sluice_plan::Violations;
use std::fmt;

/// Why there is no plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refusal {
    /// What is wrong.
    pub violations: Violations,
    /// Whether checks are left that need what is wrong to be right first.
    pub is_partial: bool,
}

/// What [`Refusal::is_partial`] means, for people.
const MORE_FOLLOW: &str = "checks that depend on these fields follow once they are corrected";

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { violations, is_partial } = self;
        write!(f, "{violations}")?;
        if *is_partial { write!(f, "\n{MORE_FOLLOW}") } else { Ok(()) }
    }
}

impl From<Violations> for Refusal {
    fn from(violations: Violations) -> Self {
        Self { violations, is_partial: false }
    }
}

/// All violations with their paths, as JSON.
pub fn violations_json(refusal: &Refusal) -> Value {
    let each = refusal.violations.iter().map(|one| json!({"path": one.path, "message": one.message}));
    json!({"violations": each.collect::<Vec<_>>(), "isPartial": refusal.is_partial})
}
