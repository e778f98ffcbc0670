//! The quick tier without a cluster: parts of the stack are built beside format, lints, and the tests of every package; then the tests of
//! chart and manifests, which need some of those parts.

use std::process::Command;

use anyhow::Context as _;
use e2e_stack::cargo::{cargo, target_folder};
use e2e_stack::paths::Paths;
use e2e_stack::process::interrupt;
use e2e_stack::{gitopscheck, helm, rulecheck};

use super::steps::{Steps, quiet};
use super::{VerifyArgs, packages};

/// Runs it.
///
/// # Errors
/// When steps could not be run at all, or too many have failed; what ran and failed is counted.
pub fn run(args: &VerifyArgs, steps: &Steps, paths: &Paths) -> anyhow::Result<()> {
    steps.once("format", format)?;
    steps.once("packages name only lower ones", packages::check)?;
    std::thread::scope(|scope| {
        // Go and cargo both use all cores, but each has stretches, linking above all, in which it uses one.
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

/// What is fetched, and compiled by Go.
fn parts(args: &VerifyArgs, steps: &Steps, paths: &Paths) -> anyhow::Result<()> {
    let is_local = !args.without_e2e && args.target.target()?.needs_stack();
    if is_local {
        steps.once("parts of the stack are built", || e2e_stack::build_parts(paths).map(drop))?;
    }
    steps.once("programs that read the manifests are built", || {
        helm::path()?;
        rulecheck::path()?;
        gitopscheck::path().map(drop)
    })
}

/// What cargo does.
fn ours(steps: &Steps) -> anyhow::Result<()> {
    steps.once("lints", || {
        quiet("lints", cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
        // Those that run only when they are named are not among all targets.
        quiet("lints", cargo(&["clippy", "--workspace", "--test", "live", "--", "-D", "warnings"]))
    })?;
    steps
        .once("tests compile", || quiet("compile", cargo(&["build", "--workspace", "--bins", "--tests"])))?;
    steps.tests(&mut cargo(&["test", "--no-fail-fast", "--workspace", "--lib", "--bins", "--test", "it"]))?;
    steps.tests(&mut fuzz_inputs())
}

/// The inputs of the fuzz targets that are checked in, with the stable compiler and without libFuzzer. Their workspace is one of its own.
fn fuzz_inputs() -> Command {
    let mut inputs =
        cargo(&["test", "--manifest-path", "gateway/fuzz/Cargo.toml", "--locked", "--no-default-features"]);
    inputs.args(["--test", "corpus"]).env("CARGO_TARGET_DIR", target_folder().join("fuzz/stable"));
    inputs
}
