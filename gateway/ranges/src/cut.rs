//! Where a range ends, and why: the worker's half of planned ranges.
//!
//! Place in the flow: a worker calls [`Cutter::offer`] before it encodes a message and [`Cutter::take`] after. Each [`Closed`] goes to
//! [`super::Ranges`] on the poll thread. Its block goes to delivery, which holds it until it is released. Owner: the worker that owns the
//! partition. Per message: one hash over the value, no allocation, no clock.
//!
//! The rules:
//! - A range ends at the next planned cut or where the size rule says, whichever comes first.
//! - Below the horizon of the found plan (while [`Cutter::is_replaying`]) no range ends by time: an earlier owner may have sent a range
//!   across that place, or may still do so. The horizon never lies above the end of the log, so this lasts only until the log is read up to
//!   it.
//! - Before a rule change, ranges end by the old rule up to the horizon, and the range across it is cut there. No message is taken until
//!   the partition restarts.

use super::{
    rule::{Fill, Rule},
    token::{Content, Digest},
};
use crate::OffsetRange;
use std::collections::VecDeque;

/// Why a range ends where it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// By the size rule: any reader of the log finds the same place.
    Size,
    /// By a cut of the plan that was found.
    Planned,
    /// Its block was to be sent (by age, or because memory is short), or only offsets without messages follow; must be planned.
    Time,
    /// Its rows would not fit a block, or the server cannot accept them at once; must be planned.
    Split,
    /// Another rule starts here; must be planned.
    Switch,
    /// By the size rule, but Kafka lost messages of the range or before it. An owner that has read them finds another place; must be
    /// planned.
    Hole,
}

impl Cut {
    /// Whether the next owner finds this place without a plan.
    pub fn is_derivable(self) -> bool {
        matches!(self, Self::Size | Self::Planned)
    }
}

/// A range that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed {
    /// Its offsets. `first` is the end of the previous range, whether or not there is a message.
    pub range: OffsetRange,
    /// Why it ends there.
    pub cut: Cut,
    /// The offset behind the message that decided the end: the range's last message, or the next one if the rule ends a range in front of
    /// it. An owner that has read up to here knows the range.
    pub decided: i64,
    /// Its size. A range without messages has nothing to send, and is settled at once.
    pub fill: Fill,
    /// Its messages' values.
    pub content: Content,
    /// Whether an earlier owner may have sent a longer range of its messages: it was cut short, or Kafka has deleted the beginning of that
    /// range; or the same range under another token, with another id of the cluster. Its rows may be inserted twice.
    pub doubtful: bool,
    /// Ranges that begin below this offset are doubtful; 0 if none are.
    pub doubtful_up_to: i64,
    /// Whether Kafka had lost messages of it. Another owner, who has read them, has other content under the same offsets.
    pub incomplete: bool,
    /// The rule in force.
    pub rule: Rule,
}

/// What to do with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// Put it into the open range, then call [`Cutter::take`].
    Take,
    /// This range ends before the message. Then offer the message again.
    Close(Closed),
    /// It was taken before: skip it.
    Seen,
    /// Keep it: a rule change is due.
    Hold,
}

/// Offsets that Kafka no longer had when they should have been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overtaken {
    /// Offsets that were not read, from the position to the start of the log; at most that many messages.
    pub lost: OffsetRange,
    /// Offsets whose rows may be stored twice: an earlier owner may have cut them elsewhere. Empty if there are none.
    pub doubtful: OffsetRange,
    /// Where the open range begins now.
    pub first: i64,
}

/// Decides the cuts of one partition in one generation.
#[derive(Debug)]
pub struct Cutter {
    rule: Rule,
    /// Cuts of the found plan that are ahead of the position.
    planned: VecDeque<i64>,
    /// The horizon of the plan that was found.
    horizon: i64,
    /// The end of a log that was longer for an earlier owner.
    log_end: Option<i64>,
    /// Whether another rule starts at the horizon.
    switches: bool,
    /// Where the open range begins.
    first: i64,
    /// Behind the last message taken.
    position: i64,
    /// No message lies between the position and this offset.
    passed: i64,
    fill: Fill,
    content: Content,
    /// Whether Kafka lost messages of the open range, or before it.
    is_holed: bool,
    /// Where the log began when messages were lost; 0 if none were.
    lost_up_to: i64,
    /// Whether an earlier owner may have sent messages of the open range in another range.
    is_doubtful: bool,
    /// Ranges that begin below this offset may have been sent by an earlier owner in others, which began with messages that Kafka has
    /// deleted, or under other tokens; 0 if there are none.
    doubtful_up_to: i64,
}

