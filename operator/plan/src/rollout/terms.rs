//! How a rollout is to go, from the spec.

use sluice_crds::{RolloutStrategy, TracePipelineSpec};
use sluice_gateway_config::{Duration, Violations};

/// How a rollout is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// In which order.
    pub strategy: RolloutStrategy,
    /// How long the first gateway must be well, seconds.
    pub canary_seconds: u32,
    /// Whether what fails is taken back.
    pub auto_rollback: bool,
    /// How long nothing may become ready, seconds.
    pub deadline_seconds: u32,
}

impl Terms {
    /// Reads the terms.
    pub fn of(spec: &TracePipelineSpec) -> Result<Self, Violations> {
        let (rollout, mut found) = (&spec.rollout, Violations::default());
        let canary = seconds("canary.duration", &rollout.canary.duration, &mut found);
        let deadline = seconds("progressDeadline", &rollout.progress_deadline, &mut found);
        found.or(Self {
            strategy: rollout.strategy,
            canary_seconds: canary,
            auto_rollback: rollout.auto_rollback,
            deadline_seconds: deadline,
        })
    }
}

/// Whole seconds, at least one.
fn seconds(field: &str, text: &str, found: &mut Violations) -> u32 {
    let parsed = text.parse::<Duration>();
    let parsed = parsed.map_err(|error| found.add(format!("spec.rollout.{field}"), format!("{error}")));
    parsed.map_or(1, |time| u32::try_from(time.as_millis() / 1_000).unwrap_or(u32::MAX).max(1))
}
