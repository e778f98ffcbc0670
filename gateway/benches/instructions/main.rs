//! Instructions per span of each stage of the benchmark `path` and of one whole gateway run. A change above 3 % fails.
//!
//! ```text
//! cargo bench -p sluice-gateway --bench instructions                # compares with accepted.json
//! cargo bench -p sluice-gateway --bench instructions -- --update    # writes accepted.json
//! ```
//!
//! Job: find a loss of speed on shared cores, where clocks do not show it. Valgrind's callgrind counts the instructions that a program
//! executes, and the same program executes nearly the same number each time. Needs valgrind (`apt-get install valgrind`). Kafka and
//! ClickHouse are mocks that this program starts.
//!
//! | figure | counts |
//! | --- | --- |
//! | `rich/STAGE`, `loadgen/STAGE` | a stage of the benchmark `path` for 8,000 spans of this shape: mean of its rounds, without the first |
//! | `rich/gateway-run` | the process `sluice-gateway run`: see [`gateway_run`] |
//!
//! **A figure that shrank fails too.** The commit that made it shrink accepts it with `--update`; else the gain can be lost unnoticed.
//!
//! **Conditions.** The file names the compiler, the architecture and the CPU features that libraries find at run time. If they differ, the
//! check fails and names them; accept new figures on a commit whose speed is known. Valgrind emulates a processor without AVX-512. glibc,
//! and in the whole run librdkafka and the C compiler, have their share too.
//!
//! **Instructions are not time.** They say nothing of caches and branches; the benchmark `path` does.
//!
//! **Why valgrind is started here** and not by `gungraun` 0.20: its limits are upper bounds, and its baseline is in `target`. Its runner is
//! a second program of 179 packages that must have the library's version. It cannot measure a run that a mock outside of valgrind ends.
//! The module [`callgrind`] replaces it.

mod broker_front;
mod callgrind;
mod figures;
mod gateway_run;
mod sink;
mod stage_run;

#[path = "../path/load.rs"]
#[allow(dead_code, reason = "the benchmark of times needs more of it")]
mod load;
#[path = "../path/shape.rs"]
mod shape;
#[path = "../path/stages.rs"]
#[allow(dead_code, reason = "the benchmark of times needs more of it")]
mod stages;

// A module that is written inline takes a folder as its path, in which `spans.rs` then finds its own modules.
#[path = "../../../e2e/fixtures/src"]
#[allow(
    dead_code,
    unused_imports,
    reason = "the benchmark needs a part of it; its tests run where it belongs"
)]
mod e2e {
    pub mod spans;
}
use e2e::spans;

use anyhow::{Context as _, Result, bail, ensure};
use callgrind::Callgrind;
use clap::{Parser, ValueEnum as _};
use figures::{Conditions, Figures};
use shape::Shape;
use std::{
    collections::BTreeMap,
    io::Write as _,
    path::Path,
    process::{Command, ExitCode},
};

// The program's own (src/main.rs): chunks and row buffers cost what they cost there.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The accepted figures.
const ACCEPTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions/accepted.json");

/// The command that writes them.
const UPDATE: &str = "cargo bench -p sluice-gateway --bench instructions -- --update";

/// Counts instructions per span and compares them with the accepted figures.
#[derive(Parser)]
struct Arguments {
    /// Writes the figures to `accepted.json` instead of comparing them.
    #[arg(long)]
    update: bool,
    /// Runs the stages of this shape; what callgrind is given.
    #[arg(long, hide = true)]
    counts_of: Option<Shape>,
    /// What cargo adds for every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    if let Some(shape) = arguments.counts_of {
        stage_run::run(shape)?;
        return Ok(ExitCode::SUCCESS);
    }
    let measured = measure()?;
    if arguments.update {
        measured.write(Path::new(ACCEPTED))?;
        print(&format!("accepted {} figures: {ACCEPTED}\n", measured.instructions_per_span.len()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let accepted = Figures::read(Path::new(ACCEPTED))?;
    let comparison = accepted.compare(&measured);
    print(&comparison.to_string())?;
    if let Some(difference) = accepted.conditions.difference(&measured.conditions) {
        bail!("the accepted figures have other conditions ({difference}); to accept new ones: {UPDATE}");
    }
    let Some(failures) = comparison.failures() else {
        return Ok(ExitCode::SUCCESS);
    };
    print(&format!("\nFAILED\n{failures}To accept: {UPDATE}\n"))?;
    Ok(ExitCode::FAILURE)
}

fn measure() -> Result<Figures> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("instructions");
    let callgrind = Callgrind::find(&folder)?;
    let mut counts = BTreeMap::new();
    let mut cpu_features = Vec::new();
    for &shape in Shape::value_variants() {
        let counted = stage_run::count(&callgrind, shape)?;
        counts.extend(counted.instructions_per_span);
        cpu_features = counted.cpu_features;
    }
    counts.insert("rich/gateway-run".to_owned(), gateway_run::count(&callgrind, &folder)?);
    let conditions =
        Conditions { rustc: rustc()?, architecture: std::env::consts::ARCH.to_owned(), cpu_features };
    Ok(Figures::new(conditions, counts))
}

/// The compiler of the toolchain file.
fn rustc() -> Result<String> {
    let output = Command::new("rustc").arg("--version").output().context("ask rustc for its version")?;
    ensure!(output.status.success(), "rustc --version: {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn print(text: &str) -> Result<()> {
    std::io::stdout().write_all(text.as_bytes()).context("write to standard output")
}
