//! What one gateway says of the messages that it took from Kafka, and of the rows that it made of them.

use sluice_gateway_config::GatewaySample;
use sluice_plan::observed::MessagesSeen;

/// Reasons that are taken over, and bytes of each. A gateway has 8; they stand in a condition, whose message is bounded.
const REASONS_MAX: usize = 16;
const REASON_BYTES_MAX: usize = 32;

/// Takes it from a sample; `None` when the gateway does not say when it rejected a message.
pub fn read(sample: &GatewaySample) -> Option<MessagesSeen> {
    let rejected_at = i64::try_from(sample.message_rejected_at?).ok()?;
    let rejected = || sample.messages_rejected.iter().filter(|(_, count)| **count > 0);
    let reasons = rejected().map(|(reason, _)| reason).filter(|reason| is_word(reason));
    Some(MessagesSeen {
        read: sample.messages?,
        without_spans: sample.messages_without_spans,
        rejected: rejected().map(|(_, count)| *count).fold(0, u64::saturating_add),
        reasons: reasons.take(REASONS_MAX).cloned().collect(),
        rejected_at: (rejected_at > 0).then_some(rejected_at),
        rows_inserted: sample.rows_inserted,
        rows_refused: sample.rows_refused,
    })
}

fn is_word(reason: &str) -> bool {
    reason.len() <= REASON_BYTES_MAX
        && reason.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_')
}

#[cfg(test)]
mod tests {
    use super::{super::report::tests::exported, *};
    use std::collections::BTreeSet;

    #[test]
    fn what_a_gateway_says_is_read() {
        let expected = MessagesSeen {
            read: 1_000,
            without_spans: 12,
            rejected: 3,
            reasons: ["malformed".to_owned()].into(),
            rejected_at: Some(1_700_000_000),
            rows_inserted: 9_000,
            rows_refused: 2,
        };
        assert_eq!(read(&exported()), Some(expected));
    }

    #[test]
    fn what_is_not_said_or_no_word_is_not_known() {
        assert_eq!(read(&GatewaySample::default()), None);
        let sample = GatewaySample { messages: Some(7), ..GatewaySample::default() };
        assert_eq!(read(&sample), None, "an older gateway");
        let rejecting = |reason: &str| GatewaySample {
            message_rejected_at: Some(0),
            messages_rejected: [(reason.to_owned(), 1)].into(),
            ..sample.clone()
        };
        let unnamed = MessagesSeen { read: 7, rejected: 1, ..MessagesSeen::default() };
        assert_eq!(read(&rejecting("No Word")), Some(unnamed));
        let long = "x".repeat(REASON_BYTES_MAX + 1);
        assert_eq!(read(&rejecting(&long)).unwrap().reasons, BTreeSet::new());
    }
}
