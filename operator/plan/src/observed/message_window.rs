//! What a gateway has counted lately, from its counters since its start. Pure; its owner is the code that reads the gateways.
//!
//! While messages come, a window begins at a look that is between one and two times [`WINDOW_MS`] ago. While none come it does not move, so
//! that a condition about the last messages stays. After a restart of the gateway, the window begins with its start.
//!
//! What the gateway counted before the first look at it may be of any time: the operator may have started days later. It is in the first
//! window only if the gateway has taken nothing since its start, no message with a span, or no row. Then all was refused at any time, also
//! lately. While it is not known whether another gateway took something lately, it does not count either.

use crate::{ground::moment::Moment, observed::MessagesSeen};

/// Milliseconds after which a window moves on. Chosen: long enough for a few messages a minute to be a share of something, and short enough
/// for a producer that was mended to be seen.
pub const WINDOW_MS: u64 = 5 * 60_000;

/// The numbers of one gateway at a look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    read: u64,
    without_spans: u64,
    rejected: u64,
    rows_inserted: u64,
    rows_refused: u64,
}

/// What gateways have taken at an unknown time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Taken {
    messages: bool,
    rows: bool,
}

/// The window of one gateway.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MessageWindow {
    /// Where it begins.
    begins: Counts,
    /// What of it was counted before the first look; `None` once a later window has begun, or after a restart of the gateway.
    undated: Option<Counts>,
    /// Where the next one begins, and when that was seen.
    next: Option<(Moment, Counts)>,
    /// What was counted at the last look, and when that had changed.
    last: (Moment, Counts),
}

impl MessageWindow {
    /// After another look, and what was counted within it.
    #[must_use]
    pub fn look(self, now: Moment, counted: MessagesSeen) -> (Self, MessagesSeen) {
        let counts = Counts::of(&counted);
        let changed = if counts == self.last.1 { self.last.0 } else { now };
        let after = match self.next {
            None => {
                let begins = counts.where_taken();
                let undated = Some(counts.since(begins));
                Self { begins, undated, next: Some((now, counts)), last: (now, counts) }
            }
            Some((at, next)) if counts.continues(self.last.1) => {
                let is_over = now.0.abs_diff(at.0) >= WINDOW_MS && counts != next;
                let last = (changed, counts);
                if is_over {
                    Self { begins: next, undated: None, next: Some((now, counts)), last }
                } else {
                    Self { next: Some((at, next)), last, ..self }
                }
            }
            Some(_) => Self {
                begins: Counts::default(),
                undated: None,
                next: Some((now, counts)),
                last: (now, counts),
            },
        };
        (after, counts.since(after.begins).seen(counted))
    }

    /// Whether the gateway took messages or rows before the first look, and none since: it may have taken them a moment or days ago.
    fn took_undated(&self) -> Taken {
        let lately = self.last.1.since(self.begins);
        let is_first = self.undated.is_some();
        Taken {
            messages: is_first && self.begins.with_spans() > 0 && lately.with_spans() == 0,
            rows: is_first && self.begins.rows_inserted > 0 && lately.rows_inserted == 0,
        }
    }

    /// What was counted lately, without what was counted before the first look if `others` took such messages or rows.
    fn beside(&self, others: Taken, lately: MessagesSeen) -> MessagesSeen {
        let undated = self.undated.unwrap_or_default();
        let messages = if others.messages { undated } else { Counts::default() };
        let rows = if others.rows { undated } else { Counts::default() };
        let left_out =
            Counts { rows_inserted: rows.rows_inserted, rows_refused: rows.rows_refused, ..messages };
        Counts::of(&lately).since(left_out).seen(lately)
    }

    /// When it last counted something.
    fn changed(&self) -> Moment {
        self.last.0
    }
}

/// What gateways have counted together lately; `None` without any. A gateway that has counted nothing for long, while others have, says
/// nothing of what comes now.
pub fn together<'a>(all: impl Iterator<Item = (&'a MessageWindow, MessagesSeen)>) -> Option<MessagesSeen> {
    let all: Vec<_> = all.collect();
    let newest = all.iter().map(|(window, _)| window.changed()).max_by_key(|moment| moment.0)?;
    let is_of_now = |window: &MessageWindow| newest.0.abs_diff(window.changed().0) <= 2 * WINDOW_MS;
    let of_now: Vec<_> = all.into_iter().filter(|(window, _)| is_of_now(window)).collect();
    let taken = of_now.iter().map(|(window, _)| window.took_undated()).fold(Taken::default(), Taken::or);
    of_now.into_iter().map(|(window, lately)| window.beside(taken, lately)).reduce(MessagesSeen::and)
}

