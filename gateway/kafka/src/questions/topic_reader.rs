//! Reads ranges of a topic without joining its group.
//!
//! Job: what tools need of Kafka (`audit`, `dead-letter`), and the original message of a refused row: bounds, offsets by time, committed
//! offsets, and the messages of a range, in order, as the gateway reads them (`read_committed`, the same limit on batches). Place in the
//! flow: beside it. Owner: one thread, which it blocks; on a runtime, a blocking one. The group's name is used to read committed offsets,
//! never to join or to commit.
//!
//! Limits: every wait is bounded by [`Patience`]. It reads one partition at a time, so that its memory is that of a consumer with one
//! active partition: a record batch of `source.kafka.recordBatchBytesMax` and the answer that contains it. The memory budget has no extra
//! room for it: the gateway reads one original at a time, only while that partition is held and its own batch is free.

use crate::ground::{
    cluster,
    login::renewal,
    refusal::QueueProblem,
    settings::{Identity, consumer_settings, refused},
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
use sluice_login::Renewal;
use sluice_ranges::{OffsetRange, PartitionId};
use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    time::{Duration, Instant},
};

/// The longest single wait for a message, so that the time limit is kept.
const POLL_WAIT: Duration = Duration::from_millis(100);

/// How long to wait for brokers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// For the answer to a request.
    pub answer: Duration,
    /// For the next message while there are more.
    pub message: Duration,
}

/// Why a topic cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file of the user, password or certificates cannot be read.
    #[error(transparent)]
    Secret(SecretFileError),
    /// librdkafka refused the settings.
    #[error("cannot create a Kafka client for {brokers}: {why}")]
    Create { brokers: String, why: String },
    /// There is no token to log in with.
    #[error("cannot log in to Kafka: {0}")]
    Login(sluice_login::Error),
    /// There is no such topic, or no such partition.
    #[error("topic {topic} does not exist, or has no partition {}", .partition.map_or("at all".to_owned(), |number| number.to_string()))]
    Missing {
        topic: String,
        /// The partition asked for.
        partition: Option<i32>,
    },
    /// A log of this process cannot be read.
    #[error("cannot read the queue volume: {0}")]
    Volume(String),
    /// No broker reports the cluster id.
    #[error("no broker of {brokers} reports the cluster id: {source}")]
    Cluster { brokers: String, source: Box<KafkaError> },
    /// The brokers did not answer in time, or refused.
    #[error("cannot {action} of topic {topic}: {source}")]
    Ask { action: &'static str, topic: String, source: Box<KafkaError> },
    /// No message arrived in time.
    #[error("reading {topic}/{partition}: no message arrived within {seconds} s at offset {offset}")]
    Silence { topic: String, partition: i32, offset: i64, seconds: u64 },
    /// Kafka no longer has the next offset.
    #[error("reading {topic}/{partition}: Kafka no longer has offset {offset}")]
    Gone { topic: String, partition: i32, offset: i64 },
    /// The next record batch cannot be read; it stops a gateway, too.
    #[error("reading {topic}/{partition}: cannot read the record batch at offset {offset}: {}", batch_reason(*problem))]
    Batch { topic: String, partition: i32, offset: i64, problem: QueueProblem },
    /// The brokers refuse to send it.
    #[error("reading {topic}/{partition}: cannot read on from offset {offset}: {source}")]
    Unreadable { topic: String, partition: i32, offset: i64, source: Box<KafkaError> },
}

/// A consumer outside of any group.
pub struct TopicReader {
    consumer: BaseConsumer,
    renewal: Renewal,
    patience: Patience,
    batch_bytes_max: u64,
    brokers: String,
}

/// A committed offset of the config's group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedOffset {
    pub offset: i64,
    /// The metadata of the commit: a [plan](sluice_ranges::Plan), or another program's text.
    pub metadata: String,
}

impl TopicReader {
    /// Creates a reader for the config's brokers. Sends them no request yet; if it logs in with tokens, it waits for the first one. `tool` is the client name in the brokers' logs.
    pub fn new(kafka: &Kafka, tool: &str, patience: Patience) -> Result<Self, ReadError> {
        Self::isolated(kafka, tool, patience, None)
    }

    /// A reader that also sees messages of open transactions. Only for requests: the gateway reads no such messages.
    pub(crate) fn of_uncommitted(kafka: &Kafka, tool: &str, patience: Patience) -> Result<Self, ReadError> {
        Self::isolated(kafka, tool, patience, Some("read_uncommitted"))
    }

    fn isolated(
        kafka: &Kafka,
        tool: &str,
        patience: Patience,
        isolation_level: Option<&str>,
    ) -> Result<Self, ReadError> {
        // The memory of one partition, however many the gateway reads at a time.
        let alone = Kafka { partitions_active_max: 1, ..kafka.clone() };
        let identity =
            Identity { client_id: format!("sluice-gateway-{tool}"), instance_id: None, rack: None };
        let mut config = ClientConfig::new();
        for (name, value) in consumer_settings(&alone, &identity).map_err(ReadError::Secret)? {
            config.set(name, value);
        }
        // Reading ends at the end of a partition, even if its last offset is not a message.
        config.set("enable.partition.eof", "true").set("auto.offset.reset", "error");
        config.set("statistics.interval.ms", "0").set_log_level(RDKafkaLogLevel::Warning);
        if let Some(level) = isolation_level {
            config.set("isolation.level", level);
        }
        let brokers = kafka.bootstrap_servers.join(",");
        let created = config.create();
        let consumer: BaseConsumer =
            created.map_err(|error| ReadError::Create { brokers: brokers.clone(), why: refused(&error) })?;
        let renewal = renewal(kafka);
        renewal.first(consumer.client()).map_err(ReadError::Login)?;
        Ok(Self { consumer, renewal, patience, batch_bytes_max: kafka.record_batch_bytes_max.get(), brokers })
    }

