//! One question to the brokers, for `check`: are they there, and do they have the topics?

use crate::settings::probe_settings;
use rdkafka::{
    ClientConfig,
    consumer::{BaseConsumer, Consumer as _},
    error::{KafkaError, RDKafkaErrorCode},
};
use sluice_gateway_config::Kafka;
use std::time::Duration;

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
    let mut config = ClientConfig::new();
    for (name, value) in probe_settings(kafka) {
        config.set(name, value);
    }
    let client: BaseConsumer = config
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
