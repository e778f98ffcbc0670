//! A topic of a test: made, grown, looked at and removed.
//!
//! Job: the fixture for everything a test wants from the broker besides producing. Place in the flow: before the load
//! (create), during it (offsets and lag), after it (delete). Owner: the test. Limits: every call to the broker ends after
//! [`CALL_TIMEOUT`].

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::metadata::MetadataTopic;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use sluice_gateway_config::DEAD_LETTER_SUFFIX;

/// Longest wait for one answer of the broker; a broker that just restarted takes a few seconds.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);

/// Partitions of a dead-letter topic that a gateway makes, at the most.
const DEAD_LETTER_PARTITIONS_MAX: i32 = 8;

/// Longest wait until a new partition has its leader.
const LEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// Time between two looks at the metadata.
const LEADER_POLL: Duration = Duration::from_millis(100);

/// A partition's first and next offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// Partition number.
    pub partition: i32,
    /// Offset of the oldest message kept.
    pub low: i64,
    /// Offset that the next message gets.
    pub high: i64,
}

/// How far a consumer group is behind on a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lag {
    /// Messages behind, over all partitions; those of a partition without a commit count from its oldest message.
    pub messages: i64,
    /// The same by partition.
    pub by_partition: Vec<i64>,
    /// Partitions that the group has committed an offset for.
    pub committed_partitions: usize,
}

/// A topic that a test made. Clones are the same topic.
#[derive(Clone)]
pub struct Topic {
    brokers: String,
    name: String,
    partitions: i32,
    admin: Arc<AdminClient<DefaultClientContext>>,
}

impl Topic {
    fn named(brokers: &str, name: &str, partitions: i32) -> Result<Topic> {
        let admin: AdminClient<DefaultClientContext> = ClientConfig::new()
            .set("bootstrap.servers", brokers)
            .create()
            .with_context(|| format!("make a Kafka admin client for {brokers}"))?;
        Ok(Topic { brokers: brokers.to_owned(), name: name.to_owned(), partitions, admin: Arc::new(admin) })
    }

    /// Makes topic `name` and waits until every partition has a leader.
    pub async fn create(brokers: &str, name: &str, partitions: i32) -> Result<Topic> {
        Topic::create_replicated(brokers, name, partitions, 1).await
    }

    /// The same with so many replicas of each partition.
    pub async fn create_replicated(
        brokers: &str,
        name: &str,
        partitions: i32,
        replicas: i32,
    ) -> Result<Topic> {
        let topic = Topic::named(brokers, name, partitions)?;
        let new = NewTopic::new(name, partitions, TopicReplication::Fixed(replicas));
        let results = topic.admin.create_topics([&new], &options()).await;
        one(results).with_context(|| format!("create topic {name} with {partitions} partitions"))?;
        topic.wait_for_leaders().await?;
        Ok(topic)
    }

    /// The topic `name` as it is, or made with `partitions` when there is none.
    pub async fn ensure(brokers: &str, name: &str, partitions: i32) -> Result<Topic> {
        match Topic::create(brokers, name, partitions).await {
            Ok(topic) => Ok(topic),
            Err(error) if exists(&error) => {
                let mut topic = Topic::named(brokers, name, partitions)?;
                topic.partitions = i32::try_from(topic.ask("sluice-e2e-looks", led_partitions).await?)?;
                Ok(topic)
            }
            Err(error) => Err(error),
        }
    }

    /// Lets messages have any timestamp; brokers refuse those that are more than an hour ahead.
    ///
    /// # Errors
    /// When the broker refuses.
    pub async fn take_any_timestamp(&self) -> Result<()> {
        let largest = i64::MAX.to_string();
        let change = AlterConfig::new(ResourceSpecifier::Topic(&self.name))
            .set("message.timestamp.after.max.ms", &largest);
        let results = self.admin.alter_configs([&change], &options()).await?;
        let refused = results.into_iter().find_map(Result::err);
        ensure!(refused.is_none(), "let {} take any timestamp: {refused:?}", self.name);
        Ok(())
    }

    /// The topic's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its dead-letter topic, as a gateway makes it: there or not.
    pub fn dead_letters(&self) -> Result<Topic> {
        let partitions = self.partitions.min(DEAD_LETTER_PARTITIONS_MAX);
        Topic::named(&self.brokers, &format!("{}{DEAD_LETTER_SUFFIX}", self.name), partitions)
    }

