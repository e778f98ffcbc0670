//! The arrivals of a day, and the rate that `ClickHouse` accepts. Rates are those of the script from which the target figures come.

use anyhow::Context as _;
use clap::ValueEnum;

use super::chance::Chance;

pub const DAY_SECONDS: f64 = 86_400.0;
/// When the messages of the nightly load arrive, in seconds of the day.
const NIGHT_SECONDS: std::ops::Range<f64> = 7_200.0..18_000.0;
/// When a disturbance starts, in seconds from the start; arrivals are rising then.
const TROUBLE_SECONDS: f64 = 10_800.0;
/// How long `ClickHouse` is slow.
const OUTAGE_SECONDS: f64 = 1_800.0;
/// Messages a second that `ClickHouse` accepts while it is slow: half of one gateway's capacity.
const OUTAGE_RATE: f64 = 5_000.0;
/// Messages a second that `ClickHouse` accepts otherwise: no bound.
const SINK_RATE: f64 = 1e12;
/// How long a message that cannot be read blocks its partition, until a user removes it.
const POISON_SECONDS: f64 = 10_800.0;
/// The blocked partition, modulo the number of partitions.
const POISON_PARTITION: usize = 7;
/// Largest deviation of a partition's weight from the mean.
const WEIGHT_SPREAD: f64 = 0.3;
/// The seed of the partitions' weights in the script from which the target figures come.
const WEIGHTS_SEED: u32 = 7;
/// The hot partition's share of all messages: at the peak, more than one gateway's capacity.
const HOT_SHARE: f64 = 0.12;
/// Bytes that a gateway loses each second when it leaks: 2 MiB a minute.
const LEAK_BYTES: f64 = 34_953.0;

/// The shape of a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Load {
    /// 55,000 messages a second.
    Steady,
    /// From 15,000 to 105,000 and back.
    Diurnal,
    /// The same, doubled for eight minutes every two hours.
    Burst,
    /// The same as diurnal, and half an hour in which `ClickHouse` takes 5,000.
    SinkOutage,
    /// The same as diurnal, with 12 % of the messages in one partition.
    Skew,
    /// The same as diurnal, and three hours in which one partition cannot be read.
    Poison,
    /// The same as diurnal, while gateways leak memory.
    SlowLeak,
    /// 30,000 for three hours of the night, and nothing else.
    Nightly,
    /// The arrivals of a file.
    #[value(skip)]
    Trace,
}

impl Load {
    /// Messages a second at a moment, without noise.
    pub fn arrival(self, seconds: f64, trace: &Trace) -> f64 {
        let diurnal = 60_000.0 - 45_000.0 * (std::f64::consts::TAU * seconds / DAY_SECONDS).cos();
        match self {
            Self::Steady => 55_000.0,
            Self::Burst if seconds % 7_200.0 < 480.0 => 2.0 * diurnal,
            Self::Nightly if !NIGHT_SECONDS.contains(&(seconds % DAY_SECONDS)) => 0.0,
            Self::Nightly => 30_000.0,
            Self::Trace => trace.at(seconds),
            _ => diurnal,
        }
    }

    /// Whether `ClickHouse` is slow.
    pub fn is_outage(self, seconds: f64) -> bool {
        self == Self::SinkOutage && (TROUBLE_SECONDS..TROUBLE_SECONDS + OUTAGE_SECONDS).contains(&seconds)
    }

    /// Messages a second that `ClickHouse` takes.
    pub fn sink(self, seconds: f64) -> f64 {
        if self.is_outage(seconds) { OUTAGE_RATE } else { SINK_RATE }
    }

    /// The partition that is blocked now.
    pub fn stuck(self, seconds: f64, partitions: usize) -> Option<usize> {
        let stands = (TROUBLE_SECONDS..TROUBLE_SECONDS + POISON_SECONDS).contains(&seconds);
        (self == Self::Poison && stands).then_some(POISON_PARTITION % partitions)
    }

    /// Bytes a second that each gateway leaks.
    pub fn leak(self) -> f64 {
        if self == Self::SlowLeak { LEAK_BYTES } else { 0.0 }
    }

    /// The share of each partition; they add up to 1.
    pub fn weights(self, partitions: usize, seed: u32) -> Vec<f64> {
        let mut chance = Chance::new(WEIGHTS_SEED.wrapping_add(seed));
        let mut weights: Vec<f64> = (0..partitions).map(|_| 1.0 + WEIGHT_SPREAD * chance.around()).collect();
        if self == Self::Skew && partitions > 1 {
            let others: f64 = weights.iter().skip(1).sum();
            weights[0] = others * HOT_SHARE / (1.0 - HOT_SHARE);
        }
        let sum: f64 = weights.iter().sum();
        weights.into_iter().map(|weight| weight / sum).collect()
    }
}

/// Arrivals from a file: `seconds,messages a second` in each line, ascending; between two lines, a straight line.
#[derive(Debug, Clone, Default)]
pub struct Trace(Vec<(f64, f64)>);

impl Trace {
    /// Reads the text of a file; lines that begin with `#` are left out.
    pub fn read(text: &str) -> anyhow::Result<Self> {
        let mut points: Vec<(f64, f64)> = Vec::new();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            if line.starts_with('#') {
                continue;
            }
            let point = point(line).with_context(|| format!("line {} is not SECONDS,RATE", number + 1))?;
            let ascends = points.last().is_none_or(|last| point.0 > last.0);
            anyhow::ensure!(ascends, "line {}: seconds do not ascend", number + 1);
            points.push(point);
        }
        anyhow::ensure!(!points.is_empty(), "there is no line with SECONDS,RATE");
        Ok(Self(points))
    }

    fn at(&self, seconds: f64) -> f64 {
        let after = self.0.partition_point(|point| point.0 <= seconds);
        match (after.checked_sub(1).and_then(|before| self.0.get(before)), self.0.get(after)) {
            (Some(before), Some(after)) => {
                before.1 + (after.1 - before.1) * (seconds - before.0) / (after.0 - before.0)
            }
            (Some(only), None) | (None, Some(only)) => only.1,
            (None, None) => 0.0,
        }
    }
}

fn point(line: &str) -> Option<(f64, f64)> {
    let (seconds, rate) = line.split_once(',')?;
    let point: (f64, f64) = (seconds.trim().parse().ok()?, rate.trim().parse().ok()?);
    (point.0 >= 0.0 && point.1 >= 0.0 && point.0.is_finite() && point.1.is_finite()).then_some(point)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_add_up_to_one_and_only_skew_is_skewed() {
        for load in [Load::Diurnal, Load::Skew] {
            for partitions in [1, 8, 96] {
                let weights = load.weights(partitions, 0);
                assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-9);
                let hot = load == Load::Skew && partitions > 1;
                assert_eq!((weights[0] - HOT_SHARE).abs() < 1e-9, hot, "{load:?} {partitions}");
            }
        }
    }

    #[test]
    fn a_trace_is_read_and_runs_straight_between_its_lines() {
        let trace = Trace::read("# a day\n0,100\n10, 200\n\n20,0\n").unwrap();
        for (seconds, expected) in [(0.0, 100.0), (5.0, 150.0), (15.0, 100.0), (99.0, 0.0)] {
            assert!((trace.at(seconds) - expected).abs() < 1e-9, "{seconds}");
        }
        for wrong in ["", "1", "a,b", "5,1\n4,1", "1,-2", "1,NaN"] {
            assert!(Trace::read(wrong).is_err(), "{wrong}");
        }
    }
}
