//! Reads part of a topic without a group: from a place up to where the topic ended when the reading began.
//!
//! Job: the original message of a refused row, and the letters of a dead-letter topic. Place in the flow: beside it; nothing is
//! committed, no group is joined. Owner: one thread, which it blocks; on a runtime, a blocking one.
//!
//! Limits: every wait is bounded by the time given; memory is that of a consumer with one active partition, a record batch of
//! `source.kafka.recordBatchBytesMax` and the answer that it came in. The budget knows no room for it: the gateway reads an original
//! only while that partition is held, whose own batch is free then, and one at a time.

use crate::{
    partition::PartitionId,
    refusal::QueueProblem,
    settings::{Identity, consumer_settings},
};
use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, Consumer as _},
    error::{KafkaError, RDKafkaErrorCode as Code},
    message::{Message as _, OwnedMessage},
};
use sluice_gateway_config::{Kafka, SecretFileError};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// The longest single wait for a message, so that the time limit is kept.
const POLL_WAIT: Duration = Duration::from_millis(100);

/// Where reading begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadFrom {
    /// With the oldest message of every partition.
    Earliest,
    /// With the first message of every partition that is not older than this, in ms since 1970.
    Since(i64),
    /// With this offset of this partition, which alone is read.
    Offset(i32, i64),
    /// With the oldest message of this partition, which alone is read.
    Partition(i32),
}

/// Why a topic cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// User, password or certificates cannot be read.
    #[error(transparent)]
    Secret(SecretFileError),
    /// librdkafka refused the settings.
    #[error("cannot make a Kafka consumer for topic {topic}: {source}")]
    Create {
        /// The topic.
        topic: String,
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
    #[error("no message of topic {topic} came within {seconds} s")]
    TimedOut {
        /// The topic.
        topic: String,
        /// How long it was waited for.
        seconds: u64,
    },
}

/// A topic being read.
pub struct BoundedReader {
    consumer: BaseConsumer,
    topic: String,
    timeout: Duration,
    batch_bytes_max: u64,
    /// Partitions that are not read to the end: the next offset, and the end when the reading began.
    open: BTreeMap<i32, (i64, i64)>,
}

impl BoundedReader {
    /// Begins. Blocks for up to `timeout` per question, of which there are two a partition and one more.
    pub fn open(kafka: &Kafka, topic: &str, from: ReadFrom, timeout: Duration) -> Result<Self, ReadError> {
        let consumer = consumer_config(kafka)
            .map_err(ReadError::Secret)?
            .create()
            .map_err(|source| ReadError::Create { topic: topic.to_owned(), source: Box::new(source) })?;
        let mut reader = Self {
            consumer,
            topic: topic.to_owned(),
            timeout,
            batch_bytes_max: kafka.record_batch_bytes_max.get(),
            open: BTreeMap::new(),
        };
        let partitions = reader.partitions(from)?;
        let starts = reader.starts(&partitions, from)?;
        let mut assigned = TopicPartitionList::new();
        for (partition, (next, _)) in &starts {
            let added = assigned.add_partition_offset(topic, *partition, Offset::Offset(*next));
            added.map_err(|source| reader.failed("name the partitions", source))?;
        }
        reader.open = starts;
        let assign = reader.consumer.assign(&assigned);
        assign.map_err(|source| reader.failed("read the partitions", source))?;
        Ok(reader)
    }

    /// Messages that are left, as far as offsets tell.
    pub fn left(&self) -> u64 {
        self.open.values().map(|(next, end)| end.saturating_sub(*next).unsigned_abs()).sum()
    }

    /// The next message; none once everything was read that was there at the beginning.
    pub fn next_message(&mut self) -> Result<Option<OwnedMessage>, ReadError> {
        let deadline = Instant::now() + self.timeout;
        while !self.open.is_empty() {
            match self.consumer.poll(POLL_WAIT) {
                Some(Ok(message)) => {
                    let (partition, offset) = (message.partition(), message.offset());
                    let wanted = self.open.get(&partition).is_some_and(|(_, end)| offset < *end);
                    let message = wanted.then(|| message.detach());
                    self.reached(partition, offset + 1);
                    if message.is_some() {
                        return Ok(message);
                    }
                }
                Some(Err(KafkaError::PartitionEOF(partition))) => drop(self.open.remove(&partition)),
                Some(Err(error)) => self.heed(error)?,
                None if Instant::now() >= deadline => {
                    let seconds = self.timeout.as_secs();
                    return Err(ReadError::TimedOut { topic: self.topic.clone(), seconds });
                }
                None => {}
            }
        }
        Ok(None)
    }

    fn reached(&mut self, partition: i32, next: i64) {
        if let Some((position, end)) = self.open.get_mut(&partition) {
            *position = next;
            if next >= *end {
                self.open.remove(&partition);
            }
        }
    }

