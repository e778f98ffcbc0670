//! A Kafka cluster and how to connect to it. Pipelines with equal values share a client. Pure.
//!
//! Of the properties in the spec, the operator's client gets only those about connections: without them the operator might not reach brokers
//! that the gateways reach. Properties about reading are only for the gateways, and so is `debug`: the operator drops librdkafka's log lines.

use crate::read::kafka::security::KafkaSecurity;
use sluice_crds::KafkaSource;
use std::collections::BTreeMap;

/// Properties of the spec that the operator's client gets: names, or prefixes that end in a dot.
const OF_CONNECTIONS: [&str; 7] = [
    "socket.",
    "broker.address.",
    "broker.version.fallback",
    "api.version.",
    "connections.max.idle.ms",
    "metadata.recovery.",
    "retry.backoff.",
];

/// Settings that the spec can override.
const DEFAULTS: [(&str, &str); 1] = [
    // A longer setup would leave no time for the answer of a request.
    ("socket.connection.setup.timeout.ms", "3000"),
];

/// Settings that the spec cannot override.
const OURS: [(&str, &str); 6] = [
    ("client.id", "sluice-operator"),
    // Reading must not create topics or commit offsets.
    ("allow.auto.create.topics", "false"),
    ("enable.auto.commit", "false"),
    ("enable.auto.offset.store", "false"),
    // As in gateways: keepalive detects a firewall or NAT that silently drops the connection.
    ("socket.keepalive.enable", "true"),
    // With the default of 10 s, a broker that is back would look dead for two more requests.
    ("reconnect.backoff.max.ms", "1000"),
];

/// A Kafka cluster, and how to connect to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cluster {
    bootstrap_servers: String,
    security: KafkaSecurity,
    properties: BTreeMap<String, String>,
}

impl Cluster {
    /// The cluster of a spec. The order of the brokers does not matter.
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

    /// How tokens are got, if the login is one with tokens.
    pub fn tokens(&self) -> Option<&sluice_login::Login> {
        self.security.tokens()
    }

    /// librdkafka's settings; of two with one name the later one holds. Properties of the spec are left out if `is_accepted` says that
    /// librdkafka rejects them: the plan refuses these, or the gateways do.
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
