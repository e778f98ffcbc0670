//! One run: a rule controls a plant through a load, and the result is counted.

use clap::ValueEnum;
use serde::Serialize;

use super::chance::Chance;
use super::load::{Load, Trace};
use super::numbers::{count, whole};
use super::plant::{Plant, Queue, TURN_SECONDS, World};
use super::rules::{Name, Tuning};

/// Largest random deviation of the arrivals in a turn.
const NOISE: f64 = 0.05;
/// The noise seed of the script from which the target figures come.
const NOISE_SEED: u32 = 11;
/// Turns for each point of a curve: one point a minute.
const TURNS_PER_POINT: u64 = 12;

#[derive(Debug, Clone, Copy)]
pub struct Course<'a> {
    pub policy: Name,
    pub load: Load,
    pub partitions: u32,
    pub queue: Queue,
    pub hours: f64,
    /// Seed of partitions and noise; 0 is the script's.
    pub seed: u32,
    /// The arrivals of a file; empty if there is no file.
    pub trace: &'a Trace,
    /// Values to try for our policy.
    pub tuning: &'a Tuning,
}

/// The result of a run; the names are those of the JSON document.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Run {
    pub policy: String,
    pub load: String,
    pub partitions: u32,
    pub hours: f64,
    /// Changes of the number of gateways.
    pub rescales: u32,
    /// The 99th percentile of the lag, in seconds.
    pub lag_p99_s: f64,
    pub lag_max_s: f64,
    /// Gateways times hours.
    pub replica_hours: f64,
    /// Gateways when `ClickHouse` became slow.
    pub outage_replicas_before: Option<u32>,
    /// The largest number of gateways while it was slow.
    pub outage_replicas_peak: Option<u32>,
    /// `lag_p99_s` of a day with an outage.
    pub outage_lag_p99_s: Option<f64>,
    /// Gateways and seconds of lag, a minute apart.
    #[serde(skip)]
    pub curve: Vec<(u32, f64)>,
}

impl Course<'_> {
    pub fn run(&self) -> Run {
        let partitions = usize::try_from(self.partitions).expect("partitions fit the memory");
        let mut plant = Plant::new(self.load.weights(partitions, self.seed), self.queue);
        plant.may_rest = self.tuning.idle_after.is_some();
        let mut rule = self.policy.rule(self.partitions, self.tuning);
        let mut chance = Chance::new(NOISE_SEED.wrapping_add(self.seed));
        let mut lags = Vec::new();
        let mut curve = Vec::new();
        let mut outage: Option<(u32, u32)> = None;
        for number in 0..whole(self.hours * 3_600.0 / TURN_SECONDS) {
            let seconds = plant.seconds();
            let arrival = self.load.arrival(seconds, self.trace) * (1.0 + NOISE * chance.around());
            let sink = self.load.sink(seconds);
            let stuck = self.load.stuck(seconds, partitions);
            let before = plant.wanted();
            let turn = plant.turn(&World { arrival, sink, stuck, leak: self.load.leak() });
            if let Some(wanted) = rule.after(&mut plant, &turn) {
                plant.scale(wanted);
            }
            let lag = plant.lag() / arrival.max(1.0);
            lags.push(lag);
            if number % TURNS_PER_POINT == 0 {
                curve.push((plant.wanted(), lag));
            }
            if self.load.is_outage(seconds) {
                let (before, peak) = outage.unwrap_or((before, 0));
                outage = Some((before, peak.max(plant.wanted())));
            }
        }
        self.counted(&plant, lags, curve, outage)
    }

    fn counted(
        &self,
        plant: &Plant,
        mut lags: Vec<f64>,
        curve: Vec<(u32, f64)>,
        outage: Option<(u32, u32)>,
    ) -> Run {
        lags.sort_by(f64::total_cmp);
        let at = usize::try_from(whole((count(lags.len() as u64) * 0.99).floor())).unwrap_or(usize::MAX);
        let lag_p99_s = tenths(lags.get(at).copied().unwrap_or_default());
        Run {
            policy: name(&self.policy),
            load: name(&self.load),
            partitions: self.partitions,
            hours: self.hours,
            rescales: plant.rescales,
            lag_p99_s,
            lag_max_s: tenths(lags.last().copied().unwrap_or_default()),
            replica_hours: tenths(plant.replica_hours),
            outage_replicas_before: outage.map(|(before, _)| before),
            outage_replicas_peak: outage.map(|(_, peak)| peak),
            outage_lag_p99_s: outage.map(|_| lag_p99_s),
            curve,
        }
    }
}

/// Its name in the command line and in results.
fn name(value: &impl ValueEnum) -> String {
    // Only the arrivals of a file are no value of the command line.
    value.to_possible_value().map_or_else(|| "trace".to_owned(), |value| value.get_name().to_owned())
}

fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(policy: Name, load: Load, queue: Queue) -> Run {
        let (trace, tuning) = (&Trace::default(), &Tuning::default());
        Course { policy, load, partitions: 96, queue, hours: 4.0, seed: 0, trace, tuning }.run()
    }

    #[test]
    fn a_run_is_deterministic_and_has_the_names_of_the_document() {
        let one = run(Name::Ours, Load::SinkOutage, Queue::Spill);
        assert_eq!(one, run(Name::Ours, Load::SinkOutage, Queue::Spill));
        let document = serde_json::to_value(&one).unwrap();
        let mut names: Vec<_> = document.as_object().unwrap().keys().collect();
        let mut expected = [
            "policy",
            "load",
            "partitions",
            "hours",
            "rescales",
            "lag_p99_s",
            "lag_max_s",
            "replica_hours",
            "outage_replicas_before",
            "outage_replicas_peak",
            "outage_lag_p99_s",
        ];
        expected.sort_unstable();
        names.sort_unstable();
        assert_eq!(names, expected);
    }

    #[test]
    fn an_idle_topic_has_no_gateways_and_its_messages_wait_for_a_start() {
        let day = |idle_after| {
            let (trace, tuning) = (&Trace::default(), &Tuning { idle_after, ..Tuning::default() });
            let (policy, load, queue) = (Name::Ours, Load::Nightly, Queue::Spill);
            Course { policy, load, partitions: 24, queue, hours: 48.0, seed: 0, trace, tuning }.run()
        };
        let (always, rests) = (day(None), day(Some(1_800)));
        assert!(rests.replica_hours < 0.6 * always.replica_hours, "{rests:?} {always:?}");
        // A gateway starts within 55 s of the first message; messages wait until there are enough gateways.
        assert!(rests.lag_max_s < 300.0, "{rests:?}");
        assert_eq!(rests.curve.last().map(|(gateways, _)| *gateways), Some(0), "nothing arrives by day");
    }

    #[test]
    fn others_add_gateways_while_clickhouse_is_slow_and_ours_does_not() {
        for (policy, adds) in
            [(Name::Ours, false), (Name::Keda, true), (Name::Flink, true), (Name::Numaflow, true)]
        {
            let run = run(policy, Load::SinkOutage, Queue::Disabled);
            assert_eq!(run.outage_replicas_peak > run.outage_replicas_before, adds, "{}", run.policy);
        }
        let run = run(Name::Ours, Load::SinkOutage, Queue::Spill);
        assert_eq!(run.outage_replicas_peak, run.outage_replicas_before);
    }
}
