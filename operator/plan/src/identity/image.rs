//! Which image gateways and the schema Job run: the spec's, else the operator's, which an upgrade of the operator does not change.
//!
//! The status keeps the image that gateways run while `gateway.image` is not set. If the status lacks it (an older operator wrote it, or it was
//! lost), the StatefulSet's image counts. An image with which no gateway was ever ready is not kept: if the operator was installed with
//! an image that cannot be pulled, an installation with another image mends that, and there is no gateway to replace.

use crate::{identity::Defaults, observed::WorkloadSeen};
use sluice_crds::{RolloutState, RolloutStatus, TracePipeline, UpgradeStrategy};

/// The image, and what is to be said of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    /// What gateways and the schema Job run.
    pub runs: String,
    /// What gateways run while `gateway.image` is not set; `None` while that may still follow the operator.
    pub default: Option<String>,
    /// What the operator has for gateways without `gateway.image`, when that is not what they run.
    pub operators: Option<String>,
}

impl Image {
    /// Decides.
    pub(crate) fn of(pipeline: &TracePipeline, workload: Option<&WorkloadSeen>, defaults: &Defaults) -> Self {
        let (gateway, operators) = (&pipeline.spec.gateway, &defaults.gateway_image);
        let is_kept = gateway.upgrade_strategy.unwrap_or_default() == UpgradeStrategy::Manual;
        let named = gateway.image.as_ref().filter(|image| !image.is_empty());
        if named.is_some() || !is_kept {
            let runs = named.unwrap_or(operators);
            return Self { runs: runs.clone(), default: Some(operators.clone()), operators: None };
        }
        let kept = kept(pipeline, workload);
        let runs = kept.clone().unwrap_or_else(|| operators.clone());
        let operators = Some(operators.clone()).filter(|image| *image != runs);
        Self { runs, default: kept, operators }
    }
}

fn kept(pipeline: &TracePipeline, workload: Option<&WorkloadSeen>) -> Option<String> {
    let status = pipeline.status.as_ref();
    if let Some(default) = status.and_then(|status| status.default_image.clone()) {
        return Some(default);
    }
    let rollout = status.and_then(|status| status.rollout.as_ref());
    let Some((live, ready)) = workload.and_then(|live| Some((live.image.clone()?, live.ready))) else {
        // It is being made anew, or was never made.
        return status?.image.clone().filter(|_| rollout.is_some_and(has_been_ready));
    };
    (ready > 0 || rollout.is_none_or(has_been_ready)).then_some(live)
}

/// Whether gateways were ready before, as far as rollouts tell: the first one has nothing to go back to.
fn has_been_ready(rollout: &RolloutStatus) -> bool {
    match rollout.state {
        RolloutState::Complete | RolloutState::Canary | RolloutState::RolledBack => true,
        RolloutState::Pending | RolloutState::Rolling | RolloutState::Failed => rollout.proved.is_some(),
    }
}
