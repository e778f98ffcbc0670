//! librdkafka's settings, each with its reason. They follow from the config, and from the files of user and password that it names.
//!
//! Names and defaults: librdkafka 2.12, CONFIGURATION.md.

use crate::ground::{refusal::LIMIT_PROPERTY, security::security_settings};
use rdkafka::error::KafkaError;
use sluice_gateway_config::{
    GroupProtocol, Kafka, SESSION_SECONDS, SecretFileError, budget::ANSWER_BYTES_MIN,
};
use std::time::Duration;

/// The identity of this consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// `client.id`: what brokers log and report.
    pub client_id: String,
    /// `group.instance.id`: the pod's name. A pod that returns within the session timeout keeps its partitions. Without a stable name,
    /// and with [`GroupProtocol::Consumer`], membership is dynamic.
    pub instance_id: Option<String>,
    /// `client.rack`: the zone of the node. Brokers with a `replica.selector.class` let it read from a replica in the same zone, which
    /// avoids traffic between zones.
    pub rack: Option<String>,
}

/// How often topic metadata is refreshed, and so how late added partitions are found. Chosen: sooner than a new pod can start, so that
/// gateways that know the previous partitions find the new ones; at the cost of a small request every ten seconds.
pub(crate) const METADATA_REFRESH: Duration = Duration::from_secs(10);

/// The smallest fetch per partition, whatever the record batches: less would cause small requests for a busy topic.
const FETCH_BYTES_MIN: u64 = 64 << 10;

/// The largest fetch: enough for any connection, and small compared with the largest batches.
const FETCH_BYTES_MAX: u64 = 1 << 20;

/// The largest compressed record batch that the consumer can receive. A larger one makes librdkafka close the connection, again and
/// again, for every partition of the broker.
pub(crate) fn received_bytes_max(kafka: &Kafka) -> u64 {
    // The broker's overhead around a batch is part of the extra bytes that an answer may have.
    let (_, fetch_all) = fetch_bytes(kafka);
    fetch_all.saturating_add(kafka.record_batch_bytes_max.get().max(ANSWER_BYTES_MIN))
}

/// Bytes to fetch per partition, and for all partitions of a broker.
fn fetch_bytes(kafka: &Kafka) -> (u64, u64) {
    let batch = kafka.record_batch_bytes_max.get();
    // The broker returns a first batch whole even if it is larger. Traces compress to about an eighth, so a fetch becomes about one batch
    // of the largest size. What exceeds that is refused and fetched again, see LIMIT_PROPERTY.
    let fetch = (batch / 8).clamp(FETCH_BYTES_MIN, FETCH_BYTES_MAX);
    // Uncompressed messages keep the whole answer in memory, so the answer must not be larger than a batch.
    (fetch, fetch.saturating_mul(u64::from(kafka.partitions_active_max)).min(batch))
}

pub fn consumer_settings<'a>(
    kafka: &'a Kafka,
    identity: &Identity,
) -> Result<Vec<(&'a str, String)>, SecretFileError> {
    let batch = kafka.record_batch_bytes_max.get();
    let (fetch, fetch_all) = fetch_bytes(kafka);
    let mut settings = probe_settings(kafka)?;
    settings.extend([
        ("client.id", identity.client_id.clone()),
        ("group.id", kafka.consumer_group.clone()),
        // Offsets are committed only with their plan, after the insert.
        ("enable.auto.commit", "false".into()),
        ("enable.auto.offset.store", "false".into()),
        // Partitions are assigned at an offset. If Kafka does not have it, the gateway decides; the offset is never skipped in silence.
        ("auto.offset.reset", "error".into()),
        ("isolation.level", "read_committed".into()),
        // The poll thread blocks at most for the wait for a revoked partition, so this only ends a hung process.
        ("max.poll.interval.ms", "300000".into()),
        // A partition is fetched again once its queue is empty. librdkafka keeps a batch until its last message is done, so a queue that
        // is refilled earlier would hold two.
        ("queued.min.messages", "1".into()),
        ("queued.max.messages.kbytes", (batch / 1024).max(64).to_string()),
        (LIMIT_PROPERTY, batch.to_string()),
        // It must not exceed `fetch.max.bytes`, and limits nothing else in a consumer.
        ("message.max.bytes", fetch.to_string()),
        ("fetch.message.max.bytes", fetch.to_string()),
        ("fetch.max.bytes", fetch_all.to_string()),
        ("receive.message.max.bytes", receive_bytes(received_bytes_max(kafka)).to_string()),
        // How soon an empty queue is noticed, and how soon a fetch that was refused for lack of room is retried. The defaults of 1 s and
        // 0.5 s would leave a partition idle.
        ("fetch.queue.backoff.ms", "5".into()),
        ("fetch.error.backoff.ms", "50".into()),
        // One fetch per broker is under way at a time: while it waits at the end of idle partitions, the queue of a busy one runs dry.
        ("fetch.wait.max.ms", "50".into()),
        // A bit that flips between the broker's disk and the gateway is detected here or never.
        ("check.crcs", "true".into()),
        // At the end of a partition, all messages in front of it were read: below the horizon no range is ended by time before that.
        ("enable.partition.eof", "true".into()),
        // For lag per partition in the metrics.
        ("statistics.interval.ms", "5000".into()),
        ("topic.metadata.refresh.interval.ms", METADATA_REFRESH.as_millis().to_string()),
    ]);
    settings.extend(membership(kafka.group_protocol, identity));
    settings.extend(identity.rack.iter().map(|rack| ("client.rack", rack.clone())));
    Ok(settings)
}

