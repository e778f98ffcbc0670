//! librdkafka's callbacks for rebalances, broker errors and statistics.
//!
//! Owner: the poll thread, which runs all of them.
//!
//! A partition that the group assigns is not assigned in librdkafka at once. First the commit thread reads the committed offset; then the
//! partition is assigned at exactly that offset. The group does not wait for it.
//!
//! The partition is split off into its own queue *before* it is assigned. From then on none of its messages can arrive on the main queue,
//! which the poll thread polls for events only.
//!
//! Outside a callback, partitions are not unassigned if that can be avoided: librdkafka would take an unassignment for the answer to a
//! revocation whose callback has not run yet. The next owner would then start before the last commit here. A partition that restarts is
//! paused, and a seek moves it to its start. Where that is not possible (see [`Rebalancing::unassign`]), a revocation that may have been
//! answered that way is handled as one that came too late to commit for.
//!
//! Limits: the wait for a revoked partition is at most [`crate::Limits::revoke_wait`], for a commit in flight at most [`RESOLVE_WAIT`].
//! Neither exceeds the shutdown deadline.

use crate::{
    ground::{security::ConnectionProblem, wake::wake},
    group::{
        arrivals::Ready,
        assignment::{Assignment, Gone, Steps, Waits},
        membership::Phase,
        partition::{KafkaQueue, PartitionQueue},
        stats::{ConsumerStats, PartitionStats},
        turns::Change,
    },
};
use rdkafka::{
    ClientContext, Offset, Statistics, TopicPartitionList,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, Consumer as _, ConsumerContext},
    error::{KafkaError, KafkaResult, RDKafkaErrorCode},
    types::RDKafkaRespErr,
};
use sluice_ranges::PartitionId;
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// How long to wait for a commit in flight before revoked partitions are released. librdkafka keeps a commit that it cannot send for as
/// long as a session (45 s), then its request takes at most a minute; both end before `max.poll.interval.ms`. A commit takes milliseconds
/// if the coordinator can be reached.
pub const RESOLVE_WAIT: Duration = Duration::from_mins(2);

/// How long to wait for a seek. It is an order from one thread to another, and asks no broker.
const SEEK_WAIT: Duration = Duration::from_secs(5);

/// librdkafka's callbacks. All of them run on the poll thread.
pub struct Rebalancing {
    assignment: Mutex<Assignment>,
    stats: Arc<ConsumerStats>,
    revoke_wait: Duration,
    reachable: AtomicBool,
    /// Partitions were unassigned outside a callback, and an earlier revocation may still wait for its callback.
    may_have_answered: AtomicBool,
    /// New statistics have arrived since the last check.
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

    /// The numbers for metrics.
    pub fn stats(&self) -> &Arc<ConsumerStats> {
        &self.stats
    }

    /// Whether statistics have arrived since the last call.
    pub fn has_new_statistics(&self) -> bool {
        self.has_statistics.swap(false, Ordering::Relaxed)
    }

    /// The state that the poll thread owns.
    pub fn assignment(&self) -> MutexGuard<'_, Assignment> {
        self.assignment.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the calls on the consumer.
    pub fn carry_out(&self, consumer: &Arc<BaseConsumer<Self>>, steps: Steps) {
        let Steps { change, unassign, assign } = steps;
        carry_out(consumer, &change);
        self.unassign(consumer, &unassign);
        if !assign.is_empty() {
            self.assign(consumer, assign);
        }
    }

    /// Removes partitions from librdkafka outside a callback. Waits until that is done: a revocation that it may have answered is then in
    /// the queue, and its callback runs with the next poll.
    fn unassign(&self, consumer: &BaseConsumer<Self>, ids: &[PartitionId]) {
        if ids.is_empty() {
            return;
        }
        self.may_have_answered.store(true, Ordering::Relaxed);
        if let Err(error) = consumer.incremental_unassign(&list(ids)) {
            tracing::error!(%error, "cannot unassign partitions that restart at their committed offsets");
        }
    }

    /// Records that the queue was empty: no callback waits any more for a revocation from before.
    pub fn heard_all(&self) {
        self.may_have_answered.store(false, Ordering::Relaxed);
    }

    /// Assigns partitions in librdkafka at their start offsets, and gives them to their workers.
    fn assign(&self, consumer: &Arc<BaseConsumer<Self>>, assign: Vec<Ready>) {
        let (mut new, mut kept) = (TopicPartitionList::new(), TopicPartitionList::new());
        let mut gained = Vec::with_capacity(assign.len());
        for Ready { id, position, is_kept, begun } in assign {
            let queue = KafkaQueue::split(consumer, &id);
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
            tracing::error!(%error, "cannot assign partitions");
            refused.extend(ids(&new));
        }
        let mut assignment = self.assignment();
        let mut given = Vec::new();
        for (id, begun, queue) in gained {
            let Some(mut queue) = queue.filter(|_| !refused.contains(&id)) else {
                tracing::error!(partition = %id, "the partition was not assigned; retrying");
                assignment.retry_arrival(id);
                continue;
            };
            // Every worker is woken; only the one that has the partition has something to do.
            let wakes = assignment.wakes();
            queue.set_nonempty_callback(move || wakes.iter().for_each(wake));
            given.push(id.clone());
            assignment.hand_to_worker(id, begun, PartitionQueue::Kafka(queue));
        }
        let change = assignment.turns.gained(&given);
        drop(assignment);
        carry_out(consumer, &change);
        self.count_owned();
    }

