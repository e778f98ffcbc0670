//! What one gateway says at `/metrics` of the messages that it took from Kafka, and of the rows that it made of them.

use super::{exposition::lines, gateway::MESSAGES};
use sluice_plan::observed::MessagesSeen;
use std::{borrow::Cow, collections::BTreeSet};

const WITHOUT_SPANS: &str = "sluice_gateway_messages_without_spans_total";
const REJECTED: &str = "sluice_gateway_messages_rejected_total";
const ROWS_INSERTED: &str = "sluice_gateway_rows_inserted_total";
const DEAD_LETTERS: &str = "sluice_gateway_dead_letters_total";
const REJECTED_AT: &str = "sluice_gateway_message_rejected_timestamp_seconds";

/// Reasons that are taken over, and bytes of each. A gateway has 8; they stand in a condition, whose message is bounded.
const REASONS_MAX: usize = 16;
const REASON_BYTES_MAX: usize = 32;

/// The reason of dead letters that are rows.
const ROW_REFUSED: &str = "row_refused";

/// Reads an answer; `None` when a gateway of an older version does not say when it rejected a message.
pub fn read(text: &str) -> Option<MessagesSeen> {
    let (mut read, mut without_spans, mut rejected_at) = (None, 0_u64, None);
    let (mut rejected, mut rows_inserted, mut rows_refused) = (0_u64, 0, 0);
    let mut reasons = BTreeSet::new();
    for line in lines(text) {
        match line.name {
            MESSAGES => read = line.whole(),
            WITHOUT_SPANS => without_spans = without_spans.saturating_add(line.whole().unwrap_or(0)),
            REJECTED if line.value > 0.0 => {
                rejected = rejected.saturating_add(line.whole().unwrap_or(0));
                let reason = line.label("reason").filter(|reason| is_word(reason)).map(Cow::into_owned);
                reasons.extend(reason.filter(|_| reasons.len() < REASONS_MAX));
            }
            ROWS_INSERTED => rows_inserted = line.whole().unwrap_or(0),
            DEAD_LETTERS if line.label("reason").as_deref() == Some(ROW_REFUSED) => {
                rows_refused = line.whole().unwrap_or(0);
            }
            REJECTED_AT => rejected_at = line.whole(),
            _ => {}
        }
    }
    let rejected_at = i64::try_from(rejected_at?).ok()?;
    Some(MessagesSeen {
        read: read?,
        without_spans,
        rejected,
        reasons,
        rejected_at: (rejected_at > 0).then_some(rejected_at),
        rows_inserted,
        rows_refused,
    })
}

fn is_word(reason: &str) -> bool {
    reason.len() <= REASON_BYTES_MAX
        && reason.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPORTED: &str = include_str!("../../../../tests/gateway-metrics.txt");

    #[test]
    fn what_a_gateway_exports_is_read() {
        let expected = MessagesSeen {
            read: 1_000,
            without_spans: 12,
            rejected: 3,
            reasons: ["malformed".to_owned()].into(),
            rejected_at: Some(1_700_000_000),
            rows_inserted: 9_000,
            rows_refused: 2,
        };
        assert_eq!(read(EXPORTED), Some(expected));
    }

    #[test]
    fn what_is_not_said_or_no_word_is_not_known() {
        assert_eq!(read(""), None);
        assert_eq!(read(&format!("{MESSAGES} 7\n")), None, "an older gateway");
        let text = format!("{MESSAGES} 7\n{REJECTED_AT} 0\n{REJECTED}{{reason=\"No Word\"}} 1\n");
        let unnamed = MessagesSeen { read: 7, rejected: 1, ..MessagesSeen::default() };
        assert_eq!(read(&text), Some(unnamed));
        let long = "x".repeat(REASON_BYTES_MAX + 1);
        let text = format!("{MESSAGES} 7\n{REJECTED_AT} 1\n{REJECTED}{{reason=\"{long}\"}} 1\n");
        assert_eq!(read(&text).unwrap().reasons, BTreeSet::new());
    }
}