/// Group membership settings; see [`GroupProtocol`] for the reasons. librdkafka refuses settings of the other protocol.
fn membership(protocol: GroupProtocol, identity: &Identity) -> Vec<(&'static str, String)> {
    match protocol {
        GroupProtocol::Classic => {
            let mut settings = vec![
                // A rebalance takes only partitions that move; the others are read meanwhile.
                ("partition.assignment.strategy", "cooperative-sticky".into()),
                // Longer than a pod needs to restart, so that a restart moves no partition.
                ("session.timeout.ms", (SESSION_SECONDS * 1_000).to_string()),
                ("heartbeat.interval.ms", "3000".into()),
            ];
            settings.extend(identity.instance_id.iter().map(|id| ("group.instance.id", id.clone())));
            settings
        }
        GroupProtocol::Consumer => vec![("group.protocol", "consumer".into())],
    }
}

/// Settings for a connection to the brokers; enough to ask for metadata, or to produce.
pub fn probe_settings(kafka: &Kafka) -> Result<Vec<(&str, String)>, SecretFileError> {
    // Properties of the config never override settings of the gateway: the config's rules ensure that.
    let mut settings: Vec<_> =
        kafka.properties.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    settings.extend(security_settings(kafka)?);
    settings.extend([
        ("bootstrap.servers", kafka.bootstrap_servers.join(",")),
        ("socket.keepalive.enable", "true".into()),
        // A broker that is away is retried at once, then at least every 10 s.
        ("reconnect.backoff.ms", "100".into()),
        ("reconnect.backoff.max.ms", "10000".into()),
        // The gateway logs one line when the state changes, not one per lost connection.
        ("log.connection.close", "false".into()),
    ]);
    Ok(settings)
}

/// Why librdkafka refuses settings. Its own text names the setting; rdkafka's repeats name and value behind that.
pub(crate) fn refused(error: &KafkaError) -> String {
    match error {
        KafkaError::ClientConfig(_, why, ..) => why.clone(),
        other => other.to_string(),
    }
}

