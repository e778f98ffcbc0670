//! A `HorizontalPodAutoscaler` on the CPU: replicas times busy share, divided by the target.
//!
//! Source: Kubernetes' documentation of the algorithm. It does not see the lag.

use super::super::numbers::gateways;
use super::keda::Horizontal;
use super::{Plant, Rule, Turn, Window, is_due};

/// The target CPU utilization.
const TARGET: f64 = 0.7;

#[derive(Debug)]
pub struct Hpa {
    busy: Window,
    horizontal: Horizontal,
}

impl Hpa {
    /// The metrics server averages over about a minute.
    pub fn new() -> Self {
        Self { busy: Window::of(12), horizontal: Horizontal::default() }
    }
}

impl Rule for Hpa {
    fn after(&mut self, plant: &mut Plant, turn: &Turn) -> Option<u32> {
        self.busy.add(turn.busy);
        if !is_due(plant, Horizontal::PERIOD_SECONDS) || plant.ready() != plant.wanted() {
            return None;
        }
        let ratio = self.busy.mean() / TARGET;
        let current = plant.wanted();
        Some(self.horizontal.follow(current, ratio, gateways(f64::from(current) * ratio)))
    }
}
