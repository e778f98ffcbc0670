//! Reads ranges of a topic without taking part in its group.
//!
//! Job: what tools need of Kafka (`audit`, `dead-letter`), and the original message of a refused row: bounds, offsets by time, what the
//! group has committed, and the messages of a range, in order, as the gateway reads them (`read_committed`, the same limit on batches).
//! Place in the flow: beside it. Owner: one thread, which it blocks; on a runtime, a blocking one. The group's name is used to ask,
//! never to join or to commit.
//!
//! Limits: every wait is bounded by [`Patience`]; one partition at a time, so that memory is that of a consumer with one active
//! partition: a record batch of `source.kafka.recordBatchBytesMax` and the answer that it came in. The budget knows no room for it:
//! the gateway reads an original only while that partition is held, whose own batch is free then, and one at a time.

use crate::{
    cluster,
    refusal::QueueProblem,
    settings::{Identity, consumer_settings},
};
use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, Consumer as _},
    error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code},
    message::{BorrowedMessage, Message as _, OwnedMessage},
    metadata::MetadataPartition,
    topic_partition_list::TopicPartitionListElem,
};
use sluice_gateway_config::{Kafka, SecretFileError};
use sluice_ranges::{OffsetRange, PartitionId};
use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    time::{Duration, Instant},
};

/// The longest single wait for a message, so that the time limit is kept.
const POLL_WAIT: Duration = Duration::from_millis(100);

/// How long brokers are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// For the answer to a question.
    pub answer: Duration,
    /// For the next message while there are more.
    pub message: Duration,
}

/// Why a topic cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// User, password or certificates cannot be read.
    #[error(transparent)]
    Secret(SecretFileError),
    /// librdkafka refused the settings.
    #[error("cannot create a Kafka client for {brokers}: {source}")]
    Create {
        /// Brokers of the config.
        brokers: String,
        /// What librdkafka said.
        source: Box<KafkaError>,
    },
    /// There is no such topic, or no such partition.
    #[error("topic {topic} does not exist, or has no partition {}", .partition.map_or("at all".to_owned(), |number| number.to_string()))]
    Missing {
        /// The topic.
        topic: String,
        /// The partition asked for.
        partition: Option<i32>,
    },
    /// No broker answers which cluster it belongs to.
    #[error("no broker of {brokers} reports the cluster id: {source}")]
    Cluster {
        /// Brokers of the config.
        brokers: String,
        /// What the client says.
        source: Box<KafkaError>,
    },
    /// The brokers were asked, and did not answer in time or refused.
    #[error("cannot {action} of topic {topic}: {source}")]
    Ask {
        /// What was tried.
        action: &'static str,
        /// The topic.
        topic: String,
        /// What librdkafka said.
        source: Box<KafkaError>,
    },
    /// Nothing came.
    #[error("reading {topic}/{partition}: no message arrived within {seconds} s at offset {offset}")]
    Silence {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The offset that was waited for.
        offset: i64,
        /// How long it was waited for.
        seconds: u64,
    },
    /// Kafka does not have the next offset any more.
    #[error("reading {topic}/{partition}: Kafka no longer has offset {offset}")]
    Gone {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The offset.
        offset: i64,
    },
    /// The next batch cannot be read: a gateway would stop in front of it, or the brokers refuse.
    #[error("reading {topic}/{partition}: cannot read on from offset {offset}: {source}")]
    Unreadable {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The first offset that was not read.
        offset: i64,
        /// What librdkafka said.
        source: Box<KafkaError>,
    },
}

/// A consumer that belongs to no group.
pub struct TopicReader {
    consumer: BaseConsumer,
    patience: Patience,
    batch_bytes_max: u64,
    brokers: String,
}

/// What the config's group has committed of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The offset.
    pub offset: i64,
    /// What was committed with it: a [plan](sluice_ranges::Plan), or another program's.
    pub metadata: String,
}

impl TopicReader {
    /// A reader of the config's brokers. Nothing is asked yet. `tool` is what brokers log as the client.
    pub fn new(kafka: &Kafka, tool: &str, patience: Patience) -> Result<Self, ReadError> {
        Self::isolated(kafka, tool, patience, None)
    }

    /// The same, to which messages of open transactions are there, too. For questions alone: the gateway reads none of them.
    pub(crate) fn of_uncommitted(kafka: &Kafka, tool: &str, patience: Patience) -> Result<Self, ReadError> {
        Self::isolated(kafka, tool, patience, Some("read_uncommitted"))
    }