    /// Has the broker refuse to make its dead-letter topic for as long as the topic is there that this makes: Kafka makes no two topics
    /// whose names differ in dots and underscores alone.
    pub async fn refuse_dead_letters(&self) -> Result<Topic> {
        let taken = format!("{}{DEAD_LETTER_SUFFIX}", self.name).replace('.', "_");
        Topic::create(&self.brokers, &taken, 1).await
    }

    /// Removes its dead-letter topic, and what keeps it from being made.
    pub async fn delete_dead_letters(&self) -> Result<()> {
        let letters = self.dead_letters()?;
        let taken = Topic::named(&self.brokers, &letters.name.replace('.', "_"), 1)?;
        letters.delete().await.and(taken.delete().await)
    }

    /// Partitions as far as this fixture made them.
    pub fn partitions(&self) -> i32 {
        self.partitions
    }

    /// Grows the topic to `partitions` and waits until the new ones have a leader.
    pub async fn grow(&mut self, partitions: i32) -> Result<()> {
        let count = usize::try_from(partitions)?;
        let results =
            self.admin.create_partitions([&NewPartitions::new(&self.name, count)], &options()).await;
        one(results).with_context(|| format!("grow topic {} to {partitions} partitions", self.name))?;
        self.partitions = partitions;
        self.wait_for_leaders().await
    }

    /// Removes the messages of these partitions below these offsets.
    pub async fn delete_records(&self, before: &[(i32, i64)]) -> Result<()> {
        let mut offsets = TopicPartitionList::new();
        for (partition, offset) in before {
            offsets
                .add_partition_offset(&self.name, *partition, Offset::Offset(*offset))
                .with_context(|| format!("name offset {offset} of partition {partition}"))?;
        }
        let deleted = self.admin.delete_records(&offsets, &options()).await;
        let deleted = deleted.with_context(|| format!("delete messages of topic {}", self.name))?;
        for element in deleted.elements() {
            element.error().with_context(|| {
                format!("delete messages of topic {}, partition {}", self.name, element.partition())
            })?;
        }
        Ok(())
    }

    /// Removes the topic. One that is gone already is fine.
    pub async fn delete(&self) -> Result<()> {
        let results = self.admin.delete_topics(&[&self.name], &options()).await;
        match one(results) {
            Err(Failed::Refused(RDKafkaErrorCode::UnknownTopicOrPartition)) => Ok(()),
            other => other.with_context(|| format!("delete topic {}", self.name)),
        }
    }

    /// Removes a consumer group. One that still has members is left to the broker, which forgets it with its offsets: static
    /// members do not leave when they end, they time out.
    pub async fn delete_group(&self, group: &str) -> Result<()> {
        let results = self.admin.delete_groups(&[group], &options()).await;
        for result in results.with_context(|| format!("delete group {group}"))? {
            match result {
                Ok(_) | Err((_, RDKafkaErrorCode::GroupIdNotFound | RDKafkaErrorCode::NonEmptyGroup)) => {}
                Err((_, code)) => bail!("delete group {group}: {code}"),
            }
        }
        Ok(())
    }

    /// First and next offset of every partition.
    pub async fn watermarks(&self) -> Result<Vec<Watermarks>> {
        self.ask("sluice-e2e-looks", watermarks).await
    }

    /// How far `group` is behind.
    pub async fn lag(&self, group: &str) -> Result<Lag> {
        self.ask(group, lag).await
    }

    /// What `group` has committed, by partition; nothing for a partition without.
    pub async fn committed(&self, group: &str) -> Result<Vec<(i32, i64)>> {
        self.ask(group, committed).await
    }

    /// The same with the metadata that stands beside each offset, which must be text.
    pub async fn committed_with_metadata(&self, group: &str) -> Result<Vec<(i32, i64, String)>> {
        self.ask(group, committed_with_metadata).await
    }

    async fn wait_for_leaders(&self) -> Result<()> {
        let deadline = tokio::time::Instant::now() + LEADER_TIMEOUT;
        loop {
            let led = self.ask("sluice-e2e-looks", led_partitions).await?;
            if led == usize::try_from(self.partitions)? {
                return Ok(());
            }
            ensure!(
                tokio::time::Instant::now() < deadline,
                "topic {}: {led} of {} partitions have a leader after {LEADER_TIMEOUT:?}",
                self.name,
                self.partitions
            );
            tokio::time::sleep(LEADER_POLL).await;
        }
    }

