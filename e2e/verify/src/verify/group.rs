//! The groups of long tests: each `cargo verify` runs one of them ([`super::rotation`]), `cargo verify --all` all.
//!
//! A live or end-to-end test names its group by `#[ignore = "group NAME"]`. The filters here select it, and a test beside this file checks that both agree.

use std::process::Command;

use anyhow::ensure;
use e2e_stack::cargo::cargo;
use e2e_stack::programs::{self, Form};
use e2e_stack::{clients, images, requirements};

use super::cluster::OnStack;
use super::packages;
use super::steps::{Steps, quiet};
use crate::fuzz;

/// Parts into which the fault scenarios are divided.
const FAULT_PARTS: u32 = 14;

/// Scenarios of a part that run at the same time. Chosen: a scenario waits for timeouts and intervals for most of its time.
const SIDE_BY_SIDE: &str = "2";

/// Long tests that are run together.
#[derive(Debug)]
pub struct Group {
    /// Its name on the command line.
    pub name: &'static str,
    /// Files that the group tests. If they changed since its last run, it comes before others.
    pub paths: &'static [&'static str],
    work: Work,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// End-to-end tests whose names contain one of these.
    Cluster(&'static [&'static str]),
    /// As `Cluster`, and days of the scaling decision in simulation.
    Scaling(&'static [&'static str]),
    /// Checks of the release build: instructions per span, memory, throughput, sizes of images.
    Release(&'static [&'static str]),
    /// Packages alone, fuzz targets with sanitizers, every layout of the table.
    Deep,
    /// A part of the fault scenarios, from 1.
    Faults(u32),
    /// Live tests of gateways with foreign clients, whose names contain one of these.
    Clients(&'static [&'static str]),
}

const OPERATOR: &[&str] = &["operator", "crds", "Cargo.lock", "e2e/tests/it/operator"];
const GATEWAY: &[&str] = &["gateway", "Cargo.lock", "Cargo.toml"];
const FAULTS: &[&str] = &["gateway", "Cargo.lock", "e2e/faults"];

