//! The shard of each partition.
//!
//! A partition belongs to one shard: `(partition + hash of the topic) mod shards`. So every retry, and every owner that replays a range,
//! sends it to the same shard, which knows its token. And a shard that is away stops only its own partitions. (A choice by the range's
//! first offset would spread rows more evenly, but every partition would soon wait for a block of the shard that is away.) The numbers of
//! partitions per shard differ by at most one; how even the rows are depends on the topic.
//!
//! The plan of ranges records how many shards there were ([`Route::epoch`]), so ranges in flight go where they were sent before, even if
//! shards are added. Do not remove a shard or change its position in the config while ranges of it are in flight. The plan also records
//! the shard's [`Destination`]: if that has changed, rows may be duplicated, and are counted.

use sluice_ranges::{Destination, PartitionId, Release};
use twox_hash::XxHash3_64;

/// The destinations of partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    shards: usize,
}

impl Route {
    /// To this number of shards, at least one.
    pub fn new(shards: usize) -> Self {
        Self { shards: shards.max(1) }
    }

    /// The route of an epoch that the plan of a range has.
    pub fn of_epoch(epoch: u32) -> Self {
        Self::new(usize::try_from(epoch).unwrap_or(usize::MAX).saturating_add(1))
    }

    /// The epoch for the plan: the number of shards beyond the first. Zero for one shard, as in plans from before there were several.
    pub fn epoch(self) -> u32 {
        u32::try_from(self.shards - 1).unwrap_or(u32::MAX)
    }

    /// The number of shards.
    pub fn shards(self) -> usize {
        self.shards
    }

    /// The shard of a range that was first sent in this epoch: the same as then, if that shard still exists.
    pub fn place_of(self, epoch: u32, id: &PartitionId) -> usize {
        let then = Self::of_epoch(epoch).shard_of(id);
        if then < self.shards { then } else { self.shard_of(id) }
    }

    /// Whether the block of a range may also be elsewhere than on the shard where it goes now: an earlier owner may have sent it to a shard
    /// that was removed, or to a destination that [is not](crate::table::sink::Sink::is_at) that shard's.
    pub fn may_be_elsewhere(
        self,
        release: &Release,
        id: &PartitionId,
        is_here: impl Fn(Destination) -> bool,
    ) -> bool {
        let is_removed = Self::of_epoch(release.routing_epoch).shard_of(id) >= self.shards;
        release.is_inherited && (is_removed || release.destination.is_some_and(|then| !is_here(then)))
    }

    /// The partition's shard, as its position in the config.
    pub fn shard_of(self, id: &PartitionId) -> usize {
        let topic = XxHash3_64::oneshot(id.topic.as_bytes());
        let place = topic.wrapping_add(u64::from(id.partition.unsigned_abs()));
        usize::try_from(place % self.shards as u64).expect("it is below the number of shards")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sluice_ranges::OffsetRange;

    fn id(topic: &str, partition: i32) -> PartitionId {
        PartitionId { topic: topic.into(), partition }
    }

    #[test]
    fn a_partition_goes_where_it_has_always_gone() {
        // Fixed numbers: another function would send ranges in flight to another shard.
        let route = Route::new(3);
        let found: Vec<usize> =
            (0..6).map(|partition| route.shard_of(&id("otlp_spans", partition))).collect();
        assert_eq!(found, [2, 0, 1, 2, 0, 1]);
    }

    proptest! {
        #[test]
        fn partitions_are_spread_evenly(topic in "[a-z]{1,20}", shards in 1usize..9, rounds in 1usize..5) {
            let route = Route::new(shards);
            let mut partitions = vec![0; shards];
            for partition in 0..i32::try_from(shards * rounds).unwrap() {
                partitions[route.shard_of(&id(&topic, partition))] += 1;
            }
            prop_assert!(partitions.iter().all(|count| *count == rounds), "{:?}", partitions);
            prop_assert_eq!(Route::of_epoch(route.epoch()), route);
        }
    }

    #[test]
    fn a_range_goes_where_it_was_sent_while_that_is_there() {
        let route = Route::new(2);
        for partition in 0..9 {
            let id = id("otlp_spans", partition);
            let then = Route::new(3).shard_of(&id);
            let expected = if then < 2 { then } else { route.shard_of(&id) };
            assert_eq!((route.place_of(2, &id), route.place_of(0, &id)), (expected, 0));
        }
    }

    #[test]
    fn what_an_owner_before_sent_to_other_servers_or_to_a_shard_that_is_gone_may_be_there() {
        let [here, there] = ["a:8123", "b:8123"].map(|server| Destination::of("otel", "otel_traces", server));
        let of_second = |id: &PartitionId| Route::new(2).shard_of(id) == 1;
        let (route, id) = (Route::new(1), (0..2).map(|number| id("spans", number)).find(of_second).unwrap());
        for (routing_epoch, destination, is_inherited, expected) in [
            (0, Some(here), true, false),
            (0, Some(there), true, true),
            (0, Some(there), false, false),
            // Versions before have not written it down.
            (0, None, true, false),
            (1, None, true, true),
            (1, Some(here), false, false),
        ] {
            let range = OffsetRange { first: 0, next: 1 };
            let release =
                Release { range, first_sent: 0, is_inherited, parts: None, routing_epoch, destination };
            let found = route.may_be_elsewhere(&release, &id, |destination| destination == here);
            assert_eq!(found, expected, "{release:?}");
        }
    }

    #[test]
    fn one_shard_takes_everything() {
        assert_eq!((Route::new(0).shards(), Route::new(1).epoch()), (1, 0));
        assert_eq!(Route::new(1).shard_of(&id("spans", 7)), 0);
    }
}
