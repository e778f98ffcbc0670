//! What a span costs on its way from message bytes to frames: each stage alone, then the whole path.
//!
//! ```text
//! cargo bench -p sluice-gateway --bench path [-- --shape rich|loadgen] [--spans N] [--rounds N] [--stage NAME]... [--json FILE]
//! ```
//!
//! Job: show where the CPU of a worker goes and what is left to win. One thread, no network, the allocator of the
//! program. Messages are made before the clock starts and stay in memory: about 465 bytes a span for `rich`, and twice
//! that again for the rows that LZ4 is given, so that both come from beyond the core's own caches. With `--spans 2000`
//! they stay in the cache: the difference is what waiting for memory costs.
//!
//! | stage | from | does |
//! | --- | --- | --- |
//! | `walk-spans` | messages | walks, and reads the fields of each span but not into its attributes, events and links |
//! | `walk-all` | messages | walks to the bottom of every attribute (`sluice_otlp::validate`) |
//! | `encode` | messages | walks and writes rows with attributes as JSON, which are forgotten before a frame is full |
//! | `encode-map`, `encode-nested` | messages | the same with attributes as maps of text, and in typed groups |
//! | `encode-rules` | messages | the same as `encode`, with ten rules of `attributes.rules` |
//! | `lz4-64k`, `lz4-256k`, `lz4-512k`, `lz4-1m` | rows | the frames' encoder, in pieces of this size |
//! | `lz4-flex` | rows | `lz4_flex`, to compare with, in pieces of 256 KiB |
//! | `hash` | LZ4 blocks of 256 KiB of rows | `CityHash128`, as in a frame's header |
//! | `unpack` | frames of rows | reads them back: hash and LZ4 |
//! | `native` | frames of rows | turns them into blocks of columns, as `insert.format: Native` does: `unpack`, and the rest |
//! | `json-wire` | messages in OTLP/JSON | rewrites them to the wire |
//! | `json` | messages in OTLP/JSON | rewrites, walks and writes rows: what `encode` is for protobuf |
//! | `path` | messages | `encode::encode` into blocks that close by the default rule and are sealed |
//!
//! The line below a table is what `path` costs beyond `encode`, `lz4-256k` and `hash`: cutting, copying into chunks,
//! sealing. It can be negative, since rows in the path are compressed while they are in the core's cache.
//!
//! **Reading the figures.** They depend on the machine, and on who shares it: compare figures of one machine, taken one
//! after the other. CPU time is the process's own, user and system; wall time stands beside it, and where it is much
//! longer the core was shared. The stages take turns, round after round, so that a slow minute slows all of them;
//! the table has the median and the best of the rounds. The first round is not counted. Bytes per second are those
//! that go into the stage, per second of CPU.
//!
//! **The spans** are those of the load tests. Their generator belongs to the package `e2e`, which stands above this
//! one and would bring a Kubernetes client with it; so its source is a module of this program and the package is not a
//! dependency. The source needs only the standard library and this package's dependencies. So there is no second generator
//! whose spans could differ, and no file to make first.

mod load;
mod measure;
mod report;
mod shape;
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

use anyhow::Context as _;
use clap::{Parser, ValueEnum as _};
use load::Load;
use shape::Shape;
use stages::Stage;
use std::{fs, path::PathBuf};

// The program's own (src/main.rs): chunks and row buffers cost what they cost there.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Spans of each shape when none are asked for. Chosen: 92 MB of `rich` messages and 185 MB of rows, above the caches of
/// current servers, in about a tenth of a second a stage.
const SPANS: u64 = 200_000;

/// Rounds when none are asked for. Chosen: the median of nine stands still when three of them are disturbed.
const ROUNDS: usize = 9;

/// What a span costs from message bytes to frames, stage by stage.
#[derive(Parser)]
struct Arguments {
    /// One shape instead of both.
    #[arg(long)]
    shape: Option<Shape>,
    /// Spans of each shape; rounded up to whole messages (1,000 or 8,192 spans).
    #[arg(long, default_value_t = SPANS, value_parser = clap::value_parser!(u64).range(1..))]
    spans: u64,
    /// Rounds that count.
    #[arg(long, default_value_t = ROUNDS)]
    rounds: usize,
    /// Only these stages, as for a profiler.
    #[arg(long = "stage")]
    stages: Vec<Stage>,
    /// Also writes the figures to this file.
    #[arg(long)]
    json: Option<PathBuf>,
    /// What cargo adds for every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let shapes = arguments.shape.map_or(vec![Shape::Rich, Shape::Loadgen], |shape| vec![shape]);
    let stages = if arguments.stages.is_empty() { Stage::value_variants() } else { &arguments.stages[..] };
    let mut runs = Vec::new();
    for shape in shapes {
        let load =
            Load::new(shape.of_generator(), arguments.spans, stages.iter().any(|stage| stage.reads_json()));
        let measured = measure::rounds(stages, &load, arguments.rounds.max(1));
        let run = report::Run::new(shape.name(), &load, &measured);
        report::print(&run).context("writing the table")?;
        runs.push(run);
    }
    if let Some(file) = &arguments.json {
        fs::write(file, report::json(&runs)?).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(())
}
