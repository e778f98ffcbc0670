//! What gateways have counted lately ([`crate::observed::message_window`]) of the messages that they took from Kafka, and of the rows that they made
//! of them: whether the topics hold what the spec says, and the table takes it. Pure.

use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeSet;

/// A rejected message counts for this many seconds, as long as the alert `SluiceDeadLetters` looks back. Chosen: a producer that sends a
/// few a minute stays visible, and one that was mended does not for long.
const REJECTED_SECONDS: i64 = 15 * 60;

/// The fewest refused messages or rows that count as all. Chosen: one may be a test.
const REFUSED_MIN: u64 = 3;

/// If at least one of this many messages is refused, it is often. Chosen: one bad producer among many causes less than a tenth.
const OFTEN: u64 = 10;
/// What was often is so until fewer than one of this many is refused: a share around a tenth is not another one with each look. Chosen.
const NO_MORE_OFTEN: u64 = 20;

/// What gateways have counted lately.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessagesSeen {
    /// Messages that were read.
    pub read: u64,
    /// Those of them that have no spans.
    pub without_spans: u64,
    /// Messages that could not be read.
    pub rejected: u64,
    /// Why messages were rejected since each gateway was started, by the words of its metric.
    pub reasons: BTreeSet<String>,
    /// When the last one was rejected, in seconds since 1970; `None` without one.
    pub rejected_at: Option<i64>,
    /// Rows that ClickHouse has taken.
    pub rows_inserted: u64,
    /// Rows that ClickHouse refuses for what is in them: they are dead letters.
    pub rows_refused: u64,
}

/// How much is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// Nothing came lately, as far as this operator has looked: what was said before holds.
    NotKnown,
    Some,
    /// A tenth or more; once that was so, a twentieth or more.
    Often,
    /// Some, and nothing is taken.
    All,
}

/// What is wrong with the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreadable {
    /// The share that was rejected lately. A message without a span is not counted.
    Rejected(Share),
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
            rejected: self.rejected.saturating_add(other.rejected),
            reasons: self.reasons,
            rejected_at: self.rejected_at.max(other.rejected_at),
            rows_inserted: self.rows_inserted.saturating_add(other.rows_inserted),
            rows_refused: self.rows_refused.saturating_add(other.rows_refused),
        }
    }

    /// What is wrong with them at this time. `was_often` tells that messages were rejected often at the last look.
    pub fn unreadable(&self, now: Timestamp, was_often: bool) -> Option<Unreadable> {
        let earliest = now.as_second().saturating_sub(REJECTED_SECONDS);
        let with_spans = self.read.saturating_sub(self.without_spans);
        if self.rejected_at.is_some_and(|at| at >= earliest) {
            return Some(Unreadable::Rejected(Share::of((self.rejected, with_spans), was_often)));
        }
        (self.read > 0 && with_spans == 0).then_some(Unreadable::WithoutSpans)
    }

    /// How many of the rows ClickHouse refuses. It holds until others come. `was_often` tells that it refused them often at the last look.
    pub fn rows_refused(&self, was_often: bool) -> Share {
        Share::of((self.rows_refused, self.rows_inserted), was_often)
    }

    /// Whether no message came lately.
    pub fn is_idle(&self) -> bool {
        self.read == 0 && self.rejected == 0
    }
}

impl Share {
    fn of((refused, taken): (u64, u64), was_often: bool) -> Self {
        if refused == 0 && taken == 0 {
            return Self::NotKnown;
        }
        if taken == 0 && refused >= REFUSED_MIN {
            return Self::All;
        }
        let one_of = if was_often { NO_MORE_OFTEN } else { OFTEN };
        let is_often = refused >= REFUSED_MIN && refused >= refused.saturating_add(taken) / one_of;
        if is_often { Self::Often } else { Self::Some }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_unreadable_while_some_are_rejected_or_none_has_spans() {
        let now = 1_700_000_000;
        let (some, often) = (Unreadable::Rejected(Share::Some), Unreadable::Rejected(Share::Often));
        let all = Unreadable::Rejected(Share::All);
        for (read, without_spans, rejected, rejected_at, expected) in [
            (0, 0, 0, None, None),
            (5, 0, 0, None, None),
            (5, 4, 0, None, None),
            (5, 5, 0, None, Some(Unreadable::WithoutSpans)),
            (0, 0, 3, Some(now - 1), Some(all)),
            (0, 0, 2, Some(now - 1), Some(some)),
            (0, 0, 0, Some(now - 1), Some(Unreadable::Rejected(Share::NotKnown))),
            (5, 5, 3, Some(now - 1), Some(all)),
            (5, 4, 3, Some(now - 1), Some(often)),
            (27, 0, 3, Some(now - 1), Some(often)),
            (37, 0, 3, Some(now - 1), Some(some)),
            (5, 0, 0, Some(now - REJECTED_SECONDS), Some(some)),
            // The clock of a gateway may be ahead.
            (5, 0, 0, Some(now + 30), Some(some)),
            (5, 0, 9, Some(now - REJECTED_SECONDS - 1), None),
        ] {
            let seen = MessagesSeen { read, without_spans, rejected, rejected_at, ..MessagesSeen::default() };
            let found = seen.unreadable(Timestamp::from_second(now).unwrap(), false);
            assert_eq!(found, expected, "{seen:?}");
        }
    }

    #[test]
    fn rows_are_refused_once_it_is_often() {
        for (rows_inserted, rows_refused, expected) in [
            (0, 0, Share::NotKnown),
            (0, 2, Share::Some),
            (0, 3, Share::All),
            (1, 3, Share::Often),
            (27, 3, Share::Often),
            (37, 3, Share::Some),
            (9, 1, Share::Some),
        ] {
            let seen = MessagesSeen { rows_inserted, rows_refused, ..MessagesSeen::default() };
            assert_eq!(seen.rows_refused(false), expected, "{seen:?}");
        }
    }

    #[test]
    fn a_share_around_a_tenth_does_not_change_with_each_look() {
        let mut was_often = false;
        for (refused, taken, expected) in [
            (9, 991, Share::Some),
            (99, 901, Share::Some),
            (100, 900, Share::Often),
            (60, 940, Share::Often),
            (99, 901, Share::Often),
            (50, 950, Share::Often),
            (49, 951, Share::Some),
            (60, 940, Share::Some),
        ] {
            let seen =
                MessagesSeen { rows_inserted: taken, rows_refused: refused, ..MessagesSeen::default() };
            let found = seen.rows_refused(was_often);
            assert_eq!(found, expected, "{refused} of {taken} more, {was_often}");
            was_often = found == Share::Often;
        }
        assert_eq!(Share::of((2, 20), true), Share::Some, "too few");
    }

    #[test]
    fn gateways_count_together() {
        let of = |read, reason: &str, rejected_at| MessagesSeen {
            read,
            without_spans: 1,
            rejected: 2,
            reasons: [reason.to_owned()].into(),
            rejected_at,
            rows_inserted: 3,
            rows_refused: 4,
        };
        let both = of(5, "malformed", Some(7)).and(of(u64::MAX, "not_traces", None));
        assert_eq!((both.read, both.without_spans, both.rejected_at), (u64::MAX, 2, Some(7)));
        assert_eq!((both.rejected, both.rows_inserted, both.rows_refused), (4, 6, 8));
        assert_eq!(both.reasons, ["malformed".to_owned(), "not_traces".to_owned()].into());
    }
}
