//! The results of the cases: a table for people, JSON for programs.

use std::time::Duration;

use serde::Serialize;

use super::case::Case;
use super::config::LIMIT_MIB;
use super::tally::Tally;
use crate::figures::{broken, cell, count_cell, float, mib, percentile};
use crate::memory::Usage;
use crate::outcomes::{Column, Run};
use e2e_fixtures::oracle::Count;

#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    pub case: String,
    pub requests: u64,
    pub accepted_first: u64,
    pub retried: u64,
    pub failed: u64,
    pub req_per_s: f64,
    /// From the first time that a request was sent until it was accepted, milliseconds; `None` if none was.
    pub p50_ms: Option<f64>,
    pub p90_ms: Option<f64>,
    pub p95_ms: Option<f64>,
    pub max_ms: Option<f64>,
    pub peak_mib: f64,
    pub kills: u64,
    /// Rows in the table; `None` if the gateway did not insert all accepted spans.
    pub rows: Option<u64>,
    pub lost: Option<u64>,
    pub doubled: Option<u64>,
    pub failures: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Seen {
    pub time: Duration,
    pub tally: Tally,
    pub usage: Usage,
    /// The rows, or why they could not be counted.
    pub counted: Result<Count, String>,
}

impl Outcome {
    pub(super) fn new(case: &Case, seen: &Seen) -> Outcome {
        let Seen { time, tally, usage, counted } = seen;
        let (sorted, spans) = (tally.sorted(), tally.sent().acked.count());
        let millis = |percent| percentile(&sorted, percent).map(|took| tenths(took.as_secs_f64() * 1_000.0));
        let count = counted.as_ref().ok();
        let mut outcome = Outcome {
            case: case.name(),
            requests: tally.requests,
            accepted_first: tally.accepted_first,
            retried: tally.retried,
            failed: tally.failed,
            req_per_s: tenths(float(tally.in_time) / time.as_secs_f64()),
            p50_ms: millis(50),
            p90_ms: millis(90),
            p95_ms: millis(95),
            max_ms: millis(100),
            peak_mib: tenths(mib(usage.resident_peak)),
            kills: usage.kills,
            rows: count.map(|count| count.rows),
            lost: count.map(|count| spans - count.unique_acked),
            doubled: count.map(|count| count.rows - count.unique),
            failures: Vec::new(),
        };
        outcome.failures = failures(case, seen, &outcome);
        outcome
    }

    /// The outcome of a case that could not be run.
    pub(super) fn ended(case: &Case, why: &str) -> Outcome {
        Outcome { case: case.name(), failures: vec![why.to_owned()], ..Outcome::default() }
    }
}

fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn failures(case: &Case, seen: &Seen, outcome: &Outcome) -> Vec<String> {
    let Outcome { requests, accepted_first, failed, peak_mib, kills, .. } = outcome;
    let (lost, doubled) = (outcome.lost.unwrap_or_default(), outcome.doubled.unwrap_or_default());
    let (code, refusal) = (seen.usage.exit_code, seen.tally.refusal.as_deref().unwrap_or("no answer"));
    let counted = match &seen.counted {
        Ok(Count { foreign, .. }) => (*foreign == 0, format!("{foreign} rows are of no span that was sent")),
        Err(why) => (false, format!("rows could not be counted: {why}")),
    };
    broken([
        (*requests > 0, "no client sent a request".to_owned()),
        (*kills == 0, format!("0 kills required: the kernel OOM-killed {kills} processes")),
        (
            seen.usage.resident_peak < LIMIT_MIB << 20,
            format!("a peak under {LIMIT_MIB} MiB required: {peak_mib:.1} MiB were resident"),
        ),
        (code == 0, format!("the gateway must end with code 0: it ended with code {code}")),
        (
            *failed == 0,
            format!(
                "0 failed required: {failed} of {requests} requests were never accepted; first answer: {refusal}"
            ),
        ),
        (
            !case.is_of_defaults() || accepted_first == requests,
            format!(
                "100 % accepted at the first try required: {accepted_first} of {requests} were; first answer: {refusal}"
            ),
        ),
        (lost == 0, format!("0 lost required: {lost} spans of accepted requests have no row")),
        (doubled == 0, format!("0 doubled required: {doubled} rows are doubled")),
        counted,
    ])
}

