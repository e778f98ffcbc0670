//! Commits of settled offsets, and what follows from their outcome.
//!
//! Owner: the poll thread, as for all of [`Assignment`]. One request at a time: a commit for all partitions, the start offsets of
//! arriving partitions, or topic ids.

use super::{Assignment, Owned, PartitionId};
use crate::{
    ground::clock,
    group::{
        committer::{Committer, Outcome, Refused, Unread},
        partition::Order,
        stats::ConsumerStats,
    },
};
use rdkafka::error::RDKafkaErrorCode;
use sluice_ranges::{CommitOutcome, Generation, Urgency};
use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

/// The least time between two commits. One commit covers all partitions, so that ten a second are enough for any number of ranges.
const COMMIT_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// How often settled offsets are committed when no range waits for it. After a crash, rows inserted since the last commit are sent again,
/// and dropped by their tokens.
const COMMIT_INTERVAL: Duration = Duration::from_secs(1);

/// How often delivery learns that this process still owns a partition whose offset does not move. Chosen: well below
/// [`sluice_ranges::PROOF_AGE_MAX`], which limits the proof's age for a block that waits for its turn.
const PROOF_TOLD_INTERVAL: Duration = Duration::from_secs(5);

/// How often reports are taken during the wait for a commit. Chosen: as often as between two polls ([`crate::group::consumer::REPORTS_MAX`]).
const RESOLVE_LOOK: Duration = Duration::from_millis(10);

/// Commit errors during a rebalance: the group's generation or the member's epoch is newer than the commit's, but the member still
/// belongs to the group.
const REBALANCES: [RDKafkaErrorCode; 3] = [
    RDKafkaErrorCode::IllegalGeneration,
    RDKafkaErrorCode::RebalanceInProgress,
    RDKafkaErrorCode::StaleMemberEpoch,
];

/// How often a repeated commit error is logged: commits are made ten times a second.
const REFUSAL_TOLD_INTERVAL: Duration = Duration::from_secs(30);

/// How many partitions a log line names.
const PARTITIONS_NAMED_MAX: usize = 8;