    fn gain(&self, consumer: &BaseConsumer<Self>, gained: Vec<PartitionId>) {
        tracing::info!(partitions = gained.len(), "partitions assigned");
        // The group is answered at once: until then librdkafka pauses every partition and ignores rebalances. Arriving partitions are
        // added when their start offset is known.
        warn_of(consumer.incremental_assign(&TopicPartitionList::new()), "assigned");
        self.assignment().arrivals.arrive(gained);
        self.stats.joined.store(true, Ordering::Release);
    }

    fn give_up(&self, consumer: &BaseConsumer<Self>, revoked: &[PartitionId]) {
        // A lost assignment already has another owner: no commit may be made for it.
        let is_late = self.may_have_answered.load(Ordering::Relaxed);
        let taken_away = consumer.assignment_lost() || is_late;
        let missing = self.assignment().arrivals.cancel_arrival(revoked);
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

    /// Takes partitions back from their workers, waits until their ranges in flight are settled, commits, and ends their generation.
    /// Neither wait exceeds the shutdown deadline: a commit without an answer by then is given up.
    pub fn let_go(&self, ids: &[PartitionId], waits: Waits, commits: bool) -> Gone {
        self.assignment().let_go(ids, waits, commits, &self.stats)
    }

    fn count_owned(&self) {
        let assignment = self.assignment();
        let (owned, halted) = (assignment.owned().len(), assignment.arrivals.halted().count());
        drop(assignment);
        self.stats.partitions_owned.store(i64::try_from(owned).unwrap_or(i64::MAX), Ordering::Relaxed);
        self.stats.partitions_halted.store(halted as u64, Ordering::Relaxed);
    }
}

/// Pauses and resumes partitions. Ignores partitions that are no longer assigned.
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
            Err(error) => tracing::warn!(%error, resume, "cannot pause or resume partitions"),
        }
    }
}

/// Moves librdkafka to these offsets, and waits until that is done. Returns the partitions for which it failed.
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
            tracing::error!(%error, "cannot seek partitions that restart at their committed offsets");
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
                tracing::warn!(error = %RDKafkaErrorCode::from(error), "the consumer group could not rebalance");
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
            // Connections come and go; the useful line is logged when the state changes.
            _ if matches!(facility, "FAIL" | "REQTMOUT" | "FETCH") => {
                tracing::debug!(facility, "librdkafka: {message}");
            }
            _ => tracing::warn!(facility, "librdkafka: {message}"),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        if matches!(
            error.rdkafka_error_code(),
            Some(RDKafkaErrorCode::BrokerTransportFailure | RDKafkaErrorCode::Resolve)
        ) {
            self.stats.fails_to_connect(reason);
        }
        // If a broker rejects TLS or the password, librdkafka reports that before all brokers count as down. That reason is the one to
        // log.
        let away = error.rdkafka_error_code() == Some(RDKafkaErrorCode::AllBrokersDown)
            || ConnectionProblem::of(&error).is_some();
        if away && self.reachable.swap(false, Ordering::Relaxed) {
            tracing::warn!(reason, "no Kafka broker can be reached; reading continues once one can");
        } else {
            tracing::debug!(%error, reason, "librdkafka reports an error");
        }
    }

    fn stats(&self, statistics: Statistics) {
        let up = statistics.brokers.values().any(|broker| broker.nodeid >= 0 && broker.state == "UP");
        if up {
            self.stats.connects();
        }
        if up && !self.reachable.swap(true, Ordering::Relaxed) {
            tracing::info!("a Kafka broker can be reached again");
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
    use crate::group::{
        arrivals::Policy,
        committer::{Beginning, Committer},
        consumer::{Inbox, Shortage},
    };
    use crossbeam_channel::bounded;
    use sluice_gateway_config::InitialOffset;
    use sluice_ranges::{Log, Rule, Settings, Version};
    use std::sync::Weak;

    #[test]
    fn whoever_leaves_waits_no_longer_than_it_may_though_the_coordinator_is_away() {
        let (ownership, wake) = (bounded(1).0, bounded(1).0);
        let (reports, reports_in) = bounded(16);
        let rule = Rule { version: Version::Before, bytes: 100, messages: 10 };
        let settings = Settings { rule, routing_epoch: 0, destination: None, topic_id: None, cluster: None };
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
