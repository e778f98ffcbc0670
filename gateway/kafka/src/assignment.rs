//! Who has which partition, what may be committed, and what came back.
//!
//! Owner: the poll thread. The rebalance callbacks run on it too, so that the lock around this is never waited for.

use crate::{
    committer::{Committer, Outcome},
    consumer::Inbox,
    ledger::{Ledger, Verdict},
    partition::{Generation, Ownership, Partition, PartitionId, Report},
    stats::ConsumerStats,
    turns::{Change, Turns},
};
use crossbeam_channel::{Receiver, Sender};
use std::{sync::atomic::Ordering, time::Instant};

/// What the callbacks and the poll thread share.
pub struct Assignment {
    /// Up to where partitions may be committed.
    pub ledger: Ledger,
    /// Which partitions are read now.
    pub turns: Turns,
    /// There from the consumer's start on.
    pub committer: Option<Committer>,
    /// Partitions whose beginning is to be committed: without a commit, `Latest` would begin behind what was read and not
    /// inserted when the process ended.
    pins: Vec<PartitionId>,
    inboxes: Vec<Inbox>,
    next_inbox: usize,
    owners: Vec<(PartitionId, usize)>,
    reports: Receiver<Report>,
    /// Partitions that stopped and are not paused yet. One may be lost and gained again before: a callback takes reports too.
    stopped: Vec<(PartitionId, Generation)>,
}

impl Assignment {
    /// Nothing is owned yet.
    pub fn new(inboxes: Vec<Inbox>, reports: Receiver<Report>, active_max: usize) -> Self {
        Self {
            ledger: Ledger::default(),
            turns: Turns::new(active_max),
            committer: None,
            pins: Vec::new(),
            inboxes,
            next_inbox: 0,
            owners: Vec::new(),
            reports,
            stopped: Vec::new(),
        }
    }

    /// A sender per worker that wakes it.
    pub fn wakes(&self) -> Vec<Sender<()>> {
        self.inboxes.iter().map(|inbox| inbox.wake.clone()).collect()
    }

    /// Takes the reports that come until every one of these partitions is drained, or until `deadline`. Returns how many are
    /// not.
    pub fn drain(&mut self, ids: &[&PartitionId], deadline: Instant, stats: &ConsumerStats) -> usize {
        loop {
            let undrained = ids.iter().filter(|id| !self.ledger.is_drained(id)).count();
            if undrained == 0 {
                return 0;
            }
            match self.reports.recv_deadline(deadline) {
                Ok(report) => self.take_report(&report, stats),
                Err(_) => return undrained,
            }
        }
    }

    /// Has the beginning of partitions committed, unless an offset of them is.
    pub fn pin(&mut self, ids: &[PartitionId]) {
        self.pins.extend(ids.iter().cloned());
    }

    /// Begins to commit what is settled, unless a commit is in flight. Beginnings go first.
    pub fn begin_commit(&mut self) {
        let Some(committer) = self.committer.as_mut().filter(|committer| !committer.is_busy()) else {
            return;
        };
        let owned = |id: &PartitionId| self.ledger.generation(id).is_some();
        let pins: Vec<PartitionId> = std::mem::take(&mut self.pins).into_iter().filter(owned).collect();
        if pins.is_empty() {
            committer.begin(self.ledger.to_commit());
        } else {
            committer.begin_pins(pins);
        }
    }

    /// Takes the outcome of the commit in flight, waiting for it until `deadline`.
    pub fn take_outcome(&mut self, deadline: Instant, stats: &ConsumerStats) {
        let Some(Outcome { offsets, pins, result }) =
            self.committer.as_mut().and_then(|c| c.outcome_by(deadline))
        else {
            return;
        };
        match result {
            Ok(()) => {
                stats.commits.fetch_add(1, Ordering::Relaxed);
                for (id, offset) in &offsets {
                    self.ledger.committed(id, *offset);
                }
            }
            Err(error) => {
                self.pins.extend(pins);
                stats.commit_failures.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(%error, "offsets were not committed; they are with the next commit");
            }
        }
    }

