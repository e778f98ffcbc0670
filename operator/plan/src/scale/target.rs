//! How many gateways it takes: the smallest step on which the mean, the hottest gateway and memory are within bounds.

use super::{
    capacity::CAPACITY_MIN,
    cause::HOT,
    memory::MemoryModel,
    numbers, steps,
    window::{PartitionRates, Rates},
};
use crate::pipeline::policy::{Load, Policy};

/// For the sake of one hot partition, at most so many times the gateways that the mean takes: beyond, each of them buys
/// the partition less than a twentieth of a gateway.
const SKEW_STEPS_MAX: u32 = 2;

/// What the number follows from.
#[derive(Debug, Clone, Copy)]
pub struct Demand<'a> {
    /// Targets.
    pub policy: &'a Policy,
    /// What arrives and waits.
    pub rates: &'a Rates,
    /// Messages a second of one gateway.
    pub capacity: f64,
    /// Seconds that a rescale costs.
    pub disruption_seconds: f64,
    /// Whether what waits is no guide, as when offsets were lost.
    pub ignore_lag: bool,
    /// Whether a late backlog is worked off sooner; not when it is one partition's, which no number of gateways hurries.
    pub hurry: bool,
}

impl Demand<'_> {
    /// Seconds in which the backlog is to be worked off. They are fewer when its oldest message is late already, by the square of how late it is:
    /// a day's worst lag grows with the time that the worst backlog stays. A backlog of requests does not change them.
    pub fn catch_up_seconds(&self) -> f64 {
        let whole = self.policy.catch_up_seconds;
        if !self.hurry || self.policy.load == Load::Requests {
            return whole;
        }
        let punctual = whole / self.rates.lag_seconds().max(1.0);
        whole * (punctual * punctual).clamp(self.policy.catch_up_share_min, 1.0)
    }

    /// What waits and more gateways would read. Requests wait in the logs of a gateway, which only this gateway reads.
    fn lag(&self, lag: f64) -> f64 {
        if self.ignore_lag || self.policy.load == Load::Requests { 0.0 } else { lag }
    }

    /// Messages a second that have to be possible.
    pub fn needed(&self) -> f64 {
        let seconds = self.catch_up_seconds();
        let arrivals = 1.0 / self.policy.utilization + self.disruption_seconds / seconds;
        let whole = self.rates.arrival * arrivals + self.lag(self.rates.lag) / seconds;
        (whole - self.hopeless(seconds)).max(0.0)
    }

    /// Messages a second that no gateway could do, as a partition is read by one: no number of gateways is for them. Requests are no such.
    fn hopeless(&self, seconds: f64) -> f64 {
        if self.policy.load == Load::Requests {
            return 0.0;
        }
        let moving = self.rates.partitions.iter().filter(|partition| !partition.stuck);
        moving.map(|one| (self.load(one, seconds) - HOT * self.capacity).max(0.0)).sum()
    }

    /// Messages a second of one partition that have to be possible.
    fn load(&self, one: &PartitionRates, seconds: f64) -> f64 {
        one.arrival + self.lag(one.lag) / seconds
    }

    /// Messages a second that the hottest of so many gateways would have, apart from partitions that are too much for any.
    /// `current` gateways are taken with the partitions they have. Requests are taken to be spread: connections end after a while.
    fn hottest(&self, replicas: u32, current: u32) -> f64 {
        if self.policy.load == Load::Requests {
            let all: f64 =
                self.rates.partitions.iter().map(|one| self.load(one, self.catch_up_seconds())).sum();
            return all / f64::from(replicas.max(1));
        }
        let seconds = self.catch_up_seconds();
        let limit = HOT * self.capacity;
        let loads: Vec<f64> = self
            .rates
            .partitions
            .iter()
            .map(|partition| {
                let load = self.load(partition, seconds);
                if partition.stuck || load > limit { 0.0 } else { load }
            })
            .collect();
        let pods = &self.rates.pods;
        if replicas == current
            && pods.len() == replicas as usize
            && pods.iter().all(|pod| !pod.partitions.is_empty())
        {
            let load = |number: &u32| loads.get(*number as usize).copied().unwrap_or_default();
            return pods.iter().map(|pod| pod.partitions.iter().map(load).sum()).fold(0.0, f64::max);
        }
        let mut gateways = vec![0.0; replicas.max(1) as usize];
        let count = gateways.len();
        for (number, load) in loads.iter().enumerate() {
            gateways[number % count] += load;
        }
        gateways.into_iter().fold(0.0, f64::max)
    }

    /// The step it takes. `steps` ascend and are not empty.
    pub fn replicas(&self, steps: &[u32], current: u32) -> u32 {
        let mean =
            numbers::ceil(self.needed() / (self.capacity.max(CAPACITY_MIN) * (1.0 + self.policy.tolerance)));
        let mean = steps::at_least(steps, mean);
        let most = mean.saturating_mul(SKEW_STEPS_MAX);
        let enough = |step: &&u32| self.hottest(**step, current) <= self.policy.hottest * self.capacity;
        let mut tried = steps.iter().take_while(|step| **step <= most).filter(|step| **step >= mean);
        let last = tried.clone().last().copied().unwrap_or(mean);
        tried.find(enough).copied().unwrap_or(last)
    }
}

