//! Chooses the partitions that are read now, if more are owned than may be read at the same time. Pure.
//!
//! The memory budget is sized for a number of active partitions. But one pod can own all partitions of a topic. Those above the number
//! are paused, and every [`TURN`] others have their turn.

use sluice_ranges::PartitionId;
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

/// How long a turn lasts. Long enough to make resuming cheap: a paused partition discards what was fetched ahead, and fetches it again.
/// Short enough to keep the lag of 64 partitions that take turns by eight within a quarter of a minute.
pub const TURN: Duration = Duration::from_secs(2);

/// Maximum number of turns in a row of a partition that replays. Its open range may not be ended during the replay, so it would keep a
/// row buffer from turn to turn, which the partitions that have their turn need. Sixteen seconds read a gigabyte, far more than lies
/// between a committed offset and its horizon. A partition whose leader is away must not delay the others for longer.
const REPLAY_TURNS_MAX: u32 = 8;

/// The owned partitions, in the order of their turns.
#[derive(Debug)]
pub struct Turns {
    active_max: usize,
    /// The first `active_max` are active.
    order: VecDeque<PartitionId>,
    /// Extra turns of partitions beyond their first.
    kept: BTreeMap<PartitionId, u32>,
}

/// Partitions to pause first, then those to resume.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Change {
    pub pause: Vec<PartitionId>,
    pub resume: Vec<PartitionId>,
}

impl Turns {
    /// Without partitions; at least one may be active.
    pub fn new(active_max: usize) -> Self {
        Self { active_max: active_max.max(1), order: VecDeque::new(), kept: BTreeMap::new() }
    }

    /// Adds partitions behind those that wait. All of them are in the result: librdkafka remembers the pause of a partition that was
    /// owned before, and never forgets it on its own.
    pub fn gained(&mut self, ids: &[PartitionId]) -> Change {
        self.order.extend(ids.iter().cloned());
        let (resume, pause) = ids.iter().cloned().partition(|id| self.active().contains(id));
        Change { pause, resume }
    }

    /// Removes partitions; waiting ones move up.
    pub fn lost(&mut self, ids: &[PartitionId]) -> Change {
        let before = self.active();
        self.order.retain(|id| !ids.contains(id));
        self.kept.retain(|id, _| !ids.contains(id));
        Change {
            pause: Vec::new(),
            resume: self.active().into_iter().filter(|id| !before.contains(id)).collect(),
        }
    }

    /// Ends the turn of the active partitions if others wait. A partition that replays keeps its turn, [for a while](REPLAY_TURNS_MAX).
    pub fn next(&mut self, replays: impl Fn(&PartitionId) -> bool) -> Change {
        if self.order.len() <= self.active_max {
            return Change::default();
        }
        let before = self.active();
        for id in self.order.drain(..self.active_max).collect::<Vec<_>>().into_iter().rev() {
            let turns = self.kept.remove(&id).unwrap_or(0) + 1;
            if replays(&id) && turns < REPLAY_TURNS_MAX {
                self.kept.insert(id.clone(), turns);
                self.order.push_front(id);
            } else {
                self.order.push_back(id);
            }
        }
        let after = self.active();
        Change {
            pause: before.iter().filter(|id| !after.contains(id)).cloned().collect(),
            resume: after.into_iter().filter(|id| !before.contains(id)).collect(),
        }
    }

    /// Whether a partition has its turn.
    pub fn is_active(&self, id: &PartitionId) -> bool {
        self.order.iter().take(self.active_max).any(|active| active == id)
    }

    /// The time in which every partition has a turn; zero if all are active.
    pub fn round(&self) -> Duration {
        let turns = u32::try_from(self.order.len().div_ceil(self.active_max)).unwrap_or(u32::MAX);
        let longest = if self.kept.is_empty() { 1 } else { REPLAY_TURNS_MAX };
        if turns > 1 { TURN.saturating_mul(turns.saturating_mul(longest)) } else { Duration::ZERO }
    }

    fn active(&self) -> Vec<PartitionId> {
        self.order.iter().take(self.active_max).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn ids(partitions: std::ops::Range<i32>) -> Vec<PartitionId> {
        partitions.map(|partition| PartitionId { topic: "spans".into(), partition }).collect()
    }

    #[test]
    fn nothing_is_paused_while_there_is_room() {
        let mut turns = Turns::new(8);
        assert_eq!(turns.gained(&ids(0..8)), Change { pause: vec![], resume: ids(0..8) });
        assert_eq!(turns.next(|_| false), Change::default());
        assert_eq!(turns.round(), Duration::ZERO);
        assert_eq!(turns.gained(&ids(8..10)), Change { pause: ids(8..10), resume: vec![] });
        assert_eq!(turns.round(), 2 * TURN);
        assert!(turns.is_active(&ids(7..8)[0]) && !turns.is_active(&ids(8..9)[0]));
        assert_eq!(turns.lost(&ids(0..1)).resume, ids(8..9));
    }

    #[test]
    fn who_replays_keeps_its_turn_but_not_for_ever() {
        let mut turns = Turns::new(2);
        turns.gained(&ids(0..4));
        let replays = |id: &PartitionId| id.partition == 0;
        assert_eq!(turns.round(), 2 * TURN);
        assert_eq!(turns.next(replays), Change { pause: ids(1..2), resume: ids(2..3) });
        assert_eq!(turns.round(), 2 * TURN * REPLAY_TURNS_MAX);
        for _ in 2..REPLAY_TURNS_MAX {
            turns.next(replays);
            assert!(turns.is_active(&ids(0..1)[0]));
        }
        turns.next(replays);
        assert!(!turns.is_active(&ids(0..1)[0]), "others have theirs");
        turns.next(replays);
        assert!(turns.is_active(&ids(0..1)[0]), "and it has the next one");
    }

    proptest! {
        /// Played against the set of unpaused partitions: never more than allowed, and each one in its turn.
        #[test]
        fn every_partition_has_its_turn_and_never_too_many(count in 1i32..80, active_max in 1usize..16) {
            let mut turns = Turns::new(active_max);
            let all = ids(0..count);
            let mut active: BTreeSet<PartitionId> = all.iter().cloned().collect();
            for id in turns.gained(&all).pause {
                prop_assert!(active.remove(&id));
            }
            let mut seen = BTreeSet::new();
            for _ in 0..=all.len().div_ceil(active_max) {
                prop_assert!(active.len() <= active_max);
                prop_assert_eq!(active.len(), active_max.min(all.len()), "a place is unused");
                seen.extend(active.iter().cloned());
                let Change { pause, resume } = turns.next(|_| false);
                for id in pause {
                    prop_assert!(active.remove(&id));
                }
                for id in resume {
                    prop_assert!(active.insert(id));
                }
            }
            prop_assert_eq!(seen.len(), all.len());
        }
    }
}
