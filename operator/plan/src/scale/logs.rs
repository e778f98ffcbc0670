//! The logs of all gateways with `source.otlp` as one partition, by which the autoscaler goes.
//!
//! Each gateway has logs of its own. What it reports are offsets in them: how many messages were appended, and how many of these are not
//! committed. The sum of the ends would go back when a gateway leaves or gets another volume, so the totals count what each has appended since
//! it was last seen.
//!
//! Limit: an entry for each number of a gateway, at most [`REPLICAS_MAX`](crate::REPLICAS_MAX).

use super::sample::PartitionSample;
use std::collections::BTreeMap;

/// The logs of one gateway together. A log that cannot be read gets no messages, and nothing of it is inserted: it is counted by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GatewayLogs {
    /// Logs that can be read.
    pub readable: u32,
    /// Messages that were ever appended to these.
    pub appended: u64,
    /// Messages among these that are not committed.
    pub waiting: u64,
    /// Logs that cannot be read now.
    pub unreadable: u32,
    /// Messages in these that are not committed, as far as that is known.
    pub unread: u64,
}

impl GatewayLogs {
    /// Messages that are committed, whatever was appended since.
    pub(super) fn committed(self) -> u64 {
        self.appended.saturating_sub(self.waiting)
    }
}

/// What the totals begin with, so that what waits in logs that are found later is less. Chosen: ten years of 100,000 messages a second in which
/// nothing is inserted.
const BEGIN: u64 = 1 << 45;

/// What all gateways have appended since the first look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogTotals {
    /// The logs of each when they were last seen, by its number.
    seen: BTreeMap<u32, GatewayLogs>,
    appended: u64,
}

impl LogTotals {
    /// Adds what gateways report, by their numbers, and returns it as one partition. What is in logs that were not seen before did not
    /// arrive just now: it waits, and is in no rate. Such are those of a gateway that runs again, and one that can be read again.
    pub fn look(&mut self, gateways: impl IntoIterator<Item = (u32, GatewayLogs)>) -> PartitionSample {
        let mut waiting = 0_u64;
        for (ordinal, logs) in gateways {
            let before = self.seen.insert(ordinal, logs).filter(|before| before.readable == logs.readable);
            // Fewer than before are another volume.
            let more = before.and_then(|before| logs.appended.checked_sub(before.appended)).unwrap_or(0);
            self.appended = self.appended.saturating_add(more);
            waiting = waiting.saturating_add(logs.waiting);
        }
        let end = BEGIN.saturating_add(self.appended);
        let committed = Some(end.saturating_sub(waiting));
        PartitionSample { log_start: 0, end, committed, position: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logs(appended: u64, waiting: u64) -> GatewayLogs {
        GatewayLogs { readable: 2, appended, waiting, ..GatewayLogs::default() }
    }

    #[test]
    fn totals_only_go_forward_and_lag_is_what_waits() {
        let mut totals = LogTotals::default();
        for (gateways, end, waits) in [
            (vec![(0, logs(1_000, 10)), (1, logs(500, 0))], 0, 10),
            (vec![(0, logs(1_100, 30)), (1, logs(550, 5))], 150, 35),
            // The second has left, and what it still had was inserted before.
            (vec![(0, logs(1_200, 0))], 250, 0),
            // It is back with its volume, and with another one.
            (vec![(0, logs(1_200, 0)), (1, logs(560, 0))], 260, 0),
            (vec![(0, logs(1_200, 0)), (1, logs(40, 40))], 260, 40),
            (vec![(0, logs(1_300, 0)), (1, logs(60, 0))], 380, 0),
        ] {
            let sample = totals.look(gateways.clone());
            let found = (sample.end - BEGIN, sample.end - sample.committed.unwrap());
            assert_eq!(found, (end, waits), "{gateways:?}");
        }
    }

    #[test]
    fn what_a_gateway_that_runs_again_has_kept_is_no_burst_of_arrivals() {
        let mut totals = LogTotals::default();
        let before = totals.look([(0, logs(1_000, 0))]).end;
        let with = totals.look([(0, logs(1_010, 0)), (1, logs(9_000_000, 8_000_000))]);
        assert_eq!((with.end - before, with.end - with.committed.unwrap()), (10, 8_000_000));
    }

    #[test]
    fn what_a_log_has_that_can_be_read_again_is_no_burst_of_arrivals() {
        let mut totals = LogTotals::default();
        let one = GatewayLogs { readable: 1, unreadable: 1, unread: 900_000, ..logs(1_000, 0) };
        let before = totals.look([(0, one)]);
        assert_eq!(before.committed, Some(before.end), "what cannot be read is in no backlog");
        let both = totals.look([(0, logs(5_001_010, 900_000))]);
        assert_eq!((both.end - before.end, both.end - both.committed.unwrap()), (0, 900_000));
        assert_eq!(totals.look([(0, logs(5_001_030, 0))]).end - both.end, 20);
    }
}
