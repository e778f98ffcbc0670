//! The poll thread: joins the consumer group, hands partitions to workers, releases ranges, and commits.
//!
//! Owner: one thread, the one that calls [`Consumer::run`]; librdkafka runs the rebalance callbacks on it. Workers poll the partition
//! queues on their own threads. They have no other reference to the consumer.
//!
//! Limits: reports wait in a channel of [`REPORTS_MAX`].

use crate::{
    ground::{
        login::renewal,
        settings::{Identity, consumer_settings, refused},
    },
    group::{
        arrivals::{DestinationOf, KeptRanges, Policy},
        assignment::{Assignment, Gone, OrderSink, Steps, TopicMadeAnew, Waits},
        committer::{BeforeBegin, Committer},
        inspection::Inspection,
        log_reader::LogReader,
        membership::{Drain, Membership, Stop},
        partition::{Ownership, Report},
        rebalancing::{Rebalancing, carry_out},
        rest::Rest,
        stats::ConsumerStats,
        turns::{Change, TURN},
    },
    questions::oversize::Unreceived,
};
use crossbeam_channel::{Sender, bounded};
use rdkafka::{
    ClientConfig,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, Consumer as _},
    error::{KafkaError, RDKafkaErrorCode},
};
use sluice_gateway_config::{GroupProtocol, InitialOffset, Kafka, SecretFileError, Sizing};
use sluice_login::Renewal;
use sluice_ranges::{Rule, Settings};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Capacity of the channel of reports to the poll thread. The poll thread empties it every [`POLL_INTERVAL`], also while it waits for a
/// commit; more than this many blocks cannot settle in that time. If the poll thread takes no reports for longer, because librdkafka
/// waits for a broker, workers block until there is room. Delivery keeps its reports without blocking its thread.
pub const REPORTS_MAX: usize = 4_096;

/// Maximum duration of one poll for events, and so the delay until a report is taken. Short, because a block waits in memory until its
/// range is released.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Time of the shutdown deadline that is reserved for the last commit, a quarter at most. The commit takes milliseconds if the
/// coordinator can be reached. Without it, everything inserted since the last regular commit is sent again.
pub(super) const LAST_COMMIT_WAIT: Duration = Duration::from_secs(5);

/// Why a consumer could not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The user or password file cannot be read.
    #[error(transparent)]
    Secret(SecretFileError),
    /// librdkafka refused the settings.
    #[error("cannot create a Kafka consumer for group {group}: {why}")]
    Create { group: String, why: String },
    /// The commit thread could not be started.
    #[error("cannot start the commit thread: {source}")]
    Committer { source: std::io::Error },
    /// The topics could not be subscribed to.
    #[error("cannot subscribe to {topics}: {source}")]
    Subscribe { topics: String, source: KafkaError },
    /// The consumer cannot continue: for instance, another consumer with its instance id fenced it.
    #[error("the consumer of group {group} cannot go on: {source}")]
    Fatal { group: String, source: KafkaError },
    /// Blocks were still in flight at the shutdown deadline and are not on the queue volume. The next owner reads them again.
    #[error(
        "{partitions} partitions still had blocks in flight at the shutdown deadline; their next owner reads them again"
    )]
    NotDrained { partitions: usize },
    /// The coordinator did not confirm the last commit. The next owner reads the inserted rows again; ClickHouse drops them by their
    /// tokens.
    #[error(
        "all rows are inserted or on the queue volume, but {offsets} offsets of inserted rows were not committed by the shutdown deadline"
    )]
    NotCommitted { offsets: u64 },
}

/// The poll thread's connection to a worker.
#[derive(Clone)]
pub struct Inbox {
    /// Gained and lost partitions.
    pub ownership: Sender<Ownership>,
    /// Receives a token whenever one of the worker's queues gets messages. Capacity 1: if it is full, the worker is awake.
    pub wake: Sender<()>,
    /// The worker's own report of a memory shortage.
    pub shortage: Shortage,
}

/// Whether a worker waits for memory or to hand over a block, and how many blocks hold memory, as the worker itself reports it. Cheap to
/// clone. The worker writes it each turn, the poll thread reads it every few seconds.
#[derive(Clone, Debug, Default)]
pub struct Shortage(Arc<Said>);

#[derive(Debug, Default)]
struct Said {
    waits: AtomicBool,
    blocks: AtomicU64,
}

impl Shortage {
    /// Sets whether the worker waits.
    pub fn say(&self, waits: bool) {
        self.0.waits.store(waits, Ordering::Relaxed);
    }

    /// Whether the worker waited when it last reported.
    pub fn is_on(&self) -> bool {
        self.0.waits.load(Ordering::Relaxed)
    }

    /// Sets the number of blocks of the process that are sealed and not inserted. It includes blocks of lost partitions: a running insert
    /// continues to its end and keeps its memory.
    pub fn say_blocks(&self, blocks: u64) {
        self.0.blocks.store(blocks, Ordering::Relaxed);
    }