    /// Ends with errors that do not pass by themselves.
    fn heed(&mut self, error: KafkaError) -> Result<(), ReadError> {
        match QueueProblem::of(&error, self.batch_bytes_max) {
            QueueProblem::ReadAgain => Ok(()),
            // The offset is no longer there, or not yet: there is nothing to read.
            QueueProblem::OutOfRange => {
                self.open.clear();
                Ok(())
            }
            QueueProblem::Passing if !is_refusal(&error) => Ok(()),
            QueueProblem::Passing | QueueProblem::Undecompressed { .. } | QueueProblem::Unreadable => {
                Err(self.failed("read a message", error))
            }
        }
    }

    fn partitions(&self, from: ReadFrom) -> Result<Vec<i32>, ReadError> {
        let asked = match from {
            ReadFrom::Offset(partition, _) | ReadFrom::Partition(partition) => Some(partition),
            ReadFrom::Earliest | ReadFrom::Since(_) => None,
        };
        let missing = || ReadError::Missing { topic: self.topic.clone(), partition: asked };
        let metadata = match self.consumer.fetch_metadata(Some(&self.topic), self.timeout) {
            Ok(metadata) => metadata,
            Err(error) if is_unknown(error.rdkafka_error_code()) => return Err(missing()),
            Err(error) => return Err(self.failed("ask for the partitions", error)),
        };
        let found = metadata.topics().iter().find(|found| found.name() == self.topic).ok_or_else(missing)?;
        match found.error().map(Code::from) {
            None => {}
            code if is_unknown(code) => return Err(missing()),
            Some(code) => return Err(self.failed("ask for the partitions", KafkaError::MetadataFetch(code))),
        }
        let partitions = found.partitions().iter().map(rdkafka::metadata::MetadataPartition::id);
        let partitions: Vec<i32> = partitions.filter(|id| asked.is_none_or(|asked| asked == *id)).collect();
        if partitions.is_empty() { Err(missing()) } else { Ok(partitions) }
    }

    /// The first offset and the end of each partition that has something to read.
    fn starts(&self, partitions: &[i32], from: ReadFrom) -> Result<BTreeMap<i32, (i64, i64)>, ReadError> {
        let since = match from {
            ReadFrom::Since(millis) => Some(self.offsets_since(partitions, millis)?),
            ReadFrom::Earliest | ReadFrom::Offset(..) | ReadFrom::Partition(_) => None,
        };
        let mut starts = BTreeMap::new();
        for partition in partitions {
            let marks = self.consumer.fetch_watermarks(&self.topic, *partition, self.timeout);
            let (low, high) =
                marks.map_err(|source| self.failed("ask for the first and the last offset", source))?;
            let first = match from {
                ReadFrom::Earliest | ReadFrom::Partition(_) => low,
                ReadFrom::Offset(_, offset) => offset,
                ReadFrom::Since(_) => {
                    match since.as_ref().and_then(|since| since.find_partition(&self.topic, *partition)) {
                        Some(found) => match found.offset() {
                            Offset::Offset(offset) => offset.max(low),
                            // There is no message as young as that.
                            _ => high,
                        },
                        None => high,
                    }
                }
            };
            if (low..high).contains(&first) {
                starts.insert(*partition, (first, high));
            }
        }
        Ok(starts)
    }

    fn offsets_since(&self, partitions: &[i32], millis: i64) -> Result<TopicPartitionList, ReadError> {
        let mut asked = TopicPartitionList::new();
        for partition in partitions {
            let added = asked.add_partition_offset(&self.topic, *partition, Offset::Offset(millis));
            added.map_err(|source| self.failed("name the partitions", source))?;
        }
        let found = self.consumer.offsets_for_times(asked, self.timeout);
        found.map_err(|source| self.failed("ask for the offsets of a time", source))
    }

    fn failed(&self, action: &'static str, source: KafkaError) -> ReadError {
        ReadError::Ask { action, topic: self.topic.clone(), source: Box::new(source) }
    }
}

/// The message at an offset; none when Kafka does not have it any more. Blocks for up to four times `timeout`.
pub fn fetch_message(
    kafka: &Kafka,
    id: &PartitionId,
    offset: i64,
    timeout: Duration,
) -> Result<Option<OwnedMessage>, ReadError> {
    let mut reader = BoundedReader::open(kafka, &id.topic, ReadFrom::Offset(id.partition, offset), timeout)?;
    // What was compacted away, or was never committed, is followed by another message.
    Ok(reader.next_message()?.filter(|message| message.offset() == offset))
}

fn consumer_config(kafka: &Kafka) -> Result<ClientConfig, SecretFileError> {
    // One partition's worth of memory, whatever the gateway reads at a time.
    let alone = Kafka { partitions_active_max: 1, ..kafka.clone() };
    let identity =
        Identity { client_id: format!("{}-reader", kafka.consumer_group), instance_id: None, rack: None };
    let mut config = ClientConfig::new();
    for (name, value) in consumer_settings(&alone, &identity)? {
        config.set(name, value);
    }
    // A consumer must name a group, which it joins only when it subscribes.
    config.set("auto.offset.reset", "error");
    config.set("enable.partition.eof", "true");
    config.set("statistics.interval.ms", "0");
    config.set_log_level(RDKafkaLogLevel::Warning);
    Ok(config)
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
#[path = "bounded_reader_tests.rs"]
mod tests;
