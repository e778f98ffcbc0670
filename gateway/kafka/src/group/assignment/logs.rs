//! The bounds of the logs of assigned partitions, beyond librdkafka's numbers.
//!
//! Owner: the poll thread, as for all of [`Assignment`].

use super::Assignment;
use crate::group::stats::PartitionStats;
use sluice_ranges::PartitionId;
use std::time::Instant;

impl Assignment {
    /// Asks the leaders about all assigned partitions when that is due. A partition that restarts is included, so that its known bounds
    /// stay.
    pub fn ask_logs(&mut self, now: Instant) {
        let mut given = self.owned();
        given.extend(self.arrivals.arriving().cloned());
        if let Some(logs) = &mut self.logs {
            logs.tend(&given, now);
        }
    }

    /// librdkafka's numbers of a partition, completed by other facts.
    pub fn completed(&self, id: &PartitionId, numbers: PartitionStats) -> PartitionStats {
        let log = self.logs.as_ref().and_then(|logs| logs.log(id));
        let committed = self.owned.get(id).and_then(|owned| owned.ranges.committed_offset());
        numbers.completed(log, committed)
    }
}
