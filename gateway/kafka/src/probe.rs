//! Questions to the brokers, for `check`: are they there, do they have the topics, and how large may a topic's record batches be?

use crate::settings::probe_settings;
use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions, ResourceSpecifier},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer as _},
    error::{KafkaError, RDKafkaErrorCode},
};
use sluice_gateway_config::Kafka;
use std::time::Duration;

/// The topic's limit for a record batch as it is sent, hence compressed. The broker's own, where the topic has none, is described
/// as the topic's.
const BATCH_LIMIT: &str = "max.message.bytes";

/// A topic and how many partitions it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicPartitions {
    /// The topic.
    pub topic: String,
    /// Its partitions; `None` when the brokers do not have it.
    pub partitions: Option<usize>,
}

/// Why the brokers could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// librdkafka refused the settings.
    #[error("cannot make a Kafka client for {brokers}: {source}")]
    Settings {
        /// Brokers of the config.
        brokers: String,
        /// What librdkafka said.
        source: Box<KafkaError>,
    },
    /// No broker answered in time.
    #[error("no broker of {brokers} answered within {seconds} s about topic {topic}: {source}")]
    Unreachable {
        /// Brokers of the config.
        brokers: String,
        /// The topic that was asked for.
        topic: String,
        /// The time limit.
        seconds: u64,
        /// What librdkafka said.
        source: Box<KafkaError>,
    },
}

/// Asks for every topic of the config. Blocks for up to `timeout` per topic.
pub fn probe_topics(kafka: &Kafka, timeout: Duration) -> Result<Vec<TopicPartitions>, ProbeError> {
    let brokers = kafka.bootstrap_servers.join(",");
    let client: BaseConsumer = client_config(kafka)
        .create()
        .map_err(|source| ProbeError::Settings { brokers: brokers.clone(), source: Box::new(source) })?;
    let ask = |topic: &String| {
        let unreachable = |source: KafkaError| ProbeError::Unreachable {
            brokers: brokers.clone(),
            topic: topic.clone(),
            seconds: timeout.as_secs(),
            source: Box::new(source),
        };
        match client.fetch_metadata(Some(topic), timeout) {
            Ok(metadata) => {
                let found =
                    metadata.topics().iter().find(|found| found.name() == topic && found.error().is_none());
                let partitions = found.map(|found| found.partitions().len()).filter(|count| *count > 0);
                Ok(TopicPartitions { topic: topic.clone(), partitions })
            }
            Err(KafkaError::MetadataFetch(
                RDKafkaErrorCode::UnknownTopic | RDKafkaErrorCode::UnknownTopicOrPartition,
            )) => Ok(TopicPartitions { topic: topic.clone(), partitions: None }),
            Err(source) => Err(unreachable(source)),
        }
    };
    kafka.topics.iter().map(ask).collect()
}

/// The largest record batch that a topic takes, in bytes as it is sent. `None` when nobody says: a reader of a topic need not
/// have the right to describe its configuration.
pub async fn batch_bytes_max(kafka: &Kafka, topic: &str, timeout: Duration) -> Option<u64> {
    let client: AdminClient<DefaultClientContext> = client_config(kafka).create().ok()?;
    let options = AdminOptions::new().request_timeout(Some(timeout));
    let described = client.describe_configs(&[ResourceSpecifier::Topic(topic)], &options).await.ok()?;
    let described = described.into_iter().next()?.ok()?;
    described.get(BATCH_LIMIT)?.value.as_ref()?.parse().ok()
}

fn client_config(kafka: &Kafka) -> ClientConfig {
    let mut config = ClientConfig::new();
    for (name, value) in probe_settings(kafka) {
        config.set(name, value);
    }
    config
}