    /// The consumer, with the last token if it logs in with tokens.
    fn client(&self) -> &BaseConsumer {
        self.renewal.renew(self.consumer.client());
        &self.consumer
    }

    /// The cluster's id, which is a part of every token ([`crate::ground::cluster`]).
    pub fn cluster(&self, topic: &str) -> Result<String, ReadError> {
        cluster::id(self.client().client(), topic, self.patience.answer)
            .map_err(|source| ReadError::Cluster { brokers: self.brokers.clone(), source: Box::new(source) })
    }

    /// The partitions of a topic, in order.
    pub fn partitions(&self, topic: &str) -> Result<Vec<i32>, ReadError> {
        let failed = |source| ask("ask for the partitions", topic, source);
        let missing = || ReadError::Missing { topic: topic.to_owned(), partition: None };
        let metadata = match self.client().fetch_metadata(Some(topic), self.patience.answer) {
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

    /// The first and the next offset of a partition now.
    pub fn bounds(&self, topic: &str, partition: i32) -> Result<OffsetRange, ReadError> {
        match self.client().fetch_watermarks(topic, partition, self.patience.answer) {
            Ok((first, next)) => Ok(OffsetRange { first, next }),
            Err(error) if is_unknown(error.rdkafka_error_code()) => {
                Err(ReadError::Missing { topic: topic.to_owned(), partition: Some(partition) })
            }
            Err(source) => Err(ask("ask for the bounds", topic, source)),
        }
    }

    /// The committed offsets of the config's group; partitions without a commit are missing.
    pub fn committed(&self, topic: &str, partitions: &[i32]) -> Result<BTreeMap<i32, i64>, ReadError> {
        let plans = self.committed_plans(topic, partitions)?;
        Ok(plans.into_iter().map(|(partition, committed)| (partition, committed.offset)).collect())
    }

    /// The committed offsets with their metadata.
    pub fn committed_plans(
        &self,
        topic: &str,
        partitions: &[i32],
    ) -> Result<BTreeMap<i32, CommittedOffset>, ReadError> {
        let mut list = TopicPartitionList::with_capacity(partitions.len());
        for partition in partitions {
            list.add_partition(topic, *partition);
        }
        let asked = self.client().committed_offsets(list, self.patience.answer);
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

    /// The first offset of a partition whose message is not older than a time, in ms since 1970. `None` if all are older.
    pub fn offset_at(&self, topic: &str, partition: i32, millis: i64) -> Result<Option<i64>, ReadError> {
        let failed = |source| ask("ask for the offset at a time", topic, source);
        let mut list = TopicPartitionList::with_capacity(1);
        list.add_partition_offset(topic, partition, Offset::Offset(millis)).map_err(failed)?;
        let found = self.client().offsets_for_times(list, self.patience.answer).map_err(failed)?;
        let offset = found.elements().first().map(TopicPartitionListElem::offset);
        Ok(if let Some(Offset::Offset(offset)) = offset { Some(offset) } else { None })
    }

    /// Passes every message of a range to `take`, in order, until `take` fails or returns that it wants no more. Returns where reading
    /// ended: at the range's end, or before it if the rest belongs to an open transaction.
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
            match self.client().poll(POLL_WAIT) {
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

    /// The message at an offset; none if Kafka has deleted it. Fetching stops afterwards, so that a reader that is kept holds no batch.
    pub fn message(&self, id: &PartitionId, offset: i64) -> Result<Option<OwnedMessage>, ReadError> {
        let bounds = self.bounds(&id.topic, id.partition)?;
        let range = OffsetRange { first: offset.max(bounds.first), next: bounds.next };
        if range.first != offset {
            return Ok(None);
        }
        let mut found = None;
        let read = self.read((&*id.topic, id.partition), range, |message| {
            // An offset that was compacted away or never committed is followed by a later message.
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

    /// Ends the reading if waiting does not help.
    fn heed(&self, source: KafkaError, topic: &str, partition: i32, offset: i64) -> Result<(), ReadError> {
        let topic = topic.to_owned();
        match QueueProblem::of(&source, self.batch_bytes_max) {
            QueueProblem::ReadAgain => Ok(()),
            QueueProblem::OutOfRange => Err(ReadError::Gone { topic, partition, offset }),
            QueueProblem::Passing if !is_refusal(&source) => Ok(()),
            problem @ (QueueProblem::Undecompressed { .. } | QueueProblem::Unreadable) => {
                Err(ReadError::Batch { topic, partition, offset, problem })
            }
            QueueProblem::Passing => {
                Err(ReadError::Unreadable { topic, partition, offset, source: Box::new(source) })
            }
        }
    }
}

fn ask(action: &'static str, topic: &str, source: KafkaError) -> ReadError {
    ReadError::Ask { action, topic: topic.to_owned(), source: Box::new(source) }
}

/// Why a batch cannot be read, and what helps.
fn batch_reason(problem: QueueProblem) -> String {
    match problem {
        QueueProblem::Undecompressed { bytes: Some(bytes) } => format!(
            "it holds {bytes} bytes, more than source.kafka.recordBatchBytesMax: increase that limit in the config"
        ),
        QueueProblem::Undecompressed { bytes: None } => {
            "it does not decompress within source.kafka.recordBatchBytesMax, or is broken: increase that limit in the config, or write \
             the batch again"
                .to_owned()
        }
        _ => "its checksum is wrong, or its kind is unknown: write the batch again".to_owned(),
    }
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
