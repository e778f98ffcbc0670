//! How the guard of `benches/instructions` judges results. A benchmark without a harness cannot have its own tests.

#[path = "../../benches/instructions/figures.rs"]
#[allow(dead_code, reason = "only the benchmark reads and writes files")]
mod figures;

use figures::{Comparison, Conditions, Figures, Verdict};

fn conditions() -> Conditions {
    Conditions {
        rustc: "rustc 1.0.0".to_owned(),
        architecture: "x86_64".to_owned(),
        cpu_features: vec!["avx2".to_owned()],
    }
}

fn figures<const N: usize>(counts: [(&str, f64); N]) -> Figures {
    let owned = counts.map(|(name, count)| (name.to_owned(), count));
    Figures::new(conditions(), owned.into())
}

fn verdicts(comparison: &Comparison) -> Vec<(&str, Verdict)> {
    comparison.0.iter().map(|line| (line.name.as_str(), line.verdict())).collect()
}

#[test]
fn a_change_of_more_than_three_percent_fails_in_both_directions() {
    let accepted =
        figures([("down", 1000.0), ("low", 1000.0), ("same", 1000.0), ("top", 1000.0), ("up", 1000.0)]);
    let measured =
        figures([("down", 969.0), ("low", 971.0), ("same", 1000.0), ("top", 1029.0), ("up", 1031.0)]);
    let comparison = accepted.compare(&measured);
    let expected = [
        ("down", Verdict::Faster),
        ("low", Verdict::Kept),
        ("same", Verdict::Kept),
        ("top", Verdict::Kept),
        ("up", Verdict::Slower),
    ];
    assert_eq!(verdicts(&comparison), expected);
}

#[test]
fn failures_name_stage_accepted_measured_and_change_and_nothing_that_is_kept() {
    let accepted = figures([("rich/hash", 100.0), ("rich/path", 100.0), ("rich/unpack", 100.0)]);
    let measured = figures([("rich/hash", 200.0), ("rich/path", 102.9), ("rich/unpack", 90.0)]);
    let expected = "instructions per span    accepted   measured    change\n\
        rich/hash                   100.0      200.0  +100.0 %  more than 3 % slower\n\
        rich/unpack                 100.0       90.0   -10.0 %  more than 3 % faster: accept it, else the gain can be lost unnoticed\n";
    assert_eq!(accepted.compare(&measured).failures().unwrap(), expected);
}

#[test]
fn figures_that_are_kept_fail_nothing() {
    let comparison = figures([("a", 100.0), ("b", 200.0)]).compare(&figures([("a", 102.9), ("b", 194.2)]));
    assert_eq!(comparison.failures(), None);
}

#[test]
fn a_stage_without_an_accepted_figure_fails() {
    let comparison = figures([("same", 1.0)]).compare(&figures([("new", 1.0), ("same", 1.0)]));
    assert_eq!(verdicts(&comparison), [("new", Verdict::New), ("same", Verdict::Kept)]);
    assert!(comparison.failures().unwrap().contains("has no accepted figure"));
}

#[test]
fn an_accepted_figure_without_a_stage_fails() {
    let comparison = figures([("gone", 1.0), ("same", 1.0)]).compare(&figures([("same", 1.0)]));
    assert_eq!(verdicts(&comparison), [("gone", Verdict::Gone), ("same", Verdict::Kept)]);
    assert!(comparison.failures().unwrap().contains("has an accepted figure and was not measured"));
}

#[test]
fn conditions_that_differ_are_named() {
    assert_eq!(conditions().difference(&conditions()), None);
    let other = Conditions { rustc: "rustc 2.0.0".to_owned(), cpu_features: vec![], ..conditions() };
    let difference = conditions().difference(&other).unwrap();
    assert_eq!(difference, "rustc: accepted rustc 1.0.0, now rustc 2.0.0; CPU features: accepted avx2, now ");
}

#[test]
fn the_accepted_figures_can_be_read_and_stay_the_same_when_written() {
    let text = include_str!("../../benches/instructions/accepted.json");
    let accepted: Figures = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_string_pretty(&accepted).unwrap() + "\n", text);
    assert!(accepted.instructions_per_span.contains_key("rich/gateway-run"));
}
