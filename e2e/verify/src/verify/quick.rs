//! The quick tier without a cluster: format, lints and compilation, while the parts of the stack are built in parallel. Then the tests of every
//! package, and beside them those of chart and manifests, which need some of those parts.

use std::process::Command;

use e2e_stack::cargo::{cargo, target_folder};
use e2e_stack::paths::Paths;
use e2e_stack::process::interrupt;
use e2e_stack::{clickhouse_connect, crane, gitopscheck, helm, rulecheck};

use super::steps::{Steps, beside, quiet};
use super::{VerifyArgs, packages};

/// Threads of a test program of a package. Chosen: many of these tests wait for timers, and for threads of their own. With a thread for each of two
/// cores the machine did nothing for most of the time: all programs took 203 s, and 142 s with eight (29 November 2026).
const PACKAGE_TEST_THREADS: &str = "8";

/// Runs it. A step that ran and failed is counted, not returned.
pub fn run(args: &VerifyArgs, steps: &Steps, paths: &Paths) -> anyhow::Result<()> {
    steps.once("format", format)?;
    steps.once("packages name only lower ones", packages::check)?;
    beside(
        // Go and cargo both use all cores, but each has phases, mainly linking, in which it uses one.
        || parts(args, steps, paths),
        || compiled(steps),
    )?;
    beside(
        // One of them renders on every core; the tests of the operator wait for most of their time.
        || steps.tests(&mut cargo(&["test", "--no-fail-fast", "--workspace", "--test", "config"])),
        || {
            steps.tests(&mut packages_tests())?;
            steps.tests(&mut fuzz_inputs())
        },
    )?;
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
        steps.once("parts of the stack are built", || e2e_stack::build_parts(paths))?;
    }
    if !args.without_e2e {
        // The live tests read with it.
        steps.once("the Python client of ClickHouse is fetched", clickhouse_connect::path)?;
    }
    readers_of_manifests(steps)
}

/// Builds the programs with which tests read the chart and the manifests.
pub fn readers_of_manifests(steps: &Steps) -> anyhow::Result<()> {
    let built = steps.once("programs that read the manifests are built", || {
        helm::path()?;
        rulecheck::path()?;
        crane::path()?;
        gitopscheck::path()
    });
    built.map(drop)
}

/// What cargo compiles: lints, then all programs and tests.
fn compiled(steps: &Steps) -> anyhow::Result<()> {
    steps.once("lints", || {
        quiet("lints", cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
        // `--all-targets` leaves out tests that run only by name.
        quiet("lints", cargo(&["clippy", "--workspace", "--test", "live", "--", "-D", "warnings"]))
    })?;
    let build = cargo(&["build", "--workspace", "--bins", "--tests"]);
    steps.once("tests compile", || quiet("compile", build)).map(drop)
}

fn packages_tests() -> Command {
    let mut tests = cargo(&["test", "--no-fail-fast", "--workspace", "--lib", "--bins", "--test", "it"]);
    tests.env("RUST_TEST_THREADS", PACKAGE_TEST_THREADS);
    tests
}

/// Runs the checked-in inputs of the fuzz targets with the stable compiler, without libFuzzer. The targets have their own workspace.
fn fuzz_inputs() -> Command {
    let mut inputs =
        cargo(&["test", "--manifest-path", "gateway/fuzz/Cargo.toml", "--locked", "--no-default-features"]);
    inputs.args(["--test", "corpus"]).env("CARGO_TARGET_DIR", target_folder().join("fuzz/stable"));
    inputs
}
