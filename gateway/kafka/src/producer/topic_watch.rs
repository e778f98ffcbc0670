//! What is known of the topic, and the thread `topic` that asks for it.
//!
//! Limits: one question at a time, each up to [`ASK_TIMEOUT`]. Partitions that are added are used within [`METADATA_REFRESH`]; while no broker
//! answers, and after an error of a connection, the thread asks every [`FIRST_ASK_INTERVAL`]. While a producer has no id, it asks after
//! milliseconds ([`id_wait`](crate::producer::id_wait)).

use crate::{
    ground::settings::METADATA_REFRESH,
    producer::{
        SizeLimits,
        connection_errors::ConnectionErrors,
        id_wait::{ID_WAIT_MAX, IdWait, ask_again},
        producer_id::has_id,
        reply::Ticket,
        sender::Shared,
    },
    questions::retention::read_limits,
};
use crossbeam_channel::{Receiver, Sender, bounded, select};
use rdkafka::{error::KafkaError, producer::Producer as _, types::RDKafkaErrorCode as Code};
use sluice_gateway_config::Kafka;
use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::runtime::Runtime;

/// How long a broker may take to answer.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);

/// How often the topic is asked for until it is known.
const FIRST_ASK_INTERVAL: Duration = Duration::from_secs(1);

/// The shortest time between two log lines that say that no broker answers, for other reasons. Chosen: as for errors of clients.
const LOG_INTERVAL: Duration = Duration::from_secs(30);

/// How often the topic's limit is read again. Chosen: it is changed by hand, and a refusal asks at once.
const LIMITS_INTERVAL: Duration = Duration::from_hours(1);

/// What is known of a topic. Read for each request; written by the thread `topic`, by callbacks on `io`, and by `upkeep` when it replaces a producer.
#[derive(Debug)]
pub(super) struct TopicState {
    /// 0 if they are not known.
    partitions: AtomicU32,
    known: Mutex<Known>,
    /// A message was refused because of its size.
    asks_for_limits: AtomicBool,
    /// A connection has failed, so the brokers are asked at once.
    asks_now: AtomicBool,
    /// Ends a wait of the thread `topic`. It has both ends, so a wait does not end because a sender has gone. One entry: more say the same.
    wakes: (Sender<()>, Receiver<()>),
    batch_bytes_max: usize,
    /// The brokers of the config, for messages.
    brokers: String,
}

#[derive(Debug)]
struct Known {
    limits: SizeLimits,
    problem: Option<Problem>,
    /// Why no broker answers, although one did before.
    away: Option<String>,
    id_wait: IdWait,
    errors: ConnectionErrors,
}

/// Why nothing can be stored until a person acts.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Problem {
    /// No broker has answered yet.
    NoAnswer(String),
    /// The topic does not exist.
    Missing,
    /// The brokers refuse the topic, for this reason.
    TopicRefused(String),
    /// The brokers refuse the connection, for this reason.
    LoginRefused(String),
}

/// The brokers' answer about a topic.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Partitions(u32),
    Missing,
    Refused(String),
    Unanswered(String),
}