    fn isolated(
        kafka: &Kafka,
        tool: &str,
        patience: Patience,
        isolation_level: Option<&str>,
    ) -> Result<Self, ReadError> {
        // One partition's worth of memory, whatever the gateway reads at a time.
        let alone = Kafka { partitions_active_max: 1, ..kafka.clone() };
        let identity =
            Identity { client_id: format!("sluice-gateway-{tool}"), instance_id: None, rack: None };
        let mut config = ClientConfig::new();
        for (name, value) in consumer_settings(&alone, &identity).map_err(ReadError::Secret)? {
            config.set(name, value);
        }
        // The end of a partition is where reading it ends, though its last offset may be no message.
        config.set("enable.partition.eof", "true").set("auto.offset.reset", "error");
        config.set("statistics.interval.ms", "0").set_log_level(RDKafkaLogLevel::Warning);
        if let Some(level) = isolation_level {
            config.set("isolation.level", level);
        }
        let brokers = kafka.bootstrap_servers.join(",");
        let created = config.create();
        let consumer = created
            .map_err(|source| ReadError::Create { brokers: brokers.clone(), source: Box::new(source) })?;
        Ok(Self { consumer, patience, batch_bytes_max: kafka.record_batch_bytes_max.get(), brokers })
    }

    /// The cluster's id, which is a part of every token ([`crate::cluster`]).
    pub fn cluster(&self, topic: &str) -> Result<String, ReadError> {
        cluster::id(self.consumer.client(), topic, self.patience.answer)
            .map_err(|source| ReadError::Cluster { brokers: self.brokers.clone(), source: Box::new(source) })
    }

    /// The partitions of a topic, in order.
    pub fn partitions(&self, topic: &str) -> Result<Vec<i32>, ReadError> {
        let failed = |source| ask("ask for the partitions", topic, source);
        let missing = || ReadError::Missing { topic: topic.to_owned(), partition: None };
        let metadata = match self.consumer.fetch_metadata(Some(topic), self.patience.answer) {
            Ok(metadata) => metadata,
            Err(error) if is_unknown(error.rdkafka_error_code()) => return Err(missing()),
            Err(error) => return Err(failed(error)),
        };
        let found = metadata.topics().iter().find(|found| found.name() == topic).ok_or_else(missing)?;
        match found.error().map(Code::from) {
            None => {}
            code if is_unknown(code) => return Err(missing()),
            Some(code) => return Err(failed(KafkaError::MetadataFetch(code))),
        }
        let mut partitions: Vec<i32> = found.partitions().iter().map(MetadataPartition::id).collect();
        partitions.sort_unstable();
        if partitions.is_empty() { Err(missing()) } else { Ok(partitions) }
    }

    /// The offsets that a partition has now.
    pub fn bounds(&self, topic: &str, partition: i32) -> Result<OffsetRange, ReadError> {
        match self.consumer.fetch_watermarks(topic, partition, self.patience.answer) {
            Ok((first, next)) => Ok(OffsetRange { first, next }),
            Err(error) if is_unknown(error.rdkafka_error_code()) => {
                Err(ReadError::Missing { topic: topic.to_owned(), partition: Some(partition) })
            }
            Err(source) => Err(ask("ask for the bounds", topic, source)),
        }
    }

    /// What the config's group has committed; partitions without a commit are not among them.
    pub fn committed(&self, topic: &str, partitions: &[i32]) -> Result<BTreeMap<i32, i64>, ReadError> {
        let plans = self.committed_plans(topic, partitions)?;
        Ok(plans.into_iter().map(|(partition, committed)| (partition, committed.offset)).collect())
    }

    /// The same with what was committed beside the offsets.
    pub fn committed_plans(
        &self,
        topic: &str,
        partitions: &[i32],
    ) -> Result<BTreeMap<i32, CommittedOffset>, ReadError> {
        let mut list = TopicPartitionList::with_capacity(partitions.len());
        for partition in partitions {
            list.add_partition(topic, *partition);
        }
        let asked = self.consumer.committed_offsets(list, self.patience.answer);
        let failed = |source| ask("ask for the committed offsets", topic, source);
        let committed = asked.map_err(failed)?;
        let mut found = BTreeMap::new();
        for element in committed.elements() {
            element.error().map_err(failed)?;
            if let Offset::Offset(offset) = element.offset() {
                let metadata = element.metadata().to_owned();
                found.insert(element.partition(), CommittedOffset { offset, metadata });
            }
        }
        Ok(found)
    }

