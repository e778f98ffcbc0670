//! librdkafka's callbacks: partitions come and go, brokers do, statistics arrive.
//!
//! Owner: the poll thread, which librdkafka runs all of them on.
//!
//! A partition that the group gives us is not assigned in librdkafka at once: first the poll thread reads what is committed, and
//! the partition is then assigned at that very offset. The group does not wait for it.
//!
//! It is split off into its own queue *before* it is assigned: from then on not a single message of it can arrive on the main
//! queue, which the poll thread polls for events only.
//!
//! Outside a callback nothing is unassigned, if that can be helped: librdkafka takes an unassignment for the answer to a revocation
//! whose callback has not run yet, and the next owner begins before the last commit here. A partition that begins anew is paused,
//! and sought to where it begins. Where that is not possible (see [`Rebalancing::unassign`]), a revocation that may have been
//! answered so is handled as one that came too late to commit for.
//!
//! Limits: a revoked partition is waited for at the most [`crate::Limits::revoke_wait`], a commit in flight [`RESOLVE_WAIT`];
//! neither beyond the moment by which the process is to have ended.

use crate::{
    arrivals::Ready,
    assignment::{Assignment, Steps, wake},
    membership::Phase,
    partition::{PartitionId, PartitionQueue},
    security::ConnectionProblem,
    stats::{ConsumerStats, PartitionStats},
    turns::Change,
};
use rdkafka::{
    ClientContext, Offset, Statistics, TopicPartitionList,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, Consumer as _, ConsumerContext},
    error::{KafkaError, KafkaResult, RDKafkaErrorCode},
    types::RDKafkaRespErr,
};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// How long a commit in flight is waited for before revoked partitions are let go. librdkafka keeps one that it cannot send for as long as
/// a session (45 s), then its request takes a minute at the most; both end before `max.poll.interval.ms`. It takes milliseconds
/// where the coordinator can be reached.
pub const RESOLVE_WAIT: Duration = Duration::from_mins(2);

/// How long a seek is waited for. It is an order from one thread to another, and asks no broker.
const SEEK_WAIT: Duration = Duration::from_secs(5);

/// How long partitions that are let go are waited for.
#[derive(Debug, Clone, Copy)]
pub struct Waits {
    /// For their workers, and for what was sent of them.
    pub drained_by: Instant,
    /// For a commit in flight, and for their last one.
    pub committed_by: Instant,
}

/// How partitions went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone {
    /// Those that had ranges on their way.
    pub undrained: usize,
    /// Offsets of ranges that had ended and were not committed.
    pub uncommitted: u64,
    /// Those of them that a commit would have passed, since everything below was settled.
    pub committable: u64,
}

/// librdkafka's callbacks. All of them run on the poll thread.
pub struct Rebalancing {
    assignment: Mutex<Assignment>,
    stats: Arc<ConsumerStats>,
    revoke_wait: Duration,
    reachable: AtomicBool,
    /// Partitions were unassigned outside a callback, and a revocation from before that may wait for its callback.
    may_have_answered: AtomicBool,
    /// Statistics have arrived since they were looked at.
    has_statistics: AtomicBool,
}

impl Rebalancing {
    /// Callbacks for one consumer.
    pub fn new(assignment: Assignment, revoke_wait: Duration) -> Self {
        Self {
            assignment: Mutex::new(assignment),
            stats: Arc::default(),
            revoke_wait,
            reachable: AtomicBool::new(true),
            may_have_answered: AtomicBool::new(false),
            has_statistics: AtomicBool::new(false),
        }
    }

    /// The numbers for the metrics.
    pub fn stats(&self) -> &Arc<ConsumerStats> {
        &self.stats
    }

    /// Whether statistics have arrived since this was asked last.
    pub fn has_new_statistics(&self) -> bool {
        self.has_statistics.swap(false, Ordering::Relaxed)
    }

    /// What the poll thread owns.
    pub fn assignment(&self) -> MutexGuard<'_, Assignment> {
        self.assignment.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does with the consumer what is to be done.
    pub fn carry_out(&self, consumer: &Arc<BaseConsumer<Self>>, steps: Steps) {
        let Steps { change, unassign, assign } = steps;
        carry_out(consumer, &change);
        self.unassign(consumer, &unassign);
        if !assign.is_empty() {
            self.assign(consumer, assign);
        }
    }

