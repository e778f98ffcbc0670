//! The poll thread: joins the group, hands partitions to workers, releases ranges, and commits.
//!
//! Owner: one thread, the one that calls [`Consumer::run`]; librdkafka runs the rebalance callbacks on it. Workers poll
//! the partition queues on their own threads and keep no other reference to the consumer.
//!
//! Limits: reports wait in a channel of [`REPORTS_MAX`].

use crate::{
    arrivals::{DestinationOf, KeptRanges, Policy},
    assignment::{Assignment, OrderSink, Steps, TopicMadeAnew},
    committer::{BeforeBegin, Committer},
    inspection::Inspection,
    log_reader::LogReader,
    membership::{Drain, Membership, Stop},
    oversize::Unreceived,
    partition::{Ownership, Report},
    ranges::{Rule, Settings},
    rebalancing::{Gone, Rebalancing, Waits, carry_out},
    rest::Rest,
    settings::{Identity, consumer_settings},
    stats::ConsumerStats,
    turns::{Change, TURN},
};
use crossbeam_channel::{Sender, bounded};
use rdkafka::{
    ClientConfig,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, Consumer as _},
    error::{KafkaError, RDKafkaErrorCode},
};
use sluice_gateway_config::{Kafka, SecretFileError};
use std::{
    hash::{BuildHasher as _, RandomState},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Reports that wait for the poll thread. It takes them every [`POLL_INTERVAL`], also while it waits for a commit; more than this many blocks
/// cannot settle in that time. Where it takes none for longer, because librdkafka waits for a broker, workers wait for room, and delivery
/// does so without its thread.
pub const REPORTS_MAX: usize = 4_096;

/// How long one poll for events lasts at the most, and so how late a report is taken. Short, because a block waits in memory until
/// its range is released.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// How much of the time to leave is kept for the last commit, a quarter at the most. It takes milliseconds where the coordinator can be
/// reached, and is worth this: without it, what was inserted since the last regular commit is sent again.
const LAST_COMMIT_WAIT: Duration = Duration::from_secs(5);

/// Why a consumer could not start, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// User or password cannot be read.
    #[error(transparent)]
    Secret(SecretFileError),
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
    /// Blocks were still in flight when the time to leave was over, and were not kept. They are read again by the next owner.
    #[error("{partitions} partitions still had blocks in flight when the time to leave was over")]
    NotDrained {
        /// How many partitions.
        partitions: usize,
    },
    /// The coordinator has not confirmed the last commit. What is in is read again by the next owner, and dropped by its tokens.
    #[error(
        "everything is in or kept, but {offsets} offsets of what is in were not committed when the time to leave was over"
    )]
    NotCommitted {
        /// How many offsets.
        offsets: u64,
    },
}

/// How a worker is reached.
#[derive(Clone)]
pub struct Inbox {
    /// Gained and lost partitions.
    pub ownership: Sender<Ownership>,
    /// A token whenever one of its queues has messages again; capacity 1, a full one means that it is awake.
    pub wake: Sender<()>,
    /// Says that it cannot go on.
    pub shortage: Shortage,
}

/// Whether a worker waits for memory, or to hand over a block, and how many blocks have the memory, as it says itself. Cheap to clone;
/// the worker writes it each turn, the poll thread reads it every few seconds.
#[derive(Clone, Debug, Default)]
pub struct Shortage(Arc<Said>);

#[derive(Debug, Default)]
struct Said {
    waits: AtomicBool,
    blocks: AtomicU64,
}

impl Shortage {
    /// Says whether the worker waits.
    pub fn say(&self, waits: bool) {
        self.0.waits.store(waits, Ordering::Relaxed);
    }

    /// Whether it waited when it last said so.
    pub fn is_on(&self) -> bool {
        self.0.waits.load(Ordering::Relaxed)
    }

    /// Says how many blocks of the process are sealed and not inserted, those of partitions that were lost among them: an insert goes
    /// on to its end, and keeps its memory.
    pub fn say_blocks(&self, blocks: u64) {
        self.0.blocks.store(blocks, Ordering::Relaxed);
    }

    /// How many there were when it last said so.
    pub fn blocks(&self) -> u64 {
        self.0.blocks.load(Ordering::Relaxed)
    }
}

/// How long the poll thread waits for others, and how ranges are made.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The size rule.
    pub rule: Rule,
    /// Which shard ranges go to, as a number: another one comes into force behind what may be in flight.
    pub routing_epoch: u32,
    /// For blocks of a revoked partition. Well below the session timeout: the callback holds up the rebalance.
    pub revoke_wait: Duration,
    /// For all blocks, when the group is left: then they are given up, and read again by the next owner.
    pub leave_wait: Duration,
}