/// How a cutter starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Beginning {
    pub rule: Rule,
    pub first: i64,
    pub planned: Vec<i64>,
    pub horizon: i64,
    /// The end of the log, if an earlier owner has read further.
    pub log_end: Option<i64>,
    /// Ranges that begin below it are doubtful.
    pub doubtful_up_to: i64,
    /// Of those, the ones that begin here are not, if they keep the token that was made with the cluster's former id. Empty if the id is the
    /// same.
    pub renamed: OffsetRange,
    pub switches: bool,
}

impl Cutter {
    pub(super) fn new(beginning: Beginning) -> Self {
        let Beginning { rule, first, planned, horizon, log_end, doubtful_up_to, switches, .. } = beginning;
        Self {
            rule,
            planned: planned.into(),
            horizon,
            log_end,
            switches,
            first,
            position: first,
            passed: first,
            fill: Fill::default(),
            content: Content::default(),
            is_holed: false,
            lost_up_to: 0,
            is_doubtful: false,
            doubtful_up_to,
        }
    }

    /// Skips ranges up to here: they are taken over from an earlier run.
    pub(super) fn skip(&mut self, next: i64) {
        self.planned.retain(|cut| *cut > next);
        (self.first, self.position) = (next, next);
        self.passed = self.passed.max(next);
    }

    /// Where reading continues: behind the last message taken.
    pub fn position(&self) -> i64 {
        self.position
    }

    /// The size of the open range.
    pub fn fill(&self) -> Fill {
        self.fill
    }

    /// Whether no range may end by time yet.
    pub fn is_replaying(&self) -> bool {
        self.position.max(self.passed) < self.horizon
    }

    /// The open range while it may not end by time, and the offset up to which the log must be read first.
    pub fn held(&self) -> Option<(OffsetRange, i64)> {
        let held = OffsetRange { first: self.first, next: self.position };
        (self.fill.messages > 0 && self.is_replaying()).then_some((held, self.horizon))
    }

    /// Whether no message is taken until the partition restarts under another rule.
    pub fn is_holding(&self) -> bool {
        self.switches && self.first >= self.horizon
    }

    /// What to do with the next message, whose value has this many bytes.
    pub fn offer(&mut self, offset: i64, bytes: u64) -> Offer {
        if offset < self.position {
            return Offer::Seen;
        }
        if self.is_holding() {
            return Offer::Hold;
        }
        // No message lies between the position and this message: planned cuts there are reached.
        if let Some(cut) = self.planned.front().copied().filter(|cut| *cut <= offset) {
            self.planned.pop_front();
            return Offer::Close(self.close(cut, Cut::Planned));
        }
        if self.switches && offset >= self.horizon {
            return Offer::Close(self.close(self.position.max(self.horizon), Cut::Switch));
        }
        if self.rule.ends_before(self.fill, bytes) {
            let closed = self.close(self.position, Cut::Size);
            return Offer::Close(Closed { decided: offset + 1, ..closed });
        }
        Offer::Take
    }

    /// Adds a message to the open range.
    ///
    /// # Panics
    /// If the message was not offered.
    pub fn take(&mut self, offset: i64, value: Option<&[u8]>) -> Option<Closed> {
        self.take_digest(offset, Digest::of(value))
    }

    /// Adds a message whose value is no longer available.
    ///
    /// # Panics
    /// If the message was not offered.
    pub fn take_digest(&mut self, offset: i64, value: Digest) -> Option<Closed> {
        assert!(offset >= self.position, "a message is offered before it is taken");
        self.position = offset + 1;
        self.fill.add(value.bytes());
        self.content = self.content.with(value);
        if self.planned.front() == Some(&self.position) {
            self.planned.pop_front();
            return Some(self.close(self.position, Cut::Planned));
        }
        if self.rule.ends_after(self.fill) {
            return Some(self.close(self.position, Cut::Size));
        }
        let switch = self.switches && self.position >= self.horizon;
        switch.then(|| self.close(self.position, Cut::Switch))
    }