    /// Has librdkafka forget partitions outside a callback. It waits until that is done, so that a revocation which it was taken for
    /// the answer to is in the queue by then, and its callback runs with the next poll.
    fn unassign(&self, consumer: &BaseConsumer<Self>, ids: &[PartitionId]) {
        if ids.is_empty() {
            return;
        }
        self.may_have_answered.store(true, Ordering::Relaxed);
        if let Err(error) = consumer.incremental_unassign(&list(ids)) {
            tracing::error!(%error, "partitions that begin anew were not unassigned");
        }
    }

    /// Takes down that no callback waits any more of those that did when it was polled last.
    pub fn heard_all(&self) {
        self.may_have_answered.store(false, Ordering::Relaxed);
    }

    /// Has librdkafka read partitions from where they begin, and gives them to their workers.
    fn assign(&self, consumer: &Arc<BaseConsumer<Self>>, assign: Vec<Ready>) {
        let (mut new, mut kept) = (TopicPartitionList::new(), TopicPartitionList::new());
        let mut gained = Vec::with_capacity(assign.len());
        for Ready { id, position, is_kept, begun } in assign {
            let queue = PartitionQueue::split(consumer, &id);
            if queue.is_some() {
                let list = if is_kept { &mut kept } else { &mut new };
                list.add_partition_offset(&id.topic, id.partition, Offset::Offset(position))
                    .expect("a position is one past the offset of a message, which is valid in a list");
            }
            gained.push((id, begun, queue));
        }
        let mut refused = seek(consumer, kept);
        self.unassign(consumer, &refused);
        if let Err(error) = consumer.incremental_assign(&new) {
            tracing::error!(%error, "partitions were not assigned");
            refused.extend(ids(&new));
        }
        let mut assignment = self.assignment();
        let mut given = Vec::new();
        for (id, begun, queue) in gained {
            let Some(mut queue) = queue.filter(|_| !refused.contains(&id)) else {
                tracing::error!(partition = %id, "the partition was not assigned; it is tried again");
                assignment.take_back(id);
                continue;
            };
            // Every worker may be woken; which one has the partition is its own affair.
            let wakes = assignment.wakes();
            queue.set_nonempty_callback(move || wakes.iter().for_each(wake));
            given.push(id.clone());
            assignment.give(id, begun, queue);
        }
        let change = assignment.turns.gained(&given);
        drop(assignment);
        carry_out(consumer, &change);
        self.count_owned();
    }

    fn gain(&self, consumer: &BaseConsumer<Self>, gained: Vec<PartitionId>) {
        tracing::info!(partitions = gained.len(), "partitions assigned");
        // The group is answered at once: librdkafka pauses every partition and heeds no rebalance until it is. Those that arrive
        // are added when their beginning is known.
        warn_of(consumer.incremental_assign(&TopicPartitionList::new()), "assigned");
        self.assignment().arrivals.arrive(gained);
        self.stats.joined.store(true, Ordering::Release);
    }

    fn give_up(&self, consumer: &BaseConsumer<Self>, revoked: &[PartitionId]) {
        // A lost assignment has another owner already: nothing may be committed for it.
        let is_late = self.may_have_answered.load(Ordering::Relaxed);
        let taken_away = consumer.assignment_lost() || is_late;
        let missing = self.assignment().arrivals.turn_away(revoked);
        if !missing.is_empty() {
            // librdkafka unassigns all of them or none.
            warn_of(consumer.incremental_assign(&list(&missing)), "assigned to be let go");
        }
        let is_in_vain = taken_away || self.assignment().has_waited;
        let wait = if is_in_vain { Duration::ZERO } else { self.revoke_wait };
        let now = Instant::now();
        let waits = Waits { drained_by: now + wait, committed_by: now + wait + RESOLVE_WAIT };
        let Gone { undrained, uncommitted, .. } = self.let_go(revoked, waits, !taken_away);
        let change = self.assignment().turns.lost(revoked);
        carry_out(consumer, &change);
        warn_of(consumer.incremental_unassign(&list(revoked)), "unassigned");
        tracing::info!(partitions = revoked.len(), undrained, uncommitted, taken_away, "partitions revoked");
    }

