//! The settings of the producer of letters, each with its reason. They follow from the config, and from the files of user and password
//! that it names.

use crate::{
    dead_letter::{LETTER_BYTES_MAX, LETTER_QUEUE_BYTES, LETTERS_MAX},
    ground::settings::probe_settings,
};
use sluice_gateway_config::{Kafka, SecretFileError};

pub(super) fn producer_settings<'a>(
    kafka: &'a Kafka,
    client_id: &str,
) -> Result<Vec<(&'a str, String)>, SecretFileError> {
    let mut settings = probe_settings(kafka)?;
    settings.extend([
        ("client.id", client_id.to_owned()),
        // A letter counts once all in-sync replicas have it, and a retry inside librdkafka does not double it.
        ("acks", "all".into()),
        ("enable.idempotence", "true".into()),
        ("compression.type", "zstd".into()),
        // No time limit: the range waits, which shows as lag, and no data is lost.
        ("message.timeout.ms", "0".into()),
        // One letter a batch. The brokers' limit counts batches: they would refuse all letters of a batch that is too large.
        ("batch.num.messages", "1".into()),
        // The topic's own limit decides; letters above ours are trimmed before they come here. Room for headers and framing.
        ("message.max.bytes", (2 * LETTER_BYTES_MAX).to_string()),
        // Larger than the queue before it, so that only that one can be full.
        ("queue.buffering.max.messages", (2 * LETTERS_MAX).to_string()),
        ("queue.buffering.max.kbytes", (2 * LETTER_QUEUE_BYTES / 1024).to_string()),
        // Topics are created with the source's replication, or not at all.
        ("allow.auto.create.topics", "false".into()),
        // How long letters wait for a topic that the brokers no longer know, before it is created again.
        ("topic.metadata.propagation.max.ms", "5000".into()),
    ]);
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::settings::tests::kafka;
    use rdkafka::{ClientConfig, producer::BaseProducer};
    use sluice_gateway_config::kafka_properties::owner;

    #[test]
    fn the_settings_are_accepted_and_named_once() {
        let kafka = kafka();
        let settings = producer_settings(&kafka, "letters").unwrap();
        let mut config = ClientConfig::new();
        for (name, value) in &settings {
            assert!(config.get(name).is_none(), "{name} is set twice");
            config.set(*name, value);
            let is_ours = !kafka.properties.contains_key(*name);
            assert!(!is_ours || owner(name).is_some(), "{name} is set by us, and a config may set it too");
        }
        let producer: Result<BaseProducer, _> = config.create();
        producer.unwrap();
    }
}