/// A consumer, subscribed once it [runs](Consumer::run).
pub struct Consumer {
    client: Arc<BaseConsumer<Rebalancing>>,
    topics: Vec<String>,
    group: String,
    limits: Limits,
    reports: Sender<Report>,
    inspection: Inspection,
    unreceived: Unreceived,
    rest: Option<Rest>,
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
        orders: OrderSink,
        limits: Limits,
    ) -> Result<Self, Error> {
        assert!(!inboxes.is_empty(), "a consumer without workers reads nothing");
        let (reports, reports_in) = bounded(REPORTS_MAX);
        let policy = Policy {
            settings: Settings {
                rule: limits.rule,
                routing_epoch: limits.routing_epoch,
                // Each partition's own are found where it begins.
                destination: None,
                topic_id: None,
                instance: RandomState::new().hash_one(std::process::id()),
            },
            initial_offset: kafka.initial_offset,
            active_max: kafka.partitions_active_max as usize,
        };
        let assignment = Assignment::new(inboxes, reports_in, orders, policy);
        let rebalancing = Rebalancing::new(assignment, limits.revoke_wait);
        let mut config = ClientConfig::new();
        for (name, value) in consumer_settings(kafka, identity).map_err(Error::Secret)? {
            config.set(name, value);
        }
        config.set_log_level(RDKafkaLogLevel::Warning);
        let group = kafka.consumer_group.clone();
        let client: BaseConsumer<Rebalancing> = config
            .create_with_context(rebalancing)
            .map_err(|source| Error::Create { group: group.clone(), source })?;
        let client = Arc::new(client);
        let mut committer =
            Committer::start(Arc::downgrade(&client)).map_err(|source| Error::Committer { source })?;
        // What comes later is known as that from then on.
        committer.identify(kafka.topics.iter().map(|topic| topic.as_str().into()).collect());
        let logs = LogReader::start(Arc::downgrade(&client)).inspect_err(
            |error| tracing::warn!(%error, "the thread that asks where logs end could not be started"),
        );
        let mut assignment = client.context().assignment();
        (assignment.committer, assignment.logs) = (Some(committer), logs.ok());
        drop(assignment);
        let inspection = Inspection::start(kafka);
        let (topics, unreceived) = (kafka.topics.clone(), Unreceived::of(kafka));
        Ok(Self { client, topics, group, limits, reports, inspection, unreceived, rest: None })
    }

    /// Has ranges taken over that an earlier run of this process has kept. To be said before it [runs](Self::run).
    pub fn keeps(&self, kept_ranges: KeptRanges) {
        self.client.context().assignment().arrivals.keeps(kept_ranges);
    }

    /// Says where ranges of a partition are sent. To be said before it [runs](Self::run).
    pub fn sends_to(&self, destination_of: DestinationOf) {
        self.client.context().assignment().arrivals.sends_to(destination_of);
    }

    /// Has this asked before a partition begins. To be said before it [runs](Self::run).
    pub fn asks_before_begin(&self, before: BeforeBegin) {
        self.client.context().assignment().before_begin = Some(before);
    }

    /// Has what is not settled kept when this process leaves. To be said before it [runs](Self::run).
    pub fn keeps_rest(&mut self, rest: Rest) {
        self.rest = Some(rest);
    }

    /// Where workers and delivery send their reports.
    pub fn reports(&self) -> Sender<Report> {
        self.reports.clone()
    }

    /// The numbers for the metrics.
    pub fn stats(&self) -> Arc<ConsumerStats> {
        self.client.context().stats().clone()
    }

    /// Joins the group and serves it until asked to stop; then takes every partition back from the workers, waits for
    /// what is in flight, commits, and leaves. Between, it leaves the group and joins it again as often as it is asked to. Who is told that a
    /// topic was made anew has to ask it to stop.
    pub fn run(mut self, stop: &Stop, drain: &Drain, made_anew: impl Fn(TopicMadeAnew)) -> Result<(), Error> {
        self.client.context().assignment().stop = stop.clone();
        let mut membership = Membership::new(self.limits.leave_wait);
        let mut last_turn = Instant::now();
        let mut last_problem = None;
        while !stop.is_requested() {
            membership.follow(drain, &self.client, &self.topics)?;
            let polled = Instant::now();
            match self.client.poll(POLL_INTERVAL) {
                // Whatever was in the queue ends a poll early.
                None if polled.elapsed() >= POLL_INTERVAL => self.client.context().heard_all(),
                None => {}
                Some(Err(source @ KafkaError::MessageConsumptionFatal(_))) => {
                    return Err(Error::Fatal { group: self.group, source });
                }
                Some(Err(error)) if Unreceived::is(&error) => self.unreceived.tell(Instant::now()),
                Some(Err(error)) => warn_once(&mut last_problem, &error, &self.topics),
                Some(Ok(message)) => unreachable_message(&message),
            }
            self.tend(&mut last_turn);
            if let Some(topic) = self.client.context().assignment().take_made_anew() {
                made_anew(topic);
            }
        }
        self.leave(stop)
    }

    /// Everything that is to be done between two polls.
    fn tend(&mut self, last_turn: &mut Instant) {
        let context = self.client.context();
        context.stats().polled();
        let mut assignment = context.assignment();
        assignment.tend(context.stats());
        // Before the callback of a lost assignment nothing may be told to librdkafka: it would take the loss for settled.
        let lost = self.client.assignment_lost();
        let steps = if lost { Steps::default() } else { assignment.steps() };
        let turn = if last_turn.elapsed() >= TURN {
            *last_turn = Instant::now();
            assignment.next_turn()
        } else {
            Change::default()
        };
        drop(assignment);
        context.carry_out(&self.client, steps);
        carry_out(&self.client, &turn);
        if context.has_new_statistics() {
            let change = self.inspection.inspect(&context.assignment(), context.stats());
            carry_out(&self.client, &change);
        }
    }

    /// Lets the workers seal what they have, waits until all of it is settled, or kept, and leaves. All of it ends by the deadline that
    /// was asked for: what is not settled or not committed by then is read again, and dropped by its tokens where it is in.
    fn leave(self, stop: &Stop) -> Result<(), Error> {
        let context = self.client.context();
        let deadline = stop.deadline().unwrap_or_else(Instant::now);
        let left = deadline.saturating_duration_since(Instant::now());
        let flush = left.saturating_sub(LAST_COMMIT_WAIT.min(left / 4));
        let mut assignment = context.assignment();
        let logs = assignment.logs.take().map(LogReader::end);
        assignment.drain();
        let owned = assignment.owned();
        let waits = Waits { drained_by: Instant::now() + flush, committed_by: deadline };
        let is_kept = if let Some(rest) = &self.rest {
            rest.wait(&mut assignment, waits, context.stats())
        } else {
            let is_settled = |assignment: &Assignment| assignment.unfinished() == 0;
            assignment.tend_until(waits.drained_by, context.stats(), is_settled);
            false
        };
        let unfinished = assignment.unfinished();
        drop(assignment);
        let Gone { committable, .. } = context.let_go(&owned, waits, true);
        // The workers end now, whoever still has the client: the commit thread may, as long as the coordinator is away.
        context.assignment().dismiss();
        // A client that its thread still had would be closed there, or not at all.
        if let Some(logs) = logs {
            logs.wait(deadline);
        }
        how_left(unfinished, is_kept, committable)
        // Dropping the last reference to the client closes it. A dynamic member leaves the group by that. A static one does not
        // (KIP-345: librdkafka sends no LeaveGroup when it is closed), so that a pod that comes back has its partitions at once;
        // only [`Drain`], which unsubscribes, makes it leave.
    }
}

