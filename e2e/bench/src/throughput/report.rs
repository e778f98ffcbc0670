//! The results, as a table and as JSON.

use e2e_stack::say::aligned;
use serde::Serialize;

use super::spool::{Comparison, Counts, Phase};
use super::threads::ThreadTime;
use super::witness::Usage;
use crate::figures::{cell, count_cell, float, mib, ratio, rounded, seconds};
use crate::outcomes::{Column, table};
use e2e_fixtures::spans::Shape;

/// One run of the gateway or a peer. Unknown values are left out in the table and null in the JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunReport {
    /// `gateway`, or the peer's name.
    pub name: String,
    /// The server's table engine; absent with the null sink.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<&'static str>,
    /// How the gateway's table stores attributes; `None` for a peer, which may make its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout: Option<String>,
    pub format: String,
    pub spans: u64,
    /// Rows that the sink received.
    pub rows: u64,
    pub lost: Option<u64>,
    pub doubled: Option<u64>,
    /// Rows of spans that were not produced; not part of the report file, whose fields are fixed.
    #[serde(skip)]
    pub foreign: Option<u64>,
    /// From the start of the process until its group had committed the end of every partition, seconds.
    pub wall_s: f64,
    /// User and system CPU time of the process from its start to its end, seconds.
    pub cpu_s: f64,
    pub spans_per_cpu_s: f64,
    /// Bytes of the inserts, as compressed, a span.
    pub bytes_per_span: f64,
    pub peak_rss_mib: f64,
    /// CPU time of the server for the inserts, seconds.
    pub server_cpu_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spool: Option<Counts>,
    /// Voluntary and involuntary context switches; not part of the report file, whose fields are fixed.
    #[serde(skip)]
    pub context_switches: i64,
    /// Whether its process exited as expected after SIGTERM, which it gets once everything is committed. Not part of the report file
    /// either.
    #[serde(skip)]
    pub ended_well: bool,
    /// CPU time by thread; not part of the report file either.
    #[serde(skip)]
    pub threads: Vec<ThreadTime>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    pub shape: Shape,
    /// In the order in which they ran.
    pub runs: Vec<RunReport>,
    /// How the queue volume compares with the live path, with `--spool`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spool: Option<Comparison>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arrived {
    pub format: String,
    pub rows: u64,
    pub lost: Option<u64>,
    pub doubled: Option<u64>,
    pub foreign: Option<u64>,
    pub bytes: u64,
    pub server_cpu_us: Option<u64>,
}

impl RunReport {
    pub fn new(name: &str, spans: u64, wall_s: f64, usage: Usage, arrived: Arrived) -> RunReport {
        let cpu_s = seconds((usage.user_us + usage.system_us).unsigned_abs());
        RunReport {
            name: name.to_owned(),
            engine: None,
            layout: None,
            format: arrived.format,
            spans,
            rows: arrived.rows,
            lost: arrived.lost,
            doubled: arrived.doubled,
            foreign: arrived.foreign,
            wall_s: rounded(wall_s),
            cpu_s: rounded(cpu_s),
            spans_per_cpu_s: ratio(float(spans), cpu_s).round(),
            bytes_per_span: rounded(ratio(float(arrived.bytes), float(spans))),
            peak_rss_mib: rounded(float(usage.peak_rss_kib.unsigned_abs()) / 1024.0),
            server_cpu_s: arrived.server_cpu_us.map(seconds).map(rounded),
            spool: None,
            context_switches: usage.context_switches,
            ended_well: true,
            threads: Vec::new(),
        }
    }

    /// Whether every span arrived exactly once, nothing else arrived, and its process exited as expected, as far as that is known.
    pub fn is_whole(&self) -> bool {
        if !self.ended_well {
            return false;
        }
        if self.spool.is_some_and(|counts| counts.phase == Phase::Spill) {
            // Its rows are counted when they leave the volume.
            return true;
        }
        self.rows >= self.spans
            && [self.lost, self.doubled, self.foreign].into_iter().all(|count| count.unwrap_or(0) == 0)
    }

    fn thread_cells(&self) -> impl Iterator<Item = [String; 5]> {
        self.threads.iter().map(|thread| {
            let nanoseconds = float(thread.user_us + thread.system_us) * 1e3;
            [
                self.name.clone(),
                thread.name.clone(),
                format!("{:.2}", seconds(thread.user_us)),
                format!("{:.2}", seconds(thread.system_us)),
                format!("{:.1}", ratio(nanoseconds, float(self.spans))),
            ]
        })
    }
}

