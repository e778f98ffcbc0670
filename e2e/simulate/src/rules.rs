//! The rules that decide: ours, and the published rules of other autoscalers with their defaults (sources in each file).
//!
//! After every turn, a rule sees the plant and returns how many gateways it wants; it can do nothing else. This compares control laws; it
//! is no benchmark of products.

mod flink;
mod hpa;
mod keda;
mod numaflow;
mod ours;

use std::collections::VecDeque;

use clap::ValueEnum;

use super::numbers::count;
use super::plant::{Plant, TURN_SECONDS, Turn};

pub use ours::{Ours, Tuning};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// `decide` of the operator
    Ours,
    /// KEDA's Kafka scaler at a lag of 300,000 messages for each replica, and the HPA under it
    Keda,
    /// An HPA at 70 % of the CPU
    Hpa,
    /// Flink's autoscaler with windows as short as ours
    Flink,
    /// Numaflow's rule for sources
    Numaflow,
}

impl Name {
    pub fn rule(self, partitions: u32, tuning: &Tuning) -> Box<dyn Rule> {
        match self {
            Self::Ours => Box::new(Ours::new(tuning)),
            Self::Keda => Box::new(keda::Keda::new(partitions)),
            Self::Hpa => Box::new(hpa::Hpa::new()),
            Self::Flink => Box::new(flink::Flink::new(partitions)),
            Self::Numaflow => Box::new(numaflow::Numaflow::new(partitions)),
        }
    }
}

/// Decides after each turn.
pub trait Rule {
    /// The number of gateways from now on; `None` keeps the current number.
    fn after(&mut self, plant: &mut Plant, turn: &Turn) -> Option<u32>;
}

/// The amounts of the last turns.
#[derive(Debug, Clone)]
struct Window {
    amounts: VecDeque<f64>,
    size: usize,
}

impl Window {
    fn of(size: usize) -> Self {
        Self { amounts: VecDeque::with_capacity(size + 1), size }
    }

    fn add(&mut self, amount: f64) {
        if self.amounts.len() == self.size {
            self.amounts.pop_front();
        }
        self.amounts.push_back(amount);
    }

    fn clear(&mut self) {
        self.amounts.clear();
    }

    fn is_full(&self) -> bool {
        self.amounts.len() == self.size
    }

    fn mean(&self) -> f64 {
        self.amounts.iter().sum::<f64>() / count(self.amounts.len().max(1) as u64)
    }

    fn most(&self) -> f64 {
        self.amounts.iter().copied().fold(0.0, f64::max)
    }
}

/// Whether this turn is one of those that a rule with this period acts on.
fn is_due(plant: &Plant, period_seconds: f64) -> bool {
    (plant.seconds() % period_seconds).abs() < TURN_SECONDS / 2.0
}
