//! How long a drain may take, from the spec, and what happens to gateways that take longer.

use super::policy_parsing::seconds;
use sluice_crds::{OnTimeout, QueueMode, TracePipelineSpec};
use sluice_gateway_config::Violations;

/// How long it may take, and what then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    pub timeout_seconds: u32,
    /// What is done with gateways that take longer.
    pub on_timeout: OnTimeout,
}

impl Terms {
    /// Reads the terms.
    pub fn of(spec: &TracePipelineSpec) -> Result<Self, Violations> {
        let (drain, mut found) = (&spec.scaling.drain, Violations::default());
        let timeout = seconds("drain.timeout", &drain.timeout, &mut found);
        let on_timeout = match drain.on_timeout {
            OnTimeout::Force => leave_all_the_same(spec),
            others => others,
        };
        found.or(Self { timeout_seconds: timeout.unwrap_or(1), on_timeout })
    }
}

/// How gateways leave at the limit whatever they hold: their volumes, which may be the only copy of something, stay behind. Kafka may
/// have let go of what was not inserted for long, whenever its offsets are committed.
pub(crate) fn leave_all_the_same(spec: &TracePipelineSpec) -> OnTimeout {
    match spec.queue.mode {
        QueueMode::Disabled => OnTimeout::Force,
        QueueMode::Spill => OnTimeout::Job,
    }
}
