//! The cost of the queue volume: `--spool spill` and `--spool drain`.
//!
//! Job: compare the volume with the live path, from three runs over the same spans. Place in the flow: beside the [report](super::report);
//! [`course`](super::course) makes the runs, each a process of its own:
//!
//! | run | the sink | what the process does | when it gets SIGTERM |
//! | --- | --- | --- | --- |
//! | `live` | takes everything | reads, encodes, inserts | the group has committed the end of every partition |
//! | `spill` | refuses every INSERT | reads, encodes, appends to the volume | every span was read; what is in memory then goes to the volume while it leaves |
//! | `drain` | takes everything | inserts from the volume of `spill`, as the same group | as `live` |
//!
//! CPU time is that of the whole process from start to end. So `spill` includes the shutdown and refused inserts, and all three include a
//! start. The kernel's writes of pages to the disk are not counted for any run. Nothing is produced during the runs. `drain` still
//! [reads](Counts::read) the messages of blocks that the shutdown closed, because no plan has the ends of these blocks; that counts against
//! it. Rows are counted once, over `spill` and `drain` together.

use clap::ValueEnum;
use serde::Serialize;

use super::report::RunReport;
use crate::command::value_name;
use crate::figures::{ratio, rounded};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Spool {
    /// The cost of spilling: at least 0.9 of the live run's spans per CPU-second
    Spill,
    /// The speed of draining: at least 5 times the live run's spans per CPU-second
    Drain,
}

impl Spool {
    /// The least ratio to the live run, which gateway/DELIVERY.md promises.
    fn least(self) -> f64 {
        match self {
            Spool::Spill => 0.9,
            Spool::Drain => 5.0,
        }
    }
}

/// The kind of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Nothing goes to the volume.
    Live,
    /// Blocks go to the volume.
    Spill,
    /// Blocks come from the volume.
    Drain,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Phase::Live => "live",
            Phase::Spill => "spill",
            Phase::Drain => "drain",
        }
    }
}

/// Metrics of a gateway with a queue volume before SIGTERM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub phase: Phase,
    /// Spans that it read from Kafka.
    pub read: u64,
    /// Blocks that it had written to the volume.
    pub appended_blocks: u64,
    /// Blocks that it had inserted from the volume.
    pub drained_blocks: u64,
    /// Bytes of the volume's files when it had ended.
    pub volume_bytes: u64,
}

/// The volume compared with the live path, over all runs: the ratio of spans a CPU-second to those of `live`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    pub asked: Spool,
    pub spill_to_live: f64,
    pub drain_to_live: f64,
    /// The ratio of both together: the whole way through the volume.
    pub both_to_live: f64,
    /// The required least ratio of the measured figure.
    pub least: f64,
    pub is_met: bool,
}

impl Comparison {
    /// Compares these runs; `None` unless each phase was run.
    pub fn of(asked: Spool, runs: &[RunReport]) -> Option<Comparison> {
        let cpu_s = |phase| {
            let of = |run: &&RunReport| run.spool.is_some_and(|counts| counts.phase == phase);
            let (mut sum, mut count) = (0.0, 0_u32);
            for run in runs.iter().filter(of) {
                sum += run.cpu_s;
                count += 1;
            }
            (count > 0).then(|| sum / f64::from(count))
        };
        // All runs have the same spans, so the ratio of seconds is the ratio of rates.
        let (live, spill, drain) = (cpu_s(Phase::Live)?, cpu_s(Phase::Spill)?, cpu_s(Phase::Drain)?);
        let to_live = |seconds| rounded(ratio(live, seconds));
        let (spill_to_live, drain_to_live) = (to_live(spill), to_live(drain));
        let found = match asked {
            Spool::Spill => spill_to_live,
            Spool::Drain => drain_to_live,
        };
        Some(Comparison {
            asked,
            spill_to_live,
            drain_to_live,
            both_to_live: to_live(spill + drain),
            least: asked.least(),
            is_met: found >= asked.least(),
        })
    }

    pub fn lines(&self) -> [String; 2] {
        let Comparison { spill_to_live, drain_to_live, both_to_live, least, .. } = self;
        let name = value_name(&self.asked);
        let met = if self.is_met { "met" } else { "NOT met" };
        [
            format!(
                "spans a CPU-second, of live: spill {spill_to_live:.2}, drain {drain_to_live:.2}, both together {both_to_live:.2}"
            ),
            format!("{name}: at least {least} is asked for: {met}"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::{Arrived, Report, RunReport};
    use super::super::witness::Usage;
    use super::*;
    use e2e_fixtures::spans::Shape;

    fn run(phase: Phase, cpu_s: i64) -> RunReport {
        let usage = Usage { user_us: cpu_s * 1_000_000, ..Usage::default() };
        let counts = Counts { phase, read: 0, appended_blocks: 0, drained_blocks: 0, volume_bytes: 0 };
        let run = RunReport::new(phase.name(), 1_000, 1.0, usage, Arrived::default());
        RunReport { spool: Some(counts), ..run }
    }

    #[test]
    fn ratios_are_of_all_runs_and_the_one_that_was_asked_for_decides() {
        let mut runs = vec![run(Phase::Live, 18), run(Phase::Spill, 20), run(Phase::Drain, 4)];
        runs.extend([run(Phase::Live, 22), run(Phase::Spill, 30), run(Phase::Drain, 4)]);
        let spill = Comparison::of(Spool::Spill, &runs).unwrap();
        assert_eq!((spill.spill_to_live, spill.drain_to_live, spill.both_to_live), (0.8, 5.0, 0.69));
        assert!(!spill.is_met && spill.lines()[1].ends_with("NOT met"));
        assert!(Comparison::of(Spool::Drain, &runs).unwrap().is_met);
        assert_eq!(Comparison::of(Spool::Drain, &runs[..2]), None);
    }

    #[test]
    fn a_volume_that_is_too_slow_is_a_failure_and_one_that_nobody_asked_about_is_none() {
        let runs = [run(Phase::Live, 18), run(Phase::Spill, 30), run(Phase::Drain, 3)];
        for (asked, is_reached) in [(Some(Spool::Spill), false), (Some(Spool::Drain), true), (None, true)] {
            let spool = asked.and_then(|asked| Comparison::of(asked, &runs));
            assert_eq!(Report { shape: Shape::Rich, runs: Vec::new(), spool }.is_reached(), is_reached);
        }
    }
}