    /// Runs a blocking question to the broker on a thread of its own.
    async fn ask<T: Send + 'static>(
        &self,
        group: &str,
        question: fn(&BaseConsumer, &str, i32) -> Result<T>,
    ) -> Result<T> {
        let (brokers, name, group) = (self.brokers.clone(), self.name.clone(), group.to_owned());
        let partitions = self.partitions;
        let asked = tokio::task::spawn_blocking(move || {
            // It never subscribes, so it does not join the group that it asks about.
            let consumer: BaseConsumer = ClientConfig::new()
                .set("bootstrap.servers", brokers)
                .set("group.id", group)
                .create()
                .context("make a Kafka consumer")?;
            question(&consumer, &name, partitions)
        });
        asked
            .await
            .context("the thread that asks Kafka ended")?
            .with_context(|| format!("ask about topic {}", self.name))
    }
}

fn led_partitions(consumer: &BaseConsumer, topic: &str, _partitions: i32) -> Result<usize> {
    let metadata = consumer.fetch_metadata(Some(topic), CALL_TIMEOUT).context("fetch metadata")?;
    let partitions = metadata.topics().iter().flat_map(MetadataTopic::partitions);
    Ok(partitions.filter(|partition| partition.leader() >= 0 && partition.error().is_none()).count())
}

fn watermarks(consumer: &BaseConsumer, topic: &str, partitions: i32) -> Result<Vec<Watermarks>> {
    (0..partitions)
        .map(|partition| {
            let (low, high) = consumer
                .fetch_watermarks(topic, partition, CALL_TIMEOUT)
                .with_context(|| format!("fetch the watermarks of partition {partition}"))?;
            Ok(Watermarks { partition, low, high })
        })
        .collect()
}

fn lag(consumer: &BaseConsumer, topic: &str, partitions: i32) -> Result<Lag> {
    let mut asked = TopicPartitionList::new();
    asked.add_partition_range(topic, 0, partitions - 1);
    let committed = consumer.committed_offsets(asked, CALL_TIMEOUT).context("fetch committed offsets")?;
    let mut lag = Lag { messages: 0, by_partition: Vec::new(), committed_partitions: 0 };
    for Watermarks { partition, low, high } in watermarks(consumer, topic, partitions)? {
        let position = match committed.find_partition(topic, partition).map(|found| found.offset()) {
            Some(Offset::Offset(offset)) => {
                lag.committed_partitions += 1;
                offset
            }
            _ => low,
        };
        lag.messages += high - position;
        lag.by_partition.push(high - position);
    }
    Ok(lag)
}

fn committed(consumer: &BaseConsumer, topic: &str, partitions: i32) -> Result<Vec<(i32, i64)>> {
    let all = committed_with_metadata(consumer, topic, partitions)?;
    Ok(all.into_iter().map(|(partition, offset, _)| (partition, offset)).collect())
}

fn committed_with_metadata(
    consumer: &BaseConsumer,
    topic: &str,
    partitions: i32,
) -> Result<Vec<(i32, i64, String)>> {
    let mut asked = TopicPartitionList::new();
    asked.add_partition_range(topic, 0, partitions - 1);
    let found = consumer.committed_offsets(asked, CALL_TIMEOUT).context("fetch committed offsets")?;
    let commit = |partition| {
        let element = found.find_partition(topic, partition)?;
        match element.offset() {
            Offset::Offset(offset) => Some((partition, offset, element.metadata().to_owned())),
            _ => None,
        }
    };
    Ok((0..partitions).filter_map(commit).collect())
}

fn options() -> AdminOptions {
    AdminOptions::new().operation_timeout(Some(CALL_TIMEOUT)).request_timeout(Some(CALL_TIMEOUT))
}

/// Why an admin call about one topic failed.
#[derive(Debug)]
enum Failed {
    Call(rdkafka::error::KafkaError),
    Refused(RDKafkaErrorCode),
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failed::Call(error) => error.fmt(f),
            Failed::Refused(code) => write!(f, "the broker refused: {code}"),
        }
    }
}

impl std::error::Error for Failed {}

/// Whether the broker said that there is such a topic already.
fn exists(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Failed::Refused(RDKafkaErrorCode::TopicAlreadyExists)))
}

/// The result of a call about one topic.
fn one(results: rdkafka::error::KafkaResult<Vec<rdkafka::admin::TopicResult>>) -> Result<(), Failed> {
    for result in results.map_err(Failed::Call)? {
        result.map_err(|(_, code)| Failed::Refused(code))?;
    }
    Ok(())
}
