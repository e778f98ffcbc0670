//! Why there is no plan, and whether all was looked at.

use sluice_gateway_config::Violations;

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// What is wrong.
    pub violations: Violations,
    /// Whether something was not checked, because it depends on what is wrong.
    pub is_partial: bool,
}

/// Of a step that others depend on.
impl From<Violations> for Refused {
    fn from(violations: Violations) -> Self {
        Self { violations, is_partial: true }
    }
}
