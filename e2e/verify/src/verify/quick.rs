//! The quick tier without a cluster: format, lints and the tests of every package, while the parts of the stack are built in parallel. Then
//! the tests of chart and manifests, which need some of those parts.

use std::process::Command;

use anyhow::Context as _;
use e2e_stack::cargo::{cargo, target_folder};
use e2e_stack::paths::Paths;
use e2e_stack::process::interrupt;
use e2e_stack::{clickhouse_connect, crane, gitopscheck, helm, rulecheck};

use super::steps::{Steps, quiet};
use super::{VerifyArgs, packages};

/// Runs it.
///
/// # Errors
/// If steps could not run, or too many failed. A step that ran and failed is counted instead.
pub fn run(args: &VerifyArgs, steps: &Steps, paths: &Paths) -> anyhow::Result<()> {
    steps.once("format", format)?;
    steps.once("packages name only lower ones", packages::check)?;
    std::thread::scope(|scope| {
        // In parallel: Go and cargo both use all cores, but each has phases, mainly linking, in which it uses one.
        let parts = scope.spawn(|| parts(args, steps, paths));
        let ours = ours(steps);
        let parts = parts.join().ok().context("the thread that builds the stack's parts panicked")?;
        parts.and(ours)
    })?;
    steps.tests(&mut cargo(&["test", "--no-fail-fast", "--workspace", "--test", "config"]))?;
    interrupt::check()
}

fn format() -> anyhow::Result<()> {
    quiet("format", cargo(&["fmt", "--all", "--", "--check"]))?;
    quiet("format", cargo(&["fmt", "--manifest-path", "gateway/fuzz/Cargo.toml", "--", "--check"]))
}

/// Downloads, and builds by Go.
fn parts(args: &VerifyArgs, steps: &Steps, paths: &Paths) -> anyhow::Result<()> {
    let is_local = !args.without_e2e && args.target.target()?.needs_stack();
    if is_local {
        steps.once("parts of the stack are built", || e2e_stack::build_parts(paths).map(drop))?;
    }
    if !args.without_e2e {
        // The live tests read with it.
        steps.once("the Python client of ClickHouse is fetched", || clickhouse_connect::path().map(drop))?;
    }
    steps.once("programs that read the manifests are built", || {
        helm::path()?;
        rulecheck::path()?;
        crane::path()?;
        gitopscheck::path().map(drop)
    })
}

/// The steps that cargo runs.
fn ours(steps: &Steps) -> anyhow::Result<()> {
    steps.once("lints", || {
        quiet("lints", cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
        // `--all-targets` leaves out tests that run only by name.
        quiet("lints", cargo(&["clippy", "--workspace", "--test", "live", "--", "-D", "warnings"]))
    })?;
    steps
        .once("tests compile", || quiet("compile", cargo(&["build", "--workspace", "--bins", "--tests"])))?;
    steps.tests(&mut cargo(&["test", "--no-fail-fast", "--workspace", "--lib", "--bins", "--test", "it"]))?;
    steps.tests(&mut fuzz_inputs())
}

/// Runs the checked-in inputs of the fuzz targets with the stable compiler, without libFuzzer. The targets have their own workspace.
fn fuzz_inputs() -> Command {
    let mut inputs =
        cargo(&["test", "--manifest-path", "gateway/fuzz/Cargo.toml", "--locked", "--no-default-features"]);
    inputs.args(["--test", "corpus"]).env("CARGO_TARGET_DIR", target_folder().join("fuzz/stable"));
    inputs
}
