//! Ensures that a dead-letter topic exists.
//!
//! Owner: the thread of [`super::sender`], which may wait for the brokers. Limits: a request takes [`ASK_TIMEOUT`] and a second. A
//! refused topic is tried again after [`REFUSAL_KEPT`], since a user who reads the log may create it.

use crate::{dead_letter::outcome::Refused, questions::new_topic::make_topic};
use rdkafka::{
    client::Client, error::KafkaError, producer::ProducerContext, types::RDKafkaErrorCode as Code,
};
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// Maximum number of partitions of a topic that is created here. Chosen: dead letters are few, and every partition costs the brokers. If
/// the source has fewer, the topic has as many as the source.
pub const TOPIC_PARTITIONS_MAX: usize = 8;

/// How long a broker may take to answer.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a refusal counts before the brokers are asked again.
pub(super) const REFUSAL_KEPT: Duration = Duration::from_secs(10);

/// What is known of a topic.
#[derive(Debug)]
enum Known {
    /// It exists, with this many partitions.
    There(i32),
    /// It cannot be used, as of this time.
    Refused(Refused, Instant),
}

/// Why a topic cannot be used now.
#[derive(Debug)]
pub(super) enum Unready {
    /// It cannot be used.
    Refused(Refused),
    /// The brokers did not answer; ask again.
    Unanswered(KafkaError),
}

/// What is known of all topics.
#[derive(Debug, Default)]
pub(super) struct Topics(HashMap<String, Known>);

/// The brokers' answer about a topic.
enum Asked {
    Partitions { count: usize, replicas: usize },
    Missing,
    Wrong(Code),
}

impl Topics {
    /// The number of partitions of `topic`. If it does not exist, it is created after the pattern of `source`.
    pub(super) fn partitions<C: ProducerContext>(
        &mut self,
        client: &Client<C>,
        topic: &str,
        source: &str,
    ) -> Result<i32, Unready> {
        match self.0.get(topic) {
            Some(Known::There(count)) => return Ok(*count),
            Some(Known::Refused(refused, when)) if when.elapsed() < REFUSAL_KEPT => {
                return Err(Unready::Refused(refused.clone()));
            }
            Some(Known::Refused(..)) | None => {}
        }
        let found = find_or_make(client, topic, source);
        match &found {
            Ok(count) => drop(self.0.insert(topic.to_owned(), Known::There(*count))),
            Err(Unready::Refused(refused)) => self.refuse(topic, refused.clone()),
            Err(Unready::Unanswered(_)) => {}
        }
        found
    }

    /// Records that a topic rejects letters.
    pub(super) fn refuse(&mut self, topic: &str, refused: Refused) {
        self.0.insert(topic.to_owned(), Known::Refused(refused, Instant::now()));
    }

    /// Asks for the topic again the next time.
    pub(super) fn forget(&mut self, topic: &str) {
        self.0.remove(topic);
    }
}

fn find_or_make<C: ProducerContext>(client: &Client<C>, topic: &str, source: &str) -> Result<i32, Unready> {
    match ask(client, topic)? {
        Asked::Partitions { count, .. } => Ok(i32::try_from(count).unwrap_or(i32::MAX)),
        Asked::Wrong(code) => Err(Unready::Refused(refusal(topic, code))),
        Asked::Missing => {
            let (count, replicas) = match ask(client, source)? {
                Asked::Partitions { count, replicas } => (count, replicas),
                // The source was deleted meanwhile: the brokers' defaults.
                Asked::Missing | Asked::Wrong(_) => (1, 0),
            };
            let count = count.clamp(1, TOPIC_PARTITIONS_MAX);
            make(client, topic, count, replicas)?;
            Ok(i32::try_from(count).unwrap_or(i32::MAX))
        }
    }
}

fn ask<C: ProducerContext>(client: &Client<C>, topic: &str) -> Result<Asked, Unready> {
    let metadata = match client.fetch_metadata(Some(topic), ASK_TIMEOUT) {
        Ok(metadata) => metadata,
        Err(error) => match error.rdkafka_error_code() {
            Some(Code::UnknownTopic | Code::UnknownTopicOrPartition) => return Ok(Asked::Missing),
            _ => return Err(Unready::Unanswered(error)),
        },
    };
    let Some(found) = metadata.topics().iter().find(|found| found.name() == topic) else {
        return Ok(Asked::Missing);
    };
    let partitions = found.partitions();
    match found.error().map(Code::from) {
        Some(Code::UnknownTopic | Code::UnknownTopicOrPartition) => Ok(Asked::Missing),
        Some(code @ (Code::TopicAuthorizationFailed | Code::InvalidTopic)) => Ok(Asked::Wrong(code)),
        // For instance, it has no leader yet.
        Some(code) => Err(Unready::Unanswered(KafkaError::MetadataFetch(code))),
        None if partitions.is_empty() => Ok(Asked::Missing),
        None => Ok(Asked::Partitions {
            count: partitions.len(),
            replicas: partitions.first().map_or(0, |partition| partition.replicas().len()),
        }),
    }
}

/// Creates a topic; `replicas` 0 leaves their number to the brokers.
fn make<C: ProducerContext>(
    client: &Client<C>,
    topic: &str,
    partitions: usize,
    replicas: usize,
) -> Result<(), Unready> {
    let partitions = i32::try_from(partitions).unwrap_or(i32::MAX);
    let replicas = i32::try_from(replicas).ok().filter(|replicas| *replicas > 0).unwrap_or(-1);
    match make_topic(client, topic, partitions, replicas, ASK_TIMEOUT) {
        Ok(()) => {
            tracing::info!(topic, partitions, "created the dead-letter topic");
            Ok(())
        }
        Err(KafkaError::AdminOp(Code::TopicAlreadyExists)) => Ok(()),
        // For instance, brokers that create no topics for clients.
        Err(KafkaError::AdminOp(code)) if !passes(code) => Err(Unready::Refused(refusal(topic, code))),
        Err(error) => Err(Unready::Unanswered(error)),
    }
}

/// Whether creating a topic may succeed later without manual action.
fn passes(code: Code) -> bool {
    matches!(
        code,
        Code::RequestTimedOut
            | Code::NotController
            | Code::OperationTimedOut
            | Code::BrokerTransportFailure
            | Code::AllBrokersDown
            | Code::CoordinatorNotAvailable
            | Code::NetworkException
    )
}

fn refusal(topic: &str, code: Code) -> Refused {
    let (topic, why) = (topic.to_owned(), code.to_string());
    match code {
        Code::TopicAuthorizationFailed => Refused::NotAuthorized { topic, why },
        _ => Refused::Missing { topic, why },
    }
}