/// All groups, in the order of their turns. Neighbours are of different kinds, so that consecutive commits get different tests.
pub const ALL: [Group; 28] = [
    Group { name: "killed-operator", paths: OPERATOR, work: Work::Cluster(&["killed_operator::"]) },
    faults("faults-1", 1),
    Group {
        name: "storage",
        paths: &[
            "operator/plan/src/volumes",
            "operator/plan/src/volumes.rs",
            "operator/plan/src/observed/volumes.rs",
            "operator/src/read/volumes.rs",
            "operator/src/volumes",
            "operator/src/write/volume_events.rs",
            "gateway/spool",
            "gateway/src/app/queue_volume.rs",
            "gateway/src/delivery/enqueue.rs",
            "gateway/src/delivery/orphans.rs",
            "gateway/src/delivery/orphans",
            "gateway/src/volume",
            "gateway/src/volume.rs",
            "e2e/tests/it/storage",
        ],
        work: Work::Cluster(&["storage::"]),
    },
    faults("faults-2", 2),
    Group {
        name: "autoscaled",
        paths: &[
            "operator/plan/src/scale",
            "operator/plan/src/scale.rs",
            "operator/plan/src/size.rs",
            "operator/plan/src/size/division.rs",
            "operator/plan/src/pipeline/policy.rs",
            "operator/src/read/expired_offsets.rs",
            "operator/src/read/gateways/sample",
            "operator/src/read/kafka/sample.rs",
            "operator/src/steer/scaling.rs",
            "e2e/simulate",
            "e2e/tests/it/scaling",
        ],
        work: Work::Scaling(&["autoscaled::", "scaling::idle::"]),
    },
    faults("faults-3", 3),
    Group {
        name: "delivery",
        paths: &["gateway", "Cargo.lock", "e2e/tests/it/delivery"],
        work: Work::Cluster(&[
            "delivery::added::",
            "delivery::audit::",
            "delivery::compression::",
            "delivery::delivers::spans_in_json_become_the_same_rows",
            "delivery::edge::",
            "delivery::odd_values::",
            "delivery::otlp::",
            "delivery::transactions::",
            "delivery::two_tables::",
            "delivery::zone::",
        ]),
    },
    faults("faults-4", 4),
    Group {
        name: "chart",
        paths: &["charts", "crds", "operator", "Cargo.lock", "e2e/tests/it/install"],
        work: Work::Cluster(&["chart::", "upgraded::", "older_definition::"]),
    },
    faults("faults-5", 5),
    Group {
        name: "security",
        paths: &[
            "gateway/clickhouse/src/tls.rs",
            "gateway/config/src/security.rs",
            "gateway/kafka/src/dead_letter",
            "gateway/kafka/src/ground/security.rs",
            "gateway/kafka/src/ground/login.rs",
            "gateway/kafka/src/group/unfetched.rs",
            "gateway/login",
            "Cargo.lock",
            "e2e/tests/it/security",
        ],
        work: Work::Cluster(&[
            "security::secured::a_connection_",
            "security::secured::letters::",
            "security::secured::rows_arrive_",
            "security::secured::tokens::",
            "security::secured::unreadable::",
        ]),
    },
    faults("faults-6", 6),
    Group { name: "release", paths: GATEWAY, work: Work::Release(&["memory::", "throughput::"]) },
    faults("faults-7", 7),
    Group {
        name: "spec",
        paths: &["crds", "operator/plan", "gateway/config", "e2e/tests/it/spec"],
        work: Work::Cluster(&[
            "spec::bad_spec::a_missing_table_is_found_when_somebody_else_makes_it",
            "spec::bad_spec::a_wrong_password_is_said_and_mended",
            "spec::bad_spec::an_unknown_storage_class_is_named_and_found_when_made",
            "spec::bad_spec::an_unknown_table_is_named_and_made_when_allowed",
            "spec::connections::",
            "spec::objects::gateways_run_as_a_user_that_the_image_does_not_know",
            "spec::objects::pods_are_placed_and_called_as_the_spec_says",
            "spec::quotas::",
            "spec::schema::",
            "spec::unharmed::",
        ]),
    },
    faults("faults-8", 8),
    Group { name: "deep", paths: GATEWAY, work: Work::Deep },
    faults("faults-9", 9),
    Group {
        name: "deletion",
        paths: &[
            "operator/plan/src/drain",
            "operator/plan/src/drain.rs",
            "operator/plan/src/objects/drain_job.rs",
            "operator/plan/src/rollout",
            "operator/plan/src/rollout.rs",
            "operator/plan/src/status/removal.rs",
            "operator/src/read/gateways",
            "operator/src/read/gateways.rs",
            "operator/src/remove",
            "operator/src/remove.rs",
            "operator/src/steer",
            "operator/src/write/finalizer.rs",
            "gateway/src/app/leaving.rs",
            "gateway/src/commands/drain",
            "gateway/src/commands/drain.rs",
            "gateway/src/admin/server.rs",
            "gateway/src/admin/caller.rs",
            "gateway/src/admin/state.rs",
            "gateway/config/src/remaining.rs",
            "gateway/config/src/state.rs",
            "e2e/tests/it/deletion",
            "e2e/tests/it/rollout",
        ],
        work: Work::Cluster(&["deletion::drains::", "deletion::gone::", "rollout::leaving::"]),
    },
    faults("faults-10", 10),
    Group {
        name: "operator",
        paths: OPERATOR,
        work: Work::Cluster(&[
            "operator::divided::",
            "operator::many::",
            "operator::plugin::",
            "operator::pod_monitor::",
            "spec::foreign_status::",
            "spec::mutants::",
            "spec::objects::a_restarted_operator_writes_nothing",
        ]),
    },
    faults("faults-11", 11),
    Group {
        name: "gitops",
        paths: &[
            "config/argocd",
            "crds",
            "operator/plan/src/status",
            "operator/plan/src/status.rs",
            "operator/src/write",
            "e2e/stack/gitopscheck",
            "e2e/tests/it/gitops",
        ],
        work: Work::Cluster(&[
            "gitops::states::kept_waiting::",
            "gitops::states::left_volumes::",
            "gitops::states::passing::",
            "gitops::waves::",
        ]),
    },
    faults("faults-12", 12),
    Group {
        name: "clients",
        paths: &[
            "gateway/otlp",
            "gateway/otlp_json",
            "gateway/otlp_server",
            "gateway/src/edge",
            "gateway/src/edge.rs",
            "gateway/src/source",
            "gateway/src/source.rs",
            "gateway/tests/live/otlp_clients",
            "gateway/tests/live/otlp_clients.rs",
            "e2e/stack/clients",
        ],
        work: Work::Clients(&["otlp_clients::"]),
    },
    faults("faults-13", 13),
    Group {
        name: "secrets",
        paths: &[
            "operator/plan/src/objects",
            "operator/plan/src/identity",
            "operator/src/read/kafka",
            "operator/src/read/kafka.rs",
            "operator/src/read/secrets.rs",
            "gateway/config/src/security.rs",
            "gateway/login",
            "Cargo.lock",
            "e2e/tests/it/security",
        ],
        work: Work::Cluster(&["security::secured::operator::", "security::secured::pods::"]),
    },
    faults("faults-14", 14),
];

const fn faults(name: &'static str, part: u32) -> Group {
    Group { name, paths: FAULTS, work: Work::Faults(part) }
}

