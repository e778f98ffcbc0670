//! What the poll thread knows of every partition, for the inspection.

use super::{Assignment, Owned};
use crate::group::{inspection::Known, watchdog::AtWorker};
use sluice_ranges::{Now, PartitionId};
use std::collections::BTreeMap;

impl Assignment {
    /// Blocks that hold memory: unsettled ranges, or the count of a worker, which includes blocks of lost partitions.
    pub fn blocks_in_flight(&self) -> u64 {
        let unsettled: usize = self.owned.values().map(|owned| owned.ranges.unsettled()).sum();
        let counted = self.inboxes.iter().map(|inbox| inbox.shortage.blocks()).max();
        counted.unwrap_or(0).max(unsettled as u64)
    }

    /// What is known of every partition that is assigned.
    pub fn known(&self, now: Now) -> BTreeMap<PartitionId, Known> {
        let begun = self.owned.iter().map(|(id, owned)| (id, self.known_of(id, owned, now)));
        let arriving = self.arrivals.arriving().map(|id| {
            let is_held = self.unreleased.contains_key(id);
            (id, Known::not_begun(if is_held { AtWorker::NoRoom } else { AtWorker::Arriving }))
        });
        let halted = self.arrivals.halted().map(|id| (id, Known::not_begun(AtWorker::Halted)));
        begun.chain(arriving).chain(halted).map(|(id, known)| (id.clone(), known)).collect()
    }

    fn known_of(&self, id: &PartitionId, owned: &Owned, now: Now) -> Known {
        let ranges = &owned.ranges;
        let unsettled = ranges.unsettled();
        let worker = match owned {
            Owned { is_released: true, .. } if unsettled > 0 => AtWorker::Settling,
            Owned { is_released: true, .. } => AtWorker::Renewing,
            Owned { worker_says: says @ (AtWorker::Stopped(_) | AtWorker::Lettering), .. } => *says,
            _ if self.inboxes[owned.worker].shortage.is_on() => AtWorker::NoRoom,
            _ => AtWorker::Reads,
        };
        Known {
            committed: ranges.committed_offset(),
            settled: Some(ranges.offset()),
            tail: Some(ranges.tail()),
            unplanned: ranges.unplanned(now),
            unsettled,
            active: self.turns.is_active(id),
            paused: owned.is_paused,
            worker,
            halted: !owned.halted.is_empty(),
            lost: owned
                .lost
                .map_or(0, |lost| u64::try_from(lost.next.saturating_sub(lost.first)).unwrap_or(0)),
        }
    }
}