    /// The last reported number of such blocks.
    pub fn blocks(&self) -> u64 {
        self.0.blocks.load(Ordering::Relaxed)
    }
}

/// Time limits of the poll thread, and how ranges are cut.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The size rule.
    pub rule: Rule,
    /// The routing of ranges to shards, as a number. A new routing takes effect behind the ranges that may be in flight.
    pub routing_epoch: u32,
    /// How long to wait for blocks of a revoked partition. Well below the session timeout: the callback delays the rebalance.
    pub revoke_wait: Duration,
    /// How long to wait for all blocks when leaving the group. Blocks that are left then are given up; the next owner reads them again.
    pub leave_wait: Duration,
    /// The parameters of the memory budget, for advice about larger record batches.
    pub sizing: Sizing,
}

impl Limits {
    /// How partitions are read, at most `active_max` at the same time.
    pub(super) fn policy(&self, initial_offset: InitialOffset, active_max: usize) -> Policy {
        let settings = Settings {
            rule: self.rule,
            routing_epoch: self.routing_epoch,
            // The topic id, the destination and the cluster of each partition are read when the partition starts.
            destination: None,
            topic_id: None,
            cluster: None,
        };
        Policy { settings, initial_offset, active_max }
    }
}

/// A Kafka consumer. It subscribes when it [runs](Consumer::run).
pub struct Consumer {
    client: Arc<BaseConsumer<Rebalancing>>,
    topics: Vec<String>,
    group: String,
    limits: Limits,
    reports: Sender<Report>,
    inspection: Inspection,
    unreceived: Unreceived,
    rest: Option<Rest>,
    /// Whether closing the client leaves it in the group.
    is_static: bool,
    /// Tokens: this thread gives librdkafka each new one between two polls. It waits for none. When it leaves, another thread does so.
    renewal: Renewal,
}

impl Consumer {
    /// Creates a consumer for these workers.
    ///
    /// # Panics
    /// If there is no worker.
    pub fn new(
        kafka: &Kafka,
        identity: &Identity,
        inboxes: Vec<Inbox>,
        orders: OrderSink,
        limits: Limits,
    ) -> Result<Self, Error> {
        assert!(!inboxes.is_empty(), "a consumer without workers reads nothing");
        let (reports, reports_in) = bounded(REPORTS_MAX);
        let policy = limits.policy(kafka.initial_offset, kafka.partitions_active_max as usize);
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
            .map_err(|error| Error::Create { group: group.clone(), why: refused(&error) })?;
        let client = Arc::new(client);
        let renewal = renewal(kafka);
        client.context().stats().logs_in_with(renewal.tokens());
        let mut committer =
            Committer::start(Arc::downgrade(&client)).map_err(|source| Error::Committer { source })?;
        // Partitions that are added later are recognized as new from then on.
        committer.identify(kafka.topics.iter().map(|topic| topic.as_str().into()).collect());
        let logs = LogReader::start(Arc::downgrade(&client)).inspect_err(
            |error| tracing::warn!(%error, "cannot start the thread that asks Kafka where logs begin and end"),
        );
        let mut assignment = client.context().assignment();
        (assignment.committer, assignment.logs) = (Some(committer), logs.ok());
        drop(assignment);
        let inspection = Inspection::start(kafka, limits.sizing);
        let (topics, unreceived) = (kafka.topics.clone(), Unreceived::of(kafka));
        let is_static = kafka.group_protocol == GroupProtocol::Classic && identity.instance_id.is_some();
        Ok(Self {
            client,
            topics,
            group,
            limits,
            reports,
            inspection,
            unreceived,
            rest: None,
            is_static,
            renewal,
        })
    }

    /// Sets which ranges an earlier run left on the queue volume. Must be called before [`run`](Self::run).
    pub fn keeps(&self, kept_ranges: KeptRanges) {
        self.client.context().assignment().arrivals.keeps(kept_ranges);
    }

    /// Sets where the ranges of a partition are sent. Must be called before [`run`](Self::run).
    pub fn sends_to(&self, destination_of: DestinationOf) {
        self.client.context().assignment().arrivals.sends_to(destination_of);
    }

    /// Sets the hook that is called before a partition starts. Must be called before [`run`](Self::run).
    pub fn asks_before_begin(&self, before: BeforeBegin) {
        self.client.context().assignment().before_begin = Some(before);
    }

    /// Sets what happens to unsettled blocks when this process shuts down. Must be called before [`run`](Self::run).
    pub fn keeps_rest(&mut self, rest: Rest) {
        self.rest = Some(rest);
    }

    /// Where workers and delivery send their reports.
    pub fn reports(&self) -> Sender<Report> {
        self.reports.clone()
    }

    /// The numbers for metrics.
    pub fn stats(&self) -> Arc<ConsumerStats> {
        self.client.context().stats().clone()
    }

