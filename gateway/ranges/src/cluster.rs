//! The Kafka cluster by whose id the tokens of a partition are made, as a number that plans carry.
//!
//! Every token contains the id. A cluster can report another id than before: a proxy removes it, or a Redpanda cluster gets a `cluster_id`.
//! Then a range in flight has another token than the one that the server may know, and may be stored twice. By this number the next owner
//! notices.

use crate::short_hash::ShortHash;

/// 24 bits of a hash over the id, or over the name that stands for it; never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterNumber(ShortHash);

impl ClusterNumber {
    /// Of the id that is in tokens.
    pub fn of(cluster_id: &str) -> Self {
        Self(ShortHash::of(cluster_id.as_bytes()))
    }

    /// The number, from 1 to 2^24 − 1.
    pub fn number(self) -> u32 {
        self.0.number()
    }

    /// From such a number; `None` for any other.
    pub fn of_number(number: u32) -> Option<Self> {
        ShortHash::of_number(number).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_cluster_never_changes() {
        // What plans hold: with another number, each range in flight would count as possibly doubled.
        for (id, number) in [("unnamed", 12_199_541), ("MkU3OEVBNTcwNTJENDM2Qk", 10_308_671)] {
            assert_eq!(ClusterNumber::of(id).number(), number);
            assert_eq!(ClusterNumber::of_number(number), Some(ClusterNumber::of(id)));
        }
        assert_eq!(ClusterNumber::of_number(0), None);
        assert_eq!(ClusterNumber::of_number(1 << 24), None);
    }
}
