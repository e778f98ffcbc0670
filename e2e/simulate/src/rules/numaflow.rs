//! Numaflow's rule for a source: what is pending, in seconds of the present rate, against 20 s.
//!
//! Source: `pkg/reconciler/vertex/scaling/scaling.go` of numaproj/numaflow, with its defaults: two minutes of metrics, 90 s
//! between changes, two replicas at a time.

use super::super::numbers::whole;
use super::{Plant, Rule, Turn, Window, is_due};

/// Target time to process the pending messages, in seconds.
const TARGET_SECONDS: f64 = 20.0;
/// Seconds between two changes.
const COOLDOWN_SECONDS: f64 = 90.0;
/// Replicas that one change adds or removes.
const STEP: u32 = 2;

#[derive(Debug)]
pub struct Numaflow {
    partitions: u32,
    pending: Window,
    rate: Window,
    changed_at: f64,
}

impl Numaflow {
    pub fn new(partitions: u32) -> Self {
        let changed_at = -COOLDOWN_SECONDS;
        Self { partitions, pending: Window::of(24), rate: Window::of(24), changed_at }
    }
}

impl Rule for Numaflow {
    fn after(&mut self, plant: &mut Plant, turn: &Turn) -> Option<u32> {
        self.pending.add(plant.lag());
        self.rate.add(turn.processed);
        let early = plant.seconds() - self.changed_at < COOLDOWN_SECONDS;
        if !is_due(plant, 30.0) || early || plant.ready() != plant.wanted() {
            return None;
        }
        let (rate, pending) = (self.rate.mean(), self.pending.mean());
        let seconds = if rate > 0.0 && pending >= 1.0 { pending / rate } else { 0.0 };
        let asked = whole(seconds / TARGET_SECONDS * f64::from(plant.ready()));
        let asked = u32::try_from(asked).unwrap_or(u32::MAX).clamp(1, self.partitions);
        let current = plant.wanted();
        if asked != current {
            self.changed_at = plant.seconds();
        }
        Some(asked.clamp(current.saturating_sub(STEP), current + STEP))
    }
}