    /// Takes partitions back from their workers, waits until what was sent of them is settled, commits, and ends their generation.
    /// Neither wait goes beyond the moment by which this process is to have ended: a commit that has no answer by then goes nowhere
    /// any more.
    pub fn let_go(&self, ids: &[PartitionId], waits: Waits, commits: bool) -> Gone {
        let mut assignment = self.assignment();
        assignment.leave(ids);
        assignment.recall(ids, false);
        let Waits { drained_by, committed_by } = waits;
        assignment.tend_until(drained_by, &self.stats, |assignment| assignment.undrained(ids) == 0);
        let undrained = assignment.undrained(ids);
        if commits {
            assignment.commit_last(ids, committed_by, &self.stats);
        } else {
            assignment.resolve(committed_by, &self.stats);
        }
        let (uncommitted, committable) = (assignment.uncommitted(ids), assignment.committable(ids));
        let gone = Gone { undrained, uncommitted, committable };
        assignment.lose(ids);
        gone
    }

    fn count_owned(&self) {
        let assignment = self.assignment();
        let (owned, halted) = (assignment.owned().len(), assignment.arrivals.halted().count());
        drop(assignment);
        self.stats.partitions_owned.store(i64::try_from(owned).unwrap_or(i64::MAX), Ordering::Relaxed);
        self.stats.partitions_halted.store(halted as u64, Ordering::Relaxed);
    }
}

/// Pauses and resumes. A partition that is not assigned any more is none of our business.
pub fn carry_out(consumer: &BaseConsumer<Rebalancing>, change: &Change) {
    for (ids, resume) in [(&change.pause, false), (&change.resume, true)] {
        if ids.is_empty() {
            continue;
        }
        let mut list = TopicPartitionList::with_capacity(ids.len());
        for id in ids {
            list.add_partition(&id.topic, id.partition);
        }
        let done = if resume { consumer.resume(&list) } else { consumer.pause(&list) };
        match done {
            Ok(()) => consumer.context().assignment().was_paused(ids, !resume),
            Err(error) => tracing::warn!(%error, resume, "partitions were not paused or resumed"),
        }
    }
}

/// Has librdkafka go on reading at these offsets, and waits until it does. Returns the partitions that it refuses to.
fn seek(consumer: &BaseConsumer<Rebalancing>, list: TopicPartitionList) -> Vec<PartitionId> {
    if list.count() == 0 {
        return Vec::new();
    }
    let all = ids(&list);
    match consumer.seek_partitions(list, SEEK_WAIT) {
        Ok(sought) => {
            let refused =
                sought.elements().into_iter().zip(all).filter(|(element, _)| element.error().is_err());
            refused.map(|(_, id)| id).collect()
        }
        Err(error) => {
            tracing::error!(%error, "partitions that begin anew were not sought to where they do");
            all
        }
    }
}

fn ids(list: &TopicPartitionList) -> Vec<PartitionId> {
    list.elements()
        .iter()
        .map(|e| PartitionId { topic: e.topic().into(), partition: e.partition() })
        .collect()
}

fn list(ids: &[PartitionId]) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(ids.len());
    for id in ids {
        list.add_partition(&id.topic, id.partition);
    }
    list
}

fn warn_of(done: KafkaResult<()>, what: &'static str) {
    if let Err(error) = done {
        tracing::error!(%error, "partitions were not {what}");
    }
}

impl ConsumerContext for Rebalancing {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        event: RDKafkaRespErr,
        partitions: &mut TopicPartitionList,
    ) {
        let partitions = ids(partitions);
        match event {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => self.gain(consumer, partitions),
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS => self.give_up(consumer, &partitions),
            error => {
                tracing::warn!(error = %RDKafkaErrorCode::from(error), "the group could not rebalance");
                let owned = self.assignment().owned();
                self.give_up(consumer, &owned);
            }
        }
        self.stats.rebalances.fetch_add(1, Ordering::Relaxed);
        self.count_owned();
    }
}

