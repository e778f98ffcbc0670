//! What is known of the topic, and the thread `topic` that asks for it.
//!
//! Limits: one question at a time, each up to [`ASK_TIMEOUT`]. Partitions that are added are used within [`METADATA_REFRESH`]; until the
//! first answer the thread asks every [`FIRST_ASK_INTERVAL`].

use crate::{
    ground::settings::METADATA_REFRESH,
    producer::{SizeLimits, reply::Ticket, sender::Shared},
    questions::retention::read_limits,
};
use crossbeam_channel::{Receiver, RecvTimeoutError};
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

/// How often the topic's limit is read again. Chosen: it is changed by hand, and a refusal asks at once.
const LIMITS_INTERVAL: Duration = Duration::from_hours(1);

/// What is known of a topic. Read for each request; written by the threads of the producer.
#[derive(Debug)]
pub(super) struct TopicState {
    /// 0 if they are not known.
    partitions: AtomicU32,
    known: Mutex<Known>,
    /// A message was refused because of its size.
    asks_for_limits: AtomicBool,
    batch_bytes_max: usize,
}

#[derive(Debug)]
struct Known {
    limits: SizeLimits,
    problem: Option<Problem>,
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
    pub(super) fn new(batch_bytes_max: usize) -> Self {
        let problem = Some(Problem::NoAnswer("the brokers are being asked".to_owned()));
        let known = Known { limits: SizeLimits::of(None, batch_bytes_max), problem };
        Self {
            partitions: AtomicU32::new(0),
            known: Mutex::new(known),
            asks_for_limits: AtomicBool::new(true),
            batch_bytes_max,
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
            Problem::NoAnswer(why) => format!("no broker has answered about topic {topic} yet: {why}"),
            Problem::Missing => format!("topic {topic} does not exist: create it"),
            Problem::TopicRefused(why) => {
                format!("Kafka refuses topic {topic}: {why}; allow the edge's user to describe and write it")
            }
            Problem::LoginRefused(why) => why,
        })
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
            known.limits = known.limits.refused(ticket.bytes, ticket.is_single);
            self.asks_for_limits.store(true, Ordering::Relaxed);
        }
    }

    /// Records an answer. Brokers that are away change nothing once they have answered.
    fn learn(&self, asked: Asked) {
        let mut known = self.known();
        let (partitions, problem) = match asked {
            Asked::Partitions(count) => (count, None),
            Asked::Missing => (0, Some(Problem::Missing)),
            Asked::Refused(why) => (0, Some(Problem::TopicRefused(why))),
            Asked::Unanswered(why) => {
                if let Some(Problem::NoAnswer(said)) = &mut known.problem {
                    *said = why;
                }
                return;
            }
        };
        known.problem = problem;
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
}

impl TopicWatch {
    pub(super) fn new(
        shared: Arc<Shared>,
        kafka: Kafka,
        ended: Receiver<Infallible>,
    ) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        Ok(Self { shared, kafka, ended, runtime, limits_read: None })
    }

    /// Asks until all handles are dropped.
    pub(super) fn run(mut self) {
        loop {
            self.learn();
            let is_known = self.shared.state.partitions().is_some();
            if is_known {
                self.read_limits();
            }
            let wait = if is_known { METADATA_REFRESH } else { FIRST_ASK_INTERVAL };
            if self.ended.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
        }
    }

    /// Asks, and logs what has changed.
    fn learn(&self) {
        let Shared { topic, state, .. } = &*self.shared;
        let before = state.problem(topic);
        state.learn(self.ask());
        match state.problem(topic) {
            now if now == before => {}
            None => {
                tracing::info!(topic, partitions = state.partitions(), "the brokers answer about the topic");
            }
            Some(problem) => tracing::warn!(topic, "{problem}"),
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
