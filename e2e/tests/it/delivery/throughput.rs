//! The report of a short run of `cargo throughput`: every span arrives once, in few enough bytes, and the report has the fields that other
//! programs read, with consistent figures. The speed is not checked here, because other programs share the cores.

use std::time::Instant;

use e2e_stack::kafka::HOST_ADDRESS;
use e2e_stack::programs::{self, Form};
use tokio::process::Command;

use crate::delivery::process;
use crate::environment;
use crate::prelude::*;

const SPANS: u64 = 100_000;

/// The shapes, and the largest number of compressed bytes of the inserts for a span. Specified: the best peer has 120 and 47.
const SHAPES: [(&str, f64); 2] = [("rich", 100.0), ("loadgen", 48.0)];

/// With less than this part of them, bytes were not counted: no change to rows halves them.
const BYTES_MIN: f64 = 0.5;

/// The gateway's memory limit in these runs, MiB.
const MEMORY_MIB: f64 = 192.0;

/// Largest relative difference between a figure and the figure that follows from others: CPU times of a twentieth of a second and more are
/// rounded to a thousandth.
const ROUNDED: f64 = 0.02;

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
    // Alone: it checks the status of the stack's parts, and another test might stop one.
    let _turn = Uses::ServersAlone.turn().await?;
    let kafka = environment::servers().await?.kafka;
    ensure!(kafka == HOST_ADDRESS, "the command reads the local stack's broker alone, not {kafka}");
    let program = process::program();
    for (shape, bytes_max) in SHAPES {
        let began = Instant::now();
        let report = run(&program, shape).await?;
        check(&report, (shape, bytes_max), began.elapsed())?;
    }
    Ok(())
}

fn check(report: &Value, (shape, bytes_max): (&str, f64), took: Duration) -> Result<()> {
    ensure!(keys(report) == BTreeSet::from(["shape", "runs"]), "{report}");
    ensure!(report["shape"] == shape, "{report}");
    let runs = report["runs"].as_array().context("runs are a list")?;
    let [run] = runs.as_slice() else { bail!("{} runs: {report}", runs.len()) };
    ensure!(keys(run) == BTreeSet::from(RUN_KEYS), "{run}");
    for (key, value) in [("spans", SPANS), ("rows", SPANS), ("lost", 0), ("doubled", 0)] {
        ensure!(run[key] == value, "{key} is {}, not {value}: {run}", run[key]);
    }
    ensure!(
        run["name"] == "gateway" && run["layout"] == "json" && run["format"] == "RowBinaryWithNamesAndTypes",
        "{run}"
    );
    ensure!(run["server_cpu_s"].is_null(), "the null sink is no server: {run}");
    let figure = |key: &str| run[key].as_f64().with_context(|| format!("{key} is no number: {run}"));
    let bytes = figure("bytes_per_span")?;
    ensure!((bytes_max * BYTES_MIN..=bytes_max).contains(&bytes), "{bytes} bytes a span: {run}");
    let resident = figure("peak_rss_mib")?;
    ensure!(resident > 0.0 && resident <= MEMORY_MIB, "{resident} MiB resident: {run}");
    let wall = figure("wall_s")?;
    ensure!(wall > 0.0 && wall < took.as_secs_f64(), "{wall} s of {took:?}: {run}");
    let cpu = figure("cpu_s")?;
    #[expect(clippy::cast_precision_loss, reason = "a hundred thousand")]
    let rate = SPANS as f64 / cpu;
    let differs = (figure("spans_per_cpu_s")? / rate - 1.0).abs();
    ensure!(cpu > 0.0 && differs < ROUNDED, "{rate:.0} spans a CPU-second: {run}");
    Ok(())
}

#[test]
fn a_report_whose_figures_do_not_fit_is_found() {
    let good = json!({"shape": "rich", "runs": [{
        "name": "gateway", "layout": "json", "format": "RowBinaryWithNamesAndTypes", "spans": SPANS, "rows": SPANS,
        "lost": 0, "doubled": 0, "wall_s": 1.5, "cpu_s": 0.25, "spans_per_cpu_s": 400_000.0,
        "bytes_per_span": 98.5, "peak_rss_mib": 90.25, "server_cpu_s": null,
    }]});
    let judged = |key: &str, value: Value| {
        let mut report = good.clone();
        report["runs"][0][key] = value;
        check(&report, SHAPES[0], Duration::from_secs(4)).is_ok()
    };
    assert!(judged("wall_s", json!(1.5)));
    for (key, value) in [
        ("rows", json!(SPANS + 1)),
        ("lost", json!(1)),
        ("doubled", json!(1)),
        ("bytes_per_span", json!(100.5)),
        ("bytes_per_span", json!(1.0)),
        ("peak_rss_mib", json!(193.0)),
        ("peak_rss_mib", json!(0.0)),
        ("wall_s", json!(5.0)),
        ("wall_s", json!(0.0)),
        ("cpu_s", json!(0.0)),
        ("cpu_s", json!(0.3)),
        ("spans_per_cpu_s", json!(500_000.0)),
        ("server_cpu_s", json!(0.1)),
        ("more", json!(1)),
    ] {
        assert!(!judged(key, value.clone()), "{key} is {value}");
    }
}

async fn run(program: &Path, shape: &str) -> Result<Value> {
    let name = format!("sluice-throughput-{}-{shape}.json", std::process::id());
    let file = std::env::temp_dir().join(name);
    let mut command = Command::new(programs::BENCH.file(Form::Checked));
    command.args(["throughput", "--shape", shape, "--spans", &SPANS.to_string()]);
    command.arg("--json").arg(&file).arg("--gateway").arg(program);
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await.context("run e2e throughput")?;
    let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()));
    if text.is_ok() {
        fs::remove_file(&file).with_context(|| format!("remove {}", file.display()))?;
    }
    let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "it ended with {}:\n{said}\n{told}", output.status);
    serde_json::from_str(&text?).context("understand the report")
}
