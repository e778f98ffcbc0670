//! The results of the scenarios: a table for people, JSON for programs.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;

use e2e_stack::say::aligned;

/// Expected exit codes, in order, of gateways that end without being told to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// They exit with these codes.
    With(&'static [i32]),
    /// They exit with these codes, or none exits: it depends on timing.
    PerhapsWith(&'static [i32]),
}

impl Default for Ends {
    fn default() -> Self {
        Ends::With(&[])
    }
}

impl Ends {
    fn allows(self, ends: &[i32]) -> bool {
        match self {
            Ends::With(codes) => ends == codes,
            Ends::PerhapsWith(codes) => ends.is_empty() || ends == codes,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Round {
    /// Spans that Kafka acknowledged, or gateways accepted.
    pub spans: u64,
    /// Accepted spans without a row.
    pub lost: u64,
    pub lost_expected: u64,
    /// Rows beyond the first of a span.
    pub doubled: u64,
    pub doubled_expected: u64,
    /// Seconds from the end of the fault, or from the kill, to the first insert after it.
    pub recovery_s: Option<f64>,
    pub measures: Vec<(&'static str, f64)>,
    /// Exit codes of gateways that no scenario ended, and that were restarted.
    pub ends: Vec<i32>,
    pub ends_expected: Ends,
    /// Seconds from the end of the load until everything was inserted.
    pub settle_s: f64,
    /// Other requirements that are not met.
    pub failures: Vec<String>,
}

impl Round {
    /// Whether the counts are those expected, and nothing else failed.
    pub fn holds(&self) -> bool {
        self.is_as_expected() && self.failures.is_empty()
    }

    fn is_as_expected(&self) -> bool {
        let counts = (self.lost, self.doubled) == (self.lost_expected, self.doubled_expected);
        counts && self.ends_expected.allows(&self.ends)
    }

    /// The counts, for a line of progress.
    pub fn words(&self) -> String {
        let expected = |count: u64, expected: u64| match expected {
            0 => count.to_string(),
            _ => format!("{count} of {expected} expected"),
        };
        let recovery = self.recovery_s.map_or(String::new(), |s| format!(", inserts again after {s:.1} s"));
        let ends = match (&self.ends[..], self.ends_expected) {
            (ends, expected) if !expected.allows(ends) => {
                format!(", gateways ended with {ends:?}, {expected:?} expected")
            }
            ([], _) => String::new(),
            (ends, _) => format!(", gateways ended with {ends:?}"),
        };
        let measures = self
            .measures
            .iter()
            .fold(String::new(), |words, (name, value)| format!("{words}, {name} {value:.2}"));
        format!(
            "{} spans, {} lost, {} doubled{recovery}{ends}{measures}, settled in {:.1} s",
            self.spans,
            expected(self.lost, self.lost_expected),
            expected(self.doubled, self.doubled_expected),
            self.settle_s,
        )
    }
}

/// How all rounds of a scenario went.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    pub name: String,
    /// Rounds that were counted.
    pub rounds: u32,
    /// Spans that Kafka acknowledged, or gateways accepted, in all of them.
    pub spans: u64,
    /// Accepted spans without a row.
    pub lost: u64,
    pub lost_expected: u64,
    /// Rows beyond the first of a span.
    pub doubled: u64,
    pub doubled_expected: u64,
    /// The longest recovery, seconds; `None` if there is nothing to recover from.
    pub recovery_s: Option<f64>,
    /// Other measurements: the largest of all rounds.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub measures: BTreeMap<String, f64>,
    /// Requirements that are not met; empty if all are.
    pub failures: Vec<String>,
}

impl Outcome {
    /// A scenario without a round.
    pub fn new(name: &str) -> Outcome {
        Outcome { name: name.to_owned(), ..Outcome::default() }
    }

    /// Adds a round, by its number from 0 on.
    pub fn add(&mut self, number: u32, round: &Round) {
        self.rounds += 1;
        self.spans += round.spans;
        self.lost += round.lost;
        self.lost_expected += round.lost_expected;
        self.doubled += round.doubled;
        self.doubled_expected += round.doubled_expected;
        self.recovery_s = [self.recovery_s, round.recovery_s].into_iter().flatten().reduce(f64::max);
        for (name, value) in &round.measures {
            let largest = self.measures.entry((*name).to_owned()).or_insert(*value);
            *largest = largest.max(*value);
        }
        // Sums could agree although rounds do not.
        if !round.is_as_expected() {
            self.failures.push(format!("round {}: {}", number + 1, round.words()));
        }
        self.failures.extend(round.failures.iter().map(|failure| format!("round {}: {failure}", number + 1)));
    }
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// In the order in which they ended.
    pub scenarios: Vec<Outcome>,
}

impl Report {
    /// Whether all scenarios met all requirements.
    pub fn holds(&self) -> bool {
        !self.scenarios.is_empty() && self.scenarios.iter().all(|outcome| outcome.failures.is_empty())
    }

    /// Adds a scenario, even if an error ended it.
    pub fn add(&mut self, mut outcome: Outcome, played: &Result<()>) {
        outcome
            .failures
            .extend(played.as_ref().err().map(|failure| format!("not played to its end: {failure:#}")));
        self.scenarios.push(outcome);
    }

    /// Writes the report until now to a file, as JSON.
    pub fn write(&self, file: &Path) -> Result<()> {
        let text = serde_json::to_string(self).context("write the outcomes as JSON")?;
        std::fs::write(file, text + "\n").with_context(|| format!("write {}", file.display()))
    }

    /// The table, line by line, and a line for each failure.
    pub fn table(&self) -> Vec<String> {
        let mut lines = vec![HEADINGS.map(str::to_owned)];
        lines.extend(self.scenarios.iter().map(cells));
        let failures = self.scenarios.iter().flat_map(|outcome| {
            outcome.failures.iter().map(move |failure| format!("{} FAILED: {failure}", outcome.name))
        });
        aligned(&lines, WORDS).into_iter().chain(failures).collect()
    }
}

const HEADINGS: [&str; 8] =
    ["scenario", "rounds", "spans", "lost", "expected", "doubled", "expected", "recovery s"];

/// Columns of words, which stand to the left.
const WORDS: usize = 1;

fn cells(outcome: &Outcome) -> [String; 8] {
    [
        outcome.name.clone(),
        outcome.rounds.to_string(),
        outcome.spans.to_string(),
        outcome.lost.to_string(),
        outcome.lost_expected.to_string(),
        outcome.doubled.to_string(),
        outcome.doubled_expected.to_string(),
        outcome.recovery_s.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1}")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_add_up_and_what_is_not_expected_fails() {
        let mut outcome = Outcome::new("kill");
        outcome.add(0, &Round { spans: 100, recovery_s: Some(1.5), ..Round::default() });
        outcome.add(1, &Round { spans: 50, doubled: 3, doubled_expected: 3, ..Round::default() });
        assert_eq!((outcome.rounds, outcome.spans, outcome.recovery_s), (2, 150, Some(1.5)));
        assert_eq!(outcome.failures, [""; 0]);
        outcome.add(2, &Round { spans: 50, doubled: 2, lost_expected: 4, ..Round::default() });
        outcome.add(3, &Round { spans: 50, lost: 4, ..Round::default() });
        assert_eq!((outcome.lost, outcome.lost_expected), (4, 4), "the sums agree");
        assert_eq!(outcome.failures.len(), 2, "{:?}", outcome.failures);
        let report = Report { scenarios: vec![outcome] };
        assert!(!report.holds());
        assert_eq!(report.table().len(), 4);
    }

    #[test]
    fn a_gateway_that_ends_unexpectedly_or_does_not_end_fails_a_round() {
        let round = |ends: &[i32], ends_expected: Ends| Round {
            ends: ends.to_vec(),
            ends_expected,
            ..Round::default()
        };
        let table = [
            (&[][..], Ends::default(), true),
            (&[69], Ends::default(), false),
            (&[69], Ends::With(&[69]), true),
            (&[], Ends::With(&[69]), false),
            (&[69, 69], Ends::With(&[69]), false),
            (&[], Ends::PerhapsWith(&[69]), true),
            (&[69], Ends::PerhapsWith(&[69]), true),
            (&[1], Ends::PerhapsWith(&[69]), false),
        ];
        for (ends, expected, holds) in table {
            let round = round(ends, expected);
            assert_eq!(round.holds(), holds, "{ends:?}, {expected:?}");
            let mut outcome = Outcome::new("ends");
            outcome.add(0, &round);
            assert_eq!(outcome.failures.is_empty(), holds, "{:?}", outcome.failures);
        }
        let words = round(&[1], Ends::With(&[69])).words();
        assert!(words.contains("gateways ended with [1], With([69]) expected"), "{words}");
    }

    #[test]
    fn the_json_has_the_fields_that_are_asked_for() {
        let text = serde_json::to_string(&Report { scenarios: vec![Outcome::new("a")] }).unwrap();
        assert_eq!(
            text,
            r#"{"scenarios":[{"name":"a","rounds":0,"spans":0,"lost":0,"lost_expected":0,"doubled":0,"doubled_expected":0,"recovery_s":null,"failures":[]}]}"#
        );
    }

    #[test]
    fn what_was_counted_before_a_failure_is_written_and_does_not_hold() {
        let mut report = Report::default();
        let mut outcome = Outcome::new("kill");
        outcome.add(0, &Round { spans: 100, ..Round::default() });
        report.add(outcome, &Ok(()));
        assert!(report.holds());
        report.add(Outcome::new("coordinator-move"), &Err(anyhow::anyhow!("no port")));
        assert!(!report.holds());
        let file = std::env::temp_dir().join(format!("sluice-report-{}.json", std::process::id()));
        report.write(&file).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let written: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(written["scenarios"][0]["spans"], 100);
        assert_eq!(written["scenarios"][1]["failures"][0], "not played to its end: no port");
    }

    #[test]
    fn nothing_run_is_no_success() {
        assert!(!Report::default().holds());
    }
}
