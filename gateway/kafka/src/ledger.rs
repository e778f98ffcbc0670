//! Up to where each partition may be committed: never past a range that is not settled.
//!
//! Owned by the poll thread. Ranges of a partition are numbered in the order in which they were read; they may settle in
//! any order, and the position moves over those that are settled without a gap. What arrives under another generation
//! than the current one is ignored.
//!
//! Limits: it remembers one entry per range that settled before an earlier one, and there are at most as many ranges in
//! flight as the pool of chunks allows blocks.

use crate::partition::{Generation, OffsetRange, PartitionId};
use std::collections::BTreeMap;

/// What became of a settled range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It was taken down.
    Recorded,
    /// It belongs to a generation that is over, or to a partition that is not owned.
    Stale,
}

/// Positions of all owned partitions.
#[derive(Debug, Default)]
pub struct Ledger {
    partitions: BTreeMap<PartitionId, Entry>,
    generations: u64,
}

#[derive(Debug)]
struct Entry {
    generation: Generation,
    /// The ordinal of the first range that is not settled.
    settled_up_to: u64,
    /// Ranges that settled before an earlier one, by ordinal.
    settled_ahead: BTreeMap<u64, OffsetRange>,
    /// What may be committed; `None` until a range is settled.
    position: Option<i64>,
    /// What the broker has confirmed, or is about to.
    committed: Option<i64>,
    /// How many ranges there are, once the worker has let the partition go.
    ranges: Option<u64>,
}

impl Ledger {
    /// Begins a new generation of a partition and forgets the one before.
    pub fn gained(&mut self, id: PartitionId) -> Generation {
        self.generations += 1;
        let generation = Generation(self.generations);
        let entry = Entry {
            generation,
            settled_up_to: 0,
            settled_ahead: BTreeMap::new(),
            position: None,
            committed: None,
            ranges: None,
        };
        self.partitions.insert(id, entry);
        generation
    }

    /// The generation under which a partition is owned.
    pub fn generation(&self, id: &PartitionId) -> Option<Generation> {
        self.partitions.get(id).map(|entry| entry.generation)
    }

    /// Every partition that is owned.
    pub fn owned(&self) -> impl Iterator<Item = &PartitionId> {
        self.partitions.keys()
    }

    /// Takes down that a range is settled.
    pub fn settled(
        &mut self,
        id: &PartitionId,
        generation: Generation,
        ordinal: u64,
        range: OffsetRange,
    ) -> Verdict {
        let Some(entry) = self.current(id, generation) else { return Verdict::Stale };
        entry.settled_ahead.insert(ordinal, range);
        while let Some(range) = entry.settled_ahead.remove(&entry.settled_up_to) {
            entry.settled_up_to += 1;
            entry.position = Some(range.next);
        }
        Verdict::Recorded
    }

    /// Takes down that the worker has let a partition go after so many ranges.
    pub fn released(&mut self, id: &PartitionId, generation: Generation, ranges: u64) -> Verdict {
        let Some(entry) = self.current(id, generation) else { return Verdict::Stale };
        entry.ranges = Some(ranges);
        Verdict::Recorded
    }

    /// Whether the worker has let a partition go and every range of it is settled. True for one that is not owned.
    pub fn is_drained(&self, id: &PartitionId) -> bool {
        self.partitions.get(id).is_none_or(|entry| entry.ranges == Some(entry.settled_up_to))
    }

    /// What is to be committed: partitions whose position is ahead of what was committed last.
    pub fn to_commit(&self) -> Vec<(PartitionId, i64)> {
        let ahead = |entry: &Entry| entry.position.filter(|position| entry.committed != Some(*position));
        self.partitions.iter().filter_map(|(id, entry)| Some((id.clone(), ahead(entry)?))).collect()
    }

    /// Takes down what the broker has confirmed. An offset that is not the partition's position any more is not wrong:
    /// the position has moved on since, and is committed next.
    pub fn committed(&mut self, id: &PartitionId, offset: i64) {
        if let Some(entry) = self.partitions.get_mut(id) {
            entry.committed = Some(offset);
        }
    }

    /// Ends the ownership of a partition.
    pub fn lost(&mut self, id: &PartitionId) {
        self.partitions.remove(id);
    }

    fn current(&mut self, id: &PartitionId, generation: Generation) -> Option<&mut Entry> {
        self.partitions.get_mut(id).filter(|entry| entry.generation == generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(partition: i32) -> PartitionId {
        PartitionId { topic: "spans".into(), partition }
    }

    fn range(ordinal: u64) -> OffsetRange {
        let first = 100 + 10 * i64::try_from(ordinal).unwrap();
        OffsetRange { first, next: first + 10 }
    }

    #[test]
    fn the_position_waits_for_the_range_in_front() {
        let mut ledger = Ledger::default();
        let generation = ledger.gained(id(0));
        ledger.settled(&id(0), generation, 1, range(1));
        assert_eq!(ledger.to_commit(), []);
        ledger.settled(&id(0), generation, 0, range(0));
        assert_eq!(ledger.to_commit(), [(id(0), 120)]);
        ledger.committed(&id(0), 120);
        assert_eq!(ledger.to_commit(), []);
    }

    #[test]
    fn a_stale_generation_never_moves_an_offset() {
        let mut ledger = Ledger::default();
        let old = ledger.gained(id(0));
        ledger.lost(&id(0));
        assert_eq!(ledger.settled(&id(0), old, 0, range(0)), Verdict::Stale);
        let new = ledger.gained(id(0));
        assert_eq!(ledger.settled(&id(0), old, 0, range(0)), Verdict::Stale);
        assert_eq!(ledger.released(&id(0), old, 1), Verdict::Stale);
        assert_eq!(ledger.to_commit(), []);
        assert_eq!(ledger.settled(&id(0), new, 0, range(5)), Verdict::Recorded);
        assert_eq!(ledger.to_commit(), [(id(0), 160)]);
    }

    #[test]
    fn a_partition_is_drained_when_every_range_is_settled() {
        let mut ledger = Ledger::default();
        let generation = ledger.gained(id(0));
        assert!(!ledger.is_drained(&id(0)), "the worker still reads it");
        ledger.settled(&id(0), generation, 0, range(0));
        ledger.released(&id(0), generation, 2);
        assert!(!ledger.is_drained(&id(0)), "one range is in flight");
        ledger.settled(&id(0), generation, 1, range(1));
        assert!(ledger.is_drained(&id(0)));
        assert!(ledger.is_drained(&id(7)), "nothing is owed of what is not owned");
    }

    proptest! {
        /// Against a naive model: the commit position is the end of the longest settled prefix.
        #[test]
        fn commit_never_passes_an_unsettled_range(order in Just((0u64..40).collect::<Vec<_>>()).prop_shuffle(), cut in 0usize..40) {
            let mut ledger = Ledger::default();
            let generation = ledger.gained(id(3));
            let mut settled = std::collections::BTreeSet::new();
            for ordinal in &order[..cut] {
                ledger.settled(&id(3), generation, *ordinal, range(*ordinal));
                settled.insert(*ordinal);
                let prefix = (0..40).take_while(|o| settled.contains(o)).count();
                let expected: Vec<_> = (prefix > 0).then(|| (id(3), range(prefix as u64 - 1).next)).into_iter().collect();
                prop_assert_eq!(ledger.to_commit(), expected);
            }
        }
    }
}
