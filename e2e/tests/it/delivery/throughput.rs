//! What `cargo throughput` says of a short run: every span arrives, once, in as few bytes as is asked for, and the report has the
//! fields that others read.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use e2e_stack::kafka::HOST_ADDRESS;
use e2e_stack::programs::{self, Form};
use serde_json::Value;
use tokio::process::Command;

use crate::delivery::process;
use crate::environment;
use crate::scene::Uses;

const SPANS: u64 = 100_000;

/// The shapes, and bytes of the inserts for a span at the most, compressed. Specified: the best peer has 120 and 47.
const SHAPES: [(&str, f64); 2] = [("rich", 100.0), ("loadgen", 48.0)];

const RUN_KEYS: [&str; 13] = [
    "name",
    "layout",
    "format",
    "spans",
    "rows",
    "lost",
    "doubled",
    "wall_s",
    "cpu_s",
    "spans_per_cpu_s",
    "bytes_per_span",
    "peak_rss_mib",
    "server_cpu_s",
];

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "group release"]
async fn every_span_of_a_short_run_arrives_once_in_few_bytes() -> Result<()> {
    // Alone: it asks how the parts of the stack are, of which others would stop one.
    let _turn = Uses::ServersAlone.turn().await?;
    let kafka = environment::servers().await?.kafka;
    ensure!(kafka == HOST_ADDRESS, "the command reads the local stack's broker alone, not {kafka}");
    let program = process::program();
    for (shape, bytes_max) in SHAPES {
        check(&run(&program, shape).await?, shape, bytes_max)?;
    }
    Ok(())
}

fn check(report: &Value, shape: &str, bytes_max: f64) -> Result<()> {
    ensure!(keys(report) == BTreeSet::from(["shape", "runs"]), "{report}");
    ensure!(report["shape"] == shape, "{report}");
    let runs = report["runs"].as_array().context("runs are a list")?;
    let [run] = runs.as_slice() else { anyhow::bail!("{} runs: {report}", runs.len()) };
    ensure!(keys(run) == BTreeSet::from(RUN_KEYS), "{run}");
    for (key, value) in [("spans", SPANS), ("rows", SPANS), ("lost", 0), ("doubled", 0)] {
        ensure!(run[key] == value, "{key} is {}, not {value}: {run}", run[key]);
    }
    ensure!(
        run["name"] == "gateway" && run["layout"] == "json" && run["format"] == "RowBinaryWithNamesAndTypes",
        "{run}"
    );
    ensure!(run["server_cpu_s"].is_null(), "the null sink is no server: {run}");
    let bytes = run["bytes_per_span"].as_f64().context("bytes_per_span is a number")?;
    ensure!(bytes > 0.0 && bytes <= bytes_max, "{bytes} bytes a span: {run}");
    for key in ["wall_s", "cpu_s", "spans_per_cpu_s", "peak_rss_mib"] {
        ensure!(run[key].as_f64().is_some_and(|figure| figure > 0.0), "{key} is {}: {run}", run[key]);
    }
    Ok(())
}

async fn run(program: &Path, shape: &str) -> Result<Value> {
    let name = format!("sluice-throughput-{}-{shape}.json", std::process::id());
    let file = std::env::temp_dir().join(name);
    let mut command = Command::new(programs::BENCH.file(Form::Checked));
    command.args(["throughput", "--shape", shape, "--spans", &SPANS.to_string()]);
    command.arg("--json").arg(&file).arg("--gateway").arg(program);
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await.context("run e2e throughput")?;
    let text = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()));
    if text.is_ok() {
        std::fs::remove_file(&file).with_context(|| format!("remove {}", file.display()))?;
    }
    let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "it ended with {}:\n{said}\n{told}", output.status);
    serde_json::from_str(&text?).context("understand the report")
}
