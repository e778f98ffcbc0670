//! The ranges of one partition that are sent in parts, and which of their parts are in a stored plan.
//!
//! Owner: [`super::Ranges`]. Limits: [`PARTED_MAX`] are in a plan; others wait until earlier ranges are settled.

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
    /// Whether every later plan names it: a plan that does may be stored already.
    is_listed: bool,
    /// Whether a stored plan contains exactly this state.
    standing: PlanState,
    /// Whether that was reported.
    is_told: bool,
}

impl Partings {
    /// The ranges in parts of the found plan, as far as the log still has them: a range that lost its beginning is another one.
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

    /// Drops found ranges that are none: this one was cut across them. Ranges that end by size shift when the first one loses its beginning.
    pub fn cut(&mut self, range: OffsetRange) {
        self.0.retain(|first, parting| {
            *first >= range.next || parting.range == range || parting.range.next <= range.first
        });
    }

    /// Adds a range that is sent in parts, or its new refused parts.
    pub fn ask(&mut self, range: OffsetRange, parts: RefusedParts) {
        let is_listed = self.0.get(&range.first).is_some_and(|known| known.is_listed);
        let parting = Parting { range, parts, is_listed, standing: PlanState::Unplanned, is_told: false };
        self.0.insert(range.first, parting);
    }

    /// The refused parts of a range in a stored plan.
    pub fn of(&self, range: OffsetRange) -> Option<RefusedParts> {
        let parting = self.0.get(&range.first)?;
        (parting.range == range && parting.standing == PlanState::Planned).then(|| parting.parts.clone())
    }

    /// Whether a range waits for a commit that has room for it. Everything below `offset` is settled.
    pub fn wait(&self, offset: i64) -> bool {
        let unplanned = self.0.values().filter(|parting| parting.standing == PlanState::Unplanned);
        let listed = self.listed_above(offset);
        unplanned.into_iter().any(|parting| parting.is_listed || has_room(parting, listed, offset))
    }

    /// Marks what the next commit, at `offset`, contains. Drops ranges that start below `offset`: each is settled, or Kafka has deleted
    /// its beginning.
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

    /// The ranges in parts for a plan.
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

    /// Ranges that became part of a stored plan since the last call.
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

/// Whether a plan can name one more. The last place is reserved for the range that blocks all others.
fn has_room(parting: &Parting, listed: usize, offset: i64) -> bool {
    let room = if parting.range.first == offset { PARTED_MAX } else { PARTED_MAX - 1 };
    listed < room
}
