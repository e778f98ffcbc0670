//! The results, as a table and as JSON, and whether they are as required.

use std::time::Duration;

use serde::Serialize;

use super::Role;
use super::load::Answers;
use crate::figures::{broken, float, rounded, seconds};
use crate::outcomes::{Column, table};
use crate::throughput::Stored;
use crate::throughput::witness::{ENDED_BY_SIGTERM, Usage};

/// Required ratio of spans per CPU-second to the Collector's. Specified, like the limits of waits and memory: the command's help has them.
const TIMES_MIN: f64 = 5.0;

/// The limit of the 99th percentile of waits at half of the rate, milliseconds.
const P99_MAX_MS: f64 = 50.0;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunReport {
    /// `gateway` or `collector`.
    pub name: &'static str,
    /// Spans per second that clients sent; absent at full speed.
    pub sent_per_s: Option<f64>,
    pub spans: u64,
    #[serde(flatten)]
    pub stored: Stored,
    pub again: u64,
    /// From the first request until every span was stored, seconds.
    pub wall_s: f64,
    pub spans_per_s: f64,
    /// User and system CPU time of the process from its start to its end, seconds.
    pub cpu_s: f64,
    pub spans_per_cpu_s: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub peak_rss_mib: f64,
    /// Exit code after SIGTERM.
    pub exit_code: i32,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    role: Role,
    /// The median time of one sync of the disk, milliseconds.
    sync_ms: f64,
    /// In the order in which they ran.
    runs: Vec<RunReport>,
    /// The ratio of the gateway's spans per CPU-second to the Collector's, at full speed.
    times_collector: Option<f64>,
}

fn milliseconds(time: Duration) -> f64 {
    rounded(time.as_secs_f64() * 1e3)
}

impl RunReport {
    pub fn new(
        (name, sent_per_s): (&'static str, Option<f64>),
        (spans, wall): (u64, Duration),
        answers: &Answers,
        usage: Usage,
        stored: Stored,
    ) -> RunReport {
        let cpu_s = seconds((usage.user_us + usage.system_us).unsigned_abs());
        let wall_s = wall.as_secs_f64();
        RunReport {
            name,
            sent_per_s: sent_per_s.map(f64::round),
            spans,
            stored,
            again: answers.again,
            wall_s: rounded(wall_s),
            spans_per_s: (float(spans) / wall_s.max(f64::EPSILON)).round(),
            cpu_s: rounded(cpu_s),
            spans_per_cpu_s: (float(spans) / cpu_s.max(f64::EPSILON)).round(),
            p50_ms: milliseconds(answers.percentile(50)),
            p99_ms: milliseconds(answers.percentile(99)),
            peak_rss_mib: rounded(float(usage.peak_rss_kib.unsigned_abs()) / 1024.0),
            exit_code: usage.exit_code,
        }
    }

    fn is_gateway(&self) -> bool {
        self.name == "gateway"
    }

    /// The requirements that a run of the gateway or of the Collector breaks.
    fn failures(&self, role: Role) -> Vec<String> {
        let Stored { lost, doubled, foreign, .. } = self.stored;
        // SIGTERM may end a Collector.
        let ends_well = self.exit_code == 0 || !self.is_gateway() && self.exit_code == ENDED_BY_SIGTERM;
        let mut required = vec![
            (lost == 0, format!("{lost} spans are not stored")),
            (doubled == 0, format!("{doubled} spans are stored again")),
            (foreign == 0, format!("{foreign} spans were not sent")),
            (ends_well, format!("exit code {}", self.exit_code)),
        ];
        if self.is_gateway() {
            let (limit_mib, peak) = (role.limit_mib(), self.peak_rss_mib);
            let is_late = self.sent_per_s.is_some() && self.p99_ms >= P99_MAX_MS;
            required.push((peak < float(limit_mib), format!("{peak} of {limit_mib} MiB")));
            required.push((!is_late, format!("p99 of {} ms at half of the rate", self.p99_ms)));
        }
        broken(required).iter().map(|failure| format!("{}: {failure}", self.name)).collect()
    }
}

const COLUMNS: [Column<RunReport>; 13] = [
    ("name", |run| run.name.to_owned()),
    ("load", |run| run.sent_per_s.map_or("full".to_owned(), |rate| format!("{rate:.0}/s"))),
    ("spans", |run| run.spans.to_string()),
    ("lost", |run| run.stored.lost.to_string()),
    ("doubled", |run| run.stored.doubled.to_string()),
    ("again", |run| run.again.to_string()),
    ("wall s", |run| format!("{:.1}", run.wall_s)),
    ("spans/s", |run| format!("{:.0}", run.spans_per_s)),
    ("CPU s", |run| format!("{:.2}", run.cpu_s)),
    ("spans/CPU s", |run| format!("{:.0}", run.spans_per_cpu_s)),
    ("p50 ms", |run| format!("{:.1}", run.p50_ms)),
    ("p99 ms", |run| format!("{:.1}", run.p99_ms)),
    ("peak MiB", |run| format!("{:.1}", run.peak_rss_mib)),
];

/// Columns of words, which stand to the left.
const WORDS: usize = 2;

impl Report {
    /// A report without runs; `sync` is the time of one sync of the disk.
    pub fn new(role: Role, sync: Duration) -> Report {
        Report { role, sync_ms: milliseconds(sync), runs: Vec::new(), times_collector: None }
    }

