//! The settings of the producer, each with its reason. They follow from the config, and from the files of user and password that it names.

use crate::{
    ground::settings::{METADATA_REFRESH, probe_settings},
    producer::{BATCH_OVERHEAD_BYTES, MESSAGE_OVERHEAD_BYTES, sender::ProducerLimits},
};
use sluice_gateway_config::{Kafka, SecretFileError};

/// How long librdkafka waits for more messages of a partition. Chosen: a request waits for it, so it is much less than an acknowledgement
/// takes under load, and enough for the messages of requests that arrive together.
const LINGER_MILLIS: u32 = 5;

/// The largest batch of several messages. Chosen: two requests of 92 KB share a batch, which is an eighth smaller than two, and costs one
/// acknowledgement. A topic refuses a batch that is above its `max.message.bytes` after compression. A batch of several messages then fails
/// with all of them, although each would fit. The limit of the topic is not known at the start, and hardly any topic has less than this.
const BATCH_BYTES_MAX: usize = 256 << 10;

/// The level of zstd for what `src/batch_zstd.c` leaves to librdkafka: messages that are larger than batches. Chosen: level 3, the default,
/// has 800 KB of tables for 64 KiB of spans, and searches longer.
const ZSTD_LEVEL: u32 = 1;

/// The largest message that librdkafka copies into its batch. A larger one stays where it is until the batch is compressed, which copies it
/// anyway (`src/batch_zstd.c`). For the copies, librdkafka allocates room for all messages that wait in the partition, up to this size each,
/// and keeps it until the acknowledgement. Chosen: less than most messages have. A reference to a small one costs more than its copy.
const COPY_BYTES_MAX: usize = 4 << 10;

/// Its name. A config may set it.
const COPY_PROPERTY: &str = "message.copy.max.bytes";

pub(super) fn producer_settings<'a>(
    kafka: &'a Kafka,
    client_id: &str,
    limits: &ProducerLimits,
) -> Result<Vec<(&'a str, String)>, SecretFileError> {
    let timeout = limits.timeout.as_millis().to_string();
    let mut settings = probe_settings(kafka)?;
    settings.extend([
        ("client.id", client_id.to_owned()),
        // A request is answered once all in-sync replicas have it, and a retry inside librdkafka does not double it.
        ("acks", "all".into()),
        ("enable.idempotence", "true".into()),
        ("compression.type", "zstd".into()),
        ("compression.level", ZSTD_LEVEL.to_string()),
        ("linger.ms", LINGER_MILLIS.to_string()),
        // The client of a request waits: the edge answers while it still listens.
        ("message.timeout.ms", timeout),
        // Gateways hold decompressed batches. Without this limit several messages would make a batch larger than each of them.
        ("batch.size", limits.batch_bytes_max.min(BATCH_BYTES_MAX).to_string()),
        // Checked before compression; the size of messages is decided before they come here. Room for key and framing.
        (
            "message.max.bytes",
            limits
                .batch_bytes_max
                .saturating_add(BATCH_OVERHEAD_BYTES)
                .clamp(1_000, 1_000_000_000)
                .to_string(),
        ),
        // Twice the room for messages before it, so that only that one can be full: librdkafka frees acknowledged messages together, after
        // their reports have given the room of each back.
        ("queue.buffering.max.messages", (2 * limits.queue_bytes / MESSAGE_OVERHEAD_BYTES + 1).to_string()),
        ("queue.buffering.max.kbytes", (2 * limits.queue_bytes / 1024 + 1).to_string()),
        // The topic's owner creates it, with its partitions and replicas.
        ("allow.auto.create.topics", "false".into()),
        // How long messages wait for a topic that the brokers do not know.
        ("topic.metadata.propagation.max.ms", "5000".into()),
        ("topic.metadata.refresh.interval.ms", METADATA_REFRESH.as_millis().to_string()),
    ]);
    if !kafka.properties.contains_key(COPY_PROPERTY) {
        settings.push((COPY_PROPERTY, COPY_BYTES_MAX.to_string()));
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::settings::tests::kafka;
    use rdkafka::{ClientConfig, producer::BaseProducer};
    use sluice_gateway_config::kafka_properties::owner;
    use std::time::Duration;

    #[test]
    fn the_settings_are_accepted_and_named_once() {
        let kafka = kafka();
        for (queue_bytes, batch_bytes_max) in [(1 << 20, 64 << 10), (1 << 30, 256 << 20)] {
            let limits = ProducerLimits { queue_bytes, batch_bytes_max, timeout: Duration::from_secs(8) };
            let mut config = ClientConfig::new();
            for (name, value) in producer_settings(&kafka, "edge", &limits).unwrap() {
                assert!(config.get(name).is_none(), "{name} is set twice");
                config.set(name, value);
                let is_ours = name != COPY_PROPERTY && !kafka.properties.contains_key(name);
                assert!(
                    !is_ours || owner(name).is_some(),
                    "{name} is set by us, and a config may set it too"
                );
            }
            let producer: Result<BaseProducer, _> = config.create();
            producer.unwrap();
        }
    }

    #[test]
    fn a_config_may_say_which_messages_are_copied() {
        let limits = ProducerLimits {
            queue_bytes: 1 << 20,
            batch_bytes_max: 64 << 10,
            timeout: Duration::from_secs(8),
        };
        let of = |kafka: &Kafka| {
            let settings = producer_settings(kafka, "edge", &limits).unwrap();
            let values = settings.into_iter().filter(|(name, _)| *name == COPY_PROPERTY);
            values.map(|(_, value)| value).collect::<Vec<_>>()
        };
        let mut kafka = kafka();
        assert_eq!(of(&kafka), ["4096"]);
        kafka.properties.insert(COPY_PROPERTY.to_owned(), "65535".to_owned());
        assert_eq!(of(&kafka), ["65535"]);
    }
}