impl Group {
    /// Checks what the group needs from the machine beyond the quick tier.
    pub fn ensure_requirements(&self) -> anyhow::Result<()> {
        match self.work {
            Work::Deep => requirements::ensure_fuzzing(),
            Work::Release(_) => requirements::ensure_valgrind(),
            Work::Clients(_) => requirements::ensure_clients(),
            _ => Ok(()),
        }
    }

    /// Parts of the names of its tests.
    fn filters(&self) -> &'static [&'static str] {
        match self.work {
            Work::Cluster(filters)
            | Work::Scaling(filters)
            | Work::Release(filters)
            | Work::Clients(filters) => filters,
            Work::Deep | Work::Faults(_) => &[],
        }
    }

    pub fn has(&self, test: &str) -> bool {
        self.filters().iter().any(|part| test.contains(part))
    }

    /// Whether its end-to-end tests run at the same time as those of the quick tier, with the same programs.
    pub fn runs_beside(&self) -> bool {
        matches!(self.work, Work::Cluster(_) | Work::Scaling(_))
    }

    /// Runs the part of the group that does not run with the quick tier. A step that ran and failed is counted, not returned.
    pub fn run(&self, steps: &Steps, on: &OnStack<'_>) -> anyhow::Result<()> {
        match self.work {
            Work::Cluster(_) => Ok(()),
            Work::Scaling(_) => {
                let mut days = Command::new(programs::SIMULATE.file(Form::Tested));
                days.arg("--check");
                let name = "scaling stays within its limits in simulation";
                steps.once(name, || quiet("simulate", days)).map(drop)
            }
            Work::Release(filters) => release(steps, filters, on),
            Work::Deep => deep(steps, on),
            Work::Faults(part) => play(steps, part),
            Work::Clients(filters) => clients(steps, filters, on),
        }
    }
}

fn release(steps: &Steps, filters: &[&str], on: &OnStack<'_>) -> anyhow::Result<()> {
    steps.once("release build", || programs::compile(Form::Release))?;
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
    if let Some(programs) = steps.once("fuzz targets build", fuzz::Programs::build)? {
        for target in &fuzz::TARGETS {
            steps.once(&format!("fuzz {}", target.name), || programs.bounded(target))?;
        }
    }
    if on.is_local {
        steps.once("schema-bench makes, fills and asks every table", || {
            let mut bench = Command::new(programs::BENCH.file(Form::Tested));
            bench.args(["schema-bench", "--short", "--gateway"]).arg(programs::GATEWAY.file(Form::Tested));
            quiet("schema-bench", bench)
        })?;
        steps.once("bill inserts, waits for merges and counts", || {
            let mut bench = Command::new(programs::BENCH.file(Form::Tested));
            bench.args(["bill", "--shape", "rich", "--collector", "off", "--times", "1", "--quiet", "5"]);
            bench.args(["--spans", "20000", "--rate", "10000", "--views", "--gateway"]);
            bench.arg(programs::GATEWAY.file(Form::Tested));
            quiet("bill", bench)
        })?;
    }
    Ok(())
}

/// Runs a part of the fault scenarios with the gateway of the test profile: optimisation does not matter for them.
fn play(steps: &Steps, part: u32) -> anyhow::Result<()> {
    steps.once("the gateway's former rule compiles", || {
        programs::gateway_example("former_rule", Form::Tested)
    })?;
    let mut scenarios = Command::new(programs::FAULTS.file(Form::Tested));
    scenarios.args(["--rounds", "1", "--side-by-side", SIDE_BY_SIDE]);
    scenarios.args(["--part", &format!("{part}/{FAULT_PARTS}"), "--gateway"]);
    scenarios.arg(programs::GATEWAY.file(Form::Tested));
    steps.tests(&mut scenarios)
}

/// Runs the clients, once they are fetched and compiled.
fn clients(steps: &Steps, filters: &[&str], on: &OnStack<'_>) -> anyhow::Result<()> {
    let folder = steps.once("clients of OTLP are fetched and compiled", clients::folder)?;
    folder.map_or(Ok(()), |folder| steps.tests(&mut on.clients(&folder, filters)))
}

/// The names of the groups that run a test which the quick tier leaves out.
fn finders(test: &str) -> Vec<&'static str> {
    ALL.iter().filter(|group| group.has(test)).map(|group| group.name).collect()
}

/// Checks that exactly one group has each of these tests, which the quick tier leaves out.
pub fn ensure_found(left_out: &[String]) -> anyhow::Result<()> {
    for test in left_out {
        let finders = finders(test);
        ensure!(
            finders.len() == 1,
            "{test} is left out of the quick tier, and the groups that select it are {finders:?}: see e2e/verify/src/verify/group.rs"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests;
