//! Reports of workers and delivery about a partition.
//!
//! Owner: the poll thread, as for all of [`Assignment`]. A report of an ownership that is over changes nothing.

use super::Assignment;
use crate::group::{
    partition::{Renew, Report},
    stats::ConsumerStats,
    watchdog::AtWorker,
};
use sluice_ranges::Verdict;
use std::sync::atomic::Ordering;

impl Assignment {
    /// Takes all waiting reports.
    pub(super) fn take_reports(&mut self, stats: &ConsumerStats) {
        while let Ok(report) = self.reports.try_recv() {
            self.take_report(&report, stats);
        }
    }

    pub(super) fn take_report(&mut self, report: &Report, stats: &ConsumerStats) {
        let verdict = match report {
            Report::Closed { id, generation, closed, has_rows } => {
                let doubtful = u64::from(closed.doubtful);
                stats.doubtful_ranges.fetch_add(doubtful, Ordering::Relaxed);
                self.owned.get_mut(id).map_or(Verdict::Stale, |o| {
                    let verdict = o.ranges.closed(*generation, closed);
                    // At once: otherwise delivery would wait for a block that never comes.
                    if verdict == Verdict::Recorded && !has_rows {
                        return o.ranges.settled(*generation, closed.range);
                    }
                    verdict
                })
            }
            Report::Settled { id, generation, range } => self.owned.get_mut(id).map_or(Verdict::Stale, |o| {
                o.halted.remove(&range.first);
                o.ranges.settled(*generation, *range)
            }),
            Report::Parted { id, generation, range, parts, noted } => {
                if let Some(owned) = self.owned.get_mut(id)
                    && owned.ranges.part(*generation, *range, parts.clone()) == Verdict::Recorded
                {
                    owned.noted.insert(range.first, noted.clone());
                }
                return;
            }
            Report::Halted { id, generation, range } => {
                if let Some(owned) = self.owned.get_mut(id).filter(|o| o.generation == *generation) {
                    owned.halted.insert(range.first);
                }
                return;
            }
            Report::Released { id, generation, renew } => {
                if self.unreleased.get(id) == Some(generation) {
                    self.unreleased.remove(id);
                }
                if let Some(owned) = self.owned.get_mut(id).filter(|o| o.generation == *generation) {
                    owned.is_released = true;
                    owned.renew = *renew;
                    let changes = u64::from(*renew == Some(Renew::Rule));
                    stats.rule_changes.fetch_add(changes, Ordering::Relaxed);
                }
                return;
            }
            Report::ReadAgain { id, generation } => {
                if let Some(owned) = self.owned.get_mut(id).filter(|o| o.generation == *generation) {
                    owned.reads_again = true;
                    self.recall(std::slice::from_ref(id), false);
                }
                return;
            }
            Report::Stopped { id, generation, remedy } => {
                if let Some(owned) = self.owned.get_mut(id).filter(|o| o.generation == *generation) {
                    owned.worker_says = AtWorker::Stopped(*remedy);
                    owned.ranges.stands(*generation, true);
                }
                self.stopped.push((id.clone(), *generation));
                return;
            }
            Report::Lettering { id, generation, waits } => {
                if let Some(owned) = self.owned.get_mut(id).filter(|o| o.generation == *generation) {
                    owned.worker_says = if *waits { AtWorker::Lettering } else { AtWorker::Reads };
                    owned.ranges.stands(*generation, *waits);
                }
                return;
            }
        };
        // A partition that is released late settles nothing.
        if verdict == Verdict::Stale && matches!(report, Report::Settled { .. }) {
            stats.stale_ranges.fetch_add(1, Ordering::Relaxed);
        }
    }
}