impl Taken {
    fn or(self, other: Self) -> Self {
        Self { messages: self.messages || other.messages, rows: self.rows || other.rows }
    }
}

impl Counts {
    fn of(seen: &MessagesSeen) -> Self {
        Self {
            read: seen.read,
            without_spans: seen.without_spans,
            rejected: seen.rejected,
            rows_inserted: seen.rows_inserted,
            rows_refused: seen.rows_refused,
        }
    }

    /// These numbers in place of the counted ones.
    fn seen(self, counted: MessagesSeen) -> MessagesSeen {
        MessagesSeen {
            read: self.read,
            without_spans: self.without_spans,
            rejected: self.rejected,
            rows_inserted: self.rows_inserted,
            rows_refused: self.rows_refused,
            ..counted
        }
    }

    fn with_spans(self) -> u64 {
        self.read.saturating_sub(self.without_spans)
    }

    /// The numbers of messages if some had spans, and those of rows if some were inserted; otherwise 0.
    fn where_taken(self) -> Self {
        let messages = if self.with_spans() > 0 { self } else { Self::default() };
        let rows = if self.rows_inserted > 0 { self } else { Self::default() };
        Self { rows_inserted: rows.rows_inserted, rows_refused: rows.rows_refused, ..messages }
    }

    /// What was counted since then. No number is smaller than then.
    fn since(self, then: Self) -> Self {
        Self {
            read: self.read.saturating_sub(then.read),
            without_spans: self.without_spans.saturating_sub(then.without_spans),
            rejected: self.rejected.saturating_sub(then.rejected),
            rows_inserted: self.rows_inserted.saturating_sub(then.rows_inserted),
            rows_refused: self.rows_refused.saturating_sub(then.rows_refused),
        }
    }