    pub fn push(&mut self, run: RunReport) {
        self.runs.push(run);
        let of = |is_gateway: bool| {
            let run = self.runs.iter().find(|run| run.sent_per_s.is_none() && run.is_gateway() == is_gateway);
            run.map(|run| run.spans_per_cpu_s)
        };
        self.times_collector = of(true).zip(of(false)).map(|(ours, theirs)| rounded(ours / theirs.max(1.0)));
    }

    fn failures(&self) -> Vec<String> {
        let mut failures: Vec<_> = self.runs.iter().flat_map(|run| run.failures(self.role)).collect();
        match self.times_collector {
            Some(times) if times >= TIMES_MIN => {}
            Some(times) => {
                failures.push(format!("gateway: {times:.2} times the Collector's spans per CPU-second"));
            }
            None => failures.push("not every run was made".to_owned()),
        }
        failures
    }

    pub fn is_reached(&self) -> bool {
        self.failures().is_empty()
    }

    pub fn lines(&self) -> Vec<String> {
        let mut lines = table(&COLUMNS, &self.runs, WORDS);
        lines.push(String::new());
        lines.push(format!("one sync of the disk: {:.2} ms, median of 200", self.sync_ms));
        if let Some(times) = self.times_collector {
            lines.push(format!("spans per CPU-second of the gateway: {times:.2} times the Collector's"));
        }
        lines.extend(self.failures().into_iter().map(|failure| format!("not reached: {failure}")));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &'static str, sent_per_s: Option<f64>, cpu_us: i64) -> RunReport {
        let usage = Usage { user_us: cpu_us, peak_rss_kib: 100 << 10, ..Usage::default() };
        let answers = Answers { waits: vec![Duration::from_millis(20)], again: 0 };
        let stored = Stored { rows: 1_000, ..Stored::default() };
        RunReport::new((name, sent_per_s), (1_000, Duration::from_secs(2)), &answers, usage, stored)
    }

    fn report(runs: Vec<RunReport>) -> Report {
        let mut report = Report::new(Role::Edge, Duration::from_micros(1_500));
        for run in runs {
            report.push(run);
        }
        report
    }

    #[test]
    fn only_runs_at_full_speed_are_compared() {
        let half = || run("gateway", Some(250.0), 900_000);
        let report = report(vec![run("gateway", None, 100_000), half(), run("collector", None, 600_000)]);
        assert_eq!(report.times_collector, Some(5.999));
        assert!(report.is_reached(), "{:?}", report.failures());
        assert_eq!(report.runs[0].spans_per_s.to_string(), "500");
    }

    #[test]
    fn a_gateway_that_is_late_large_or_inexact_has_not_reached_what_is_required() {
        let good = || report(vec![run("gateway", None, 100_000), run("collector", None, 600_000)]);
        let changes: [fn(&mut RunReport); 6] = [
            |run| run.stored.lost = 1,
            |run| run.stored.doubled = 1,
            |run| run.stored.foreign = 1,
            |run| run.exit_code = 1,
            |run| run.peak_rss_mib = 192.0,
            |run| (run.sent_per_s, run.p99_ms) = (Some(250.0), 50.0),
        ];
        for change in changes {
            let mut report = good();
            change(&mut report.runs[0]);
            assert_eq!(report.failures().len(), 1, "{:?}", report.runs[0]);
        }
        assert!(!report(vec![run("gateway", None, 100_000), run("collector", None, 400_000)]).is_reached());
        assert!(!report(vec![run("gateway", None, 100_000)]).is_reached(), "without a Collector");
    }
}
