//! What unsent ranges wait for.
//!
//! Owner: [`Ranges`]. The committer asks how soon a commit is needed; the watchdog asks whether the plan makes progress.

use super::{CUTS_MAX, Now, Ranges, flight::Progress};

/// What the first unsent range waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// The first commit of this generation.
    FirstCommit,
    /// A commit with its end among the cuts.
    PlanCommit,
    /// A commit that raises the horizon to its end.
    Horizon,
    /// Room in the plan.
    CutsFull,
    /// A commit that proves that this process is still a member.
    Proof,
    /// A rule change: all earlier ranges must be settled first.
    Switch,
}

impl Ranges {
    /// What the first unsent range waits for; `None` if there is none.
    pub fn waits_for(&self, now: Now) -> Option<Wait> {
        if self.switches() && self.tail >= self.inherited.horizon {
            let unsent = self.flight.iter().any(|range| range.progress == Progress::Cut);
            if !unsent {
                return Some(Wait::Switch);
            }
        }
        if self.flight.is_empty() {
            return None;
        }
        if !self.is_planned {
            return Some(Wait::FirstCommit);
        }
        if self.is_unproved(now) && self.flight.iter().any(|range| range.progress == Progress::Cut) {
            return Some(Wait::Proof);
        }
        let first = self.flight.iter().find(|range| !range.is_planned(self.horizon))?;
        if first.derivable {
            Some(Wait::Horizon)
        } else if first.listed || self.flight.listed().count() + self.ahead.len() < CUTS_MAX {
            Some(Wait::PlanCommit)
        } else {
            Some(Wait::CutsFull)
        }
    }

    /// The start of the first range that waits only for a commit before it may be sent.
    pub fn unplanned(&self, now: Now) -> Option<i64> {
        match self.waits_for(now)? {
            Wait::FirstCommit | Wait::PlanCommit | Wait::Horizon | Wait::Proof => {
                let unsent = self.flight.iter().find(|range| range.progress == Progress::Cut);
                unsent.map(|range| range.range.first).or_else(|| self.flight.first())
            }
            // Both waits end once ranges are settled.
            Wait::CutsFull | Wait::Switch => None,
        }
    }
}