    /// Takes what workers and delivery have reported.
    pub fn take_reports(&mut self, stats: &ConsumerStats) {
        while let Ok(report) = self.reports.try_recv() {
            self.take_report(&report, stats);
        }
    }

    /// What is to be paused because it stopped, and who has its turn.
    pub fn pause_stopped(&mut self) -> Change {
        let mut stopped = std::mem::take(&mut self.stopped);
        stopped.retain(|(id, generation)| self.ledger.generation(id) == Some(*generation));
        let stopped: Vec<PartitionId> = stopped.into_iter().map(|(id, _)| id).collect();
        let mut change = self.turns.lost(&stopped);
        change.pause = stopped;
        change
    }

    fn take_report(&mut self, report: &Report, stats: &ConsumerStats) {
        let verdict = match report {
            Report::Settled { id, generation, ordinal, range } => {
                self.ledger.settled(id, *generation, *ordinal, *range)
            }
            Report::Released { id, generation, ranges } => self.ledger.released(id, *generation, *ranges),
            Report::Stopped { id, generation } => {
                self.stopped.push((id.clone(), *generation));
                return;
            }
        };
        // A partition that is let go late settles nothing.
        if verdict == Verdict::Stale && matches!(report, Report::Settled { .. }) {
            stats.stale_ranges.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Gives a partition to the worker that has the fewest.
    pub fn give(&mut self, partition: Partition) {
        let load = |index: usize| self.owners.iter().filter(|(_, owner)| *owner == index).count();
        let workers = self.inboxes.len();
        let order = (0..workers).map(|step| (self.next_inbox + step) % workers);
        let index = order.min_by_key(|index| load(*index)).expect("there is at least one worker");
        self.next_inbox = (index + 1) % workers;
        self.owners.push((partition.id.clone(), index));
        self.tell(index, Ownership::Gained(partition));
    }

    /// Tells the worker that owns a partition to let it go. `false` when no worker has it.
    pub fn recall(&mut self, id: &PartitionId) -> bool {
        let Some(place) = self.owners.iter().position(|(owned, _)| owned == id) else { return false };
        let (id, index) = self.owners.swap_remove(place);
        let Some(generation) = self.ledger.generation(&id) else { return false };
        self.tell(index, Ownership::Lost(id, generation));
        true
    }

    fn tell(&self, index: usize, ownership: Ownership) {
        let inbox = &self.inboxes[index];
        // A worker that has ended takes no partitions; the process is ending with it.
        if inbox.ownership.send(ownership).is_ok() {
            wake(&inbox.wake);
        }
    }
}

/// Wakes a worker.
pub fn wake(sender: &Sender<()>) {
    if sender.try_send(()).is_err() {
        // A full channel holds a token already, and a closed one belongs to a worker that has ended.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_that_stopped_is_paused_unless_it_was_gained_anew() {
        let (reports, reports_in) = crossbeam_channel::bounded(1);
        let mut assignment = Assignment::new(Vec::new(), reports_in, 1);
        let [stopped, next] = [0, 1].map(|partition| PartitionId { topic: "spans".into(), partition });
        let generation = assignment.ledger.gained(stopped.clone());
        assignment.ledger.gained(next.clone());
        assignment.turns.gained(&[stopped.clone(), next.clone()]);
        let report = Report::Stopped { id: stopped.clone(), generation };

        reports.send(report.clone()).unwrap();
        assignment.take_reports(&ConsumerStats::default());
        let expected = Change { pause: vec![stopped.clone()], resume: vec![next] };
        assert_eq!(assignment.pause_stopped(), expected);

        reports.send(report).unwrap();
        assignment.take_reports(&ConsumerStats::default());
        assignment.ledger.lost(&stopped);
        assignment.ledger.gained(stopped);
        assert_eq!(assignment.pause_stopped(), Change::default());
    }
}
