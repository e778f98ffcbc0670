//! KEDA's Kafka scaler: the lag divided by a threshold, handed to an HPA.
//!
//! Source: `pkg/scalers/kafka_scaler.go` of kedacore/keda, and the HPA's defaults: every 15 s, a tolerance of 10 %. Up: to the double or
//! by four. Down: to the largest number wanted in the last five minutes.

use super::super::numbers::gateways;
use super::{Plant, Rule, Turn, is_due};

/// Messages of lag for each replica. Of the tried thresholds, this one has the fewest replica-hours at a lag of minutes.
const THRESHOLD: f64 = 300_000.0;

#[derive(Debug)]
pub struct Keda {
    partitions: f64,
    horizontal: Horizontal,
}

impl Keda {
    /// KEDA wants at most one replica per partition.
    pub fn new(partitions: u32) -> Self {
        Self { partitions: f64::from(partitions), horizontal: Horizontal::default() }
    }
}

impl Rule for Keda {
    fn after(&mut self, plant: &mut Plant, _turn: &Turn) -> Option<u32> {
        if !is_due(plant, Horizontal::PERIOD_SECONDS) {
            return None;
        }
        let lag = plant.lag().min(self.partitions * THRESHOLD);
        let current = plant.wanted();
        let ratio = lag / (THRESHOLD * f64::from(current));
        Some(self.horizontal.follow(current, ratio, gateways(lag / THRESHOLD)))
    }
}

/// How a `HorizontalPodAutoscaler` follows the replicas that its metric wants.
#[derive(Debug)]
pub struct Horizontal {
    asked: super::Window,
}

impl Default for Horizontal {
    fn default() -> Self {
        // Five minutes of polls, one every 15 s.
        Self { asked: super::Window::of(20) }
    }
}

impl Horizontal {
    /// Seconds between two polls.
    pub const PERIOD_SECONDS: f64 = 15.0;

    /// The new number of replicas. `ratio` is the metric divided by its target; `asked` is the number that the metric wants.
    pub fn follow(&mut self, current: u32, ratio: f64, asked: u32) -> u32 {
        let mut wanted = if (1.0 - ratio).abs() <= 0.1 { current } else { asked };
        if wanted > current {
            wanted = wanted.min((current * 2).max(current + 4));
        }
        self.asked.add(f64::from(wanted));
        if wanted < current { current.min(gateways(self.asked.most())) } else { wanted }
    }
}
