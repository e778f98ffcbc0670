//! A set of span numbers as ranges.
//!
//! Job: say which numbers were acknowledged, or may have been, so that the oracle counts against exactly those. Place in
//! the flow: made by `produce`, read by `oracle`. Limits: as many ranges as there are gaps; a run without failed messages
//! has one.

use std::ops::Range;

use serde::Serialize;

/// Disjoint ranges of numbers in rising order, never touching each other, none empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Numbers {
    ranges: Vec<Range<u64>>,
}

impl Numbers {
    /// The ranges, in rising order.
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// How many numbers there are.
    pub fn count(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// True without any number.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Adds `added`, joining it with ranges that it meets.
    pub fn insert(&mut self, added: Range<u64>) {
        if added.is_empty() {
            return;
        }
        let first = self.ranges.partition_point(|range| range.end < added.start);
        let last = self.ranges.partition_point(|range| range.start <= added.end);
        let joined = self.ranges[first..last]
            .iter()
            .fold(added, |all, range| all.start.min(range.start)..all.end.max(range.end));
        self.ranges.splice(first..last, [joined]);
    }

    /// Adds all of `others`.
    pub fn extend(&mut self, others: &Numbers) {
        for range in &others.ranges {
            self.insert(range.clone());
        }
    }
}

impl From<Range<u64>> for Numbers {
    fn from(range: Range<u64>) -> Numbers {
        let mut numbers = Numbers::default();
        numbers.insert(range);
        numbers
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::spans::dice::Dice;

    #[test]
    fn ranges_join_where_they_meet() {
        let mut numbers = Numbers::from(10..20);
        numbers.insert(30..40);
        assert_eq!(numbers.ranges(), [10..20, 30..40]);
        numbers.insert(20..25);
        assert_eq!(numbers.ranges(), [10..25, 30..40]);
        numbers.insert(24..30);
        assert_eq!(numbers.ranges(), [Range { start: 10, end: 40 }]);
        numbers.insert(5..5);
        assert_eq!(numbers.count(), 30);
    }

    #[test]
    fn any_order_of_ranges_equals_the_plain_set() {
        for seed in 0..200 {
            let mut dice = Dice::new(seed, 0);
            let (mut numbers, mut plain) = (Numbers::default(), BTreeSet::new());
            for _ in 0..20 {
                let start = dice.below(100);
                let range = start..start + dice.below(12);
                plain.extend(range.clone());
                numbers.insert(range);
            }
            let listed: Vec<u64> = numbers.ranges().iter().cloned().flatten().collect();
            assert_eq!(listed, plain.iter().copied().collect::<Vec<_>>(), "seed {seed}");
            assert!(numbers.ranges().windows(2).all(|pair| pair[0].end < pair[1].start), "seed {seed}");
            assert_eq!(numbers.count(), plain.len() as u64);
        }
    }
}
