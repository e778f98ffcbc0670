//! What one gateway says at `/metrics` of what it has read and failed to deliver: what a canary is judged by.

use super::exposition::lines;
use sluice_plan::rollout::Counted;

/// Counters of a gateway that count what it failed to deliver.
const FAILURES: [&str; 2] =
    ["sluice_gateway_insert_failures_total", "sluice_gateway_dead_letters_refused_total"];
/// Counter of messages that cannot be read.
const REJECTED: [&str; 1] = ["sluice_gateway_messages_rejected_total"];
/// Counter of messages that were read.
const READ: [&str; 1] = ["sluice_gateway_messages_total"];
/// Numbers up to here are exact in a float.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Reads an answer; what is not said counts as 0.
pub fn read(text: &str) -> Counted {
    Counted { failures: sum(text, &FAILURES), rejected: sum(text, &REJECTED), read: sum(text, &READ) }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the value is checked first")]
fn sum(text: &str, names: &[&str]) -> u64 {
    let counters = lines(text).filter(|line| names.contains(&line.name));
    let whole = counters.map(|line| line.value).filter(|value| (0.0..EXACT_MAX).contains(value));
    whole.fold(0, |sum: u64, value| sum.saturating_add(value as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_all_classes_are_counted() {
        let text = "sluice_gateway_insert_failures_total{class=\"retry\"} 2\nsluice_gateway_insert_failures_total{class=\"x\"} 3\n\
                    sluice_gateway_messages_rejected_total{reason=\"malformed\"} 5\nsluice_gateway_messages_total 9\n";
        assert_eq!(read(text), Counted { failures: 5, rejected: 5, read: 9 });
        assert_eq!(read(""), Counted::default());
    }
}
