//! The ranges between their cut and their commit, in the order of the log.
//!
//! ```text
//!  CUT ---------> PLANNED --------> SENT --------> SETTLED --------> (forgotten)
//!      derivable and     released,       its rows are     planned; and at the front,
//!      below the         in order        in               or its end need not be listed
//!      horizon; or in
//!      a commit that
//!      was stored
//! ```
//!
//! Limits: a range that is not settled has a block; the pool and the queue volume bound their number. Settled ranges stay if a range
//! before them is not settled and their ends are listed ([`CUTS_MAX`] at most), or if no commit has covered them yet. Few of the latter
//! come between two commits, since each is as large as a block, or as old.

use super::plan::CUTS_MAX;
use crate::OffsetRange;
use std::collections::VecDeque;

/// The progress of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// It must not be sent yet.
    Cut,
    /// It was released; whether it was stored is unknown.
    Sent,
    /// Its rows are in ClickHouse, or accounted for otherwise; or it has none.
    Settled,
}

/// Whether a stored plan allows sending a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanState {
    /// No stored plan allows it.
    Unplanned,
    /// The commit in flight would allow it.
    Covered,
    /// A stored plan allows it.
    Planned,
}

/// One range.
#[derive(Debug, Clone, Copy)]
pub struct InFlight {
    /// Its offsets.
    pub range: OffsetRange,
    /// Whether its end follows from the found plan and the rule.
    pub derivable: bool,
    /// An owner that has read up to here knows the range. It may be sent only if the horizon is at least this offset.
    pub decided: i64,
    /// Whether its end is among the cuts of every plan from now on.
    pub listed: bool,
    /// Whether a stored plan allows sending it.
    pub standing: PlanState,
    /// How far it is.
    pub progress: Progress,
    /// Seconds since 1970 before which no owner sent it; 0 before it is sent.
    pub since: u64,
}

impl InFlight {
    /// A range that has just ended.
    pub fn new(range: OffsetRange, derivable: bool) -> Self {
        Self {
            range,
            derivable,
            decided: range.next,
            listed: false,
            standing: PlanState::Unplanned,
            progress: Progress::Cut,
            since: 0,
        }
    }

    /// Whether a stored plan allows sending it: it covers the range, or the end is derivable and decided below this horizon.
    pub fn is_planned(&self, horizon: i64) -> bool {
        self.standing == PlanState::Planned || (self.derivable && self.decided <= horizon)
    }

    fn is_over(&self) -> bool {
        self.standing == PlanState::Planned && self.progress == Progress::Settled
    }
}

/// Ranges in the order of the log.
#[derive(Debug, Default)]
pub struct Flight {
    ranges: VecDeque<InFlight>,
}

impl Flight {
    /// All ranges.
    pub fn iter(&self) -> impl Iterator<Item = &InFlight> {
        self.ranges.iter()
    }

    /// All ranges, mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut InFlight> {
        self.ranges.iter_mut()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The start of the lowest range.
    pub fn first(&self) -> Option<i64> {
        self.ranges.front().map(|range| range.range.first)
    }

    /// Adds one behind the others.
    pub fn push(&mut self, range: InFlight) {
        self.ranges.push_back(range);
    }

    /// The range with these offsets.
    pub fn find(&mut self, range: OffsetRange) -> Option<&mut InFlight> {
        let index = self.index(range)?;
        self.ranges.get_mut(index)
    }

    /// Ends that plans list.
    pub fn listed(&self) -> impl Iterator<Item = i64> {
        self.ranges.iter().filter(|range| range.listed).map(|range| range.range.next)
    }

    /// Removes settled ranges. A range that no stored plan covers stays: the ranges behind it start where no other owner would start
    /// them. A range behind an unsettled one stays if its end must be listed for the next reader.
    pub fn forget_settled(&mut self) {
        while self.ranges.front().is_some_and(InFlight::is_over) {
            self.ranges.pop_front();
        }
        self.ranges.retain(|range| range.listed || !range.is_over());
    }

    /// Marks the ranges that the next commit may cover, and lists as many new cuts as there is room for beside `others`. Returns the
    /// offset up to which an owner must have read to know all covered ranges.
    pub fn cover(&mut self, others: usize) -> Option<i64> {
        let mut room = CUTS_MAX.saturating_sub(others + self.listed().count());
        let mut end = None;
        for range in &mut self.ranges {
            if !range.derivable && !range.listed {
                if room == 0 {
                    break;
                }
                room -= 1;
                range.listed = true;
            }
            if range.standing == PlanState::Unplanned {
                range.standing = PlanState::Covered;
            }
            end = end.max(Some(range.decided));
        }
        end
    }

    /// Ends the commit in flight. If it was stored, the ranges that it covered are planned.
    pub fn uncover(&mut self, stored: bool) {
        for range in self.ranges.iter_mut().filter(|range| range.standing == PlanState::Covered) {
            range.standing = if stored { PlanState::Planned } else { PlanState::Unplanned };
        }
    }

    fn index(&self, range: OffsetRange) -> Option<usize> {
        let index = self.ranges.binary_search_by_key(&range.first, |r| r.range.first).ok()?;
        (self.ranges[index].range == range).then_some(index)
    }
}
