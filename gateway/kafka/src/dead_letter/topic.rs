//! Sees to it that a dead-letter topic exists.
//!
//! Owner: the thread of [`super::sender`], which may wait for the brokers. Limits: [`ASK_TIMEOUT`] a question, and a second; a topic that was
//! refused is asked for again after [`REFUSAL_KEPT`], since whoever reads the log may make it.

use crate::{dead_letter::outcome::Refused, new_topic::make_topic};
use rdkafka::{
    client::Client, error::KafkaError, producer::ProducerContext, types::RDKafkaErrorCode as Code,
};
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// Partitions of a topic that is made here, at the most. Chosen: dead letters are few, and every partition costs the brokers; a
/// source with fewer has as many letters' partitions as its own.
pub const TOPIC_PARTITIONS_MAX: usize = 8;

/// How long a broker may take to answer.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a refusal counts before the brokers are asked again.
pub(super) const REFUSAL_KEPT: Duration = Duration::from_secs(10);

/// What is known about a topic.
#[derive(Debug)]
enum Known {
    /// It is there, with so many partitions.
    There(i32),
    /// It cannot be had, as of then.
    Refused(Refused, Instant),
}

/// Why a topic is not had.
#[derive(Debug)]
pub(super) enum Unready {
    /// It cannot be had.
    Refused(Refused),
    /// The brokers did not answer; ask again.
    Unanswered(KafkaError),
}

/// What is known about all of them.
#[derive(Debug, Default)]
pub(super) struct Topics(HashMap<String, Known>);

/// What the brokers say of a topic.
enum Asked {
    Partitions { count: usize, replicas: usize },
    Missing,
    Wrong(Code),
}

impl Topics {
    /// The number of partitions of `topic`, which is made after the pattern of `source` if it is not there.
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

    /// Takes down that a topic takes no letters.
    pub(super) fn refuse(&mut self, topic: &str, refused: Refused) {
        self.0.insert(topic.to_owned(), Known::Refused(refused, Instant::now()));
    }

    /// Asks for a topic anew the next time.
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
                // The source was deleted meanwhile: what the brokers choose.
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
        // It has no leader yet, for instance.
        Some(code) => Err(Unready::Unanswered(KafkaError::MetadataFetch(code))),
        None if partitions.is_empty() => Ok(Asked::Missing),
        None => Ok(Asked::Partitions {
            count: partitions.len(),
            replicas: partitions.first().map_or(0, |partition| partition.replicas().len()),
        }),
    }
}

/// Asks for a topic; `replicas` 0 leaves their number to the brokers.
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
        // Brokers that make no topics for clients, for instance.
        Err(KafkaError::AdminOp(code)) if !passes(code) => Err(Unready::Refused(refusal(topic, code))),
        Err(error) => Err(Unready::Unanswered(error)),
    }
}

/// Whether making a topic may succeed later, without anybody acting.
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
