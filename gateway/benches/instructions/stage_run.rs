//! The stages of one shape: the part that runs under callgrind, and the part that starts it and reads the counts.
//!
//! ```text
//!  instructions ----> valgrind instructions --counts-of rich     for each stage: a round to warm up, then rounds in `counted`
//!       ^                                     |
//!       `--- a file of counts for each round -'                  --toggle-collect and --dump-after of `counted`
//! ```

use crate::callgrind::Callgrind;
use crate::load::Load;
use crate::shape::Shape;
use crate::stages::{Stage, Worker};
use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum as _;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, hint::black_box, io::Write as _, process::Stdio};

/// Spans of each shape, rounded up to whole messages. Chosen: 7 MiB of `rich` rows, which are several of LZ4's largest pieces.
const SPANS: u64 = 8_000;

/// Rounds of `native` that count. Measured: its hash maps have random seeds, and single rounds of the same program lie 1.2 % apart; those
/// of every other stage 0.04 %.
const NATIVE_ROUNDS: usize = 5;

/// Name of the function in which callgrind counts.
const COUNTED: &str = "instructions::stage_run::counted";

/// What the program under callgrind prints.
#[derive(Serialize, Deserialize)]
struct Report {
    spans: u64,
    /// The stage of each round that counts, in their order.
    rounds: Vec<String>,
    cpu_features: Vec<String>,
}

/// What was counted of a shape.
pub struct Counted {
    /// Instructions per span by `shape/stage`.
    pub instructions_per_span: BTreeMap<String, f64>,
    /// CPU features that libraries find.
    pub cpu_features: Vec<String>,
}

/// Instructions of every stage of a shape.
pub fn count(callgrind: &Callgrind, shape: Shape) -> Result<Counted> {
    let program = std::env::current_exe().context("find this program's file")?;
    let options = [&format!("--toggle-collect={COUNTED}")[..], &format!("--dump-after={COUNTED}")];
    let mut command = callgrind.command(&options, &program)?;
    command.args(["--counts-of", shape.name()]).stderr(Stdio::inherit());
    let ended = command.output().context("start valgrind")?;
    ensure!(ended.status.success(), "the stages under valgrind: {}", ended.status);
    let report: Report = serde_json::from_slice(&ended.stdout).context("read what the stages printed")?;
    let counts = callgrind.counts()?;
    // The last count is that of what ran outside of every round.
    ensure!(
        counts.len() == report.rounds.len() + 1,
        "callgrind wrote {} counts for {} rounds: does the function {COUNTED} still have this name?",
        counts.len(),
        report.rounds.len()
    );
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (stage, count) in report.rounds.iter().zip(counts) {
        let (instructions, spans) = sums.entry(format!("{}/{stage}", shape.name())).or_default();
        *instructions += count;
        *spans += report.spans;
    }
    let mean = |(name, (instructions, spans))| (name, ratio(instructions, spans));
    let instructions_per_span = sums.into_iter().map(mean).collect();
    Ok(Counted { instructions_per_span, cpu_features: report.cpu_features })
}

/// Under callgrind: runs every stage, and prints which ones in which order.
pub fn run(shape: Shape) -> Result<()> {
    let load = Load::new(shape.of_generator(), SPANS, true);
    let mut worker = Worker::new();
    let mut rounds = Vec::new();
    for &stage in Stage::value_variants() {
        // Warms up: buffers grow to their size, and libraries look for CPU features.
        stage.run(&load, &mut worker);
        for _ in 0..rounds_of(stage) {
            counted(stage, &load, &mut worker);
            rounds.push(stage.name());
        }
    }
    let report = Report { spans: load.spans, rounds, cpu_features: cpu_features() };
    let text = serde_json::to_string(&report).context("print which rounds were counted")?;
    std::io::stdout().write_all(text.as_bytes()).context("print which rounds were counted")
}

/// Its rounds that count.
fn rounds_of(stage: Stage) -> usize {
    if stage == Stage::Native { NATIVE_ROUNDS } else { 1 }
}

/// The function in which callgrind counts; callgrind finds it by its name ([`COUNTED`]).
#[inline(never)]
fn counted(stage: Stage, load: &Load, worker: &mut Worker) {
    black_box(stage.run(load, worker));
}

/// The CPU features that libraries of the stages look for at run time and find. Valgrind emulates a processor without AVX-512.
fn cpu_features() -> Vec<String> {
    #[cfg(target_arch = "x86_64")]
    let found = [
        ("sse4.2", std::arch::is_x86_feature_detected!("sse4.2")),
        ("pclmulqdq", std::arch::is_x86_feature_detected!("pclmulqdq")),
        ("avx", std::arch::is_x86_feature_detected!("avx")),
        ("avx2", std::arch::is_x86_feature_detected!("avx2")),
        ("bmi2", std::arch::is_x86_feature_detected!("bmi2")),
        ("avx512f", std::arch::is_x86_feature_detected!("avx512f")),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let found: [(&str, bool); 0] = [];
    found.into_iter().filter(|(_, has)| *has).map(|(name, _)| name.to_owned()).collect()
}

/// A sum per span.
#[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
pub fn ratio(sum: u64, spans: u64) -> f64 {
    sum as f64 / spans as f64
}