const COLUMNS: [Column<RunReport>; 15] = [
    ("name", |run| run.name.clone()),
    ("sink", |run| run.engine.unwrap_or("null sink").to_owned()),
    ("layout", |run| run.layout.as_deref().unwrap_or("-").to_owned()),
    ("format", |run| run.format.clone()),
    ("spans", |run| run.spans.to_string()),
    ("rows", |run| run.rows.to_string()),
    ("lost", |run| count_cell(run.lost)),
    ("doubled", |run| count_cell(run.doubled)),
    ("wall s", |run| format!("{:.1}", run.wall_s)),
    ("CPU s", |run| format!("{:.2}", run.cpu_s)),
    ("spans/CPU s", |run| format!("{:.0}", run.spans_per_cpu_s)),
    ("B/span", |run| format!("{:.1}", run.bytes_per_span)),
    ("peak MiB", |run| format!("{:.1}", run.peak_rss_mib)),
    ("switches", |run| run.context_switches.to_string()),
    ("server CPU s", |run| cell(run.server_cpu_s, 2)),
];

/// Columns of words, which stand to the left; numbers stand to the right.
const WORDS: usize = 4;

const SPOOL_COLUMNS: [Column<Counts>; 5] = [
    ("name", |counts| counts.phase.name().to_owned()),
    ("spans read from Kafka", |counts| counts.read.to_string()),
    ("blocks to the volume", |counts| counts.appended_blocks.to_string()),
    ("blocks from it", |counts| counts.drained_blocks.to_string()),
    ("volume MiB", |counts| format!("{:.1}", mib(counts.volume_bytes))),
];

const THREAD_HEADINGS: [&str; 5] = ["name", "thread", "user s", "system s", "ns/span"];

/// Columns of words in the table of threads.
const THREAD_WORDS: usize = 2;

impl Report {
    /// Whether no span is missing and, with `--spool`, the volume is as fast as required.
    pub fn is_reached(&self) -> bool {
        self.runs.iter().all(RunReport::is_whole) && self.spool.is_none_or(|comparison| comparison.is_met)
    }

    pub fn table(&self) -> Vec<String> {
        table(&COLUMNS, &self.runs, WORDS)
    }

    /// The counts of the runs of `--spool` as lines of a table; empty without such runs.
    pub fn spool_table(&self) -> Vec<String> {
        let Some(comparison) = self.spool else { return Vec::new() };
        let counts: Vec<Counts> = self.runs.iter().filter_map(|run| run.spool).collect();
        let mut lines = table(&SPOOL_COLUMNS, &counts, 1);
        lines.extend(comparison.lines());
        lines
    }

    pub fn threads_table(&self) -> Vec<String> {
        let mut lines = vec![THREAD_HEADINGS.map(str::to_owned)];
        lines.extend(self.runs.iter().flat_map(RunReport::thread_cells));
        aligned(&lines, THREAD_WORDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> RunReport {
        let usage =
            Usage { user_us: 1_500_000, system_us: 500_000, peak_rss_kib: 102_400, ..Usage::default() };
        let arrived = Arrived {
            format: "RowBinary".to_owned(),
            rows: 1_000_000,
            lost: Some(0),
            doubled: Some(0),
            foreign: Some(0),
            bytes: 98_500_000,
            server_cpu_us: None,
        };
        let run = RunReport::new("gateway", 1_000_000, 2.25, usage, arrived);
        RunReport { layout: Some("map".to_owned()), ..run }
    }

    #[test]
    fn the_report_has_these_fields() {
        let report = Report { shape: Shape::Rich, runs: vec![run()], spool: None };
        assert_eq!(
            serde_json::to_string(&report).unwrap(),
            r#"{"shape":"rich","runs":[{"name":"gateway","layout":"map","format":"RowBinary","spans":1000000,"rows":1000000,"lost":0,"doubled":0,"wall_s":2.25,"cpu_s":2.0,"spans_per_cpu_s":500000.0,"bytes_per_span":98.5,"peak_rss_mib":100.0,"server_cpu_s":null}]}"#
        );
    }

    #[test]
    fn a_run_is_whole_unless_something_says_that_it_is_not() {
        assert!(run().is_whole());
        assert!(RunReport { lost: None, doubled: None, ..run() }.is_whole());
        assert!(!RunReport { lost: Some(1), ..run() }.is_whole());
        assert!(!RunReport { rows: 1_000_001, doubled: Some(1), ..run() }.is_whole());
        assert!(!RunReport { rows: 1_000_001, foreign: Some(1), ..run() }.is_whole());
        assert!(!RunReport { rows: 999_999, lost: None, ..run() }.is_whole());
        assert!(!RunReport { ended_well: false, ..run() }.is_whole());
    }

    #[test]
    fn the_columns_of_the_table_are_aligned() {
        let table = Report { shape: Shape::Rich, runs: vec![run(), run()], spool: None }.table();
        assert_eq!(table.len(), 3);
        assert!(table.iter().all(|line| line.len() == table[0].len()), "{table:#?}");
    }

    #[test]
    fn a_thread_is_a_line_with_its_time_a_span() {
        let io = ThreadTime { name: "io".to_owned(), user_us: 40_000, system_us: 60_000 };
        let report =
            Report { shape: Shape::Rich, runs: vec![RunReport { threads: vec![io], ..run() }], spool: None };
        assert_eq!(
            report.threads_table(),
            ["name     thread  user s  system s  ns/span", "gateway  io        0.04      0.06    100.0"]
        );
    }
}
