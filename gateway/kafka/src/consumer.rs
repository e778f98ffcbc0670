//! The poll thread: joins the group, hands partitions to workers, and commits what the ledger allows.
//!
//! Owner: one thread, the one that calls [`Consumer::run`]; librdkafka runs the rebalance callbacks on it. Workers poll
//! the partition queues on their own threads and keep no other reference to the consumer.
//!
//! A partition is split off into its own queue *before* it is assigned, in the callback: from then on not a single
//! message of it can arrive on the main queue, which this thread polls for events only.
//!
//! Limits: reports wait in a channel of [`REPORTS_MAX`]; a revoked partition is waited for at the most
//! [`Limits::revoke_wait`].

use crate::{
    committer::{Committer, Outcome},
    ledger::{Ledger, Verdict},
    partition::{Ownership, Partition, PartitionId, Report},
    settings::{Identity, consumer_settings},
    stats::{ConsumerStats, PartitionStats},
};
use crossbeam_channel::{Receiver, Sender, bounded};
use rdkafka::{
    ClientConfig, ClientContext, Statistics, TopicPartitionList,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, Consumer as _, ConsumerContext, Rebalance},
    error::{KafkaError, RDKafkaErrorCode},
};
use sluice_gateway_config::Kafka;
use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Reports that wait for the poll thread. It takes them every [`POLL_INTERVAL`]; more than this many blocks cannot
/// settle in that time.
pub const REPORTS_MAX: usize = 4_096;

/// How long one poll for events lasts at the most, and so how late a report is taken.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How often settled offsets are committed. What was inserted since the last commit is read again after a crash.
const COMMIT_INTERVAL: Duration = Duration::from_secs(1);

/// How long the last commit of a partition may take, before it is let go uncommitted.
const LAST_COMMIT_WAIT: Duration = Duration::from_secs(5);

/// Why a consumer could not start, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// librdkafka refused the settings.
    #[error("cannot make a Kafka consumer for group {group}: {source}")]
    Create {
        /// The consumer group.
        group: String,
        /// What librdkafka said.
        source: KafkaError,
    },
    /// The commit thread could not be started.
    #[error("cannot start the commit thread: {source}")]
    Committer {
        /// What the system said.
        source: std::io::Error,
    },
    /// The topics could not be subscribed to.
    #[error("cannot subscribe to {topics}: {source}")]
    Subscribe {
        /// The topics.
        topics: String,
        /// What librdkafka said.
        source: KafkaError,
    },
    /// The consumer cannot go on: it was fenced, for instance, by another one with its instance id.
    #[error("the consumer of group {group} cannot go on: {source}")]
    Fatal {
        /// The consumer group.
        group: String,
        /// What librdkafka said.
        source: KafkaError,
    },
    /// Blocks were still in flight when the time to leave was over. They are read again by the next owner.
    #[error("{partitions} partitions still had blocks in flight when the time to leave was over")]
    NotDrained {
        /// How many partitions.
        partitions: usize,
    },
}

/// How a worker is reached.
#[derive(Clone)]
pub struct Inbox {
    /// Gained and lost partitions.
    pub ownership: Sender<Ownership>,
    /// A token whenever one of its queues has messages again; capacity 1, a full one means that it is awake.
    pub wake: Sender<()>,
}

/// How long the poll thread waits for others.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// For blocks of a revoked partition. Well below the session timeout: the callback holds up the rebalance.
    pub revoke_wait: Duration,
    /// For all blocks, when leaving.
    pub leave_wait: Duration,
}