/// How a process has left: with so many partitions of which not everything was settled, which is kept or not, and so many offsets of what
/// was settled that are not committed.
fn how_left(unfinished: usize, is_kept: bool, committable: u64) -> Result<(), Error> {
    match (unfinished, committable) {
        (partitions, _) if partitions > 0 && !is_kept => Err(Error::NotDrained { partitions }),
        (_, 0) => Ok(()),
        // What is kept is for the next run, which goes on with it only from where it is committed.
        (_, offsets) => Err(Error::NotCommitted { offsets }),
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

/// One line when the problem changes, not one per poll. That brokers are away is said where it is noticed first, once.
fn warn_once(last: &mut Option<RDKafkaErrorCode>, error: &KafkaError, topics: &[String]) {
    use RDKafkaErrorCode::{AllBrokersDown, BrokerTransportFailure, Resolve};
    let code = error.rdkafka_error_code();
    if matches!(code, Some(AllBrokersDown | BrokerTransportFailure | Resolve)) || *last == code {
        tracing::debug!(%error, "the consumer reports a problem");
        return;
    }
    tracing::warn!(%error, topics = topics.join(", "), "the consumer reports a problem; it goes on trying");
    *last = code;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_leaves_well_has_committed_what_is_in_and_kept_what_is_not() {
        let how = |unfinished, is_kept, committable| match how_left(unfinished, is_kept, committable) {
            Ok(()) => "well",
            Err(Error::NotCommitted { offsets: 7 }) => "not committed",
            Err(Error::NotDrained { partitions: 2 }) => "not drained",
            Err(error) => panic!("{error}"),
        };
        assert_eq!(how(0, false, 0), "well");
        assert_eq!(how(0, false, 7), "not committed");
        assert_eq!(how(2, false, 0), "not drained");
        assert_eq!(how(2, false, 7), "not drained");
        assert_eq!(how(2, true, 0), "well", "the next run goes on with what is kept");
        assert_eq!(how(2, true, 7), "not committed", "what is kept does not hide it");
    }
}
