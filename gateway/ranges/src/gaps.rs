//! Gaps: offsets of a partition that no owner has read, because Kafka no longer had them.
//!
//! An offset is committed once every row below it is accounted for; gaps are the exception. The block of such offsets may be on the queue
//! volume of a gateway that was away meanwhile, as the only copy of its rows. So gaps stay in every later plan, for every owner of the
//! partition. However late the gateway with that block asks, it finds the gap there.
//!
//! Owner: [`super::Ranges`]. Limits: [`GAPS_MAX`]; the lowest gap is dropped first.

use crate::OffsetRange;

/// Maximum number of gaps in a plan. Chosen: each is an outage as long as Kafka's retention, and a volume that was away for more than
/// four of them has almost nothing of the first.
pub const GAPS_MAX: usize = 4;

/// The gaps of a partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gaps(Vec<OffsetRange>);

impl Gaps {
    /// The gaps of the plan that was found.
    pub fn found(gaps: &[OffsetRange]) -> Self {
        let mut found = Self::default();
        for gap in gaps {
            found.add(*gap);
        }
        found
    }

    /// Adds a gap, unless it is empty. It is merged with the gaps that it touches.
    pub fn add(&mut self, gap: OffsetRange) {
        let OffsetRange { mut first, mut next } = gap;
        if first >= next {
            return;
        }
        self.0.retain(|known| {
            let is_apart = known.next < first || next < known.first;
            if !is_apart {
                (first, next) = (first.min(known.first), next.max(known.next));
            }
            is_apart
        });
        let place = self.0.partition_point(|known| known.first < first);
        self.0.insert(place, OffsetRange { first, next });
        if self.0.len() > GAPS_MAX {
            self.0.remove(0);
        }
    }

    /// The gaps for a plan: ascending and disjoint.
    pub fn listed(&self) -> Vec<OffsetRange> {
        self.0.clone()
    }
}

/// Whether gaps have some offsets of a range and not all. An owner that has read the others has made the range without those in the gap, and
/// may have sent it, under another token.
pub fn is_torn(range: OffsetRange, gaps: &[OffsetRange]) -> bool {
    gaps.iter().any(|gap| {
        let overlaps = gap.first < range.next && range.first < gap.next;
        overlaps && (range.first < gap.first || gap.next < range.next)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const fn range(first: i64, next: i64) -> OffsetRange {
        OffsetRange { first, next }
    }

    #[test]
    fn the_lowest_is_forgotten_when_there_are_too_many() {
        let mut gaps = Gaps::default();
        for first in [40, 0, 20, 60] {
            gaps.add(range(first, first + 10));
        }
        assert_eq!(gaps.listed(), [range(0, 10), range(20, 30), range(40, 50), range(60, 70)]);
        gaps.add(range(80, 90));
        assert_eq!(gaps.listed(), [range(20, 30), range(40, 50), range(60, 70), range(80, 90)]);
    }

    #[test]
    fn a_range_is_torn_by_a_gap_that_has_a_part_of_it() {
        let gaps = [range(3, 5), range(10, 20)];
        for (first, next, expected) in [
            (0, 3, false),
            (0, 4, true),
            (0, 8, true),
            (3, 5, false),
            (4, 5, false),
            (4, 6, true),
            (5, 10, false),
            (9, 30, true),
            (12, 15, false),
        ] {
            assert_eq!(is_torn(range(first, next), &gaps), expected, "{first} to {next}");
        }
    }

    proptest! {
        /// Against a set of offsets: none is added, and none goes but with the lowest gap.
        #[test]
        fn gaps_are_the_offsets_that_were_added(added in prop::collection::vec((0i64..60, 0i64..12), 0..12)) {
            let (mut gaps, mut offsets) = (Gaps::default(), BTreeSet::new());
            for (first, len) in added {
                gaps.add(range(first, first + len));
                offsets.extend(first..first + len);
                let listed = gaps.listed();
                let lowest = listed.first().map_or(0, |gap| gap.first);
                if listed.len() == GAPS_MAX {
                    offsets.retain(|offset| *offset >= lowest);
                }
                let covered: BTreeSet<i64> = listed.iter().flat_map(|gap| gap.first..gap.next).collect();
                prop_assert_eq!(&covered, &offsets);
                prop_assert!(listed.windows(2).all(|two| two[0].next < two[1].first), "{:?}", listed);
                prop_assert_eq!(Gaps::found(&listed), gaps.clone());
            }
        }
    }
}
