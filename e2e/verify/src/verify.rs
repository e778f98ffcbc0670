//! `cargo verify`: everything that CI checks, in one command.
//!
//! ```text
//! requirements -> [ parts of the stack | format, lints, compile, tests ] -> manifests -> stack -> live tests -> end-to-end tests: the quick ones and one group
//! ```
//!
//! The quick tier runs every time. The long tests are in groups; each run takes one ([`rotation`]), and `--all` takes all.
//! A failed step stops only the steps that need its result, until [`steps::FAILURES_MAX`] steps have failed. The last line has the counts:
//! each test of a test program counts, and every other step counts as one.
//!
//! Tests are always selected from the whole workspace. A package alone would have other features of its dependencies, which would be compiled
//! again.

mod cluster;
mod group;
mod packages;
mod quick;
mod rotation;
mod steps;

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use e2e_stack::install::ImageArgs;
use e2e_stack::paths::Paths;
use e2e_stack::process::interrupt;
use e2e_stack::{TargetArgs, requirements, say};
use group::Group;
use rotation::Rotation;
use steps::Steps;

/// Which checks run, and where.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct VerifyArgs {
    /// Skip the end-to-end tests and the groups; needs no stack
    #[arg(long)]
    pub without_e2e: bool,

    /// Run the quick tier and every group; takes hours
    #[arg(long, conflicts_with = "without_e2e")]
    pub all: bool,

    /// Run the quick tier and this group; may be given several times
    #[arg(long = "group", value_name = "NAME", value_parser = group::ALL.map(|group| group.name), conflicts_with_all = ["all", "without_e2e"])]
    pub groups: Vec<String>,

    /// Run only end-to-end tests whose name contains this, from all groups; may be given several times
    #[arg(long, value_name = "NAME", conflicts_with_all = ["all", "without_e2e", "groups"])]
    pub only: Vec<String>,

    /// Skip a part of the quick tier, or all of it
    #[arg(long, value_enum, value_name = "PART", conflicts_with_all = ["without_e2e", "only"])]
    pub skip: Option<Skip>,

    /// The cluster of the end-to-end tests.
    #[command(flatten)]
    pub target: TargetArgs,

    /// The images of the end-to-end tests.
    #[command(flatten)]
    pub images: ImageArgs,
}

/// The part of the quick tier to skip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Skip {
    /// Checks without a cluster: format, lints, tests of packages and manifests
    Packages,
    /// The whole quick tier: run only groups
    Quick,
}

const AFTER_HELP: &str = "\
Examples:
  cargo verify                              the quick tier and one group
  cargo verify --without-e2e                no stack and no root needed
  cargo verify --group storage --skip quick
  cargo verify --only delivery::outage

Without --all and --group, one group runs beside the quick tier: among the groups whose files changed since their last
run (or among all, if none changed), the one that ran longest ago. If several never ran, the number of commits decides.
The cache remembers when each group last ran (~/.cache/sluice, or SLUICE_CACHE).

Exit codes:
  0    everything that ran passed
  1    something failed
  130  interrupted by Ctrl-C
The last line is `N passed, N failed`.";

/// Runs the checks, and prints the counts in the last line. A failed check is counted, not returned.
pub fn run(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    interrupt::watch()?;
    let steps = Steps::default();
    if let Err(failure) = checked(args, &steps) {
        steps.cut_off(&failure);
    }
    Ok(steps.conclude())
}

/// An error stands for all checks that could not run.
fn checked(args: &VerifyArgs, steps: &Steps) -> anyhow::Result<()> {
    let paths = Paths::from_environment()?;
    let needs_stack = !args.without_e2e && args.target.target()?.needs_stack();
    if needs_stack { requirements::ensure(&paths) } else { requirements::ensure_compiler() }?;
    let rotation = Rotation::read(&paths)?;
    let groups = chosen(args, &rotation)?;
    for group in &groups {
        group.ensure_requirements()?;
    }
    if args.only.is_empty() && args.skip.is_none() {
        quick::run(args, steps, &paths)?;
    }
    if !args.without_e2e {
        cluster::run(args, steps, &groups, &rotation)?;
    }
    for line in rotation.left_out(&groups) {
        say::line(&line);
    }
    Ok(())
}

fn chosen(args: &VerifyArgs, rotation: &Rotation) -> anyhow::Result<Vec<&'static Group>> {
    if args.without_e2e || !args.only.is_empty() {
        return Ok(Vec::new());
    }
    if args.all {
        return Ok(group::ALL.iter().collect());
    }
    if !args.groups.is_empty() {
        return Ok(group::ALL
            .iter()
            .filter(|group| args.groups.iter().any(|name| name == group.name))
            .collect());
    }
    let group = rotation.next()?;
    say::progress("verify", &format!("group of this run: {}", group.name));
    Ok(vec![group])
}
