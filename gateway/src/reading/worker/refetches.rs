//! Batches that could not be read and are fetched again.
//!
//! Owner: the worker. Limits: one entry for each partition whose next batch could not be read recently.

use sluice_ranges::PartitionId;
use std::collections::BTreeMap;

/// How often a batch that cannot be read is fetched again before its partition stops. Chosen: a batch that the network or a broker's memory
/// has damaged is whole the next time; damage on the broker's disk stays.
const REFETCHES_MAX: u32 = 2;

/// For each partition, the offset before the batch and the number of refetches.
#[derive(Debug, Default)]
pub(super) struct Refetches(BTreeMap<PartitionId, (i64, u32)>);

impl Refetches {
    /// Whether the unreadable batch behind this offset is fetched again; if so, counts it.
    pub fn fetches(&mut self, id: &PartitionId, position: i64) -> bool {
        let (at, times) = self.0.entry(id.clone()).or_insert((position, 0));
        if *at != position {
            (*at, *times) = (position, 0);
        }
        let fetches = *times < REFETCHES_MAX;
        *times += u32::from(fetches);
        fetches
    }

    /// The partition has stopped.
    pub fn forget(&mut self, id: &PartitionId) {
        self.0.remove(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_batch_is_fetched_again_so_often_and_no_oftener() {
        let (id, mut refetches) = (PartitionId { topic: "spans".into(), partition: 3 }, Refetches::default());
        let fetched =
            |refetches: &mut Refetches, position| [(); 3].map(|()| refetches.fetches(&id, position));
        assert_eq!(fetched(&mut refetches, 7), [true, true, false]);
        assert_eq!(fetched(&mut refetches, 9), [true, true, false]);
        refetches.forget(&id);
        assert_eq!(fetched(&mut refetches, 9), [true, true, false]);
    }
}
