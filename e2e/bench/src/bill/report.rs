//! The bill of a case: sums per span, the table's line, and JSON.

use std::time::Duration;

use serde::Serialize;

use super::account::Account;
use crate::figures::cell;
use crate::outcomes::{Column, Run};
use crate::schema_bench::Answer;
use crate::throughput::witness::Usage;
use crate::throughput::{float, ratio, rounded};

#[derive(Clone, Debug)]
pub struct Measured {
    pub spans: u64,
    /// From the first span until all were committed.
    pub time: Duration,
    /// What the gateway or the Collector used.
    pub program: Usage,
    /// CPU time of the server's process from before the first span until the last merge has ended, without the looks at merges, microseconds.
    pub server_cpu_us: u64,
    pub server_peak_bytes: u64,
    /// The server's logs.
    pub account: Account,
    pub questions: Vec<Answer>,
}

/// CPU seconds per million spans.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cpu {
    /// The gateway or the Collector.
    pub program: f64,
    /// INSERT statements, without views.
    pub inserts: f64,
    pub views: f64,
    /// Merges of the case's tables.
    pub merges: f64,
    /// Other statements, and merges of the server's logs.
    pub other: f64,
    /// What the server's process used beside all of these; negative if the logs name more than the kernel counted.
    pub unattributed: f64,
    pub server: f64,
    /// Program and server.
    pub whole: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Bill {
    pub spans: u64,
    pub spans_per_s: f64,
    pub rows_per_insert: f64,
    pub cpu_s_per_million: Cpu,
    pub new_bytes_per_span: f64,
    pub merged_bytes_per_span: f64,
    pub written_bytes_per_span: f64,
    pub stored_bytes_per_span: f64,
    /// Bytes of new and merged parts, divided by those of new parts.
    pub write_amplification: f64,
    pub merges: u64,
    /// How often merges wrote a row of the main table again.
    pub rewrites_per_row: f64,
    /// CPU seconds of merges per million rows of the main table that they wrote.
    pub merge_cpu_s_per_million_rows: f64,
    pub parts_max: u64,
    pub parts_end: u64,
    pub program_peak_mib: f64,
    pub server_peak_mib: f64,
    pub questions: Vec<Answer>,
}

/// What a case came to.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub case: String,
    /// `None` if the case failed before it had one.
    pub bill: Option<Bill>,
    pub failures: Vec<String>,
}

impl Cpu {
    fn new(measured: &Measured) -> Cpu {
        let account = &measured.account;
        // Microseconds per span are seconds per million spans.
        let each = |cpu_us: u64| ratio(float(cpu_us), float(measured.spans));
        let program_us = (measured.program.user_us + measured.program.system_us).unsigned_abs();
        let program = each(program_us);
        let server = each(measured.server_cpu_us);
        let views = each(account.view_cpu_us);
        let inserts = each(account.insert_cpu_us.saturating_sub(account.view_cpu_us));
        let merges = each(account.merge_cpu_us);
        let other = each(account.statement_cpu_us + account.log_merge_cpu_us);
        Cpu {
            program: rounded(program),
            inserts: rounded(inserts),
            views: rounded(views),
            merges: rounded(merges),
            other: rounded(other),
            unattributed: rounded(server - inserts - views - merges - other),
            server: rounded(server),
            whole: rounded(program + server),
        }
    }
}

impl Bill {
    /// Divides what was measured by the spans.
    pub fn new(measured: &Measured) -> Bill {
        let (account, spans) = (&measured.account, measured.spans);
        let written = account.new_bytes + account.merged_bytes;
        let of = |count: u64, to: u64| rounded(ratio(float(count), float(to)));
        let per_second = ratio(float(spans), measured.time.as_secs_f64());
        Bill {
            spans,
            spans_per_s: per_second.round(),
            rows_per_insert: of(spans, account.inserts).round(),
            cpu_s_per_million: Cpu::new(measured),
            new_bytes_per_span: of(account.new_bytes, spans),
            merged_bytes_per_span: of(account.merged_bytes, spans),
            written_bytes_per_span: of(written, spans),
            stored_bytes_per_span: of(account.stored_bytes, spans),
            write_amplification: of(written, account.new_bytes),
            merges: account.merges,
            rewrites_per_row: of(account.merged_rows, spans),
            merge_cpu_s_per_million_rows: of(account.merge_cpu_us, account.merged_rows),
            parts_max: account.parts_max,
            parts_end: account.parts_end,
            program_peak_mib: rounded(float(measured.program.peak_rss_kib.unsigned_abs()) / 1_024.0),
            server_peak_mib: of(measured.server_peak_bytes, 1 << 20),
            questions: measured.questions.clone(),
        }
    }
}

