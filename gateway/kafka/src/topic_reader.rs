//! Reads ranges of a topic without taking part in its group.
//!
//! Job: what `audit` and other tools need of Kafka: bounds, offsets by time, what the group has committed, and the messages of a
//! range, in order, as the gateway reads them (`read_committed`, the same limit on batches). Place in the flow: beside it; the
//! gateway itself never uses this. Owner: one thread. The group's name is used to ask, never to join or to commit.
//!
//! Limits: one partition at a time, so that librdkafka holds one fetch; each question [`ASK_TIMEOUT`], a silence of the brokers
//! [`SILENCE_MAX`].

use crate::{
    partition::OffsetRange,
    refusal::QueueProblem,
    settings::{Identity, consumer_settings},
};
use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
    error::{KafkaError, KafkaResult},
    message::{BorrowedMessage, Message as _},
    metadata::{MetadataPartition, MetadataTopic},
    topic_partition_list::TopicPartitionListElem,
};
use sluice_gateway_config::{Kafka, SecretFileError};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// How long a broker may take to answer a question.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);

/// How long nothing may come while there are messages. Longer than a partition takes to get another leader.
const SILENCE_MAX: Duration = Duration::from_mins(1);

/// How long one poll lasts at the most.
const POLL: Duration = Duration::from_millis(100);

/// Why a topic cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TopicReaderError {
    /// User, password or certificates cannot be read.
    #[error(transparent)]
    Secret(SecretFileError),
    /// librdkafka refused the settings.
    #[error("cannot make a Kafka client for {brokers}: {source}")]
    Settings {
        /// Brokers of the config.
        brokers: String,
        /// What librdkafka said.
        source: Box<KafkaError>,
    },
    /// The brokers do not answer, or refuse.
    #[error("{action} of topic {topic}: {source}")]
    Ask {
        /// What was asked.
        action: &'static str,
        /// The topic.
        topic: String,
        /// What librdkafka said.
        source: Box<KafkaError>,
    },
    /// There is no such topic.
    #[error("the topic {topic} does not exist")]
    UnknownTopic {
        /// The topic.
        topic: String,
    },
    /// Nothing came for [`SILENCE_MAX`].
    #[error("reading {topic}/{partition}: nothing came for {} s, at offset {offset}", SILENCE_MAX.as_secs())]
    Silence {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The offset that was waited for.
        offset: i64,
    },
    /// The next batch is one that a gateway would stop in front of.
    #[error("reading {topic}/{partition}: the record batch behind offset {offset} cannot be read: {source}")]
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
    batch_bytes_max: u64,
}

impl TopicReader {
    /// A reader of the config's brokers. Nothing is asked yet. `tool` is what brokers log as the client.
    pub fn new(kafka: &Kafka, tool: &str) -> Result<Self, TopicReaderError> {
        let identity =
            Identity { client_id: format!("sluice-gateway-{tool}"), instance_id: None, rack: None };
        let mut config = ClientConfig::new();
        for (name, value) in consumer_settings(kafka, &identity).map_err(TopicReaderError::Secret)? {
            config.set(name, value);
        }
        // The end of a partition is where reading it ends, though its last offset may be no message.
        config.set("enable.partition.eof", "true").remove("statistics.interval.ms");
        let consumer = config.create().map_err(|source| TopicReaderError::Settings {
            brokers: kafka.bootstrap_servers.join(","),
            source: Box::new(source),
        })?;
        Ok(Self { consumer, batch_bytes_max: kafka.record_batch_bytes_max.get() })
    }

    /// The partitions of a topic, in order.
    pub fn partitions(&self, topic: &str) -> Result<Vec<i32>, TopicReaderError> {
        let asked = self.consumer.fetch_metadata(Some(topic), ASK_TIMEOUT);
        let metadata = asked.map_err(|source| ask("asking for the partitions", topic, source))?;
        let found = metadata.topics().iter().find(|found| found.name() == topic && found.error().is_none());
        let mut partitions: Vec<i32> =
            found.into_iter().flat_map(MetadataTopic::partitions).map(MetadataPartition::id).collect();
        partitions.sort_unstable();
        if partitions.is_empty() {
            return Err(TopicReaderError::UnknownTopic { topic: topic.to_owned() });
        }
        Ok(partitions)
    }

