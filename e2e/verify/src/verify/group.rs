//! The groups of long tests: each `cargo verify` runs one of them ([`super::rotation`]), `cargo verify --all` all.
//!
//! An end-to-end test belongs to a group by `#[ignore = "group NAME"]`; the filters here find it again, and the quick tier holds both
//! against each other.

use std::process::Command;

use anyhow::ensure;
use e2e_stack::cargo::cargo;
use e2e_stack::programs::{self, Form};
use e2e_stack::{images, requirements};

use super::cluster::OnStack;
use super::packages;
use super::steps::{Steps, quiet};
use crate::fuzz;

/// Parts into which the fault scenarios are divided.
const FAULT_PARTS: u32 = 5;

/// Long tests that are run together.
#[derive(Debug)]
pub struct Group {
    /// Its name on the command line.
    pub name: &'static str,
    /// Files that it is about: when they have changed since it last ran, it comes before others.
    pub paths: &'static [&'static str],
    work: Work,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// End-to-end tests whose names contain one of these.
    Cluster(&'static [&'static str]),
    /// The same, and days of the scaling decision in simulation.
    Scaling(&'static [&'static str]),
    /// What only the release build shows: instructions per span, memory, throughput, sizes of images.
    Release(&'static [&'static str]),
    /// Packages alone, fuzz targets with sanitizers, every layout of the table.
    Deep,
    /// A part of the fault scenarios, from 1.
    Faults(u32),
}

const OPERATOR: &[&str] = &["operator", "crds", "Cargo.lock", "e2e/tests/it"];
const GATEWAY: &[&str] = &["gateway", "Cargo.lock", "Cargo.toml"];
const FAULTS: &[&str] = &["gateway", "Cargo.lock", "e2e/faults"];

/// All of them, in the order of their turns.
pub const ALL: [Group; 10] = [
    Group { name: "killed-operator", paths: OPERATOR, work: Work::Cluster(&["killed_operator::"]) },
    Group { name: "faults-1", paths: FAULTS, work: Work::Faults(1) },
    Group { name: "autoscaled", paths: OPERATOR, work: Work::Scaling(&["autoscaled::"]) },
    Group { name: "faults-2", paths: FAULTS, work: Work::Faults(2) },
    Group {
        name: "chart",
        paths: &["charts", "crds", "operator", "Cargo.lock"],
        work: Work::Cluster(&["chart::", "upgraded::", "older_definition::"]),
    },
    Group { name: "faults-3", paths: FAULTS, work: Work::Faults(3) },
    Group { name: "release", paths: GATEWAY, work: Work::Release(&["memory::", "throughput::"]) },
    Group { name: "faults-4", paths: FAULTS, work: Work::Faults(4) },
    Group { name: "deep", paths: GATEWAY, work: Work::Deep },
    Group { name: "faults-5", paths: FAULTS, work: Work::Faults(5) },
];

/// Their names.
pub const NAMES: [&str; ALL.len()] = names();

const fn names() -> [&'static str; ALL.len()] {
    let mut names = [""; ALL.len()];
    let mut place = 0;
    while place < ALL.len() {
        names[place] = ALL[place].name;
        place += 1;
    }
    names
}

impl Group {
    /// What the machine needs for it beyond the quick tier.
    ///
    /// # Errors
    /// What is missing, with the command that installs it.
    pub fn ensure_requirements(&self) -> anyhow::Result<()> {
        match self.work {
            Work::Deep => requirements::ensure_fuzzing(),
            Work::Release(_) => requirements::ensure_valgrind(),
            _ => Ok(()),
        }
    }

