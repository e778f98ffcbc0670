//! Flink's autoscaler: arrivals and backlog against the true rate of a task, by its busy share.
//!
//! Source: `JobVertexScaler.java`, `AutoScalerUtils.java`, `AutoScalerOptions.java` of apache/flink-kubernetes-operator. The formula is
//! Flink's. Its windows are as short as ours: with its defaults of 15 minutes, it does worse here. Waiting for the sink counts as busy, as
//! in Flink.

use super::super::numbers::gateways;
use super::{Plant, Rule, Turn, Window, is_due};

/// Turns of metrics: three minutes.
const WINDOW_TURNS: usize = 36;
/// Seconds without metrics after a change.
const STABILIZATION_SECONDS: f64 = 60.0;
/// Target time to work off a backlog, in seconds.
const CATCH_UP_SECONDS: f64 = 600.0;
/// Duration of a rescale, in seconds.
const RESTART_SECONDS: f64 = 60.0;
/// Seconds for which a smaller number must be wanted before it is used.
const DOWN_SECONDS: f64 = 600.0;
const TARGET: f64 = 0.7;
/// Deviation from the target without a rescale.
const BOUNDARY: f64 = 0.15;
/// Seconds of backlog above which the boundaries are wide.
const BACKLOG_SECONDS: f64 = 300.0;
/// Smallest share of the current number in one scale-in.
const SHARE_MIN: f64 = 0.4;

#[derive(Debug)]
pub struct Flink {
    partitions: u32,
    arrival: Window,
    processed: Window,
    busy: Window,
    changed_at: f64,
    falling_since: Option<f64>,
    asked: Vec<(f64, u32)>,
}

impl Flink {
    pub fn new(partitions: u32) -> Self {
        let window = || Window::of(WINDOW_TURNS);
        Self {
            partitions,
            arrival: window(),
            processed: window(),
            busy: window(),
            changed_at: -STABILIZATION_SECONDS,
            falling_since: None,
            asked: Vec::new(),
        }
    }

    fn see(&mut self, turn: &Turn) {
        self.arrival.add(turn.arrival);
        self.processed.add(turn.processed);
        self.busy.add(if turn.blocked { 1.0 } else { turn.busy });
    }

    fn forget(&mut self) {
        self.arrival.clear();
        self.processed.clear();
        self.busy.clear();
    }

    /// The first number, from `asked` on, that divides the partitions evenly or gives each task fewer of them.
    fn aligned(&self, asked: u32, current: u32) -> u32 {
        let n = self.partitions;
        let end = if asked > current { n } else { current };
        let fits = |number: &u32| n.is_multiple_of(*number) || n / number < n / asked;
        (asked..=end).find(fits).unwrap_or(asked)
    }

    /// Delays a scale-in; the largest number wanted meanwhile is used.
    fn delayed(&mut self, now: f64, asked: u32, current: u32) -> u32 {
        if asked > current {
            self.falling_since = None;
            self.asked.clear();
        }
        if asked >= current {
            return asked;
        }
        let since = *self.falling_since.get_or_insert(now);
        self.asked.push((now, asked));
        self.asked.retain(|(at, _)| *at >= now - DOWN_SECONDS);
        if now - since < DOWN_SECONDS {
            return current;
        }
        self.asked.iter().map(|(_, asked)| *asked).max().unwrap_or(current)
    }
}

impl Rule for Flink {
    fn after(&mut self, plant: &mut Plant, turn: &Turn) -> Option<u32> {
        if plant.seconds() - self.changed_at < STABILIZATION_SECONDS {
            self.forget();
            return None;
        }
        self.see(turn);
        let (arrival, processed, busy) = (self.arrival.mean(), self.processed.mean(), self.busy.mean());
        if !is_due(plant, 60.0) || !self.arrival.is_full() || busy <= 0.0 {
            return None;
        }
        let (rate, lag, current) = (processed / busy, plant.lag(), plant.wanted());
        let backlog = processed > 0.0 && lag / processed > BACKLOG_SECONDS;
        let needed = |utilization: f64, restart: bool| {
            let restart = if restart { arrival * RESTART_SECONDS / CATCH_UP_SECONDS } else { 0.0 };
            if utilization > 0.0 {
                lag / CATCH_UP_SECONDS + restart + arrival / utilization
            } else {
                f64::INFINITY
            }
        };
        let upper = needed(if backlog { 1.0 } else { TARGET + BOUNDARY }, false);
        let lower = needed(if backlog { 0.0 } else { TARGET - BOUNDARY }, true);
        let factor = (needed(TARGET, true) / rate).max(SHARE_MIN);
        let asked = gateways(factor * f64::from(current)).min(self.partitions);
        let asked = self.aligned(asked, current);
        let asked = self.delayed(plant.seconds(), asked, current);
        let outside = rate < upper || rate > lower;
        if asked == current || !outside {
            return None;
        }
        (self.changed_at, self.falling_since) = (plant.seconds(), None);
        self.asked.clear();
        Some(asked)
    }
}