impl Outcome {
    /// A case that could not be measured.
    pub fn ended(case: String, failure: &str) -> Outcome {
        Outcome { case, bill: None, failures: vec![failure.to_owned()] }
    }

    /// A figure of its bill with so many digits behind the point.
    fn cell(&self, digits: usize, figure: fn(&Bill) -> f64) -> String {
        cell(self.bill.as_ref().map(figure), digits)
    }

    /// The server's CPU time for a question.
    fn question(&self, name: &str) -> String {
        let mut answers = self.bill.iter().flat_map(|bill| &bill.questions);
        cell(answers.find(|answer| answer.name == name).map(|found| found.cpu_milliseconds), 1)
    }
}

impl Run for Outcome {
    const COLUMNS: &'static [Column<Outcome>] = &[
        ("case", |run| run.case.clone()),
        ("program", |run| run.cell(2, |bill| bill.cpu_s_per_million.program)),
        ("inserts", |run| run.cell(2, |bill| bill.cpu_s_per_million.inserts)),
        ("views", |run| run.cell(2, |bill| bill.cpu_s_per_million.views)),
        ("merges", |run| run.cell(2, |bill| bill.cpu_s_per_million.merges)),
        ("other", |run| run.cell(2, |bill| bill.cpu_s_per_million.other)),
        ("unattributed", |run| run.cell(2, |bill| bill.cpu_s_per_million.unattributed)),
        ("whole", |run| run.cell(2, |bill| bill.cpu_s_per_million.whole)),
        ("spans/s", |run| run.cell(0, |bill| bill.spans_per_s)),
        ("rows/insert", |run| run.cell(0, |bill| bill.rows_per_insert)),
        ("amplified", |run| run.cell(2, |bill| bill.write_amplification)),
        ("written B", |run| run.cell(1, |bill| bill.written_bytes_per_span)),
        ("stored B", |run| run.cell(1, |bill| bill.stored_bytes_per_span)),
        ("max parts", |run| run.cell(0, |bill| float(bill.parts_max))),
        ("program MiB", |run| run.cell(1, |bill| bill.program_peak_mib)),
        ("server MiB", |run| run.cell(1, |bill| bill.server_peak_mib)),
        ("trace ms", |run| run.question("trace")),
        ("tag ms", |run| run.question("tag")),
    ];

    fn name(&self) -> &str {
        &self.case
    }

    fn said(&self) -> Option<String> {
        let bill = self.bill.as_ref()?;
        let (Cpu { merges, whole, .. }, amplified) = (bill.cpu_s_per_million, bill.write_amplification);
        Some(format!(
            "{whole:.2} CPU-s per million spans, {merges:.2} of them for merges; bytes are written {amplified:.2} times"
        ))
    }

    fn failures(&self) -> &[String] {
        &self.failures
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::outcomes::Outcomes;

    fn measured() -> Measured {
        Measured {
            spans: 2_000_000,
            time: Duration::from_secs(100),
            program: Usage {
                user_us: 2_000_000,
                system_us: 800_000,
                peak_rss_kib: 102_400,
                ..Usage::default()
            },
            server_cpu_us: 60_000_000,
            server_peak_bytes: 1 << 30,
            account: Account {
                inserts: 400,
                insert_cpu_us: 22_000_000,
                statement_cpu_us: 300_000,
                look_cpu_us: 40_000,
                view_cpu_us: 2_000_000,
                merge_cpu_us: 36_000_000,
                log_merge_cpu_us: 100_000,
                new_bytes: 200_000_000,
                merges: 90,
                merged_bytes: 500_000_000,
                merged_rows: 5_000_000,
                parts_max: 31,
                parts_end: 4,
                stored_bytes: 180_000_000,
            },
            questions: vec![Answer {
                name: "trace",
                milliseconds: 4,
                cpu_milliseconds: 3.25,
                read_rows: 8_192,
                read_bytes: 9,
            }],
        }
    }

    /// A case with this name and bill.
    pub fn outcome(case: &str) -> Outcome {
        Outcome { case: case.to_owned(), bill: Some(Bill::new(&measured())), failures: Vec::new() }
    }

    #[test]
    fn the_parts_of_the_servers_time_add_up_to_that_of_its_process() {
        let expected = Cpu {
            program: 1.4,
            inserts: 10.0,
            views: 1.0,
            merges: 18.0,
            other: 0.2,
            unattributed: 0.8,
            server: 30.0,
            whole: 31.4,
        };
        assert_eq!(Cpu::new(&measured()), expected);
        let mut more = measured();
        more.server_cpu_us = 58_000_000;
        let less = Cpu { unattributed: -0.2, server: 29.0, whole: 30.4, ..expected };
        assert_eq!(Cpu::new(&more), less, "the logs name more than the kernel counted");
    }

    #[test]
    fn write_amplification_is_all_that_was_written_by_what_was_new() {
        let bill = Bill::new(&measured());
        assert_eq!((bill.write_amplification, bill.parts_max), (3.5, 31));
        assert_eq!((bill.new_bytes_per_span, bill.merged_bytes_per_span), (100.0, 250.0));
        assert_eq!((bill.written_bytes_per_span, bill.stored_bytes_per_span), (350.0, 90.0));
        assert_eq!((bill.rewrites_per_row, bill.merge_cpu_s_per_million_rows), (2.5, 7.2));
        assert_eq!((bill.rows_per_insert, bill.spans_per_s), (5_000.0, 20_000.0));
        assert_eq!((bill.program_peak_mib, bill.server_peak_mib), (100.0, 1_024.0));
    }

    #[test]
    fn without_merges_every_byte_is_written_once() {
        let mut alone = measured();
        alone.account.merged_bytes = 0;
        alone.account.merged_rows = 0;
        alone.account.merge_cpu_us = 0;
        let bill = Bill::new(&alone);
        assert_eq!((bill.write_amplification, bill.merge_cpu_s_per_million_rows), (1.0, 0.0));
    }

    #[test]
    fn a_server_without_inserts_gives_no_infinite_figure() {
        let mut nothing = measured();
        nothing.account = Account::default();
        let bill = Bill::new(&nothing);
        assert_eq!((bill.write_amplification, bill.rows_per_insert), (0.0, 0.0));
    }

    #[test]
    fn the_table_has_a_line_for_each_case_and_each_failure() {
        let failed = Outcome::ended("rich-collector-map".to_owned(), "the server ended");
        assert_eq!(failed.summary(), "FAILED: the server ended");
        let outcomes = Outcomes { runs: vec![outcome("rich-json-row-binary-service"), failed] };
        assert!(!outcomes.holds());
        let table = outcomes.table();
        assert_eq!(table.len(), 4);
        assert!(table[1].contains("31.40") && table[1].ends_with("3.2       -"), "{table:#?}");
        assert_eq!(table[3], "rich-collector-map FAILED: the server ended");
    }

    #[test]
    fn the_report_names_every_figure() {
        let json = serde_json::to_value(outcome("rich")).unwrap();
        assert_eq!(json["bill"]["cpu_s_per_million"]["merges"], 18.0);
        assert_eq!(json["bill"]["write_amplification"], 3.5);
        assert_eq!(json["bill"]["questions"][0]["name"], "trace");
        let failed = serde_json::to_value(Outcome::ended("x".to_owned(), "y")).unwrap();
        assert!(failed["bill"].is_null());
    }
}
