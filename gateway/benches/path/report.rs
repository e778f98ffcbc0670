//! The figures, as a table and as JSON.

use crate::load::Load;
use crate::measure::{Measured, median};
use serde::Serialize;
use std::{
    io::{self, Write as _},
    time::Duration,
};

/// The stages that the path is made of.
const PARTS: [&str; 3] = ["encode", "lz4-256k", "hash"];

/// One shape.
#[derive(Serialize)]
pub struct Run {
    shape: &'static str,
    spans: u64,
    message_bytes_per_span: f64,
    row_bytes_per_span: f64,
    stages: Vec<Line>,
    /// What the path costs beyond its parts, when all were measured.
    path_beyond_parts_cpu_ns_per_span: Option<f64>,
}

/// One stage.
#[derive(Serialize)]
struct Line {
    name: String,
    /// Of the round with the median CPU time; the next with the least.
    cpu_ns_per_span: f64,
    cpu_ns_per_span_best: f64,
    wall_ns_per_span: f64,
    spans_per_cpu_s: f64,
    /// That go in.
    bytes_per_cpu_s: f64,
    bytes_out_per_span: Option<f64>,
}

impl Run {
    /// The figures of one shape.
    pub fn new(shape: &'static str, load: &Load, measured: &[Measured]) -> Self {
        let stages: Vec<_> = measured.iter().map(|measured| Line::new(load, measured)).collect();
        let cpu = |name: &str| stages.iter().find(|line| line.name == name).map(|line| line.cpu_ns_per_span);
        let parts = PARTS.into_iter().map(cpu).sum::<Option<f64>>();
        let beyond = cpu("path").zip(parts).map(|(path, parts)| path - parts);
        Self {
            shape,
            spans: load.spans,
            message_bytes_per_span: ratio(load.message_bytes(), load.spans),
            row_bytes_per_span: ratio(load.rows.len() as u64, load.spans),
            path_beyond_parts_cpu_ns_per_span: beyond,
            stages,
        }
    }
}

impl Line {
    fn new(load: &Load, measured: &Measured) -> Self {
        let cpu = median(&measured.cpu);
        let best = measured.cpu.iter().min().copied().unwrap_or_default();
        Self {
            name: measured.stage.name(),
            cpu_ns_per_span: ns_per_span(cpu, load),
            cpu_ns_per_span_best: ns_per_span(best, load),
            wall_ns_per_span: ns_per_span(median(&measured.wall), load),
            spans_per_cpu_s: float(load.spans) / cpu.as_secs_f64(),
            bytes_per_cpu_s: float(measured.stage.bytes_in(load)) / cpu.as_secs_f64(),
            bytes_out_per_span: measured.bytes_out.map(|bytes| ratio(bytes, load.spans)),
        }
    }
}

/// `{"runs":[...]}`, a run per shape, in the order of the fields above.
pub fn json(runs: &[Run]) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Report<'a> {
        runs: &'a [Run],
    }
    serde_json::to_string_pretty(&Report { runs }).map(|text| text + "\n")
}

/// Writes the table to standard output.
pub fn print(run: &Run) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let Run { shape, spans, message_bytes_per_span: message, row_bytes_per_span: row, .. } = run;
    writeln!(out, "\n{shape}: {spans} spans, {message:.1} bytes a span in messages, {row:.1} in rows\n")?;
    writeln!(
        out,
        "{:<13} {:>11} {:>9} {:>12} {:>11} {:>9} {:>14}",
        "stage", "CPU ns/span", "best", "wall ns/span", "spans/CPU s", "MB/CPU s", "bytes out/span"
    )?;
    for line in &run.stages {
        let bytes_out = line.bytes_out_per_span.map_or_else(|| "-".to_owned(), |bytes| format!("{bytes:.1}"));
        writeln!(
            out,
            "{:<13} {:>11.1} {:>9.1} {:>12.1} {:>11} {:>9.0} {bytes_out:>14}",
            line.name,
            line.cpu_ns_per_span,
            line.cpu_ns_per_span_best,
            line.wall_ns_per_span,
            format!("{:.3} M", line.spans_per_cpu_s / 1e6),
            line.bytes_per_cpu_s / 1e6,
        )?;
    }
    if let Some(beyond) = run.path_beyond_parts_cpu_ns_per_span {
        writeln!(out, "{:<13} {beyond:>11.1}  beyond {}", "path", PARTS.join(", "))?;
    }
    out.flush()
}

fn ns_per_span(time: Duration, load: &Load) -> f64 {
    time.as_secs_f64() * 1e9 / float(load.spans)
}

fn ratio(sum: u64, spans: u64) -> f64 {
    float(sum) / float(spans)
}

#[expect(clippy::cast_precision_loss, reason = "sums of bytes and spans lie far below 2^53")]
fn float(n: u64) -> f64 {
    n as f64
}