/// librdkafka needs 512 bytes more than `fetch.max.bytes`; a single batch may be larger than that.
fn receive_bytes(answer: u64) -> u64 {
    const LEAST: u64 = 1_000_000;
    const MOST: u64 = 2_147_483_647;
    answer.saturating_add(64 << 10).clamp(LEAST, MOST)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use sluice_gateway_config::kafka_properties::owner;
    use sluice_gateway_config::{ByteSize, Format, InitialOffset};

    pub(crate) fn kafka() -> Kafka {
        Kafka {
            bootstrap_servers: vec!["a:9092".into(), "b:9092".into()],
            tls: None,
            sasl: None,
            properties: [("socket.receive.buffer.bytes".into(), "1048576".into())].into(),
            topics: vec!["spans".into()],
            consumer_group: "g".into(),
            group_protocol: GroupProtocol::Classic,
            initial_offset: InitialOffset::Earliest,
            format: Format::OtlpProto,
            partitions_active_max: 8,
            record_batch_bytes_max: ByteSize::mib(1),
        }
    }

    fn value(settings: &[(&str, String)], name: &str) -> Option<String> {
        let mut of_name = settings.iter().filter(|(key, _)| *key == name);
        let value = of_name.next().map(|(_, value)| value.clone());
        assert!(of_name.next().is_none(), "{name} is set twice");
        value
    }

    #[test]
    fn nothing_commits_by_itself() {
        let identity =
            Identity { client_id: "c".into(), instance_id: Some("pod-0".into()), rack: Some("eu-1a".into()) };
        let kafka = kafka();
        let settings = consumer_settings(&kafka, &identity).unwrap();
        assert_eq!(value(&settings, "enable.auto.commit").as_deref(), Some("false"));
        assert_eq!(value(&settings, "enable.auto.offset.store").as_deref(), Some("false"));
        assert_eq!(value(&settings, "group.instance.id").as_deref(), Some("pod-0"));
        assert_eq!(value(&settings, "client.rack").as_deref(), Some("eu-1a"));
        assert_eq!(value(&settings, "bootstrap.servers").as_deref(), Some("a:9092,b:9092"));
    }

    #[test]
    fn the_checksum_of_every_batch_is_checked() {
        let identity = Identity { client_id: "c".into(), instance_id: None, rack: None };
        let kafka = kafka();
        let settings = consumer_settings(&kafka, &identity).unwrap();
        assert_eq!(value(&settings, "check.crcs").as_deref(), Some("true"));
        assert!(owner("check.crcs").is_some(), "no config may turn it off");
    }

    #[test]
    fn a_rebalance_takes_only_what_moves_where_nothing_else_is_said() {
        let identity = Identity { client_id: "c".into(), instance_id: None, rack: None };
        let kafka = Kafka { group_protocol: GroupProtocol::default(), ..kafka() };
        let settings = consumer_settings(&kafka, &identity).unwrap();
        let strategy = value(&settings, "partition.assignment.strategy");
        // Alone: beside an eager one the group would agree on that, and every rebalance would take everything.
        assert_eq!(strategy.as_deref(), Some("cooperative-sticky"));
        assert_eq!(value(&settings, "group.protocol"), None);
        assert_eq!(value(&settings, "group.instance.id"), None);
    }

    #[test]
    fn the_coordinator_divides_among_dynamic_members_and_decides_when_they_are_dead() {
        let identity = Identity { client_id: "c".into(), instance_id: Some("pod-0".into()), rack: None };
        let kafka = Kafka { group_protocol: GroupProtocol::Consumer, ..kafka() };
        let settings = consumer_settings(&kafka, &identity).unwrap();
        assert_eq!(value(&settings, "group.protocol").as_deref(), Some("consumer"));
        for absent in ["group.instance.id", "session.timeout.ms", "partition.assignment.strategy"] {
            assert_eq!(value(&settings, absent), None);
        }
    }

    #[test]
    fn what_is_added_reaches_librdkafka_and_nothing_of_ours_can_be_changed() {
        let identity =
            Identity { client_id: "c".into(), instance_id: Some("p".into()), rack: Some("z".into()) };
        let kafka = kafka();
        let settings = consumer_settings(&kafka, &identity).unwrap();
        assert_eq!(value(&settings, "socket.receive.buffer.bytes").as_deref(), Some("1048576"));
        for (name, _) in settings.iter().filter(|(name, _)| !kafka.properties.contains_key(*name)) {
            assert!(owner(name).is_some(), "{name} is set by us, and a config may set it too");
        }
    }

    #[test]
    fn a_setting_that_is_refused_is_named_once() {
        for (name, value, expected) in [
            ("socket.receive.bufer.bytes", "1", "No such configuration property: "),
            ("socket.send.buffer.bytes", "many", "Invalid value for configuration property "),
        ] {
            let refusal = rdkafka::ClientConfig::new().set(name, value).create_native_config().err().unwrap();
            let why = refused(&refusal);
            assert!(why.starts_with(expected) && why.matches(name).count() == 1, "{why}");
        }
    }

    #[test]
    fn the_settings_are_accepted_for_the_smallest_and_the_largest_batch() {
        let protocols = [GroupProtocol::Classic, GroupProtocol::Consumer];
        let batches = [ByteSize::kib(64), ByteSize::mib(256)];
        for (batch, group_protocol) in batches.into_iter().zip(protocols) {
            let kafka = Kafka {
                record_batch_bytes_max: batch,
                partitions_active_max: 1_024,
                group_protocol,
                ..kafka()
            };
            let instance_id = Some("pod-0".into());
            let identity = Identity { client_id: "c".into(), instance_id, rack: None };
            let mut config = rdkafka::ClientConfig::new();
            for (name, value) in consumer_settings(&kafka, &identity).unwrap() {
                config.set(name, value);
            }
            config.create_native_config().unwrap();
            let client: Result<rdkafka::consumer::BaseConsumer, _> = config.create();
            client.unwrap();
        }
    }
}