impl ClientContext for Rebalancing {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        match level {
            RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
                tracing::error!(facility, "librdkafka: {message}");
            }
            // Connections come and go; the line that matters is written when the state changes.
            _ if matches!(facility, "FAIL" | "REQTMOUT" | "FETCH") => {
                tracing::debug!(facility, "librdkafka: {message}");
            }
            _ => tracing::warn!(facility, "librdkafka: {message}"),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        // A broker that refuses TLS or the password says so before all of them count as down; that reason is the one to tell.
        let away = error.rdkafka_error_code() == Some(RDKafkaErrorCode::AllBrokersDown)
            || ConnectionProblem::of(&error).is_some();
        if away && self.reachable.swap(false, Ordering::Relaxed) {
            tracing::warn!(reason, "no broker can be reached; reading goes on once one can");
        } else {
            tracing::debug!(%error, reason, "librdkafka reports an error");
        }
    }

    fn stats(&self, statistics: Statistics) {
        let up = statistics.brokers.values().any(|broker| broker.nodeid >= 0 && broker.state == "UP");
        if up && !self.reachable.swap(true, Ordering::Relaxed) {
            tracing::info!("a broker can be reached again");
        }
        if let Some(group) = statistics.cgrp.as_ref().filter(|_| self.stats.phase() == Phase::Member) {
            self.stats.see_group(&group.state, &group.join_state, Instant::now());
        }
        let mut assignment = self.assignment();
        assignment.ask_logs(Instant::now());
        let mut partitions = std::collections::BTreeMap::new();
        for (topic, of_topic) in &statistics.topics {
            for partition in of_topic.partitions.values() {
                let id = PartitionId { topic: topic.as_str().into(), partition: partition.partition };
                if assignment.owns(&id) {
                    let numbers = PartitionStats::of(partition);
                    if let Some(end) = numbers.end_offset {
                        assignment.log_ends(&id, end);
                    }
                    let numbers = assignment.completed(&id, numbers);
                    partitions.insert(id, numbers);
                }
            }
        }
        drop(assignment);
        self.stats.replace(partitions);
        self.has_statistics.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        arrivals::Policy,
        committer::{Beginning, Committer},
        consumer::{Inbox, Shortage},
        ranges::{Log, Rule, Settings, Version},
    };
    use crossbeam_channel::bounded;
    use sluice_gateway_config::InitialOffset;
    use std::sync::Weak;

    #[test]
    fn whoever_leaves_waits_no_longer_than_it_may_though_the_coordinator_is_away() {
        let (ownership, wake) = (bounded(1).0, bounded(1).0);
        let (reports, reports_in) = bounded(16);
        let rule = Rule { version: Version::Before, bytes: 100, messages: 10 };
        let settings = Settings { rule, routing_epoch: 0, destination: None, topic_id: None, instance: 1 };
        let policy = Policy { settings, initial_offset: InitialOffset::Earliest, active_max: 8 };
        let inbox = Inbox { ownership, wake, shortage: Shortage::default() };
        let mut assignment = Assignment::new(vec![inbox], reports_in, Box::new(|_| Ok(())), policy);
        // It has no consumer, so that nothing that it is asked for is answered.
        assignment.committer = Some(Committer::start(Weak::new()).unwrap());
        let id = PartitionId { topic: "spans".into(), partition: 0 };
        let log = Log { start: 0, end: 5 };
        let beginning =
            Beginning { commit: None, log, cluster: "cluster".into(), topic_id: None, is_new: false };
        assignment.arrivals.arrive(vec![id.clone()]);
        assignment.begin(id.clone(), &beginning, &ConsumerStats::default());
        let rebalancing = Rebalancing::new(assignment, Duration::ZERO);
        let now = Instant::now();
        let waits = Waits { drained_by: now, committed_by: now + Duration::from_millis(100) };
        assert_eq!(rebalancing.let_go(std::slice::from_ref(&id), waits, true).undrained, 1);
        let waited = now.elapsed();
        assert!(waited >= Duration::from_millis(100), "it made its last commit, and waited for it");
        assert!(waited < Duration::from_secs(30), "{waited:?}");
        assert!(!rebalancing.assignment().owns(&id));
        drop(reports);
    }
}