/// The fewest gateways whose memory is expected to fit; 1 while that is not known, and when no number of them does: then
/// it is not partitions that fill it.
pub fn memory_floor(
    policy: &Policy,
    model: &MemoryModel,
    limit_bytes: u64,
    partitions: u32,
    steps: &[u32],
) -> u32 {
    let room = policy.memory_target * numbers::count(limit_bytes);
    let fits = |step: &&u32| {
        limit_bytes == 0
            || model.expected(partitions.div_ceil((**step).max(1))).is_none_or(|bytes| bytes <= room)
    };
    steps.iter().find(fits).copied().unwrap_or(1)
}

/// Recommended limits are multiples of this many MiB: a figure that a person would choose. Chosen.
const LIMIT_STEP_MIB: u64 = 64;

/// The memory limit, in MiB, at which the memory in use would be [`Policy::memory_target`] of it; `None` while no limit is known. `share` is the
/// share of the present limit in use. A gateway that was killed used its whole limit, whatever a sample saw.
pub fn memory_limit_mib(policy: &Policy, limit_bytes: u64, share: f64, is_killed: bool) -> Option<u64> {
    let share = if is_killed { share.max(1.0) } else { share };
    let mib = numbers::count(limit_bytes) / numbers::count(1 << 20) * share / policy.memory_target;
    let steps = numbers::ceil(mib / numbers::count(LIMIT_STEP_MIB));
    (limit_bytes > 0).then_some(u64::from(steps) * LIMIT_STEP_MIB)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{steps::steps as useful, window::PartitionRates},
        *,
    };
    use crate::pipeline::policy::{Alignment, Bounds};

    fn replicas(arrivals: &[f64], lag: f64) -> u32 {
        let arrival = arrivals.iter().sum();
        let each = lag / numbers::count(arrivals.len() as u64);
        let partitions =
            arrivals.iter().map(|a| PartitionRates { arrival: *a, lag: each, stuck: false }).collect();
        let rates = Rates { partitions, arrival, lag, ..Rates::default() };
        let policy = Policy::default();
        let demand = Demand {
            policy: &policy,
            rates: &rates,
            capacity: 1_000.0,
            disruption_seconds: 0.0,
            ignore_lag: false,
            hurry: true,
        };
        let n = u32::try_from(arrivals.len()).unwrap();
        demand.replicas(&useful(n, 1, Alignment::Balanced, Bounds { min: 1, max: n }), 0)
    }

    #[test]
    fn the_smallest_step_within_all_bounds_is_taken() {
        let even = |rate: f64| [rate / 12.0; 12];
        for (rate, lag, expected) in [
            (0.0, 0.0, 1),
            (700.0, 0.0, 1),
            (800.0, 0.0, 1),
            (830.0, 0.0, 1),
            (840.0, 0.0, 2),
            (2_200.0, 0.0, 3),
            (3_500.0, 0.0, 6),
            (700.0, 600_000.0, 3),
            // Twenty minutes late: the same messages in 150 s, not in 600 s.
            (700.0, 840_000.0, 12),
            (90_000.0, 0.0, 12),
        ] {
            assert_eq!(replicas(&even(rate), lag), expected, "{rate} {lag}");
        }
    }

    #[test]
    fn the_hottest_gateway_counts_and_a_hopeless_partition_does_not() {
        let mut uneven = [50.0; 12];
        (uneven[0], uneven[6]) = (505.0, 505.0);
        assert_eq!(replicas(&uneven, 0.0), 4, "partitions 0 and 6 share a gateway of 2, 3 and 6");
        let mut hopeless = [50.0; 12];
        hopeless[0] = 5_000.0;
        assert_eq!(replicas(&hopeless, 0.0), 3);
        let mut hopeless = [10.0; 96];
        hopeless[0] = 1_000.0;
        assert!(replicas(&hopeless, 0.0) <= 6, "one partition is no reason for 96 gateways");
    }

    #[test]
    fn a_late_backlog_is_worked_off_sooner_down_to_a_share() {
        let rates = |lag| Rates { arrival: 1_000.0, lag, ..Rates::default() };
        let policy = Policy::default();
        for (lag_seconds, expected) in [(0.0, 600.0), (600.0, 600.0), (1_200.0, 150.0), (9_000.0, 90.0)] {
            let rates = rates(lag_seconds * 1_000.0);
            let demand = Demand {
                policy: &policy,
                rates: &rates,
                capacity: 1.0,
                disruption_seconds: 0.0,
                ignore_lag: false,
                hurry: true,
            };
            assert!((demand.catch_up_seconds() - expected).abs() < 1e-9, "{lag_seconds}");
        }
    }
}