    /// Whether a gateway can have counted on from there: one that was started again counts from nothing.
    fn continues(self, before: Self) -> bool {
        self.read >= before.read
            && self.without_spans >= before.without_spans
            && self.rejected >= before.rejected
            && self.rows_inserted >= before.rows_inserted
            && self.rows_refused >= before.rows_refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said to have been read and rejected lately, after looks at these numbers this many minutes after the first.
    fn after(looks: &[(u64, u64, u64)]) -> (u64, u64) {
        let mut window = MessageWindow::default();
        let mut lately = MessagesSeen::default();
        for (minutes, read, rejected) in looks {
            let counted = MessagesSeen { read: *read, rejected: *rejected, ..MessagesSeen::default() };
            (window, lately) = window.look(Moment(1_000_000 + minutes * 60_000), counted);
        }
        (lately.read, lately.rejected)
    }

    #[test]
    fn a_window_moves_on_while_messages_come() {
        for (looks, expected) in [
            // What was counted before the first look may be of any time.
            (&[(0, 100, 0)][..], (0, 0)),
            (&[(0, 100, 5)], (0, 0)),
            (&[(0, 100, 5), (1, 101, 5)], (1, 0)),
            // Nothing else came since the gateway's start: at any time, all was rejected.
            (&[(0, 0, 5)], (0, 5)),
            (&[(0, 0, 5), (9, 0, 5)], (0, 5)),
            (&[(0, 0, 5), (1, 1, 5)], (1, 5)),
            (&[(0, 0, 5), (6, 9, 5)], (9, 0)),
            (&[(0, 100, 0), (4, 100, 9)], (0, 9)),
            (&[(0, 100, 0), (1, 150, 0), (5, 150, 9)], (50, 9)),
            // From here on all are rejected, and after two windows nothing else is known.
            (&[(0, 100, 0), (1, 150, 0), (5, 150, 9), (10, 150, 20)], (0, 11)),
            (&[(0, 100, 0), (1, 150, 0), (5, 150, 9), (10, 150, 20), (15, 150, 30)], (0, 10)),
            // No messages arrive: the report about the last ones still counts.
            (&[(0, 100, 0), (5, 100, 9), (90, 100, 9)], (0, 9)),
            // It was started again.
            (&[(0, 100, 0), (5, 100, 9), (6, 2, 1)], (2, 1)),
            (&[(0, 100, 0), (5, 100, 9), (6, 2, 1), (7, 3, 1)], (3, 1)),
        ] {
            assert_eq!(after(looks), expected, "{looks:?}");
        }
    }

    #[test]
    fn rows_and_messages_without_spans_from_before_the_first_look_count_if_nothing_else_came() {
        let counted = |(read, without_spans, rejected, rows_inserted, rows_refused)| MessagesSeen {
            read,
            without_spans,
            rejected,
            rows_inserted,
            rows_refused,
            ..MessagesSeen::default()
        };
        for (before, expected) in [
            ((5, 5, 3, 0, 0), (5, 5, 3, 0, 0)),
            ((6, 5, 3, 0, 0), (0, 0, 0, 0, 0)),
            // The rows of all messages with spans are refused.
            ((6, 0, 3, 0, 8), (0, 0, 0, 0, 8)),
            ((6, 0, 3, 1, 8), (0, 0, 0, 0, 0)),
            // Rows of blocks that an earlier gateway left on the volume.
            ((0, 0, 3, 9, 1), (0, 0, 3, 0, 0)),
        ] {
            let (_, lately) = MessageWindow::default().look(Moment(1_000_000), counted(before));
            assert_eq!(lately, counted(expected), "{before:?}");
        }
    }

    /// The operator starts again. One gateway has taken messages for days; another has started a moment ago, and rejects what comes to it.
    #[test]
    fn what_was_rejected_before_the_first_look_is_not_all_while_another_may_have_taken_some() {
        let at = |seconds: u64| Moment(1_000_000 + seconds * 1_000);
        let counted = |read, rejected| MessagesSeen { read, rejected, ..MessagesSeen::default() };
        let (old, of_old) = MessageWindow::default().look(at(0), counted(500_000, 40));
        let (new, of_new) = MessageWindow::default().look(at(0), counted(0, 5));
        let both = |old: (&MessageWindow, &MessagesSeen), new: (&MessageWindow, &MessagesSeen)| {
            let all = [(old.0, old.1.clone()), (new.0, new.1.clone())].into_iter();
            let found = together(all).unwrap();
            (found.read, found.rejected)
        };
        assert_eq!(both((&old, &of_old), (&new, &of_new)), (0, 0));
        // What the new one rejects from now on is of now.
        let (later, of_later) = new.look(at(20), counted(0, 8));
        assert_eq!(both((&old, &of_old), (&later, &of_later)), (0, 3));
        // The old one takes messages now.
        let (takes, of_takes) = old.look(at(20), counted(500_100, 40));
        assert_eq!(both((&takes, &of_takes), (&later, &of_later)), (100, 8));
        // One that has taken nothing does not change what is known of the other.
        let (idle, of_idle) = MessageWindow::default().look(at(0), counted(0, 0));
        assert_eq!(both((&idle, &of_idle), (&new, &of_new)), (0, 5));
    }

    #[test]
    fn one_that_has_long_been_idle_says_nothing_of_what_comes_to_others() {
        let at = |minutes: u64| Moment(1_000_000 + minutes * 60_000);
        let counted = |read, rejected| MessagesSeen { read, rejected, ..MessagesSeen::default() };
        let (idle, _) = MessageWindow::default().look(at(0), counted(0, 0));
        let (idle, of_idle) = idle.look(at(1), counted(500, 0));
        let (busy, _) = MessageWindow::default().look(at(1), counted(0, 0));
        for (minutes, expected) in [(11, (500, 9)), (12, (0, 9))] {
            let (busy, of_busy) = busy.look(at(minutes), counted(0, 9));
            let all = [(&idle, of_idle.clone()), (&busy, of_busy)].into_iter();
            let found = together(all).unwrap();
            assert_eq!((found.read, found.rejected), expected, "{minutes}");
        }
        assert_eq!(together(std::iter::empty()), None);
    }
}
