//! What is tried: each fault with its name, in the order of the path of a span.

use super::course::kill::Step;
use super::course::refuse::Refusal;

/// Rounds of a scenario that takes long or that does not depend on the moment.
const FEW: u32 = 3;

/// Rounds of one that takes a minute.
const ONE: u32 = 1;

/// What happens in a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A gateway is killed at a step.
    Kill(Step),
    /// The server refuses, or seems to.
    Refuse(Refusal),
}

/// A fault with its name.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name on the command line and in the report.
    pub name: &'static str,
    /// What happens, in words.
    pub describe: &'static str,
    /// What happens.
    pub fault: Fault,
    /// Brokers that it needs.
    pub brokers: u32,
    /// Rounds at the most, whatever is asked for.
    pub rounds_max: u32,
}

const fn scenario(name: &'static str, fault: Fault, rounds_max: u32, describe: &'static str) -> Scenario {
    Scenario { name, describe, fault, brokers: 1, rounds_max }
}

/// All of them.
pub fn all() -> Vec<Scenario> {
    let kills = Step::ALL.map(|(step, name, describe)| scenario(name, Fault::Kill(step), u32::MAX, describe));
    let refusals =
        Refusal::ALL.map(|(refusal, name, describe)| scenario(name, Fault::Refuse(refusal), FEW, describe));
    kills.into_iter().chain(refusals).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_scenario_has_a_name_of_its_own() {
        let all = all();
        let names: BTreeSet<&str> = all.iter().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), all.len());
        assert!(names.contains("kill-after-server-commit"));
    }
}
