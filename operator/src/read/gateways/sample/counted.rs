//! What a canary is judged by, of what one gateway says.

use sluice_gateway_config::GatewaySample;
use sluice_plan::rollout::Counted;

/// Takes it from a sample; what is not said counts as 0.
pub fn read(sample: &GatewaySample) -> Counted {
    let failures =
        [sample.insert_failures, sample.insert_failures_of_rows, sample.dead_letters_refused].into_iter();
    Counted {
        failures: failures.fold(0, u64::saturating_add),
        rejected: sample.messages_rejected.values().copied().fold(0, u64::saturating_add),
        read: sample.messages.unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_all_kinds_are_counted() {
        let sample = GatewaySample {
            insert_failures: 2,
            insert_failures_of_rows: 3,
            dead_letters_refused: 4,
            messages_rejected: [("malformed".into(), 5), ("not_traces".into(), 1)].into(),
            messages: Some(9),
            ..GatewaySample::default()
        };
        assert_eq!(read(&sample), Counted { failures: 9, rejected: 6, read: 9 });
        assert_eq!(read(&GatewaySample::default()), Counted::default());
    }
}
