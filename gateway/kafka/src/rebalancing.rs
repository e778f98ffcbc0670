//! librdkafka's callbacks: partitions come and go, brokers do, statistics arrive.
//!
//! Owner: the poll thread, which librdkafka runs all of them on.
//!
//! A partition is split off into its own queue *before* it is assigned: from then on not a single message of it can arrive on
//! the main queue, which the poll thread polls for events only.
//!
//! Limits: a revoked partition is waited for at the most [`crate::Limits::revoke_wait`], its last commit
//! [`LAST_COMMIT_WAIT`].

use crate::{
    assignment::{Assignment, wake},
    partition::{Partition, PartitionId},
    stats::{ConsumerStats, PartitionStats},
    turns::Change,
};
use rdkafka::{
    ClientContext, Statistics, TopicPartitionList,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, Consumer as _, ConsumerContext, Rebalance},
    error::{KafkaError, RDKafkaErrorCode},
};
use sluice_gateway_config::InitialOffset;
use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// How long the last commit of a partition may take, before it is let go uncommitted.
pub const LAST_COMMIT_WAIT: Duration = Duration::from_secs(5);

/// librdkafka's callbacks. All of them run on the poll thread.
pub struct Rebalancing {
    assignment: Mutex<Assignment>,
    stats: Arc<ConsumerStats>,
    consumer: OnceLock<Weak<BaseConsumer<Rebalancing>>>,
    initial_offset: InitialOffset,
    revoke_wait: Duration,
    reachable: AtomicBool,
}

impl Rebalancing {
    /// Callbacks for one consumer, which [`Rebalancing::serves`] names once it is made.
    pub fn new(assignment: Assignment, initial_offset: InitialOffset, revoke_wait: Duration) -> Self {
        Self {
            assignment: Mutex::new(assignment),
            stats: Arc::default(),
            consumer: OnceLock::new(),
            initial_offset,
            revoke_wait,
            reachable: AtomicBool::new(true),
        }
    }

    /// Names the consumer whose partitions are split off.
    pub fn serves(&self, consumer: &Arc<BaseConsumer<Self>>) {
        assert!(self.consumer.set(Arc::downgrade(consumer)).is_ok(), "the consumer is made once");
    }

    /// The numbers for the metrics.
    pub fn stats(&self) -> &Arc<ConsumerStats> {
        &self.stats
    }

    /// What the poll thread owns.
    pub fn assignment(&self) -> MutexGuard<'_, Assignment> {
        self.assignment.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gain(&self, ids: Vec<PartitionId>) {
        let Some(consumer) = self.consumer.get().and_then(Weak::upgrade) else { return };
        let mut assignment = self.assignment();
        for id in ids {
            let Some(mut queue) = consumer.split_partition_queue(&id.topic, id.partition) else {
                tracing::error!(partition = %id, "the partition has no queue and is not read");
                continue;
            };
            let generation = assignment.ledger.gained(id.clone());
            // Every worker may be woken; which one gets the partition is decided when it is given.
            let wakes = assignment.wakes();
            queue.set_nonempty_callback(move || wakes.iter().for_each(wake));
            assignment.give(Partition { id, generation, queue });
        }
    }

    /// Takes partitions back from their workers and waits until their blocks are settled. Returns how many were not.
    pub fn take_back(&self, ids: &[PartitionId], wait: Duration) -> usize {
        let deadline = Instant::now() + wait;
        let mut assignment = self.assignment();
        let recalled: Vec<&PartitionId> = ids.iter().filter(|id| assignment.recall(id)).collect();
        assignment.drain(&recalled, deadline, &self.stats)
    }

    /// Commits what is settled and waits for the outcome, both of the commit in flight and of this one.
    pub fn commit_by(&self, deadline: Instant) {
        let mut assignment = self.assignment();
        assignment.take_outcome(deadline, &self.stats);
        // Once for beginnings that wait, once for what is settled.
        for _ in 0..2 {
            assignment.begin_commit();
            assignment.take_outcome(deadline, &self.stats);
        }
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
        if let Err(error) = done {
            tracing::warn!(%error, resume, "partitions were not paused or resumed");
        }
    }
}

fn ids(list: &TopicPartitionList) -> Vec<PartitionId> {
    list.elements()
        .iter()
        .map(|e| PartitionId { topic: e.topic().into(), partition: e.partition() })
        .collect()
}

impl ConsumerContext for Rebalancing {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(list) => {
                let gained = ids(list);
                tracing::info!(partitions = gained.len(), "partitions assigned");
                self.gain(gained);
            }
            Rebalance::Revoke(list) => {
                let revoked = ids(list);
                // A lost assignment has another owner already: nothing may be committed for it.
                let taken_away = consumer.assignment_lost();
                let wait = if taken_away { Duration::ZERO } else { self.revoke_wait };
                let undrained = self.take_back(&revoked, wait);
                if !taken_away {
                    self.commit_by(Instant::now() + LAST_COMMIT_WAIT);
                }
                let mut assignment = self.assignment();
                for id in &revoked {
                    assignment.ledger.lost(id);
                }
                let change = assignment.turns.lost(&revoked);
                drop(assignment);
                carry_out(consumer, &change);
                tracing::info!(partitions = revoked.len(), undrained, taken_away, "partitions revoked");
            }
            Rebalance::Error(error) => tracing::warn!(%error, "the group could not rebalance"),
        }
    }

    fn post_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Assign(list) = rebalance {
            let gained = ids(list);
            if self.initial_offset == InitialOffset::Latest {
                self.assignment().pin(&gained);
            }
            let change = self.assignment().turns.gained(&gained);
            carry_out(consumer, &change);
            self.stats.joined.store(true, Ordering::Release);
        }
        self.stats.rebalances.fetch_add(1, Ordering::Relaxed);
        let owned = self.assignment().ledger.owned().count();
        self.stats.partitions_owned.store(i64::try_from(owned).unwrap_or(i64::MAX), Ordering::Relaxed);
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
        let away = error.rdkafka_error_code() == Some(RDKafkaErrorCode::AllBrokersDown);
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
        let known = |value: i64| (value >= 0).then_some(value);
        let assignment = self.assignment();
        let mut partitions = std::collections::BTreeMap::new();
        for (topic, of_topic) in &statistics.topics {
            for partition in of_topic.partitions.values() {
                let id = PartitionId { topic: topic.as_str().into(), partition: partition.partition };
                if assignment.ledger.generation(&id).is_some() {
                    let numbers = PartitionStats {
                        lag_messages: known(partition.consumer_lag),
                        end_offset: known(partition.ls_offset),
                        committed_offset: known(partition.committed_offset),
                        queued_bytes: partition.fetchq_size,
                    };
                    partitions.insert(id, numbers);
                }
            }
        }
        drop(assignment);
        self.stats.replace(partitions);
    }
}
