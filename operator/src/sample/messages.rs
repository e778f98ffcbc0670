//! What one gateway says at `/metrics` of the messages that it took from Kafka.

use super::{exposition::lines, gateway::MESSAGES};
use sluice_plan::observed::MessagesSeen;
use std::{borrow::Cow, collections::BTreeSet};

const WITHOUT_SPANS: &str = "sluice_gateway_messages_without_spans_total";
const REJECTED: &str = "sluice_gateway_messages_rejected_total";
const REJECTED_AT: &str = "sluice_gateway_message_rejected_timestamp_seconds";

/// Reasons that are taken over, and bytes of each. A gateway has 8; they stand in a condition, whose message is bounded.
const REASONS_MAX: usize = 16;
const REASON_BYTES_MAX: usize = 32;

/// Reads an answer; `None` when a gateway of an older version does not say when it rejected a message.
pub fn read(text: &str) -> Option<MessagesSeen> {
    let (mut read, mut without_spans, mut rejected_at) = (None, 0_u64, None);
    let mut reasons = BTreeSet::new();
    for line in lines(text) {
        match line.name {
            MESSAGES => read = line.whole(),
            WITHOUT_SPANS => without_spans = without_spans.saturating_add(line.whole().unwrap_or(0)),
            REJECTED if line.value > 0.0 && reasons.len() < REASONS_MAX => {
                reasons.extend(line.label("reason").filter(|reason| is_word(reason)).map(Cow::into_owned));
            }
            REJECTED_AT => rejected_at = line.whole(),
            _ => {}
        }
    }
    let rejected_at = i64::try_from(rejected_at?).ok()?;
    Some(MessagesSeen {
        read: read?,
        without_spans,
        reasons,
        rejected_at: (rejected_at > 0).then_some(rejected_at),
    })
}

fn is_word(reason: &str) -> bool {
    reason.len() <= REASON_BYTES_MAX
        && reason.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPORTED: &str = include_str!("../../tests/gateway-metrics.txt");

    #[test]
    fn what_a_gateway_exports_is_read() {
        let expected = MessagesSeen {
            read: 1_000,
            without_spans: 12,
            reasons: ["malformed".to_owned()].into(),
            rejected_at: Some(1_700_000_000),
        };
        assert_eq!(read(EXPORTED), Some(expected));
    }

    #[test]
    fn what_is_not_said_or_no_word_is_not_known() {
        assert_eq!(read(""), None);
        assert_eq!(read(&format!("{MESSAGES} 7\n")), None, "an older gateway");
        let text = format!("{MESSAGES} 7\n{REJECTED_AT} 0\n{REJECTED}{{reason=\"No Word\"}} 1\n");
        assert_eq!(read(&text), Some(MessagesSeen { read: 7, ..MessagesSeen::default() }));
        let long = "x".repeat(REASON_BYTES_MAX + 1);
        let text = format!("{MESSAGES} 7\n{REJECTED_AT} 1\n{REJECTED}{{reason=\"{long}\"}} 1\n");
        assert_eq!(read(&text).unwrap().reasons, BTreeSet::new());
    }
}