/// Asks the poll thread to leave; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks.
    pub fn request(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it was asked.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A consumer, subscribed once it [runs](Consumer::run).
pub struct Consumer {
    client: Arc<BaseConsumer<Rebalancing>>,
    topics: Vec<String>,
    group: String,
    limits: Limits,
    reports: Sender<Report>,
}

impl Consumer {
    /// Makes a consumer for these workers.
    ///
    /// # Panics
    /// When there is no worker.
    pub fn new(
        kafka: &Kafka,
        identity: &Identity,
        inboxes: Vec<Inbox>,
        limits: Limits,
    ) -> Result<Self, Error> {
        assert!(!inboxes.is_empty(), "a consumer without workers reads nothing");
        let (reports, reports_in) = bounded(REPORTS_MAX);
        let state = State {
            ledger: Ledger::default(),
            inboxes,
            next_inbox: 0,
            owners: Vec::new(),
            reports: reports_in,
            committer: None,
        };
        let rebalancing = Rebalancing {
            state: Mutex::new(state),
            stats: Arc::default(),
            consumer: OnceLock::new(),
            revoke_wait: limits.revoke_wait,
            reachable: AtomicBool::new(true),
        };
        let mut config = ClientConfig::new();
        for (name, value) in consumer_settings(kafka, identity) {
            config.set(name, value);
        }
        config.set_log_level(RDKafkaLogLevel::Warning);
        let group = kafka.consumer_group.clone();
        let client: BaseConsumer<Rebalancing> = config
            .create_with_context(rebalancing)
            .map_err(|source| Error::Create { group: group.clone(), source })?;
        let client = Arc::new(client);
        let first = client.context().consumer.set(Arc::downgrade(&client));
        assert!(first.is_ok(), "the consumer is made once");
        let committer =
            Committer::start(Arc::downgrade(&client)).map_err(|source| Error::Committer { source })?;
        client.context().state().committer = Some(committer);
        Ok(Self { client, topics: kafka.topics.clone(), group, limits, reports })
    }

    /// Where workers and delivery send their reports.
    pub fn reports(&self) -> Sender<Report> {
        self.reports.clone()
    }

    /// The numbers for the metrics.
    pub fn stats(&self) -> Arc<ConsumerStats> {
        self.client.context().stats.clone()
    }

    /// Joins the group and serves it until asked to stop; then takes every partition back from the workers, waits for
    /// what is in flight, commits, and leaves.
    pub fn run(self, stop: &Stop) -> Result<(), Error> {
        let topics: Vec<&str> = self.topics.iter().map(String::as_str).collect();
        self.client
            .subscribe(&topics)
            .map_err(|source| Error::Subscribe { topics: self.topics.join(", "), source })?;
        let mut last_commit = Instant::now();
        let mut last_problem = None;
        while !stop.is_requested() {
            match self.client.poll(POLL_INTERVAL) {
                None => {}
                Some(Err(source @ KafkaError::MessageConsumptionFatal(_))) => {
                    return Err(Error::Fatal { group: self.group, source });
                }
                Some(Err(error)) => warn_once(&mut last_problem, &error),
                Some(Ok(message)) => unreachable_message(&message),
            }
            let context = self.client.context();
            context.stats.polled();
            let mut state = context.state();
            state.take_reports(&context.stats);
            state.take_outcome(Instant::now(), &context.stats);
            if last_commit.elapsed() >= COMMIT_INTERVAL {
                last_commit = Instant::now();
                state.begin_commit();
            }
        }
        self.leave()
    }

    fn leave(self) -> Result<(), Error> {
        let context = self.client.context().clone();
        let owned: Vec<PartitionId> = context.state().ledger.owned().cloned().collect();
        let undrained = context.take_back(&owned, self.limits.leave_wait);
        context.commit_by(Instant::now() + LAST_COMMIT_WAIT);
        for id in &owned {
            context.state().ledger.lost(id);
        }
        if undrained > 0 { Err(Error::NotDrained { partitions: undrained }) } else { Ok(()) }
        // Dropping the last reference to the client leaves the group (a static member stays a member, so that a pod
        // that comes back has its partitions at once).
    }
}

/// A message can reach the main queue only if a partition was assigned without being split off before.
fn unreachable_message(message: &rdkafka::message::BorrowedMessage<'_>) {
    use rdkafka::message::Message as _;
    panic!(
        "a message of {}/{} arrived outside its partition's queue; going on would lose it",
        message.topic(),
        message.partition()
    );
}

/// One line when the problem changes, not one per poll.
fn warn_once(last: &mut Option<RDKafkaErrorCode>, error: &KafkaError) {
    let code = error.rdkafka_error_code();
    if *last != code {
        tracing::warn!(%error, "the consumer reports a problem; it goes on trying");
        *last = code;
    }
}

/// What the callbacks and the poll thread share; both run on the poll thread, so the lock is never waited for.
struct State {
    ledger: Ledger,
    inboxes: Vec<Inbox>,
    next_inbox: usize,
    owners: Vec<(PartitionId, usize)>,
    reports: Receiver<Report>,
    /// There from the consumer's start on.
    committer: Option<Committer>,
}

impl State {
    fn begin_commit(&mut self) {
        let offsets = self.ledger.to_commit();
        if let Some(committer) = &mut self.committer {
            committer.begin(offsets);
        }
    }

    /// Takes the outcome of the commit in flight, waiting for it until `deadline`.
    fn take_outcome(&mut self, deadline: Instant, stats: &ConsumerStats) {
        let Some(Outcome { offsets, result }) = self.committer.as_mut().and_then(|c| c.outcome_by(deadline))
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
                stats.commit_failures.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(%error, "offsets were not committed; they are with the next commit");
            }
        }
    }

    fn take_reports(&mut self, stats: &ConsumerStats) {
        while let Ok(report) = self.reports.try_recv() {
            self.take_report(&report, stats);
        }
    }

    fn take_report(&mut self, report: &Report, stats: &ConsumerStats) {
        let verdict = match report {
            Report::Settled { id, generation, ordinal, range } => {
                self.ledger.settled(id, *generation, *ordinal, *range)
            }
            Report::Released { id, generation, ranges } => self.ledger.released(id, *generation, *ranges),
        };
        if verdict == Verdict::Stale {
            stats.stale_ranges.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Gives a partition to the worker that has the fewest.
    fn give(&mut self, partition: Partition) {
        let load = |index: usize| self.owners.iter().filter(|(_, owner)| *owner == index).count();
        let workers = self.inboxes.len();
        let order = (0..workers).map(|step| (self.next_inbox + step) % workers);
        let index = order.min_by_key(|index| load(*index)).expect("there is at least one worker");
        self.next_inbox = (index + 1) % workers;
        self.owners.push((partition.id.clone(), index));
        self.tell(index, Ownership::Gained(partition));
    }

    /// Tells the worker that owns a partition to let it go. `false` when no worker has it.
    fn recall(&mut self, id: &PartitionId) -> bool {
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

fn wake(sender: &Sender<()>) {
    if sender.try_send(()).is_err() {
        // A full channel holds a token already, and a closed one belongs to a worker that has ended.
    }
}

/// librdkafka's callbacks. All of them run on the poll thread.
pub struct Rebalancing {
    state: Mutex<State>,
    stats: Arc<ConsumerStats>,
    consumer: OnceLock<Weak<BaseConsumer<Rebalancing>>>,
    revoke_wait: Duration,
    reachable: AtomicBool,
}

impl Rebalancing {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gain(&self, ids: Vec<PartitionId>) {
        let Some(consumer) = self.consumer.get().and_then(Weak::upgrade) else { return };
        let mut state = self.state();
        for id in ids {
            let Some(mut queue) = consumer.split_partition_queue(&id.topic, id.partition) else {
                tracing::error!(partition = %id, "the partition has no queue and is not read");
                continue;
            };
            let generation = state.ledger.gained(id.clone());
            // Every worker may be woken; which one gets the partition is decided when it is given.
            let wakes: Vec<_> = state.inboxes.iter().map(|inbox| inbox.wake.clone()).collect();
            queue.set_nonempty_callback(move || wakes.iter().for_each(wake));
            state.give(Partition { id, generation, queue });
        }
    }

    /// Takes partitions back from their workers and waits until their blocks are settled. Returns how many were not.
    fn take_back(&self, ids: &[PartitionId], wait: Duration) -> usize {
        let deadline = Instant::now() + wait;
        let mut state = self.state();
        let recalled: Vec<&PartitionId> = ids.iter().filter(|id| state.recall(id)).collect();
        loop {
            let undrained = recalled.iter().filter(|id| !state.ledger.is_drained(id)).count();
            if undrained == 0 {
                return 0;
            }
            match state.reports.recv_deadline(deadline) {
                Ok(report) => state.take_report(&report, &self.stats),
                Err(_) => return undrained,
            }
        }
    }

    /// Commits what is settled and waits for the outcome, both of the commit in flight and of this one.
    fn commit_by(&self, deadline: Instant) {
        let mut state = self.state();
        state.take_outcome(deadline, &self.stats);
        state.begin_commit();
        state.take_outcome(deadline, &self.stats);
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
                let mut state = self.state();
                for id in &revoked {
                    state.ledger.lost(id);
                }
                tracing::info!(partitions = revoked.len(), undrained, taken_away, "partitions revoked");
            }
            Rebalance::Error(error) => tracing::warn!(%error, "the group could not rebalance"),
        }
    }

    fn post_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if matches!(rebalance, Rebalance::Assign(_)) {
            self.stats.joined.store(true, Ordering::Release);
        }
        self.stats.rebalances.fetch_add(1, Ordering::Relaxed);
        let owned = self.state().ledger.owned().count();
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
        let state = self.state();
        let mut partitions = std::collections::BTreeMap::new();
        for (topic, of_topic) in &statistics.topics {
            for partition in of_topic.partitions.values() {
                let id = PartitionId { topic: topic.as_str().into(), partition: partition.partition };
                if state.ledger.generation(&id).is_some() {
                    let numbers = PartitionStats {
                        lag_messages: known(partition.consumer_lag),
                        end_offset: known(partition.ls_offset),
                        committed_offset: known(partition.committed_offset),
                    };
                    partitions.insert(id, numbers);
                }
            }
        }
        drop(state);
        self.stats.replace(partitions);
    }
}
