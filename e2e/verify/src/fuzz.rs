//! Builds and runs the fuzz targets of `gateway/fuzz`, and keeps their findings.
//!
//! Job: run libFuzzer's programs with only the nightly compiler. Place in the flow: a part of `verify`, with a fixed number of runs from a
//! fixed seed for each target, so that two runs with one compiler are equal; and a command of its own, for a given time.
//! Limits: an input that takes longer than [`INPUT_SECONDS_MAX`] is a finding.
//!
//! ```text
//! gateway/fuzz/corpus        inputs that are checked in: where every run begins
//! target/fuzz/corpus         what long runs found beside them; kept from run to run
//! target/fuzz/bounded        what the runs of verify found beside them; emptied before each run
//! target/fuzz/findings       inputs that broke a promise
//! ```

mod program;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;

pub use program::Programs;

use e2e_stack::process::interrupt;
use e2e_stack::say;

/// Seconds after which an input counts as endless: a thousand times the longest on two shared cores.
const INPUT_SECONDS_MAX: u32 = 60;

/// Minutes of a round of a long run. A job may take 40; each round begins with the inputs that earlier rounds found.
const ROUND_MINUTES_MAX: u32 = 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    pub name: &'static str,
    /// Folder of its inputs; targets with the same kind of input share it.
    pub corpus: &'static str,
    /// Runs in `verify`: one to three seconds of one core each, measured on 21 November 2026 on two shared virtual cores; the numbers of
    /// `otlp_split` and `spool_log` are estimates.
    pub runs: u32,
}

pub const TARGETS: [Target; 11] = [
    Target { name: "otlp_walk", corpus: "otlp", runs: 100_000 },
    Target { name: "otlp_json", corpus: "otlp_json", runs: 20_000 },
    Target { name: "otlp_framing", corpus: "otlp_framing", runs: 10_000 },
    Target { name: "otlp_rows", corpus: "otlp", runs: 15_000 },
    Target { name: "otlp_split", corpus: "otlp", runs: 30_000 },
    Target { name: "frame_read", corpus: "frame_read", runs: 20_000 },
    Target { name: "frame_round_trip", corpus: "frame_round_trip", runs: 5_000 },
    Target { name: "native_block", corpus: "native_block", runs: 3_000 },
    Target { name: "rowbinary_skip", corpus: "rowbinary_skip", runs: 10_000 },
    Target { name: "spool_log", corpus: "spool_log", runs: 3_000 },
    Target { name: "gateway_config", corpus: "gateway_config", runs: 1_000 },
];

/// Which targets run, and for how long.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct FuzzArgs {
    /// Run only this target; default: all, one after another
    #[arg(long, value_name = "NAME", value_parser = TARGETS.map(|target| target.name))]
    pub target: Option<String>,

    /// Minutes for each target
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub minutes: u32,

    /// Run the target once with this file, to reproduce a finding
    #[arg(long, value_name = "FILE", requires = "target")]
    pub input: Option<PathBuf>,

    /// Run only what `cargo verify` runs: always the same inputs
    #[arg(long, conflicts_with_all = ["minutes", "input", "keep"])]
    pub bounded: bool,

    /// Afterwards add the found inputs that reach new code to the checked-in ones
    #[arg(long, conflicts_with = "input")]
    pub keep: bool,
}

const AFTER_HELP: &str = "\
Needs g++ and rustup; installs a nightly compiler if there is none. A run keeps its inputs in target/fuzz/corpus, and
the next run begins with them. Inputs that break a promise are kept in target/fuzz/findings. gateway/fuzz/src/lib.rs
lists targets and promises.

Exit codes:
  0  every promise held
  1  a promise was broken, or the targets could not run";

/// Builds the targets and runs them. If a target broke a promise, the error names the input and the command that reproduces it.
pub fn run(args: &FuzzArgs) -> anyhow::Result<ExitCode> {
    interrupt::watch()?;
    let programs = Programs::build()?;
    let wanted = |target: &&Target| args.target.as_ref().is_none_or(|name| name == target.name);
    for target in TARGETS.iter().filter(wanted) {
        if args.bounded {
            programs.bounded(target)?;
            continue;
        }
        if let Some(file) = &args.input {
            let file = file.canonicalize().with_context(|| format!("find {}", file.display()))?;
            programs.once(target, &file)?;
            say::progress("fuzz", &format!("{}: {} breaks no promise", target.name, file.display()));
            continue;
        }
        for minutes in rounds(args.minutes) {
            programs.for_minutes(target, minutes)?;
        }
        if args.keep {
            programs.keep(target)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn rounds(minutes: u32) -> impl Iterator<Item = u32> {
    let whole = minutes / ROUND_MINUTES_MAX;
    let rest = minutes % ROUND_MINUTES_MAX;
    (0..whole).map(|_| ROUND_MINUTES_MAX).chain((rest > 0).then_some(rest))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use e2e_stack::paths::workspace;

    #[test]
    fn rounds_add_up() {
        assert_eq!(rounds(75).collect::<Vec<_>>(), [30, 30, 15]);
        assert_eq!(rounds(30).collect::<Vec<_>>(), [30]);
        assert_eq!(rounds(1).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn every_target_has_a_program_and_inputs_to_begin_with() {
        let folder = workspace().join("gateway/fuzz");
        let programs = std::fs::read_dir(folder.join("fuzz_targets")).unwrap().count();
        assert_eq!(programs, TARGETS.len());
        for target in TARGETS {
            assert!(folder.join(format!("fuzz_targets/{}.rs", target.name)).is_file(), "{}", target.name);
            assert!(
                folder.join("corpus").join(target.corpus).read_dir().unwrap().count() > 0,
                "{}",
                target.name
            );
        }
    }

    #[test]
    fn the_inputs_that_are_checked_in_are_few() {
        let corpus = workspace().join("gateway/fuzz/corpus");
        let folders = TARGETS.map(|target| target.corpus).into_iter().collect::<BTreeSet<_>>();
        let files = folders.into_iter().flat_map(|folder| corpus.join(folder).read_dir().unwrap());
        let bytes: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
        assert!(bytes < 300_000, "{bytes} bytes");
    }
}
