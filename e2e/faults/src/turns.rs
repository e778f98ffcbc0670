//! The scenarios of a run in the order of their turns.
//!
//! Job: gives each scenario once, to the stage that asks next, so that no stage ends long before the others. Any thread.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::scenario::Scenario;

/// The scenarios, and how many turns were taken.
pub struct Turns {
    scenarios: Vec<Scenario>,
    taken: AtomicUsize,
}

impl Turns {
    /// Scenarios with the most brokers first, because another number of brokers needs new servers. Then the longest, which have the fewest
    /// rounds: a long scenario at the end would run alone.
    pub fn of(mut scenarios: Vec<Scenario>) -> Turns {
        scenarios.sort_by_key(|scenario| (Reverse(scenario.brokers), scenario.rounds_max));
        Turns { scenarios, taken: AtomicUsize::new(0) }
    }

    /// The next scenario, until all are taken.
    pub fn take(&self) -> Option<&Scenario> {
        self.scenarios.get(self.taken.fetch_add(1, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;
    use crate::scenario;

    #[test]
    fn each_scenario_is_taken_once_whichever_stage_takes_it() {
        const STAGES: usize = 4;
        let all = scenario::all();
        let (turns, together) = (Turns::of(all.clone()), Barrier::new(STAGES));
        let take_all = || {
            together.wait();
            std::iter::from_fn(|| turns.take()).map(|scenario| scenario.name.as_str()).collect::<Vec<_>>()
        };
        let mut taken: Vec<&str> = std::thread::scope(|scope| {
            let stages = [(); STAGES].map(|()| scope.spawn(take_all));
            stages.into_iter().flat_map(|stage| stage.join().unwrap()).collect()
        });
        taken.sort_unstable();
        let mut names: Vec<&str> = all.iter().map(|scenario| scenario.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(taken, names);
        assert!(turns.take().is_none());
    }

    #[test]
    fn the_longest_come_first_and_servers_are_not_started_twice() {
        let turns = Turns::of(scenario::all());
        let order: Vec<&Scenario> = std::iter::from_fn(|| turns.take()).collect();
        assert!(order.is_sorted_by(|one, next| one.brokers >= next.brokers));
        let place = |name: &str| order.iter().position(|scenario| scenario.name == name).unwrap();
        // Measured in `cargo verify` on two shared cores, 29 November 2026: 154 s, 48 s, 14 s.
        assert!(place("group-away") < place("rule-versions"));
        assert!(place("rule-versions") < place("kill-in-the-middle"));
    }
}
