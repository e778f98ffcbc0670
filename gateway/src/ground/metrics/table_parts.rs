//! Metrics of the parts of the table, and what `GET /state` says of them. Nothing is shown while they are not known.
//!
//! One task records them; an I/O thread reads them. The lock is held for a copy of some bytes.

use super::Maker;
use prometheus::{GaugeVec, IntGaugeVec};
use sluice_clickhouse::parts::TableParts;
use sluice_gateway_config::TablePartsState;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Handles of these metrics.
#[derive(Debug)]
pub struct TablePartsMetrics {
    parts_max: IntGaugeVec,
    ratio: GaugeVec,
    state: Mutex<Option<TablePartsState>>,
}

impl TablePartsMetrics {
    /// Creates and registers them. Nothing is known yet.
    pub(super) fn new(make: &Maker) -> Self {
        Self {
            parts_max: make.gauges(
                "table_parts_max",
                "Active parts of the table's partition that has most, of the server that is nearest to delaying INSERTs; absent while \
                 that is not known.",
                &[],
            ),
            ratio: make.float_gauges(
                "table_parts_ratio",
                "These parts as a share of those from which on ClickHouse delays INSERTs, or refuses them; absent while that is not known.",
                &["limit"],
            ),
            state: Mutex::default(),
        }
    }

    /// Records the parts of the shard that is nearest to delaying INSERTs, and of the nearest one of those whose merges are behind. `None` if
    /// they are not known, or there is no such shard. If merges of a shard are behind, `/state` names the parts of that shard.
    pub fn show(&self, nearest: Option<TableParts>, behind: Option<TableParts>) {
        *self.known() = behind.or(nearest).map(|found| TablePartsState {
            parts: found.parts,
            delay_from: found.delay_from,
            refuse_from: found.refuse_from,
            merges_behind: behind.is_some(),
        });
        let Some(found) = nearest else {
            self.parts_max.reset();
            self.ratio.reset();
            return;
        };
        let parts = i64::try_from(found.parts).unwrap_or(i64::MAX);
        self.parts_max.with_label_values::<&str>(&[]).set(parts);
        self.ratio.with_label_values(&["delay"]).set(found.delay_ratio());
        self.ratio.with_label_values(&["refuse"]).set(found.refuse_ratio());
    }

    /// What is recorded.
    pub(super) fn state(&self) -> Option<TablePartsState> {
        *self.known()
    }

    fn known(&self) -> MutexGuard<'_, Option<TablePartsState>> {
        // It is replaced in one step, so that a thread that panicked left a whole one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::reference, *};

    #[test]
    fn what_is_not_known_is_absent_and_never_zero() {
        let metrics = reference::metrics();
        let lines = || {
            let text = metrics.text().unwrap();
            let lines = text.lines().filter_map(|line| line.strip_prefix("sluice_gateway_table_parts_"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!((lines(), metrics.sample().table_parts), (Vec::new(), None));
        let found = TableParts { parts: 600, delay_from: 1_000, refuse_from: 3_000, are_large: false };
        metrics.table_parts.show(Some(found), Some(found));
        assert_eq!(lines(), ["max 600", "ratio{limit=\"delay\"} 0.6", "ratio{limit=\"refuse\"} 0.2"]);
        let state =
            TablePartsState { parts: 600, delay_from: 1_000, refuse_from: 3_000, merges_behind: true };
        assert_eq!(metrics.sample().table_parts, Some(state));
        metrics.table_parts.show(None, None);
        assert_eq!((lines(), metrics.sample().table_parts), (Vec::new(), None));
    }

    #[test]
    fn the_state_names_the_shard_whose_merges_are_behind_and_the_metric_the_one_with_most_parts() {
        let metrics = reference::metrics();
        let found = |parts| TableParts { parts, delay_from: 1_000, refuse_from: 3_000, are_large: false };
        metrics.table_parts.show(Some(found(450)), Some(found(400)));
        let state = metrics.sample().table_parts.unwrap();
        assert_eq!((state.parts, state.merges_behind), (400, true));
        assert!(metrics.text().unwrap().contains("\nsluice_gateway_table_parts_max 450\n"));
        metrics.table_parts.show(Some(found(450)), None);
        let state = metrics.sample().table_parts.unwrap();
        assert_eq!((state.parts, state.merges_behind), (450, false));
    }
}
