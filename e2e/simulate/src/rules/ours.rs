//! Our rule: the operator's own `decide`, every 15 s. It sees only what a gateway exports.

use sluice_plan::scale::{Cause, Mode, Policy, Rests, Samples, State, decide};

use super::{Plant, Rule, Turn, is_due};

/// Seconds between two polls.
const POLL_SECONDS: f64 = 15.0;

/// Seconds after which an idle pipeline starts a gateway again: the default of `scaling.idle.refreshEvery`.
const REFRESH_SECONDS: u32 = 86_400;

/// Values to try for the policy. A value that is not given keeps the policy's default.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Tuning {
    /// Share of a gateway's capacity that arrivals may take
    #[arg(long, value_name = "SHARE")]
    pub utilization: Option<f64>,

    /// How far above the mean bound a step may reach
    #[arg(long, value_name = "SHARE")]
    pub tolerance: Option<f64>,

    /// Share of a gateway's capacity that the one with the most may take
    #[arg(long, value_name = "SHARE")]
    pub hottest: Option<f64>,

    /// Seconds in which a backlog is to be worked off
    #[arg(long, value_name = "SECONDS")]
    pub catch_up: Option<f64>,

    /// Share of those seconds that a late backlog has at least
    #[arg(long, value_name = "SHARE")]
    pub catch_up_share: Option<f64>,

    /// Seconds that a surplus lasts before gateways are taken away
    #[arg(long, value_name = "SECONDS")]
    pub down_after: Option<u32>,

    /// Seconds without a message after which no gateway stays, as with `scaling.idle`; without it one always does
    #[arg(long, value_name = "SECONDS")]
    pub idle_after: Option<u32>,
}

impl Tuning {
    fn policy(&self) -> Policy {
        let mut policy = Policy { mode: Mode::Auto, ..Policy::default() };
        policy.utilization = self.utilization.unwrap_or(policy.utilization);
        policy.tolerance = self.tolerance.unwrap_or(policy.tolerance);
        policy.hottest = self.hottest.unwrap_or(policy.hottest);
        policy.catch_up_seconds = self.catch_up.unwrap_or(policy.catch_up_seconds);
        policy.catch_up_share_min = self.catch_up_share.unwrap_or(policy.catch_up_share_min);
        policy.down_after_seconds = self.down_after.unwrap_or(policy.down_after_seconds);
        if let Some(after_seconds) = self.idle_after {
            policy.replicas_min = 0;
            policy.rests = Some(Rests { after_seconds, refresh_seconds: REFRESH_SECONDS });
        }
        policy
    }
}

#[derive(Debug)]
pub struct Ours {
    policy: Policy,
    state: State,
    samples: Samples,
    cause: Cause,
}

impl Ours {
    /// The default policy, with the given values to try.
    pub fn new(tuning: &Tuning) -> Self {
        Self {
            policy: tuning.policy(),
            state: State::default(),
            samples: Samples::default(),
            cause: Cause::default(),
        }
    }
}

impl Rule for Ours {
    fn after(&mut self, plant: &mut Plant, _turn: &Turn) -> Option<u32> {
        if !is_due(plant, POLL_SECONDS) {
            return None;
        }
        plant.observe(&mut self.samples);
        let decision = decide(plant.now(), &self.policy, &self.state, &self.samples);
        if decision.replicas != plant.wanted() || decision.cause != self.cause {
            tracing::info!(seconds = plant.seconds(), cause = ?decision.cause, "{}", decision.reason);
        }
        self.cause = decision.cause;
        self.state = decision.next;
        Some(decision.replicas)
    }
}