    /// The first offset of a partition whose message is not older than a moment, in ms since 1970. `None` when all are.
    pub fn offset_at(&self, topic: &str, partition: i32, millis: i64) -> Result<Option<i64>, ReadError> {
        let failed = |source| ask("ask for the offset at a time", topic, source);
        let mut list = TopicPartitionList::with_capacity(1);
        list.add_partition_offset(topic, partition, Offset::Offset(millis)).map_err(failed)?;
        let found = self.consumer.offsets_for_times(list, self.patience.answer).map_err(failed)?;
        let offset = found.elements().first().map(TopicPartitionListElem::offset);
        Ok(if let Some(Offset::Offset(offset)) = offset { Some(offset) } else { None })
    }

    /// Gives every message of a range of a partition to `take`, in order, until it fails or wants no more. Returns where reading ended:
    /// at the range's end, or before it where the rest is not committed by its producer.
    pub fn read<E: From<ReadError>>(
        &self,
        (topic, partition): (&str, i32),
        range: OffsetRange,
        mut take: impl FnMut(&BorrowedMessage<'_>) -> Result<ControlFlow<()>, E>,
    ) -> Result<i64, E> {
        if range.first >= range.next {
            return Ok(range.first);
        }
        self.assign(topic, partition, range.first)
            .map_err(|source| ask("start to read a partition", topic, source))?;
        let mut next = range.first;
        let mut heard = Instant::now();
        while next < range.next {
            match self.consumer.poll(POLL_WAIT) {
                Some(Ok(message)) => {
                    heard = Instant::now();
                    if message.offset() >= range.next {
                        return Ok(range.next);
                    }
                    next = message.offset() + 1;
                    if take(&message)?.is_break() {
                        return Ok(next);
                    }
                }
                Some(Err(KafkaError::PartitionEOF(_))) => return Ok(next),
                Some(Err(error)) => self.heed(error, topic, partition, next)?,
                None if heard.elapsed() > self.patience.message => {
                    let (topic, seconds) = (topic.to_owned(), self.patience.message.as_secs());
                    return Err(ReadError::Silence { topic, partition, offset: next, seconds }.into());
                }
                None => {}
            }
        }
        Ok(range.next)
    }

    /// The message at an offset; none when Kafka does not have it any more. Nothing is fetched behind it any more then: a reader that is kept
    /// keeps no batch.
    pub fn message(&self, id: &PartitionId, offset: i64) -> Result<Option<OwnedMessage>, ReadError> {
        let bounds = self.bounds(&id.topic, id.partition)?;
        let range = OffsetRange { first: offset.max(bounds.first), next: bounds.next };
        if range.first != offset {
            return Ok(None);
        }
        let mut found = None;
        let read = self.read((&*id.topic, id.partition), range, |message| {
            // What was compacted away, or was never committed, is followed by another message.
            found = (message.offset() == offset).then(|| message.detach());
            Ok(ControlFlow::Break(()))
        });
        self.consumer.unassign().map_err(|source| ask("stop reading a partition", &id.topic, source))?;
        match read {
            Err(ReadError::Gone { .. }) => Ok(None),
            read => read.map(|_| found),
        }
    }

    fn assign(&self, topic: &str, partition: i32, offset: i64) -> KafkaResult<()> {
        let mut list = TopicPartitionList::with_capacity(1);
        list.add_partition_offset(topic, partition, Offset::Offset(offset))?;
        self.consumer.assign(&list)
    }

    /// What does not pass by itself ends the reading.
    fn heed(&self, source: KafkaError, topic: &str, partition: i32, offset: i64) -> Result<(), ReadError> {
        let topic = topic.to_owned();
        match QueueProblem::of(&source, self.batch_bytes_max) {
            QueueProblem::ReadAgain => Ok(()),
            QueueProblem::OutOfRange => Err(ReadError::Gone { topic, partition, offset }),
            QueueProblem::Passing if !is_refusal(&source) => Ok(()),
            QueueProblem::Passing | QueueProblem::Undecompressed { .. } | QueueProblem::Unreadable => {
                Err(ReadError::Unreadable { topic, partition, offset, source: Box::new(source) })
            }
        }
    }
}

fn ask(action: &'static str, topic: &str, source: KafkaError) -> ReadError {
    ReadError::Ask { action, topic: topic.to_owned(), source: Box::new(source) }
}

fn is_unknown(code: Option<Code>) -> bool {
    matches!(code, Some(Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition))
}

/// Whether waiting does not help.
fn is_refusal(error: &KafkaError) -> bool {
    let code = error.rdkafka_error_code();
    is_unknown(code)
        || matches!(
            code,
            Some(
                Code::TopicAuthorizationFailed
                    | Code::SaslAuthenticationFailed
                    | Code::Authentication
                    | Code::Fatal
            )
        )
}

#[cfg(test)]
#[path = "topic_reader_tests.rs"]
mod tests;
