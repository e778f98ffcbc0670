//! What gateways have counted of the messages that they took from Kafka: whether the topics hold what the spec says. Pure.

use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeSet;

/// A rejected message counts for this many seconds, as long as the alert `SluiceDeadLetters` looks back. Chosen: a producer that sends a
/// few a minute stays visible, and one that was mended does not for long.
const REJECTED_SECONDS: i64 = 15 * 60;

/// What gateways have counted since each of them was started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessagesSeen {
    /// Messages that were read.
    pub read: u64,
    /// Those of them that have no spans.
    pub without_spans: u64,
    /// Why messages were rejected, by the words of the gateway's metric.
    pub reasons: BTreeSet<String>,
    /// When the last one was rejected, in seconds since 1970; `None` without one.
    pub rejected_at: Option<i64>,
}

/// What is wrong with the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreadable {
    /// Some were rejected lately.
    Some,
    /// Some were rejected lately, and none that was read has a span.
    All,
    /// None was rejected lately, and none that was read has a span.
    WithoutSpans,
}

impl MessagesSeen {
    /// With those of another gateway.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.reasons.extend(other.reasons);
        Self {
            read: self.read.saturating_add(other.read),
            without_spans: self.without_spans.saturating_add(other.without_spans),
            reasons: self.reasons,
            rejected_at: self.rejected_at.max(other.rejected_at),
        }
    }

    /// What is wrong with them at this time.
    pub fn unreadable(&self, now: Timestamp) -> Option<Unreadable> {
        let earliest = now.as_second().saturating_sub(REJECTED_SECONDS);
        let is_rejected = self.rejected_at.is_some_and(|at| at >= earliest);
        match (is_rejected, self.read > self.without_spans) {
            (true, true) => Some(Unreadable::Some),
            (true, false) => Some(Unreadable::All),
            (false, false) if self.read > 0 => Some(Unreadable::WithoutSpans),
            (false, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_unreadable_while_some_are_rejected_or_none_has_spans() {
        let now = 1_700_000_000;
        for (read, without_spans, rejected_at, expected) in [
            (0, 0, None, None),
            (5, 0, None, None),
            (5, 4, None, None),
            (5, 5, None, Some(Unreadable::WithoutSpans)),
            (0, 0, Some(now - 1), Some(Unreadable::All)),
            (5, 5, Some(now - 1), Some(Unreadable::All)),
            (5, 0, Some(now - REJECTED_SECONDS), Some(Unreadable::Some)),
            // The clock of a gateway may be ahead.
            (5, 0, Some(now + 30), Some(Unreadable::Some)),
            (5, 0, Some(now - REJECTED_SECONDS - 1), None),
        ] {
            let seen = MessagesSeen { read, without_spans, rejected_at, ..MessagesSeen::default() };
            let found = seen.unreadable(Timestamp::from_second(now).unwrap());
            assert_eq!(found, expected, "{seen:?}");
        }
    }

    #[test]
    fn gateways_count_together() {
        let of = |read, reason: &str, rejected_at| MessagesSeen {
            read,
            without_spans: 1,
            reasons: [reason.to_owned()].into(),
            rejected_at,
        };
        let both = of(5, "malformed", Some(7)).and(of(u64::MAX, "not_traces", None));
        assert_eq!((both.read, both.without_spans, both.rejected_at), (u64::MAX, 2, Some(7)));
        assert_eq!(both.reasons, ["malformed".to_owned(), "not_traces".to_owned()].into());
    }
}