impl TopicState {
    pub(super) fn new(brokers: &[String], batch_bytes_max: usize) -> Self {
        let problem = Some(Problem::NoAnswer("they are being asked".to_owned()));
        let (limits, errors) = (SizeLimits::of(None, batch_bytes_max), ConnectionErrors::default());
        let known = Known { limits, problem, away: None, id_wait: IdWait::NotBegun, errors };
        Self {
            partitions: AtomicU32::new(0),
            known: Mutex::new(known),
            asks_for_limits: AtomicBool::new(true),
            asks_now: AtomicBool::new(false),
            wakes: bounded(1),
            batch_bytes_max,
            brokers: brokers.join(", "),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn partitions(&self) -> Option<u32> {
        Some(self.partitions.load(Ordering::Relaxed)).filter(|partitions| *partitions > 0)
    }

    pub(super) fn size_limits(&self) -> SizeLimits {
        self.known().limits
    }

    pub(super) fn problem(&self, topic: &str) -> Option<String> {
        let problem = self.known().problem.clone()?;
        Some(match problem {
            Problem::NoAnswer(why) => {
                format!("no broker of {} has answered about topic {topic} yet: {why}", self.brokers)
            }
            Problem::Missing => format!("topic {topic} does not exist: create it"),
            Problem::TopicRefused(why) => {
                format!("Kafka refuses topic {topic}: {why}; allow the edge's user to describe and write it")
            }
            Problem::LoginRefused(why) => why,
        })
    }

    /// Why no broker answers now, although one did before.
    pub(super) fn away(&self, topic: &str) -> Option<String> {
        let why = self.known().away.clone()?;
        Some(format!("no broker of {} answers about topic {topic}: {why}", self.brokers))
    }

    /// Why the first producer cannot send yet, although a broker has answered.
    pub(super) fn awaits_id(&self, topic: &str) -> Option<String> {
        let is_awaited = self.known().id_wait.keeps_unready(Instant::now());
        is_awaited.then(|| {
            format!("no broker of {} has given the producer of topic {topic} its id yet", self.brokers)
        })
    }

    /// Has the thread `topic` ask at once for the id of a producer that is in place of another.
    pub(super) fn replaced(&self, now: Instant) {
        let mut known = self.known();
        let next = known.id_wait.replaced(now);
        let is_awaited = next != known.id_wait;
        known.id_wait = next;
        drop(known);
        if is_awaited && self.wakes.0.try_send(()).is_err() {
            // The thread is to wake already.
        }
    }

    /// Whether no broker answers, now or so far.
    fn is_unanswered(&self) -> bool {
        let known = self.known();
        known.away.is_some() || matches!(known.problem, Some(Problem::NoAnswer(_)))
    }

    /// Why a message may have had no acknowledgement, as far as this is known.
    pub(super) fn unacknowledged(&self) -> String {
        match self.known().errors.recent(Instant::now()) {
            Some(error) => error.to_owned(),
            None => format!("the brokers are {}, and no connection to them has failed lately", self.brokers),
        }
    }

    /// Records an error of librdkafka's connections.
    pub(super) fn note_error(&self, error: &KafkaError, reason: &str) {
        self.known().errors.note(error, reason, Instant::now());
        self.asks_now.store(true, Ordering::Relaxed);
    }

    /// Records that brokers refuse the connection, until one answers.
    pub(super) fn login_refused(&self, why: String) {
        self.known().problem = Some(Problem::LoginRefused(why));
    }

    /// Lowers the limits if a message was refused for its size.
    pub(super) fn refuse(&self, error: &KafkaError, ticket: &Ticket) {
        let too_large = [Code::MessageSizeTooLarge, Code::MessageBatchTooLarge, Code::InvalidMessageSize];
        if error.rdkafka_error_code().is_some_and(|code| too_large.contains(&code)) {
            let mut known = self.known();
            known.limits = known.limits.refused(ticket.value().len(), ticket.is_single);
            self.asks_for_limits.store(true, Ordering::Relaxed);
        }
    }

    /// Records an answer. Brokers that are away are no problem of the edge once they have answered: it stays ready.
    fn learn(&self, asked: Asked) {
        let mut guard = self.known();
        let known = &mut *guard;
        let (partitions, problem) = match asked {
            Asked::Partitions(count) => {
                known.id_wait = known.id_wait.answered(Instant::now());
                (count, None)
            }
            Asked::Missing => (0, Some(Problem::Missing)),
            Asked::Refused(why) => (0, Some(Problem::TopicRefused(why))),
            Asked::Unanswered(why) => {
                let why = known.errors.recent(Instant::now()).map_or(why, str::to_owned);
                match &mut known.problem {
                    Some(Problem::NoAnswer(said)) => *said = why,
                    Some(_) => {}
                    None => known.away = Some(why),
                }
                return;
            }
        };
        (known.problem, known.away) = (problem, None);
        known.errors.forget();
        self.partitions.store(partitions, Ordering::Relaxed);
    }
}

/// The thread's state.
pub(super) struct TopicWatch {
    shared: Arc<Shared>,
    kafka: Kafka,
    ended: Receiver<Infallible>,
    runtime: Runtime,
    limits_read: Option<Instant>,
    /// When an answer about the topic was logged.
    logged: Option<Instant>,
}

impl TopicWatch {
    pub(super) fn new(
        shared: Arc<Shared>,
        kafka: Kafka,
        ended: Receiver<Infallible>,
    ) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        Ok(Self { shared, kafka, ended, runtime, limits_read: None, logged: None })
    }

    /// Asks until all handles are dropped.
    pub(super) fn run(mut self) {
        loop {
            let longest = self.ask_once();
            if !self.wait(longest) {
                return;
            }
        }
    }

    /// Asks about all that is due. Returns how long to wait before the next question.
    fn ask_once(&mut self) -> Duration {
        self.learn();
        let until_id = self.look_for_id();
        let state = &self.shared.state;
        if state.partitions().is_none() || state.away(&self.shared.topic).is_some() {
            return FIRST_ASK_INTERVAL;
        }
        if let Some(wait) = until_id {
            return wait;
        }
        self.read_limits();
        METADATA_REFRESH
    }

    /// Looks whether the producer has its id, if that is awaited. Returns how long to wait before the next question if it has none.
    fn look_for_id(&self) -> Option<Duration> {
        let Shared { topic, state, .. } = &*self.shared;
        let since = state.known().id_wait.since()?;
        let waited = since.elapsed();
        // The log comes first: the edge is ready once the wait is over.
        let over = if has_id(self.shared.current().client()) {
            tracing::info!(topic, ?waited, "the producer has its id");
            IdWait::There
        } else {
            if let Some(wait) = ask_again(waited) {
                return Some(wait);
            }
            let seconds = ID_WAIT_MAX.as_secs();
            tracing::warn!(
                topic,
                "the producer has no id after {seconds} s; until it has one, messages wait"
            );
            IdWait::Missed
        };
        // `replaced` changes no state in which an id is awaited.
        state.known().id_wait = over;
        None
    }

    /// Waits this long, or until a connection has failed or a producer was replaced. Returns whether the producer goes on.
    fn wait(&self, longest: Duration) -> bool {
        let (begun, state) = (Instant::now(), &self.shared.state);
        loop {
            let left = longest.saturating_sub(begun.elapsed()).min(FIRST_ASK_INTERVAL);
            select! {
                // Nothing is ever sent: false.
                recv(self.ended) -> ended => return ended.is_ok(),
                recv(state.wakes.1) -> woken => return woken.is_ok(),
                default(left) => {}
            }
            if state.asks_now.swap(false, Ordering::Relaxed) || begun.elapsed() >= longest {
                return true;
            }
        }
    }

    /// Asks, and logs what has changed.
    fn learn(&mut self) {
        let shared = self.shared.clone();
        let Shared { topic, state, .. } = &*shared;
        let found = || (state.problem(topic), state.away(topic));
        let (before, was_unanswered) = (found(), state.is_unanswered());
        state.learn(self.ask());
        let now = found();
        let is_logged = self.logged.is_some_and(|logged| logged.elapsed() < LOG_INTERVAL);
        if now == before || (was_unanswered && state.is_unanswered() && is_logged) {
            return;
        }
        self.logged = Some(Instant::now());
        match now {
            (None, None) => {
                tracing::info!(topic, partitions = state.partitions(), "the brokers answer about the topic");
            }
            (Some(problem), _) => tracing::warn!(topic, "{problem}"),
            (None, Some(away)) => {
                tracing::warn!(
                    topic,
                    "{away}; until one answers, clients get an error that says when to send again"
                );
            }
        }
    }

    fn ask(&self) -> Asked {
        let topic = &self.shared.topic;
        let metadata = match self.shared.current().client().fetch_metadata(Some(topic), ASK_TIMEOUT) {
            Ok(metadata) => metadata,
            Err(error) => return answer(error.rdkafka_error_code(), &error),
        };
        let Some(found) = metadata.topics().iter().find(|found| found.name() == topic) else {
            return Asked::Missing;
        };
        match found.error() {
            Some(error) => answer(Some(error.into()), &KafkaError::MetadataFetch(error.into())),
            None if found.partitions().is_empty() => Asked::Missing,
            None => Asked::Partitions(u32::try_from(found.partitions().len()).unwrap_or(u32::MAX)),
        }
    }

    /// Reads the topic's largest batch, if it is due. Users who may not describe the topic have Kafka's default.
    fn read_limits(&mut self) {
        let is_due = self.limits_read.is_none_or(|read| read.elapsed() >= LIMITS_INTERVAL);
        let is_asked = self.shared.state.asks_for_limits.swap(false, Ordering::Relaxed);
        if !is_due && !is_asked {
            return;
        }
        self.limits_read = Some(Instant::now());
        let read = self.runtime.block_on(read_limits(&self.kafka, ASK_TIMEOUT));
        let topic_bytes = match read {
            Ok(limits) => limits.first().and_then(|(_, limits)| limits.batch_bytes_max),
            Err(error) => {
                tracing::warn!(%error, topic = self.shared.topic, "cannot read the topic's max.message.bytes");
                None
            }
        };
        // What refusals have shown stays where nothing else is known.
        if let Some(bytes) = topic_bytes {
            self.shared.state.known().limits = SizeLimits::of(Some(bytes), self.shared.state.batch_bytes_max);
        }
    }
}

fn answer(code: Option<Code>, error: &KafkaError) -> Asked {
    match code {
        Some(Code::UnknownTopic | Code::UnknownTopicOrPartition) => Asked::Missing,
        Some(Code::TopicAuthorizationFailed | Code::InvalidTopic) => Asked::Refused(error.to_string()),
        _ => Asked::Unanswered(error.to_string()),
    }
}

#[cfg(test)]
#[path = "producer_tests.rs"]
mod tests;
