//! Which Kafka cluster is asked, and as whom: pipelines with the same one share a client. Pure.
//!
//! Of the settings that a spec adds, those reach the operator's client that concern connections: without them the operator might not
//! get where its gateways do. What concerns reading stays with the gateways, and so does `debug`: nobody would read the lines.

use crate::kafka_security::KafkaSecurity;
use sluice_crds::KafkaSource;
use std::collections::BTreeMap;

/// Settings of the spec that are passed on: names, or beginnings of names that end in a dot.
const OF_CONNECTIONS: [&str; 7] = [
    "socket.",
    "broker.address.",
    "broker.version.fallback",
    "api.version.",
    "connections.max.idle.ms",
    "metadata.recovery.",
    "retry.backoff.",
];

/// Settings that the spec may change.
const DEFAULTS: [(&str, &str); 1] = [
    // A broker that takes longer would leave a question no time for its answer.
    ("socket.connection.setup.timeout.ms", "3000"),
];

/// Settings that it may not.
const OURS: [(&str, &str); 6] = [
    ("client.id", "sluice-operator"),
    // Asking must not make anything: neither topics nor offsets.
    ("allow.auto.create.topics", "false"),
    ("enable.auto.commit", "false"),
    ("enable.auto.offset.store", "false"),
    // As gateways do: who forgets a connection on the way in silence is noticed.
    ("socket.keepalive.enable", "true"),
    // The default of 10 s would let a broker that is back look dead for two questions.
    ("reconnect.backoff.max.ms", "1000"),
];

/// A Kafka cluster, and how it is connected to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cluster {
    bootstrap_servers: String,
    security: KafkaSecurity,
    properties: BTreeMap<String, String>,
}

impl Cluster {
    /// The cluster that a spec names. In which order it names the brokers makes no other one.
    pub fn of(kafka: &KafkaSource, security: KafkaSecurity) -> Self {
        let mut servers = kafka.bootstrap_servers.clone();
        servers.sort();
        servers.dedup();
        let properties = kafka.properties.iter().filter(|(name, _)| is_of_connections(name));
        let properties = properties.map(|(name, value)| (name.clone(), value.0.clone())).collect();
        Self { bootstrap_servers: servers.join(","), security, properties }
    }

    /// Brokers to ask first, `host:port,host:port`.
    pub fn bootstrap_servers(&self) -> &str {
        &self.bootstrap_servers
    }

    /// librdkafka's settings; of two with one name the later one holds. Those that the spec adds stand where `is_accepted` says that
    /// librdkafka takes them: what is wrong with another is said by the gateways, which need it as much.
    pub fn settings(&self, is_accepted: impl Fn(&str, &str) -> bool) -> Vec<(&str, &str)> {
        let added = self.properties.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let added = added.filter(|(name, value)| is_accepted(name, value));
        let mut settings: Vec<_> = DEFAULTS.into_iter().chain(added).chain(OURS).collect();
        settings.push(("bootstrap.servers", &self.bootstrap_servers));
        settings.extend(self.security.settings());
        settings
    }
}

fn is_of_connections(name: &str) -> bool {
    let is_meant = |known: &str| if known.ends_with('.') { name.starts_with(known) } else { name == known };
    OF_CONNECTIONS.into_iter().any(is_meant)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::json;

    pub(crate) fn cluster(servers: &str, properties: &[(&str, &str)]) -> Cluster {
        let properties: BTreeMap<_, _> = properties.iter().copied().collect();
        let servers: Vec<&str> = servers.split(',').collect();
        let kafka = json!({"bootstrapServers": servers, "topics": ["spans"], "properties": properties});
        Cluster::of(&serde_json::from_value(kafka).unwrap(), KafkaSecurity::default())
    }

    fn value<'a>(settings: &[(&'a str, &'a str)], name: &str) -> Option<&'a str> {
        settings.iter().rfind(|(found, _)| *found == name).map(|(_, value)| *value)
    }

    #[test]
    fn what_concerns_connections_is_passed_on_and_nothing_else() {
        let spec = [
            ("socket.receive.buffer.bytes", "65536"),
            ("socket.connection.setup.timeout.ms", "20000"),
            ("broker.address.family", "v4"),
            ("connections.max.idle.ms", "60000"),
            ("fetch.error.backoff.ms", "1"),
            ("topic.blacklist", "spans"),
            ("debug", "all"),
            ("connections.max.idle.ms.not", "1"),
        ];
        let cluster = cluster("kafka:9092", &spec);
        let settings = cluster.settings(|_, _| true);
        for (name, given) in &spec[..4] {
            assert_eq!(value(&settings, name), Some(*given), "{name}");
        }
        for (name, _) in &spec[4..] {
            assert_eq!(value(&settings, name), None, "{name}");
        }
    }

    #[test]
    fn what_is_ours_no_spec_changes() {
        let cluster = cluster("kafka:9092", &[("socket.keepalive.enable", "false"), ("socket.typo", "1")]);
        let settings = cluster.settings(|name, _| name != "socket.typo");
        assert_eq!(value(&settings, "socket.keepalive.enable"), Some("true"));
        assert_eq!(value(&settings, "socket.connection.setup.timeout.ms"), Some("3000"));
        assert_eq!(value(&settings, "socket.typo"), None, "librdkafka does not know it");
    }

    #[test]
    fn the_same_brokers_are_the_same_cluster_in_any_order() {
        let one = cluster("b:9092,a:9092,b:9092", &[]);
        assert_eq!(one, cluster("a:9092,b:9092", &[("debug", "all")]));
        assert_eq!(one.bootstrap_servers(), "a:9092,b:9092");
        assert_ne!(one, cluster("a:9092,b:9092", &[("broker.address.family", "v4")]));
    }
}
