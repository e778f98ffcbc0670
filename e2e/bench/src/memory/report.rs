//! The results of the scenarios: a table for people, JSON for programs.

use serde::Serialize;

use super::scenario::Scenario;
use crate::figures::cell;
use crate::outcomes::{Column, Run};

#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    pub name: String,
    /// The limit of gateway and kernel, MiB.
    pub limit_mib: u64,
    /// The kernel's peak of the resident set, MiB.
    pub peak_rss_mib: f64,
    pub peak_anonymous_mib: f64,
    pub kills: u64,
    /// Spans that must arrive.
    pub spans: u64,
    /// Rows at the sink.
    pub rows: u64,
    pub lost: u64,
    pub doubled: u64,
    /// Spans a second before the sink went away, or over the whole of a steady run.
    pub rate: Option<f64>,
    /// Seconds from the sink's return to full speed.
    pub recovery_s: Option<f64>,
    pub failures: Vec<String>,
}

impl Outcome {
    /// The outcome of a scenario whose rows could not be counted, because the gateway ended or stalled.
    pub(super) fn ended(scenario: &Scenario, why: &str) -> Outcome {
        Outcome {
            name: scenario.name(),
            limit_mib: scenario.limit_mib(),
            failures: vec![why.to_owned()],
            ..Outcome::default()
        }
    }
}

impl Run for Outcome {
    const COLUMNS: &'static [Column<Outcome>] = &[
        ("scenario", |run| run.name.clone()),
        ("limit MiB", |run| run.limit_mib.to_string()),
        ("peak MiB", |run| format!("{:.1}", run.peak_rss_mib)),
        ("anon MiB", |run| format!("{:.1}", run.peak_anonymous_mib)),
        ("kills", |run| run.kills.to_string()),
        ("spans", |run| run.spans.to_string()),
        ("lost", |run| run.lost.to_string()),
        ("doubled", |run| run.doubled.to_string()),
        ("kspans/s", |run| cell(run.rate.map(|rate| rate / 1_000.0), 0)),
        ("back s", |run| cell(run.recovery_s, 1)),
    ];

    fn name(&self) -> &str {
        &self.name
    }

    /// Without a count of the rows, only the name and the limit.
    fn known(&self) -> usize {
        if self.spans == 0 { 2 } else { Self::COLUMNS.len() }
    }

    fn said(&self) -> Option<String> {
        let said = || format!("all limits held, at most {:.1} MiB", self.peak_rss_mib);
        self.failures.is_empty().then(said)
    }

    fn failures(&self) -> &[String] {
        &self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcomes::Outcomes;

    #[test]
    fn the_table_has_a_line_a_run_and_one_a_failure() {
        let outcome = Outcome {
            name: "192-slow".into(),
            limit_mib: 192,
            peak_rss_mib: 150.25,
            peak_anonymous_mib: 140.0,
            spans: 10,
            rows: 9,
            lost: 1,
            rate: Some(1_500_000.0),
            failures: vec!["1 span is lost".into()],
            ..Outcome::default()
        };
        let report = Outcomes { runs: vec![outcome] };
        let table = report.table();
        assert_eq!(table.len(), 3);
        assert!(table[1].starts_with("192-slow") && table[1].contains("150.2"), "{}", table[1]);
        assert_eq!(table[2], "192-slow FAILED: 1 span is lost");
        assert!(!report.holds());
    }

    #[test]
    fn what_was_not_counted_is_no_zero() {
        let ended = Outcome::ended(&Scenario::Oversized("zstd"), "it ended by itself");
        let table = Outcomes { runs: vec![ended] }.table();
        let cells: Vec<&str> = table[1].split_whitespace().collect();
        assert_eq!(cells[..4], ["oversized-zstd", "192", "-", "-"]);
        assert_eq!(table[2], "oversized-zstd FAILED: it ended by itself");
    }
}