    /// Ends the open range so that it can be sent. `None` if it is empty, or must not end yet.
    pub fn flush(&mut self) -> Option<Closed> {
        if self.fill.messages == 0 || self.is_replaying() {
            return None;
        }
        // A planned cut can lie in a gap behind the last message; it is reached, since the position is past it.
        Some(match self.planned.pop_front() {
            Some(cut) => self.close(cut, Cut::Planned),
            None => self.close(self.position.max(self.passed), Cut::Time),
        })
    }

    /// Ends the open range before a message whose rows do not fit the block. `None` if the range is empty: then the message fits no
    /// block.
    pub fn split(&mut self) -> Option<Closed> {
        (self.fill.messages > 0).then(|| {
            if self.is_replaying() {
                // The ranges behind it begin elsewhere, too.
                let next = doubtful_up_to(self.position, &self.planned, self.horizon);
                self.doubtful_up_to = self.doubtful_up_to.max(next);
            }
            self.close(self.position, Cut::Split)
        })
    }

    /// Records that no message lies between the position and this offset, the current end of the log. The consumer must have read to that
    /// end. Otherwise control records before the horizon would never be passed, and those behind the last message never committed: the
    /// group's lag would stay above 0 until another message arrives. Must be called until it returns no range.
    pub fn caught_up(&mut self, offset: i64) -> Option<Closed> {
        self.passed = self.passed.max(offset);
        if self.is_holding() || self.is_replaying() {
            return None;
        }
        // The open range ends by time, and these offsets with it.
        if !self.switches && (self.fill.messages > 0 || self.passed <= self.position) {
            return None;
        }
        Some(match self.planned.pop_front() {
            Some(cut) => self.close(cut, Cut::Planned),
            None if self.switches => self.close(self.position.max(self.horizon), Cut::Switch),
            None => self.close(self.passed, Cut::Time),
        })
    }

    /// Records that the log now starts here. `None` if that is not above the position.
    pub fn overtaken(&mut self, log_start: i64) -> Option<Overtaken> {
        if log_start <= self.position {
            return None;
        }
        let replaying = self.is_replaying();
        let doubtful = if replaying {
            let next = doubtful_up_to(log_start, &self.planned, self.horizon);
            OffsetRange { first: self.first, next }
        } else {
            OffsetRange { first: log_start, next: log_start }
        };
        let lost = OffsetRange { first: self.position, next: log_start };
        if self.fill.messages == 0 && self.planned.front().is_none_or(|cut| *cut > log_start) {
            self.first = log_start;
        }
        self.is_holed = true;
        self.lost_up_to = log_start;
        if replaying {
            self.doubtful_up_to = self.doubtful_up_to.max(doubtful.next);
        }
        self.position = log_start;
        Some(Overtaken { lost, doubtful, first: self.first })
    }

    /// Continues under another rule, from the cut at which it holds: the model's short form of a partition that restarts.
    #[cfg(test)]
    pub fn adopt(&mut self, rule: Rule) {
        assert!(self.is_holding(), "another rule begins at the cut that was made for it");
        self.rule = rule;
        self.switches = false;
    }

    fn close(&mut self, next: i64, cut: Cut) -> Closed {
        let range = OffsetRange { first: self.first, next };
        let holed = std::mem::take(&mut self.is_holed) && cut == Cut::Size;
        // An earlier owner may have sent messages before the end together with some that are lost.
        if let Some(end) = self.log_end.take_if(|end| next >= *end) {
            self.is_doubtful |= range.first < end && (next > end || !cut.is_derivable());
        }
        if self.is_doubtful {
            // The next owner finds it ended here by plan.
            self.doubtful_up_to = self.doubtful_up_to.max(range.first + 1);
        }
        let doubtful = std::mem::take(&mut self.is_doubtful) || range.first < self.doubtful_up_to;
        self.first = next;
        self.position = self.position.max(next);
        Closed {
            range,
            cut: if holed { Cut::Hole } else { cut },
            decided: next,
            fill: std::mem::take(&mut self.fill),
            content: std::mem::take(&mut self.content),
            doubtful,
            doubtful_up_to: self.doubtful_up_to,
            incomplete: range.first < self.lost_up_to,
            rule: self.rule,
        }
    }
}

/// The offset up to which an earlier owner's cuts may differ, if the log now starts in the middle of its ranges: the next planned cut, or
/// the horizon.
pub(super) fn doubtful_up_to<'a>(
    log_start: i64,
    planned: impl IntoIterator<Item = &'a i64>,
    horizon: i64,
) -> i64 {
    planned.into_iter().copied().find(|cut| *cut >= log_start).unwrap_or(horizon).max(log_start)
}
