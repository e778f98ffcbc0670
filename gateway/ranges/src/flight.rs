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
//! Limits: a range that is not settled has a block, of which the pool and the queue volume have room for so many; of those that are,
//! [`CUTS_MAX`] whose ends are listed stay behind one that is not, and those that no commit has covered yet: few come between two
//! commits, since each is as large as a block, or as old.

use super::plan::CUTS_MAX;
use crate::OffsetRange;
use std::collections::VecDeque;

/// How far a range is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Nobody may send it yet.
    Cut,
    /// It was released; there is no telling whether it was stored.
    Sent,
    /// Its rows are in, or accounted for otherwise; or it has none.
    Settled,
}

/// Whether a plan that was stored allows to send a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanState {
    /// None does.
    Unplanned,
    /// The commit in flight would.
    Covered,
    /// One does.
    Planned,
}

/// One range.
#[derive(Debug, Clone, Copy)]
pub struct InFlight {
    /// Its offsets.
    pub range: OffsetRange,
    /// Whether its end follows from the plan that was found and the rule.
    pub derivable: bool,
    /// Who has read up to here knows the range; the horizon must be no lower for it to be sent.
    pub decided: i64,
    /// Whether its end is among the cuts of every plan from now on.
    pub listed: bool,
    /// Whether a plan that was stored allows to send it.
    pub standing: PlanState,
    /// How far it is.
    pub progress: Progress,
    /// Seconds since 1970 before which nobody sent it; 0 before it is sent.
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

    /// Whether a stored plan allows to send it: one that names its end, or whose horizon this is.
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
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &InFlight> {
        self.ranges.iter()
    }

    /// All of them, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut InFlight> {
        self.ranges.iter_mut()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Where the lowest begins.
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

    /// Forgets ranges that are settled. One that no stored plan has stays: the ranges behind it begin where nobody else would begin
    /// them. So does one behind another that is not settled, when whoever reads there again must be told where it ends.
    pub fn forget_settled(&mut self) {
        while self.ranges.front().is_some_and(InFlight::is_over) {
            self.ranges.pop_front();
        }
        self.ranges.retain(|range| range.listed || !range.is_over());
    }

    /// Marks what the next commit may cover, listing as many new cuts as there is room for beside `others`. Returns up to
    /// where one must have read to know all that is covered.
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

    /// Ends the commit in flight: what it covered is planned if it was stored.
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
