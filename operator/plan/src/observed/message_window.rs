//! What a gateway has counted lately, from its counters since its start. Pure; its owner is the code that reads the gateways.
//!
//! While messages come, a window begins at a look that is between one and two times [`WINDOW_MS`] ago. While none come it does not move, so
//! that a condition about the last messages stays. The first window begins with the first look at a gateway; after a restart, with its start.

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

/// The window of one gateway.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MessageWindow {
    /// Where it begins.
    begins: Counts,
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
            None => Self { begins: counts, next: Some((now, counts)), last: (now, counts) },
            Some((at, next)) if counts.continues(self.last.1) => {
                let is_over = now.0.abs_diff(at.0) >= WINDOW_MS && counts != next;
                let (begins, next) = if is_over { (next, (now, counts)) } else { (self.begins, (at, next)) };
                Self { begins, next: Some(next), last: (changed, counts) }
            }
            Some(_) => Self { begins: Counts::default(), next: Some((now, counts)), last: (now, counts) },
        };
        let begins = after.begins;
        let lately = MessagesSeen {
            read: counts.read - begins.read,
            without_spans: counts.without_spans - begins.without_spans,
            rejected: counts.rejected - begins.rejected,
            rows_inserted: counts.rows_inserted - begins.rows_inserted,
            rows_refused: counts.rows_refused - begins.rows_refused,
            ..counted
        };
        (after, lately)
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
    let of_now = all.into_iter().filter(|(window, _)| is_of_now(window));
    of_now.map(|(_, lately)| lately).reduce(MessagesSeen::and)
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

    /// What is said to have been read and rejected lately, after looks at these numbers so many minutes after the first.
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
            (&[(0, 100, 0), (4, 100, 9)], (0, 9)),
            (&[(0, 100, 0), (1, 150, 0), (5, 150, 9)], (50, 9)),
            // From here on all are rejected, and after two windows nothing else is known.
            (&[(0, 100, 0), (1, 150, 0), (5, 150, 9), (10, 150, 20)], (0, 11)),
            (&[(0, 100, 0), (1, 150, 0), (5, 150, 9), (10, 150, 20), (15, 150, 30)], (0, 10)),
            // Nothing comes: what was said of the last ones is still said.
            (&[(0, 100, 0), (5, 100, 9), (90, 100, 9)], (0, 9)),
            // It was started again.
            (&[(0, 100, 0), (5, 100, 9), (6, 2, 1)], (2, 1)),
            (&[(0, 100, 0), (5, 100, 9), (6, 2, 1), (7, 3, 1)], (3, 1)),
        ] {
            assert_eq!(after(looks), expected, "{looks:?}");
        }
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