    /// Whether an end-to-end test of this name is one of its own.
    pub fn has(&self, test: &str) -> bool {
        match self.work {
            Work::Cluster(filters) | Work::Scaling(filters) | Work::Release(filters) => {
                filters.iter().any(|part| test.contains(part))
            }
            Work::Deep | Work::Faults(_) => false,
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// When steps could not be run at all; what ran and failed is counted.
    pub fn run(&self, steps: &Steps, on: &OnStack<'_>) -> anyhow::Result<()> {
        match self.work {
            Work::Cluster(filters) => steps.tests(&mut on.group(filters)),
            Work::Scaling(filters) => {
                steps.once("scaling stays within its limits in simulation", || {
                    let mut days = Command::new(programs::SIMULATE.file(Form::Checked));
                    days.arg("--check");
                    quiet("simulate", days)
                })?;
                steps.tests(&mut on.group(filters))
            }
            Work::Release(filters) => release(steps, filters, on),
            Work::Deep => deep(steps, on),
            Work::Faults(part) => faults(steps, part),
        }
    }
}

fn release(steps: &Steps, filters: &[&str], on: &OnStack<'_>) -> anyhow::Result<()> {
    steps.once("release build", programs::compile_release)?;
    steps.once("images are small", || {
        let programs = images::Programs::compiled(Form::Release)?;
        for (name, program) in [("operator", &programs.operator), ("gateway", &programs.gateway)] {
            images::is_small(&images::build_image(name, program)?)?;
        }
        Ok(())
    })?;
    steps.once("instructions", || {
        quiet("instructions", cargo(&["bench", "--package", "sluice-gateway", "--bench", "instructions"]))
    })?;
    let mut tests = on.group(filters);
    tests.env("SLUICE_GATEWAY_PROGRAM", programs::GATEWAY.file(Form::Release));
    steps.tests(&mut tests)
}

fn deep(steps: &Steps, on: &OnStack<'_>) -> anyhow::Result<()> {
    for package in packages::PURE {
        steps.once(&format!("{package} builds alone"), || {
            quiet(package, cargo(&["check", "--package", package]))
        })?;
    }
    let mut built = None;
    steps.once("fuzz targets build", || {
        built = Some(fuzz::Programs::build()?);
        Ok(())
    })?;
    if let Some(programs) = built {
        for target in &fuzz::TARGETS {
            steps.once(&format!("fuzz {}", target.name), || programs.bounded(target))?;
        }
    }
    if on.is_local {
        steps.once("schema-bench makes, fills and asks every table", || {
            let mut bench = Command::new(programs::BENCH.file(Form::Checked));
            bench.args(["schema-bench", "--short", "--gateway"]).arg(programs::GATEWAY.file(Form::Checked));
            quiet("schema-bench", bench)
        })?;
    }
    Ok(())
}

/// The gateway as tests have compiled it: a death is one whatever the optimiser has done.
fn faults(steps: &Steps, part: u32) -> anyhow::Result<()> {
    let gateway = programs::GATEWAY.file(Form::Checked);
    let mut scenarios = Command::new(programs::FAULTS.file(Form::Checked));
    scenarios.args(["--rounds", "1", "--part", &format!("{part}/{FAULT_PARTS}"), "--gateway"]).arg(gateway);
    steps.once("the gateway's former rule compiles", || {
        programs::gateway_example("former_rule", Form::Checked)
    })?;
    steps.tests(&mut scenarios)
}

/// Holds the marks of end-to-end tests against the filters: each left-out test names a group that finds it.
///
/// # Errors
/// The first test that no run would ever find.
pub fn ensure_found(left_out: &[(String, String)]) -> anyhow::Result<()> {
    for (test, reason) in left_out {
        let group =
            reason.strip_prefix("group ").and_then(|name| ALL.iter().find(|group| group.name == name));
        ensure!(
            group.is_some_and(|group| group.has(test)),
            "{test} is left out with the reason {reason:?}, and no group of that name finds it: see e2e/verify/src/verify/group.rs"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_no_group_finds_is_found_out() {
        let left_out = |test: &str, reason: &str| ensure_found(&[(test.to_owned(), reason.to_owned())]);
        left_out("scaling::autoscaled::replicas_follow_the_load", "group autoscaled").unwrap();
        assert!(left_out("scaling::autoscaled::replicas_follow_the_load", "group chart").is_err());
        assert!(left_out("scaling::autoscaled::replicas_follow_the_load", "slow").is_err());
        assert!(left_out("delivery::kill::x", "group faults-1").is_err());
    }

    #[test]
    fn every_part_of_the_scenarios_is_in_a_group() {
        let parts: Vec<u32> = ALL
            .iter()
            .filter_map(|group| match group.work {
                Work::Faults(part) => Some(part),
                _ => None,
            })
            .collect();
        assert_eq!(parts, (1..=FAULT_PARTS).collect::<Vec<_>>());
    }
}
