//! What came of the scenarios: a table for people, JSON for programs.

use serde::Serialize;

use super::scenario::Scenario;

/// How one scenario went.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The scenario.
    pub name: String,
    /// The limit of gateway and kernel, MiB.
    pub limit_mib: u64,
    /// The kernel's peak of the resident set, MiB.
    pub peak_rss_mib: f64,
    /// The largest anonymous memory, MiB.
    pub peak_anonymous_mib: f64,
    /// Kills by the kernel.
    pub kills: u64,
    /// Spans that must arrive.
    pub spans: u64,
    /// Rows at the sink.
    pub rows: u64,
    /// Spans without a row.
    pub lost: u64,
    /// Rows beyond the first of a span.
    pub doubled: u64,
    /// Spans a second before the sink went away, or over the whole of a steady run.
    pub rate: Option<f64>,
    /// Seconds from the sink's return to full speed.
    pub recovery_s: Option<f64>,
    /// What did not hold; nothing when all did.
    pub failures: Vec<String>,
}

impl Outcome {
    /// One that could not be counted, because the gateway ended or stood still.
    pub(super) fn ended(scenario: &Scenario, why: &str) -> Outcome {
        Outcome {
            name: scenario.name(),
            limit_mib: scenario.limit_mib(),
            peak_rss_mib: 0.0,
            peak_anonymous_mib: 0.0,
            kills: 0,
            spans: 0,
            rows: 0,
            lost: 0,
            doubled: 0,
            rate: None,
            recovery_s: None,
            failures: vec![why.to_owned()],
        }
    }
}

/// All outcomes.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// In the order in which they were run.
    pub runs: Vec<Outcome>,
}

impl Report {
    /// Whether everything held everywhere.
    pub fn holds(&self) -> bool {
        self.runs.iter().all(|run| run.failures.is_empty())
    }

    /// The table, line by line.
    pub fn table(&self) -> Vec<String> {
        let heads = [
            "scenario", "limit", "peak MiB", "anon MiB", "kills", "spans", "lost", "doubled", "kspans/s",
            "back s",
        ];
        let mut rows = vec![heads.map(str::to_owned).to_vec()];
        rows.extend(self.runs.iter().map(cells));
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or_default();
        let widths: Vec<usize> = (0..heads.len()).map(width).collect();
        let line = |row: &Vec<String>| {
            let cell = |(column, text): (usize, &String)| {
                let width = widths[column];
                if column == 0 { format!("{text:<width$}") } else { format!("{text:>width$}") }
            };
            row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ")
        };
        let failures = self.runs.iter().flat_map(|run| {
            run.failures.iter().map(move |failure| format!("{} FAILED: {failure}", run.name))
        });
        rows.iter().map(line).chain(failures).collect()
    }
}

fn cells(run: &Outcome) -> Vec<String> {
    let optional = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
    };
    vec![
        run.name.clone(),
        run.limit_mib.to_string(),
        format!("{:.1}", run.peak_rss_mib),
        format!("{:.1}", run.peak_anonymous_mib),
        run.kills.to_string(),
        run.spans.to_string(),
        run.lost.to_string(),
        run.doubled.to_string(),
        optional(run.rate.map(|rate| rate / 1_000.0), 0),
        optional(run.recovery_s, 1),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_line_a_run_and_one_a_failure() {
        let outcome = Outcome {
            name: "192-slow".into(),
            limit_mib: 192,
            peak_rss_mib: 150.25,
            peak_anonymous_mib: 140.0,
            kills: 0,
            spans: 10,
            rows: 9,
            lost: 1,
            doubled: 0,
            rate: Some(1_500_000.0),
            recovery_s: None,
            failures: vec!["1 span is lost".into()],
        };
        let report = Report { runs: vec![outcome] };
        let table = report.table();
        assert_eq!(table.len(), 3);
        assert!(table[1].starts_with("192-slow") && table[1].contains("150.2"), "{}", table[1]);
        assert_eq!(table[2], "192-slow FAILED: 1 span is lost");
        assert!(!report.holds());
    }
}
