//! The rules of `source.kafka`.

use super::{in_range, is_host_and_port, is_topic};
use crate::{
    ByteSize, budget::RECORD_BATCH_BYTES_MAX, gateway_config::Kafka, kafka_properties, violation::Violations,
};

/// Checks every rule.
pub(super) fn check(kafka: &Kafka, found: &mut Violations) {
    let at = |field: &str| format!("source.kafka.{field}");
    found
        .add_if(kafka.bootstrap_servers.is_empty(), &at("bootstrapServers"), || "at least one broker".into());
    for server in &kafka.bootstrap_servers {
        found.add_if(!is_host_and_port(server), &at("bootstrapServers"), || {
            format!("{server:?} is not host:port with a port of 1 to 65535, such as kafka:9092")
        });
    }
    found.add_if(kafka.topics.is_empty(), &at("topics"), || "at least one topic".into());
    for topic in &kafka.topics {
        found.add_if(!is_topic(topic), &at("topics"), || {
            format!("{topic:?} is not a topic: 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-', and neither '.' nor '..'")
        });
    }
    found.add_if(kafka.consumer_group.is_empty(), &at("consumerGroup"), || "must not be empty".into());
    in_range(found, &at("partitionsActiveMax"), kafka.partitions_active_max, 1, 1_024);
    let (least, most) = (ByteSize::kib(64), RECORD_BATCH_BYTES_MAX);
    in_range(found, &at("recordBatchBytesMax"), kafka.record_batch_bytes_max, least, most);
    kafka.tls.iter().for_each(|tls| tls.check(&at("tls"), found));
    kafka.sasl.iter().for_each(|sasl| sasl.check(&kafka.bootstrap_servers, &at("sasl"), found));
    kafka_properties::check(&kafka.properties, &at("properties"), found);
}