impl Run for Outcome {
    const COLUMNS: &'static [Column<Outcome>] = &[
        ("case", |run| run.case.clone()),
        ("requests", |run| run.requests.to_string()),
        ("first", |run| run.accepted_first.to_string()),
        ("retried", |run| run.retried.to_string()),
        ("failed", |run| run.failed.to_string()),
        ("req/s", |run| format!("{:.1}", run.req_per_s)),
        ("p50 ms", |run| cell(run.p50_ms, 0)),
        ("p90 ms", |run| cell(run.p90_ms, 0)),
        ("p95 ms", |run| cell(run.p95_ms, 0)),
        ("max ms", |run| cell(run.max_ms, 0)),
        ("peak MiB", |run| format!("{:.1}", run.peak_mib)),
        ("kills", |run| run.kills.to_string()),
        ("rows", |run| count_cell(run.rows)),
        ("lost", |run| count_cell(run.lost)),
        ("doubled", |run| count_cell(run.doubled)),
    ];

    fn name(&self) -> &str {
        &self.case
    }

    fn known(&self) -> usize {
        if self.requests == 0 { 1 } else { Self::COLUMNS.len() }
    }

    fn said(&self) -> Option<String> {
        let said = || format!("all held: {} requests, at most {:.1} MiB", self.requests, self.peak_mib);
        self.failures.is_empty().then(said)
    }

    fn failures(&self) -> &[String] {
        &self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::tally::Delivery;
    use crate::outcomes::Outcomes;

    fn case(name: &str) -> Case {
        Case::all().into_iter().find(|case| case.name() == name).unwrap()
    }

    /// Two requests of ten spans, accepted at the first try, and all rows in the table.
    fn seen() -> Seen {
        let mut tally = Tally::default();
        for (number, millis) in [(0, 200), (1, 100)] {
            tally.add(delivery(number, 1, Some(Duration::from_millis(millis))));
        }
        let usage = Usage { resident_peak: 400 << 20, anonymous_peak: 300 << 20, kills: 0, exit_code: 0 };
        let counted = Ok(Count { rows: 20, unique_acked: 20, unique: 20, foreign: 0 });
        Seen { time: Duration::from_secs(4), tally, usage, counted }
    }

    fn delivery(number: u64, tries: u32, took: Option<Duration>) -> Delivery {
        let numbers = number * 10..number * 10 + 10;
        Delivery { numbers, tries, took, is_in_time: true, refusal: None }
    }

    #[test]
    fn a_case_that_held_has_all_figures() {
        let outcome = Outcome::new(&case("heavy"), &seen());
        assert_eq!(outcome.failures, Vec::<String>::new());
        assert_eq!((outcome.p50_ms, outcome.max_ms), (Some(100.0), Some(200.0)));
        assert_eq!((outcome.requests, outcome.accepted_first, outcome.rows), (2, 2, Some(20)));
        let figures = serde_json::to_value(&outcome).unwrap();
        assert_eq!(
            (&figures["case"], &figures["req_per_s"], &figures["peak_mib"], &figures["lost"]),
            (&"heavy".into(), &0.5.into(), &400.0.into(), &0.into())
        );
    }

    #[test]
    fn each_requirement_that_is_not_met_is_named() {
        let count = Count { rows: 20, unique_acked: 20, unique: 20, foreign: 0 };
        let usage = seen().usage;
        let counted = |count| Seen { counted: Ok(count), ..seen() };
        let mut failed = seen();
        failed.tally.add(delivery(2, 3, None));
        for (seen, expected) in [
            (Seen { usage: Usage { kills: 1, ..usage }, ..seen() }, "0 kills required"),
            (
                Seen { usage: Usage { resident_peak: 1_000 << 20, ..usage }, ..seen() },
                "a peak under 1000 MiB",
            ),
            (Seen { usage: Usage { exit_code: 137, ..usage }, ..seen() }, "it ended with code 137"),
            (failed, "0 failed required: 1 of 3"),
            (counted(Count { rows: 19, unique_acked: 19, unique: 19, ..count }), "0 lost required: 1 "),
            (counted(Count { rows: 21, ..count }), "0 doubled required: 1 "),
            (counted(Count { foreign: 1, ..count }), "1 rows are of no span"),
            (Seen { counted: Err("7 requests are left".into()), ..seen() }, "7 requests are left"),
        ] {
            let outcome = Outcome::new(&case("light-away"), &seen);
            assert!(outcome.failures.len() == 1 && outcome.failures[0].contains(expected), "{outcome:?}");
        }
    }

    #[test]
    fn only_with_defaults_every_request_must_be_accepted_at_the_first_try() {
        let mut seen = seen();
        seen.tally.add(delivery(2, 2, Some(Duration::from_secs(5))));
        seen.counted = Ok(Count { rows: 30, unique_acked: 30, unique: 30, foreign: 0 });
        assert!(Outcome::new(&case("light-small-volume"), &seen).failures.is_empty());
        let failures = Outcome::new(&case("light"), &seen).failures;
        assert!(failures.len() == 1 && failures[0].contains("first try required: 2 of 3"), "{failures:?}");
    }

    #[test]
    fn the_table_has_a_line_a_case_and_one_a_failure() {
        let outcome = Outcome::new(&case("heavy"), &seen());
        let report = Outcomes { runs: vec![outcome, Outcome::ended(&case("light"), "no port")] };
        let table = report.table();
        let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(cells(&table[1])[..3], ["heavy", "2", "2"]);
        assert_eq!(cells(&table[2])[..3], ["light", "-", "-"], "what was not run is no zero");
        assert_eq!(table[3], "light FAILED: no port");
        assert!(table.len() == 4 && !report.holds());
    }
}
