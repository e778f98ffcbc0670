//! Merges of ClickHouse that are behind: what gateways say of the parts of their table.
//!
//! Each gateway inserts some blocks a second by their age, and each block makes a part. More gateways would make more parts, and ClickHouse
//! would delay and then refuse INSERTs sooner. So while a gateway says that merges are behind, none is added.

use std::cmp::Ordering;

/// The parts of a table whose merges are behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergesBehind {
    /// Active parts of the partition that has most.
    pub parts: u64,
    /// Parts of a partition from which on ClickHouse delays INSERTs.
    pub delay_from: u64,
}

impl MergesBehind {
    /// The one that is nearest to its limit.
    pub(super) fn worst(all: impl Iterator<Item = Self>) -> Option<Self> {
        all.max_by(|one, other| one.nearer(*other))
    }

    /// Compares parts as shares of the limits.
    fn nearer(self, other: Self) -> Ordering {
        let product = |parts: u64, limit: u64| u128::from(parts) * u128::from(limit);
        product(self.parts, other.delay_from).cmp(&product(other.parts, self.delay_from))
    }

    /// In words, as the end of a sentence about ClickHouse.
    pub(super) fn words(self) -> String {
        let Self { parts, delay_from } = self;
        format!(
            ", and its merges are behind: a partition of the table has {parts} parts, and INSERTs are delayed from {delay_from} on"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_that_is_nearest_to_its_limit_counts() {
        let of = |parts, delay_from| MergesBehind { parts, delay_from };
        assert_eq!(MergesBehind::worst([].into_iter()), None);
        let all = [of(600, 1_000), of(90, 100), of(1_500, 3_000)];
        assert_eq!(MergesBehind::worst(all.into_iter()), Some(of(90, 100)));
    }
}
