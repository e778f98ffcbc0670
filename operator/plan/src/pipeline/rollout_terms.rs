//! How a rollout is to go, from the spec.

use sluice_crds::{MaxUnavailable, RolloutStrategy, TracePipelineSpec};
use sluice_gateway_config::{Duration, Violations};

/// How a rollout is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// In which order.
    pub strategy: RolloutStrategy,
    /// How long the first gateway must be well, seconds.
    pub canary_seconds: u32,
    /// How many gateways may be away at the same time once one is ready with the change.
    pub unavailable: Unavailable,
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
        let unavailable = unavailable(rollout.max_unavailable.as_ref(), &mut found);
        found.or(Self {
            strategy: rollout.strategy,
            canary_seconds: canary,
            unavailable,
            auto_rollback: rollout.auto_rollback,
            deadline_seconds: deadline,
        })
    }
}

/// How many gateways may be away at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unavailable {
    /// So many.
    Number(u32),
    /// So many of a hundred, rounded down.
    Percent(u32),
}

impl Unavailable {
    /// Of this many gateways: at least one, with which the StatefulSet controller replaces one after another.
    pub fn of(self, replicas: u32) -> u32 {
        match self {
            Self::Number(number) => number,
            Self::Percent(percent) => replicas.saturating_mul(percent) / 100,
        }
        .max(1)
    }
}

fn unavailable(given: Option<&MaxUnavailable>, found: &mut Violations) -> Unavailable {
    let read = match given {
        None => Some(Unavailable::Number(1)),
        Some(MaxUnavailable::Number(number)) => {
            Some(*number).filter(|number| (1..=1_000).contains(number)).map(Unavailable::Number)
        }
        Some(MaxUnavailable::Share(text)) => {
            let percent = text.strip_suffix('%').and_then(|percent| percent.parse().ok());
            percent.filter(|percent| (1..=100).contains(percent)).map(Unavailable::Percent)
        }
    };
    read.unwrap_or_else(|| {
        found.add(
            "spec.rollout.maxUnavailable",
            "must be a number from 1 to 1000, or a share from 1% to 100%",
        );
        Unavailable::Number(1)
    })
}

/// Whole seconds, at least one.
fn seconds(field: &str, text: &str, found: &mut Violations) -> u32 {
    let parsed = text.parse::<Duration>();
    let parsed = parsed.map_err(|error| found.add(format!("spec.rollout.{field}"), format!("{error}")));
    parsed.map_or(1, |time| u32::try_from(time.as_millis() / 1_000).unwrap_or(u32::MAX).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_rounded_down_and_never_nobody() {
        let share = |text: &str| Some(MaxUnavailable::Share(text.into()));
        for (given, replicas, expected) in [
            (None, 96, Some(1)),
            (Some(MaxUnavailable::Number(7)), 96, Some(7)),
            (share("10%"), 96, Some(9)),
            (share("10%"), 9, Some(1)),
            (share("100%"), 1_000, Some(1_000)),
            (share("100%"), 0, Some(1)),
            (Some(MaxUnavailable::Number(0)), 96, None),
            (Some(MaxUnavailable::Number(1_001)), 96, None),
            (share("0%"), 96, None),
            (share("101%"), 96, None),
            (share("10"), 96, None),
            (share("-1%"), 96, None),
            (share(""), 96, None),
        ] {
            let mut found = Violations::default();
            let read = unavailable(given.as_ref(), &mut found);
            let of = found.or(read).ok().map(|read| read.of(replicas));
            assert_eq!(of, expected, "{given:?} of {replicas}");
        }
    }
}