/// The first partitions, and how many more there are.
fn listed(partitions: &[PartitionId]) -> String {
    let named = partitions.iter().take(PARTITIONS_NAMED_MAX).map(ToString::to_string);
    let named = named.collect::<Vec<_>>().join(", ");
    match partitions.len().saturating_sub(PARTITIONS_NAMED_MAX) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// Counts offsets that Kafka no longer had once the group's offset lies behind them. Before that, the next owner finds the same gap, and
/// would count it again.
fn count_lost(owned: &mut Owned, stats: &ConsumerStats) {
    let committed = owned.ranges.committed_offset();
    if let Some(lost) = owned.lost.take_if(|lost| committed.is_some_and(|offset| offset >= lost.next)) {
        let offsets = u64::try_from(lost.next.saturating_sub(lost.first)).unwrap_or(0);
        stats.messages_lost.fetch_add(offsets, Ordering::Relaxed);
    }
}

impl Assignment {
    /// Waits for the request in flight, then makes the last commit of these partitions and waits for it too. A process that ends repeats
    /// it for blocks that were inserted meanwhile, and while the group refuses it because of a rebalance: librdkafka takes part in the
    /// rebalance on its own, and until this member answers, no other member gets its partitions. A member that gives partitions up in a
    /// rebalance does not repeat it: the group waits for its answer.
    pub fn commit_last(&mut self, ids: &[PartitionId], deadline: Instant, stats: &ConsumerStats) {
        while self.resolve(deadline, stats) {
            self.last_refusal = None;
            let is_begun = self.commit(|id| ids.contains(id));
            self.resolve(deadline, stats);
            let may_succeed = is_begun && self.last_refusal.is_none_or(|code| REBALANCES.contains(&code));
            let is_worth_another = may_succeed && self.stop.is_requested() && self.committable(ids) > 0;
            if !is_worth_another || Instant::now() >= deadline {
                return;
            }
            let soon = Instant::now() + COMMIT_INTERVAL_MIN;
            self.tend_until(soon.min(deadline), stats, |_| false);
        }
    }

    /// Waits for the request in flight. If librdkafka sent a commit later, it would use the generation of that time and overwrite the
    /// next owner's plan. Reports are taken meanwhile: workers block when there is no room for them, and delivery keeps its reports.
    pub fn resolve(&mut self, deadline: Instant, stats: &ConsumerStats) -> bool {
        let is_busy = |this: &Self| this.committer.as_ref().is_some_and(Committer::is_busy);
        while is_busy(self) && Instant::now() < deadline && !self.stop.is_over() {
            let soon = Instant::now() + RESOLVE_LOOK;
            self.take_outcome(self.stop.deadline().map_or(soon, |end| soon.min(end)).min(deadline), stats);
            self.take_reports(stats);
            // The wait counts as activity of the poll thread.
            stats.polled();
        }
        !is_busy(self)
    }

    pub(super) fn take_outcome(&mut self, deadline: Instant, stats: &ConsumerStats) {
        match self.committer.as_mut().and_then(|committer| committer.outcome_by(deadline)) {
            None => {}
            Some(Outcome::Committed { partitions, problem }) => {
                self.take_committed(&partitions, problem.as_ref(), stats);
            }
            Some(Outcome::Identified(identified)) => self.take_identified(identified),
            Some(Outcome::Read(read)) => {
                for (id, beginning) in read {
                    match beginning {
                        Ok(beginning) => self.begin(id, &beginning, stats),
                        Err(error) => {
                            tracing::warn!(partition = %id, %error, "cannot find out where to start reading the partition; retrying");
                            if matches!(error, Unread::Leader(_)) {
                                self.arrivals.postpone(&id);
                            }
                        }
                    }
                }
            }
        }
    }

    pub(super) fn take_committed(
        &mut self,
        partitions: &[(PartitionId, Generation, CommitOutcome)],
        problem: Option<&Refused>,
        stats: &ConsumerStats,
    ) {
        for (id, generation, outcome) in partitions {
            if let Some(owned) = self.owned.get_mut(id) {
                owned.ranges.committed(*generation, *outcome);
                count_lost(owned, stats);
                let parted = owned.ranges.parted().into_iter();
                parted.filter_map(|range| owned.noted.remove(&range.first)).for_each(|noted| noted.tell());
                let (at, offset) =
                    (owned.ranges.proof(), owned.ranges.committed_offset().unwrap_or(i64::MIN));
                let is_moved = *outcome == CommitOutcome::Stored && offset > owned.offset_told;
                if is_moved || at.saturating_sub(owned.proof_told) >= PROOF_TOLD_INTERVAL {
                    (owned.proof_told, owned.offset_told) = (at, offset);
                    let (id, generation) = (id.clone(), owned.generation);
                    self.orders_waiting.push_back(Order::Proved { id, generation, at, offset });
                }
            }
        }
        let refusal = problem.and_then(|refused| refused.error.rdkafka_error_code());
        if let Some(Refused { error, partitions }) = problem {
            stats.commit_failures.fetch_add(1, Ordering::Relaxed);
            let is_old = |told: Instant| told.elapsed() >= REFUSAL_TOLD_INTERVAL;
            if refusal != self.last_refusal || self.refusal_told.is_none_or(is_old) {
                self.refusal_told = Some(Instant::now());
                tracing::warn!(
                    %error,
                    partitions = %listed(partitions),
                    "offsets were not committed; the next commit includes them"
                );
            }
        } else {
            stats.commits.fetch_add(1, Ordering::Relaxed);
        }
        self.last_refusal = refusal;
    }

    /// Starts the next due request, unless one is in flight.
    pub(super) fn request(&mut self) {
        if self.committer.as_ref().is_none_or(Committer::is_busy) {
            return;
        }
        let commits = self.is_commit_due();
        // Commits and start offsets take turns: the leader of an arriving partition may delay a request for seconds, again and again.
        let is_their_turn = commits && std::mem::take(&mut self.has_read);
        let Self { arrivals, unreleased, .. } = self;
        let arriving = if is_their_turn { None } else { arrivals.due(|id| !unreleased.contains_key(id)) };
        if let Some(ids) = arriving {
            self.has_read = true;
            let before = self.before_begin.clone().map(|before| (before, self.arrivals.wanted()));
            self.committer.as_mut().expect("it was there just now").read(ids, before);
        } else if commits {
            self.commit(|_| true);
        } else if let Some(topics) = self.topics_due() {
            self.committer.as_mut().expect("it was there just now").identify(topics);
        }
    }

    fn is_commit_due(&self) -> bool {
        let now = clock::now();
        let interval = match self.owned.values().map(|owned| owned.ranges.urgency(now)).max() {
            None | Some(Urgency::None) => return false,
            Some(Urgency::Regular) => COMMIT_INTERVAL,
            Some(Urgency::Now) => COMMIT_INTERVAL_MIN,
        };
        self.last_commit.elapsed() >= interval
    }

    /// Begins a commit of these partitions. Returns whether one of them has something to commit.
    fn commit(&mut self, of: impl Fn(&PartitionId) -> bool) -> bool {
        let Some(committer) = self.committer.as_mut().filter(|committer| !committer.is_busy()) else {
            return false;
        };
        let now = clock::now();
        let owned = self.owned.iter_mut().filter(|(id, _)| of(id));
        let commits: Vec<_> = owned
            .filter_map(|(id, owned)| Some((id.clone(), owned.generation, owned.ranges.commit(now)?)))
            .collect();
        let is_begun = !commits.is_empty();
        if is_begun {
            self.last_commit = Instant::now();
            committer.begin(commits);
        }
        is_begun
    }
}