    /// Joins the group and serves it until `stop` is requested. Then takes every partition back from the workers, waits for blocks in
    /// flight, commits, and leaves. Meanwhile it leaves and rejoins the group whenever `drain` says so. `made_anew` is called when a
    /// topic was deleted and created again; it must request `stop`.
    pub fn run(mut self, stop: &Stop, drain: &Drain, made_anew: impl Fn(TopicMadeAnew)) -> Result<(), Error> {
        self.client.context().assignment().stop = stop.clone();
        let mut membership = Membership::new(self.limits.leave_wait);
        let mut last_turn = Instant::now();
        let mut last_problem = None;
        while !stop.is_requested() {
            self.renewal.renew(self.client.client());
            membership.follow(drain, &self.client, &self.topics)?;
            let polled = Instant::now();
            match self.client.poll(POLL_INTERVAL) {
                // Anything in the queue ends a poll early.
                None if polled.elapsed() >= POLL_INTERVAL => self.client.context().heard_all(),
                None => {}
                Some(Err(source @ KafkaError::MessageConsumptionFatal(_))) => {
                    return Err(Error::Fatal { group: self.group, source });
                }
                Some(Err(error)) if Unreceived::is(&error) => self.unreceived.tell(Instant::now()),
                Some(Err(error)) => {
                    if error.rdkafka_error_code() == Some(RDKafkaErrorCode::GroupAuthorizationFailed) {
                        self.client.context().stats().group_refuses(Instant::now());
                    }
                    warn_once(&mut last_problem, &error, &self.topics);
                }
                Some(Ok(message)) => unreachable_message(&message),
            }
            self.tend(&mut last_turn);
            if let Some(topic) = self.client.context().assignment().take_made_anew() {
                made_anew(topic);
            }
        }
        self.leave(stop, drain, membership)
    }

    /// The work between two polls.
    fn tend(&mut self, last_turn: &mut Instant) {
        let context = self.client.context();
        context.stats().polled();
        let mut assignment = context.assignment();
        assignment.tend(context.stats());
        // librdkafka must be told nothing before the callback of a lost assignment: it would consider the loss handled.
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

    /// Lets the workers seal their blocks, waits until all are settled or on the queue volume, and leaves. All of it ends by the deadline
    /// of `stop`: rows that are not settled or not committed by then are read again. ClickHouse drops those that it has by their tokens.
    fn leave(self, stop: &Stop, drain: &Drain, mut membership: Membership) -> Result<(), Error> {
        // This thread does not poll any more. A token that expires would end the connections before the last commit.
        self.renewal.meanwhile(self.client.client(), || {
            let left = self.give_all_back(stop);
            // Asked now, not before: the request may have come while blocks were waited for. A coordinator that took no commit would not
            // answer this either, and the end of the process would wait for it.
            let is_answered = !matches!(left, Err(Error::NotCommitted { .. }));
            if self.is_static && is_answered && drain.is_requested() {
                membership.leave_for_good(&self.client);
            }
            left
        })
        // Dropping the last reference closes the client. By that a dynamic member leaves the group. A static member does not (KIP-345:
        // librdkafka sends no LeaveGroup when it is closed), so that a pod that restarts gets its partitions back at once. Only
        // [`Drain`], which unsubscribes, makes a static member leave, also if it ends before it has drained.
    }

    fn give_all_back(&self, stop: &Stop) -> Result<(), Error> {
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
        // The workers end now, even though the commit thread may keep the client as long as the coordinator is away.
        context.assignment().close_inboxes();
        // If its thread still had the client, the client would be closed on that thread, or not at all.
        if let Some(logs) = logs {
            logs.wait(deadline);
        }
        how_left(unfinished, is_kept, committable)
    }
}

/// The result of leaving: `unfinished` partitions have unsettled blocks, which are on the queue volume if `is_kept`; `committable`
/// settled offsets are not committed.
pub(super) fn how_left(unfinished: usize, is_kept: bool, committable: u64) -> Result<(), Error> {
    match (unfinished, committable) {
        (partitions, _) if partitions > 0 && !is_kept => Err(Error::NotDrained { partitions }),
        (_, 0) => Ok(()),
        // The next run continues with the blocks on the volume, but only from the committed offset.
        (_, offsets) => Err(Error::NotCommitted { offsets }),
    }
}

/// A message reaches the main queue only if its partition was assigned without being split off before.
fn unreachable_message(message: &rdkafka::message::BorrowedMessage<'_>) {
    use rdkafka::message::Message as _;
    panic!(
        "a message of {}/{} arrived outside its partition's queue; going on would lose it",
        message.topic(),
        message.partition()
    );
}

/// Logs once when the problem changes, not once per poll. That all brokers are away is logged elsewhere, where it is noticed first.
fn warn_once(last: &mut Option<RDKafkaErrorCode>, error: &KafkaError, topics: &[String]) {
    use RDKafkaErrorCode::{AllBrokersDown, BrokerTransportFailure, Resolve};
    let code = error.rdkafka_error_code();
    if matches!(code, Some(AllBrokersDown | BrokerTransportFailure | Resolve)) || *last == code {
        tracing::debug!(%error, "the consumer reports a problem");
        return;
    }
    tracing::warn!(%error, topics = topics.join(", "), "the consumer reports a problem and retries");
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
