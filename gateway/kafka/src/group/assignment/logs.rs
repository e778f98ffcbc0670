//! Where the logs of owned partitions begin and end, beyond what librdkafka says of it.
//!
//! Owner: the poll thread, as all of [`Assignment`].

use super::Assignment;
use crate::group::stats::PartitionStats;
use sluice_ranges::PartitionId;
use std::time::Instant;

impl Assignment {
    /// Has leaders asked about all partitions that the group has given us, when that is due. One that begins anew is among them: what is
    /// known of its log stays.
    pub fn ask_logs(&mut self, now: Instant) {
        let mut given = self.owned();
        given.extend(self.arrivals.arriving().cloned());
        if let Some(logs) = &mut self.logs {
            logs.tend(&given, now);
        }
    }

    /// librdkafka's numbers of a partition, with what is known beside them.
    pub fn completed(&self, id: &PartitionId, numbers: PartitionStats) -> PartitionStats {
        let log = self.logs.as_ref().and_then(|logs| logs.log(id));
        let committed = self.owned.get(id).and_then(|owned| owned.ranges.committed_offset());
        numbers.completed(log, committed)
    }
}
