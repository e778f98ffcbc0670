//! `cargo verify`: everything that CI checks, in one command.
//!
//! ```text
//! requirements -> [ parts of the stack | format, lints, compile, tests ] -> manifests -> stack -> quick end-to-end tests -> one group
//! ```
//!
//! The quick tier runs every time. The long tests are in groups, of which each run takes one ([`rotation`]); `--all` takes them all.
//! A step that fails does not stop the others, unless they need what it makes, until [`steps::FAILURES_MAX`] have failed. The last line
//! counts: a test of a test program counts as itself, every other step as one.
//!
//! Tests are always picked out of the whole workspace: a package alone has other features of what it is built from, and would have
//! all of that compiled once more.

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

/// What is checked.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct VerifyArgs {
    /// Leave out the end-to-end tests and the groups, and with them the local stack
    #[arg(long)]
    pub without_e2e: bool,

    /// The quick tier and every group; takes hours
    #[arg(long, conflicts_with = "without_e2e")]
    pub all: bool,

    /// The quick tier and this group; may be given several times
    #[arg(long = "group", value_name = "NAME", value_parser = group::NAMES, conflicts_with_all = ["all", "without_e2e"])]
    pub groups: Vec<String>,

    /// Only end-to-end tests whose name contains this, of whatever group; nothing else is checked. May be given several times
    #[arg(long, value_name = "NAME", conflicts_with_all = ["all", "without_e2e", "groups"])]
    pub only: Vec<String>,

    /// Leave out a part of the quick tier, or all of it
    #[arg(long, value_enum, value_name = "PART", conflicts_with_all = ["without_e2e", "only"])]
    pub skip: Option<Skip>,

    /// Where the end-to-end tests run.
    #[command(flatten)]
    pub target: TargetArgs,

    /// What they run there.
    #[command(flatten)]
    pub images: ImageArgs,
}

/// What is left out of the quick tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Skip {
    /// What needs no cluster: format, lints, the tests of packages and of manifests
    Packages,
    /// All of it: only groups are run
    Quick,
}

const AFTER_HELP: &str = "\
Without --all and --group, one group runs behind the quick tier: of those whose files have changed since they last ran,
or all if there is none, the one that ran longest ago; if several never ran, the number of commits decides.
When a group last ran is kept in the cache (~/.cache/sluice, or SLUICE_CACHE).

Exit codes: 0 when all that ran passed, 1 otherwise, 130 after Ctrl-C. The last line is `N passed, N failed`.";

/// Checks, counts, and says so in the last line.
///
/// # Errors
/// Never for what is checked, which is counted: only when signals cannot be listened for.
pub fn run(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    interrupt::watch()?;
    let steps = Steps::default();
    if let Err(failure) = checked(args, &steps) {
        steps.cut_off(&failure);
    }
    Ok(steps.conclude())
}

/// An error stands for all that could not be checked any more.
fn checked(args: &VerifyArgs, steps: &Steps) -> anyhow::Result<()> {
    let paths = Paths::from_environment()?;
    let needs_stack = !args.without_e2e && args.target.target()?.needs_stack();
    if needs_stack { requirements::ensure(&paths) } else { requirements::ensure_compiler(&paths) }?;
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
