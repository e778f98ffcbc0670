//! What the ranges of a partition are made by, and where they go. Pure.

use super::{Destination, Plan, Rule, Settings};

/// What ranges are made by until all of them are settled that an owner before may have made by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InForce {
    pub rule: Rule,
    pub routing_epoch: u32,
    pub destination: Option<Destination>,
}

impl InForce {
    /// What this process wants.
    pub fn wanted(settings: &Settings) -> Self {
        let Settings { rule, routing_epoch, destination, .. } = *settings;
        Self { rule, routing_epoch, destination }
    }

    /// What a plan says. Versions before did not write down where they sent: it is taken to be where this process sends.
    pub fn planned(plan: &Plan, settings: &Settings) -> Self {
        let is_routed_alike = plan.routing_epoch == settings.routing_epoch;
        let now = settings.destination.filter(|_| is_routed_alike || plan.destination.is_some());
        let destination = now.map(|now| plan.destination.unwrap_or(now));
        Self { rule: plan.rule, routing_epoch: plan.routing_epoch, destination }
    }
}
