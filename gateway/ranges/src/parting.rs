//! The ranges of one partition that go in parts, and what of that is in a stored plan.
//!
//! Owner: [`super::Ranges`]. Limits: [`PARTED_MAX`] are in a plan; others wait until ranges in front of them are settled.

use super::{
    flight::PlanState,
    parts::{PARTED_MAX, Parted, RefusedParts},
};
use crate::OffsetRange;
use std::collections::BTreeMap;

/// By the first offset of their range.
#[derive(Debug, Default)]
pub struct Partings(BTreeMap<i64, Parting>);

#[derive(Debug)]
struct Parting {
    range: OffsetRange,
    parts: RefusedParts,
    /// Whether every plan from now on names it: one may be stored that does.
    is_listed: bool,
    /// Whether a plan that was stored says it as it is here.
    standing: PlanState,
    /// Whether that was told.
    is_told: bool,
}

impl Partings {
    /// What the plan says that was found, as far as the log is there: a range that lost its beginning is another one.
    pub fn found(parted: &[Parted], first: i64) -> Self {
        let there = parted.iter().filter(|parted| parted.range.first >= first);
        let parting = |Parted { range, parts }: &Parted| Parting {
            range: *range,
            parts: parts.clone(),
            is_listed: true,
            standing: PlanState::Planned,
            is_told: true,
        };
        Self(there.map(|parted| (parted.range.first, parting(parted))).collect())
    }

    /// A range goes in parts, or is further.
    pub fn ask(&mut self, range: OffsetRange, parts: RefusedParts) {
        let is_listed = self.0.get(&range.first).is_some_and(|known| known.is_listed);
        let parting = Parting { range, parts, is_listed, standing: PlanState::Unplanned, is_told: false };
        self.0.insert(range.first, parting);
    }

    /// How far a range is of which a stored plan says that it goes in parts.
    pub fn of(&self, range: OffsetRange) -> Option<RefusedParts> {
        let parting = self.0.get(&range.first)?;
        (parting.range == range && parting.standing == PlanState::Planned).then(|| parting.parts.clone())
    }

    /// Whether one waits for a commit, which has room for it. Everything below `offset` is settled.
    pub fn wait(&self, offset: i64) -> bool {
        let unplanned = self.0.values().filter(|parting| parting.standing == PlanState::Unplanned);
        let listed = self.listed_above(offset);
        unplanned.into_iter().any(|parting| parting.is_listed || has_room(parting, listed, offset))
    }

    /// Marks what the next commit says; its offset is `offset`. Forgets ranges that begin below it: each is settled, or Kafka has deleted its
    /// beginning.
    pub fn cover(&mut self, offset: i64) {
        self.0.retain(|first, _| *first >= offset);
        let mut listed = self.listed_above(offset);
        for parting in self.0.values_mut() {
            if !parting.is_listed && has_room(parting, listed, offset) {
                parting.is_listed = true;
                listed += 1;
            }
            if parting.is_listed && parting.standing == PlanState::Unplanned {
                parting.standing = PlanState::Covered;
            }
        }
    }

    /// What every plan says.
    pub fn listed(&self) -> Vec<Parted> {
        let listed = self.0.values().filter(|parting| parting.is_listed);
        listed.map(|parting| Parted { range: parting.range, parts: parting.parts.clone() }).collect()
    }

    /// Ends the commit in flight.
    pub fn uncover(&mut self, stored: bool) {
        for parting in self.0.values_mut().filter(|parting| parting.standing == PlanState::Covered) {
            parting.standing = if stored { PlanState::Planned } else { PlanState::Unplanned };
        }
    }

    /// Those of which a stored plan says it since the last question.
    pub fn told(&mut self) -> Vec<OffsetRange> {
        let new = |parting: &&mut Parting| parting.standing == PlanState::Planned && !parting.is_told;
        let told = self.0.values_mut().filter(new);
        told.map(|parting| {
            parting.is_told = true;
            parting.range
        })
        .collect()
    }

    fn listed_above(&self, offset: i64) -> usize {
        self.0.range(offset..).filter(|(_, parting)| parting.is_listed).count()
    }
}

/// Whether a plan can name one more. The last place is for the range that holds up all others: they may wait for it, not it for them.
fn has_room(parting: &Parting, listed: usize, offset: i64) -> bool {
    let room = if parting.range.first == offset { PARTED_MAX } else { PARTED_MAX - 1 };
    listed < room
}
