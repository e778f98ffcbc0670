//! The part of `verify` that needs the local stack or another cluster: starts the stack, runs the quick end-to-end tests and the groups, and
//! stops what it started.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use e2e_stack::cargo::cargo;
use e2e_stack::install::{self, Images};
use e2e_stack::process::{interrupt, output};
use e2e_stack::programs::{self, Form};
use e2e_stack::target::Resolved;
use e2e_stack::{clickhouse_connect, clients};

use super::group::{self, Group};
use super::rotation::Rotation;
use super::steps::Steps;
use super::{Skip, VerifyArgs, quick};

/// Threads of the test program, one for each end-to-end test: the tests wait for their turns themselves (`e2e/tests/it/turns.rs`). With fewer
/// threads, tests that must run alone would start before others.
const END_TO_END_THREADS: &str = "128";

/// Threads of the live tests: they wait for servers and for gateways that they start, and both servers have two cores with them.
const LIVE_THREADS: &str = "4";

/// Where tests run.
pub struct OnStack<'a> {
    args: &'a VerifyArgs,
    resolved: &'a Resolved,
    images: &'a Images,
    pub is_local: bool,
}

/// Starts the stack, runs the tests, and stops the stack. An error means that steps could not run, or too many failed: a step that ran and
/// failed is counted instead.
pub fn run(args: &VerifyArgs, steps: &Steps, groups: &[&Group], rotation: &Rotation) -> anyhow::Result<()> {
    interrupt::check()?;
    let target = args.target.target()?;
    let is_local = target.needs_stack();
    let mut ran_before = true;
    if is_local {
        e2e_stack::discard_leftovers()?;
        let up = steps.once("the stack comes up", || e2e_stack::up(Form::Tested))?;
        ran_before = up.context("end-to-end tests need the stack")?.ran_before;
    }
    let outcome = target.resolve().and_then(|resolved| {
        let images = install::images(&resolved, &args.images, Form::Tested)?;
        install::operator(&resolved.kubeconfig, &images)?;
        let on = OnStack { args, resolved: &resolved, images: &images, is_local };
        let ran = tests(args, steps, groups, rotation, &on);
        ran.and(install::remove(&resolved.kubeconfig))
    });
    let stopped = if ran_before { Ok(()) } else { e2e_stack::down(true) };
    outcome.and(stopped)
}

fn tests(
    args: &VerifyArgs,
    steps: &Steps,
    groups: &[&Group],
    rotation: &Rotation,
    on: &OnStack<'_>,
) -> anyhow::Result<()> {
    if !args.only.is_empty() {
        let before = steps.counted();
        steps.tests(&mut on.only(&args.only))?;
        ensure!(steps.counted() > before, "no end-to-end test has {} in its name", args.only.join(" or "));
        return Ok(());
    }
    let is_quick = args.skip != Some(Skip::Quick);
    if is_quick {
        // Before the others: in parallel they keep two cores so busy that both run into timeouts.
        steps.tests(&mut on.live()?)?;
    }
    let failed = steps.failed();
    let beside: Vec<&Group> = groups.iter().copied().filter(|group| group.runs_beside()).collect();
    if is_quick || !beside.is_empty() {
        if args.skip.is_some() {
            // Compiled during the tests, they would take the processors for minutes.
            quick::readers_of_manifests(steps)?;
        }
        steps.tests(&mut on.together(is_quick, &beside)?)?;
    }
    let is_red = steps.failed() > failed;
    for group in groups {
        let failed = steps.failed();
        group.run(steps, on)?;
        if steps.failed() == failed && !(is_red && group.runs_beside()) {
            rotation.note(group)?;
        }
    }
    Ok(())
}

impl OnStack<'_> {
    /// Tests of gateway and operator that need only a `ClickHouse` and a Kafka.
    fn live(&self) -> anyhow::Result<Command> {
        let mut command = cargo(&["test", "--no-fail-fast", "--workspace", "--test", "live"]);
        self.name_servers(&mut command);
        command.env(clickhouse_connect::FOLDER_VARIABLE, clickhouse_connect::path()?);
        command.env("RUST_TEST_THREADS", LIVE_THREADS);
        Ok(command)
    }

    /// Live tests with clients, which are in this folder.
    pub fn clients(&self, folder: &Path, filters: &[&str]) -> Command {
        let mut command = cargo(&["test", "--no-fail-fast", "--package", "sluice-gateway", "--test", "live"]);
        command.args(["--", "--ignored"]).args(filters);
        self.name_servers(&mut command);
        command.env(clients::FOLDER_VARIABLE, folder);
        command
    }

    /// Tells live tests where the servers are.
    fn name_servers(&self, command: &mut Command) {
        let (clickhouse, kafka) = (&self.resolved.clickhouse.host, &self.resolved.kafka.host);
        command.env("SLUICE_CLICKHOUSE", clickhouse).env("SLUICE_KAFKA", kafka);
    }

    fn only(&self, names: &[String]) -> Command {
        let mut command = self.end_to_end();
        command.arg("--include-ignored").args(names);
        command
    }

    /// The end-to-end tests of these groups, beside the quick ones: one program lets long tests begin while others wait for their turns.
    fn together(&self, is_quick: bool, groups: &[&Group]) -> anyhow::Result<Command> {
        let mut command = self.end_to_end();
        let long = self.ignored()?;
        group::ensure_found(&long)?;
        let is_theirs = |test: &&String| groups.iter().any(|group| group.has(test));
        if is_quick {
            command.args(["--include-ignored", "--exact"]);
            let skipped = long.iter().filter(|test| !is_theirs(test));
            command.args(skipped.flat_map(|test| ["--skip", test]));
        } else {
            command.args(["--ignored", "--exact"]).args(long.iter().filter(is_theirs));
        }
        Ok(command)
    }

    /// The names of the end-to-end tests that only a group runs.
    fn ignored(&self) -> anyhow::Result<Vec<String>> {
        let mut command = self.end_to_end();
        command.args(["--ignored", "--list", "--format", "terse"]);
        let listed = output(&mut command)?;
        Ok(listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    }

    /// The end-to-end tests of a group.
    pub fn group(&self, filters: &[&str]) -> Command {
        let mut command = self.end_to_end();
        command.arg("--ignored").args(filters);
        command
    }

    fn end_to_end(&self) -> Command {
        let arguments =
            ["test", "--workspace", "--test", "cluster", "--", "--test-threads", END_TO_END_THREADS];
        let mut command = cargo(&arguments);
        command.envs(self.args.target.environment());
        let Images { gateway, operator } = self.images;
        command.env("SLUICE_GATEWAY_IMAGE", gateway).env("SLUICE_OPERATOR_IMAGE", operator);
        // Programs that tests start on this machine.
        command.env("SLUICE_OPERATOR_PROGRAM", programs::OPERATOR.file(Form::Tested));
        command.env("SLUICE_KUBECTL_PROGRAM", programs::KUBECTL.file(Form::Tested));
        command.env("SLUICE_GATEWAY_PROGRAM", programs::GATEWAY.file(Form::Tested));
        command
    }
}
