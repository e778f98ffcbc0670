//! `cargo verify`: everything that CI checks, in one command.
//!
//! Steps run one after another, the cheap ones first; each names its tests as they run. A step that fails does not stop the
//! others, unless they need what it makes. The last line counts: a test of a test program counts as itself, every other
//! step as one.
//!
//! Tests are always picked out of the whole workspace: a package alone has other features of what it is built from, and would have
//! all of that compiled once more.

mod gitops;
mod manifests;
mod packages;
mod rights;
mod rules;
mod step;

use std::process::{Command, ExitCode};

use anyhow::{Context as _, bail};
use clap::Args;

use crate::cargo::{cargo, target_folder};
use crate::faults;
use crate::fuzz;
use crate::install::{self, ImageArgs, Images};
use crate::process::interrupt;
use crate::schema_bench;
use crate::simulate;
use crate::stack::{self, TargetArgs, images};
use step::Steps;

/// A thread for each end-to-end test: they wait for their turns themselves (`e2e/tests/it/turns.rs`). With fewer, those that run alone
/// would run sooner.
const END_TO_END_THREADS: &str = "128";

/// What is checked.
#[derive(Args, Clone, Debug)]
pub struct VerifyArgs {
    /// Leave out the end-to-end tests, and with them the local stack
    #[arg(long)]
    pub without_e2e: bool,

    /// Also end-to-end tests that take many minutes each
    #[arg(long, conflicts_with = "without_e2e")]
    pub all: bool,

    /// Only end-to-end tests whose name contains this, those that take minutes among them; nothing else is checked
    #[arg(long, value_name = "NAME", conflicts_with = "without_e2e")]
    pub only: Option<String>,

    /// Where the end-to-end tests run.
    #[command(flatten)]
    pub target: TargetArgs,

    /// What they run there.
    #[command(flatten)]
    pub images: ImageArgs,
}

/// Checks, counts, and says so in the last line.
///
/// # Errors
/// When a step could not be run at all; a step that ran and failed is counted instead.
pub fn run(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    interrupt::watch()?;
    let mut steps = Steps::default();
    if args.only.is_none() {
        without_cluster(&mut steps)?;
    }
    if !args.without_e2e {
        let outcome = on_cluster(args, &mut steps);
        interrupt::check()?;
        if let Some(name) = args.only.as_ref().filter(|_| outcome.is_ok() && steps.is_nothing_checked()) {
            steps.once(&format!("--only {name}"), || bail!("no end-to-end test has that in its name"));
        }
        steps.once("end-to-end environment", || outcome);
    }
    Ok(steps.conclude())
}

/// What needs no cluster.
fn without_cluster(steps: &mut Steps) -> anyhow::Result<()> {
    steps.once("format", || {
        step::quiet("format", cargo(&["fmt", "--all", "--", "--check"]))?;
        step::quiet("format", cargo(&["fmt", "--manifest-path", "gateway/fuzz/Cargo.toml", "--", "--check"]))
    });
    steps.once("packages name only lower ones", packages::check);
    steps.once("lints", || {
        step::quiet("lints", cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
        // Those that run only when they are named are not among all targets.
        step::quiet("lints", cargo(&["clippy", "--workspace", "--test", "live", "--", "-D", "warnings"]))
    });
    for package in packages::PURE {
        steps.once(&format!("{package} builds alone"), || {
            step::quiet(package, cargo(&["check", "-p", package]))
        });
    }
    steps.tests(cargo(&["test", "--no-fail-fast", "--workspace", "--lib", "--bins", "--test", "it"]))?;
    steps.tests(cargo(&["test", "--no-fail-fast", "--workspace", "--doc"]))?;
    fuzz_targets(steps);
    steps.once("scaling stays within its limits in simulation", simulate::check);
    steps.once("chart lints", manifests::lint);
    steps.once("chart renders", manifests::render);
    steps.once("the chart grants the rights that the operator uses, and no others", rights::check);
    steps.once("alert rules are read by Prometheus, fire and keep quiet", rules::tests);
    steps.once("rules and dashboards ask for metrics that there are", rules::queries);
    steps.once(
        "Argo CD and kstatus see every state of a pipeline as it is",
        gitops::every_state_is_seen_as_it_is,
    );
    steps.once(
        "an action in Argo CD's menu changes what it says and nothing else",
        gitops::actions_change_what_they_say,
    );
    steps.once("Argo CD reads the Applications and waits for them", gitops::applications_are_waited_for);
    interrupt::check()
}

/// Every fuzz target for so many runs, always the same.
fn fuzz_targets(steps: &mut Steps) {
    let mut programs = None;
    steps.once("fuzz targets build", || {
        programs = Some(fuzz::Programs::build()?);
        Ok(())
    });
    let Some(programs) = programs else { return };
    for target in fuzz::TARGETS {
        steps.once(&format!("fuzz {}", target.name), || programs.bounded(&target));
    }
}

/// What needs one: brings it up, runs the tests, and takes down what it brought up.
fn on_cluster(args: &VerifyArgs, steps: &mut Steps) -> anyhow::Result<()> {
    interrupt::check()?;
    let target = args.target.target()?;
    let mut ran_before = true;
    if target.needs_stack() {
        let program = std::env::current_exe().context("find this program's file")?;
        stack::discard_leftovers()?;
        ran_before = stack::up(&program)?.ran_before;
    }
    let is_ours = target.needs_stack();
    let outcome = target.resolve().and_then(|resolved| {
        if args.only.is_none() {
            steps.tests(on_servers(&resolved.clickhouse.host, &resolved.kafka.host))?;
            steps.once("faults: nothing lost or doubled in a short selection", faults_short);
            if is_ours {
                steps.once("schema-bench makes, fills and asks every table", schema_bench_short);
            }
        }
        let images = install::images(&resolved, &args.images)?;
        if args.only.is_none() && args.images.operator_image.is_none() {
            steps.once("images are small", images::are_small);
        }
        install::operator(&resolved.kubeconfig, &images)?;
        let ran = steps.tests(end_to_end(args, &images));
        ran.and(install::remove(&resolved.kubeconfig))
    });
    let stopped = if ran_before { Ok(()) } else { stack::down(true) };
    outcome.and(stopped)
}

/// Tests of gateway and operator that need a `ClickHouse` and a Kafka, and nothing else.
fn on_servers(clickhouse: &str, kafka: &str) -> Command {
    let mut command = cargo(&["test", "--no-fail-fast", "--workspace", "--test", "live"]);
    command.env("SLUICE_CLICKHOUSE", clickhouse).env("SLUICE_KAFKA", kafka);
    command
}

/// The gateway as the tests of the workspace have compiled it: a death is one whatever the optimiser has done.
fn faults_short() -> anyhow::Result<()> {
    step::quiet("gateway", cargo(&["test", "--workspace", "--test", "live", "--no-run"]))?;
    faults::short(&target_folder().join("debug/sluice-gateway"))
}

/// With the same gateway: what is counted is that every table is filled and answers, not how fast.
fn schema_bench_short() -> anyhow::Result<()> {
    schema_bench::short(&target_folder().join("debug/sluice-gateway"))
}

fn end_to_end(args: &VerifyArgs, images: &Images) -> Command {
    let mut command =
        cargo(&["test", "--workspace", "--test", "cluster", "--", "--test-threads", END_TO_END_THREADS]);
    command.args(&args.only);
    if args.all || args.only.is_some() {
        command.arg("--include-ignored");
    }
    command.envs(args.target.environment());
    command.env("SLUICE_GATEWAY_IMAGE", &images.gateway).env("SLUICE_OPERATOR_IMAGE", &images.operator);
    command
}