    /// The offsets that a partition has now.
    pub fn bounds(&self, topic: &str, partition: i32) -> Result<OffsetRange, TopicReaderError> {
        let asked = self.consumer.fetch_watermarks(topic, partition, ASK_TIMEOUT);
        let (first, next) = asked.map_err(|source| ask("asking for the bounds", topic, source))?;
        Ok(OffsetRange { first, next })
    }

    /// What the config's group has committed; partitions without a commit are not among them.
    pub fn committed(&self, topic: &str, partitions: &[i32]) -> Result<BTreeMap<i32, i64>, TopicReaderError> {
        let mut list = TopicPartitionList::with_capacity(partitions.len());
        for partition in partitions {
            list.add_partition(topic, *partition);
        }
        let asked = self.consumer.committed_offsets(list, ASK_TIMEOUT);
        let committed = asked.map_err(|source| ask("asking for the committed offsets", topic, source))?;
        let offset = |offset| if let Offset::Offset(offset) = offset { Some(offset) } else { None };
        let elements = committed.elements();
        Ok(elements.iter().filter_map(|e| Some((e.partition(), offset(e.offset())?))).collect())
    }

    /// The first offset of a partition whose message is not older than a moment, in ms since 1970. `None` when all are.
    pub fn offset_at(
        &self,
        topic: &str,
        partition: i32,
        millis: i64,
    ) -> Result<Option<i64>, TopicReaderError> {
        let failed = |source| ask("asking for the offset at a time", topic, source);
        let mut list = TopicPartitionList::with_capacity(1);
        list.add_partition_offset(topic, partition, Offset::Offset(millis)).map_err(failed)?;
        let found = self.consumer.offsets_for_times(list, ASK_TIMEOUT).map_err(failed)?;
        let offset = found.elements().first().map(TopicPartitionListElem::offset);
        Ok(if let Some(Offset::Offset(offset)) = offset { Some(offset) } else { None })
    }

    /// Gives every message of a range of a partition to `take`, in order, until it fails. Returns where reading ended: at the
    /// range's end, or before it where the rest is not committed by its producer.
    pub fn read<E: From<TopicReaderError>>(
        &self,
        (topic, partition): (&str, i32),
        range: OffsetRange,
        mut take: impl FnMut(&BorrowedMessage<'_>) -> Result<(), E>,
    ) -> Result<i64, E> {
        if range.first >= range.next {
            return Ok(range.first);
        }
        self.assign(topic, partition, range.first)
            .map_err(|source| ask("beginning to read", topic, source))?;
        let mut next = range.first;
        let mut heard = Instant::now();
        while next < range.next {
            match self.consumer.poll(POLL) {
                Some(Ok(message)) => {
                    heard = Instant::now();
                    if message.offset() >= range.next {
                        return Ok(range.next);
                    }
                    next = message.offset() + 1;
                    take(&message)?;
                }
                Some(Err(KafkaError::PartitionEOF(_))) => return Ok(next),
                Some(Err(error)) => self.heed(error, topic, partition, next)?,
                None if heard.elapsed() > SILENCE_MAX => {
                    let topic = topic.to_owned();
                    return Err(TopicReaderError::Silence { topic, partition, offset: next }.into());
                }
                None => {}
            }
        }
        Ok(range.next)
    }

    fn assign(&self, topic: &str, partition: i32, offset: i64) -> KafkaResult<()> {
        let mut list = TopicPartitionList::with_capacity(1);
        list.add_partition_offset(topic, partition, Offset::Offset(offset))?;
        self.consumer.assign(&list)
    }

    /// What a gateway would stop at ends the reading; everything else passes.
    fn heed(
        &self,
        source: KafkaError,
        topic: &str,
        partition: i32,
        offset: i64,
    ) -> Result<(), TopicReaderError> {
        match QueueProblem::of(&source, self.batch_bytes_max) {
            QueueProblem::ReadAgain | QueueProblem::Passing | QueueProblem::OutOfRange => Ok(()),
            QueueProblem::Undecompressed { .. } | QueueProblem::Unreadable => {
                let (topic, source) = (topic.to_owned(), Box::new(source));
                Err(TopicReaderError::Unreadable { topic, partition, offset, source })
            }
        }
    }
}

fn ask(action: &'static str, topic: &str, source: KafkaError) -> TopicReaderError {
    TopicReaderError::Ask { action, topic: topic.to_owned(), source: Box::new(source) }
}
