//! librdkafka settings that a config may add, and those that it may not, each with the reason.
//!
//! Allowed are settings that no field of the config determines: socket buffers, connection timeouts, address families, debug logs.

use crate::violation::Violations;
use std::collections::BTreeMap;

/// Maximum number of settings.
pub const PROPERTIES_MAX: usize = 32;

/// Maximum bytes of a value.
pub const PROPERTY_BYTES_MAX: usize = 1_024;

/// The reason for settings of the dead-letter producer.
const LETTERS: &str = "the gateway decides how dead letters are produced";

/// Why an edge has its own values for what a gateway decides for dead letters.
const PRODUCES: &str =
    "the edge decides how it produces: idempotent, and acknowledged by all in-sync replicas (acks=all)";

/// Prefixes of settings that only a consumer has, beside those whose reason says so.
const OF_CONSUMERS: [&str; 11] = [
    "group.",
    "auto.",
    "enable.auto.",
    "isolation.level",
    "check.crcs",
    "queued.",
    "sluice.",
    "fetch.",
    "max.partition.fetch.bytes",
    "partition.assignment.strategy",
    "session.timeout.ms",
];

/// Names, or prefixes of names that end in a dot, and the reason.
pub const OWNED: [(&str, &str); 43] = [
    ("bootstrap.servers", "set bootstrapServers"),
    ("metadata.broker.list", "set bootstrapServers"),
    ("group.id", "set consumerGroup"),
    ("group.protocol", "set groupProtocol"),
    ("auto.offset.reset", "set initialOffset"),
    ("ssl.", "set tls"),
    ("enable.ssl.certificate.verification", "servers are always verified; set tls"),
    ("sasl.", "set sasl"),
    ("enable.sasl.oauthbearer.unsecure.jwt", "set sasl"),
    ("security.protocol", "it follows from tls and sasl"),
    ("fetch.message.max.bytes", "it follows from recordBatchBytesMax"),
    ("max.partition.fetch.bytes", "it follows from recordBatchBytesMax"),
    ("fetch.max.bytes", "it follows from recordBatchBytesMax"),
    ("message.max.bytes", "it follows from recordBatchBytesMax"),
    ("receive.message.max.bytes", "it follows from recordBatchBytesMax"),
    ("queued.", "it follows from recordBatchBytesMax"),
    ("sluice.", "it follows from recordBatchBytesMax"),
    ("client.", "the gateway's pod decides it"),
    ("group.", "the gateway decides how it is a member of its group"),
    ("partition.assignment.strategy", "the gateway decides how it is a member of its group"),
    ("session.timeout.ms", "the gateway decides how it is a member of its group"),
    ("heartbeat.interval.ms", "the gateway decides how it is a member of its group"),
    ("max.poll.interval.ms", "the gateway decides how it is a member of its group"),
    ("enable.", "the gateway commits offsets itself, after the insert"),
    ("auto.commit.", "the gateway commits offsets itself, after the insert"),
    ("isolation.level", "the gateway reads committed messages only"),
    ("check.crcs", "the gateway always checks CRCs"),
    ("plugin.", "the gateway loads no plugins"),
    ("acks", LETTERS),
    ("request.required.acks", LETTERS),
    ("message.timeout.ms", LETTERS),
    ("delivery.timeout.ms", LETTERS),
    ("retries", LETTERS),
    ("message.send.max.retries", LETTERS),
    ("max.in.flight", LETTERS),
    ("max.in.flight.requests.per.connection", LETTERS),
    ("transactional.id", LETTERS),
    ("compression.", LETTERS),
    ("batch.", LETTERS),
    ("queue.buffering.", LETTERS),
    ("linger.ms", LETTERS),
    ("allow.auto.create.topics", LETTERS),
    ("topic.metadata.propagation.max.ms", LETTERS),
];

/// Names that the gateway sets, where another value would only be slower or noisier; the reasons are beside the settings.
pub const TUNED: [&str; 9] = [
    "fetch.queue.backoff.ms",
    "fetch.error.backoff.ms",
    "fetch.wait.max.ms",
    "statistics.interval.ms",
    "topic.metadata.refresh.interval.ms",
    "socket.keepalive.enable",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
    "log.connection.close",
];

/// The reason why a config may not set this setting; `None` if it may.
pub fn owner(name: &str) -> Option<&'static str> {
    let is_meant = |owned: &str| if owned.ends_with('.') { name.starts_with(owned) } else { name == owned };
    let owned = OWNED.iter().find(|(owned, _)| is_meant(owned)).map(|(_, instead)| *instead);
    owned.or_else(|| TUNED.contains(&name).then_some("the gateway tunes it"))
}

/// The same for an edge, which refuses the same settings for reasons of its own.
pub fn owner_in_edge(name: &str) -> Option<&'static str> {
    let in_gateway = owner(name)?;
    let is_of_consumers = OF_CONSUMERS.iter().any(|prefix| name.starts_with(prefix))
        || matches!(name, "heartbeat.interval.ms" | "max.poll.interval.ms");
    Some(match name {
        _ if is_of_consumers => "an edge only produces, and this is a setting of consumers",
        "enable.ssl.certificate.verification" | "enable.sasl.oauthbearer.unsecure.jwt" => in_gateway,
        _ if in_gateway == LETTERS || name.starts_with("enable.") => PRODUCES,
        _ if name.starts_with("client.") => "the edge's pod decides it",
        _ if name.starts_with("plugin.") => "the edge loads no plugins",
        _ if TUNED.contains(&name) => "the edge tunes it",
        _ => in_gateway,
    })
}

/// Why a program refuses a setting.
type Owner = fn(&str) -> Option<&'static str>;

/// Adds what is wrong with the settings of a gateway; `at` is their path.
pub(crate) fn check(properties: &BTreeMap<String, String>, at: &str, found: &mut Violations) {
    check_with(properties, owner, at, found);
}

/// The same of an edge.
pub(crate) fn check_edge(properties: &BTreeMap<String, String>, at: &str, found: &mut Violations) {
    check_with(properties, owner_in_edge, at, found);
}

fn check_with(properties: &BTreeMap<String, String>, owner: Owner, at: &str, found: &mut Violations) {
    found.add_if(properties.len() > PROPERTIES_MAX, at, || {
        format!("{} settings are more than {PROPERTIES_MAX}", properties.len())
    });
    for (name, value) in properties {
        if let Some(instead) = owner(name) {
            found.add(format!("{at}.{name}"), format!("cannot be set here: {instead}"));
        }
        found.add_if(value.len() > PROPERTY_BYTES_MAX, &format!("{at}.{name}"), || {
            format!("{} bytes are more than {PROPERTY_BYTES_MAX}", value.len())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ours_names_what_decides_it_and_the_rest_passes() {
        for (name, expected) in [
            ("socket.receive.buffer.bytes", None),
            ("broker.address.family", None),
            ("debug", None),
            ("ssl.ca.location", Some("set tls")),
            ("sasl.password", Some("set sasl")),
            ("group.id", Some("set consumerGroup")),
            ("group.protocol", Some("set groupProtocol")),
            ("group.instance.id", Some("the gateway decides how it is a member of its group")),
            ("enable.auto.commit", Some("the gateway commits offsets itself, after the insert")),
            ("fetch.wait.max.ms", Some("the gateway tunes it")),
            ("acks", Some(LETTERS)),
            ("compression.codec", Some(LETTERS)),
        ] {
            assert_eq!(owner(name), expected, "{name}");
        }
    }

    #[test]
    fn no_reason_of_an_edge_speaks_of_a_gateway_or_a_consumer_group() {
        for (name, _) in OWNED {
            let name = if name.ends_with('.') { format!("{name}x") } else { name.to_owned() };
            let reason = owner_in_edge(&name).unwrap();
            assert!(
                !["gateway", "consumerGroup", "initialOffset", "dead letter"]
                    .iter()
                    .any(|of| reason.contains(of)),
                "{name}: {reason}"
            );
        }
        for name in TUNED {
            assert!(!owner_in_edge(name).unwrap().contains("gateway"), "{name}");
        }
        for (name, expected) in [
            ("acks", PRODUCES),
            ("enable.idempotence", PRODUCES),
            ("linger.ms", PRODUCES),
            ("sasl.password", "set sasl"),
            ("enable.ssl.certificate.verification", "servers are always verified; set tls"),
            ("client.id", "the edge's pod decides it"),
        ] {
            assert_eq!(owner_in_edge(name), Some(expected), "{name}");
        }
        assert_eq!(owner_in_edge("debug"), None);
    }

    #[test]
    fn a_violation_names_the_setting() {
        let mut found = Violations::default();
        let long = "x".repeat(PROPERTY_BYTES_MAX + 1);
        let properties = [("group.id".to_owned(), "g".to_owned()), ("debug".to_owned(), long)].into();
        check(&properties, "source.kafka.properties", &mut found);
        assert_eq!(
            found.to_string(),
            "source.kafka.properties.debug: 1025 bytes are more than 1024\n\
             source.kafka.properties.group.id: cannot be set here: set consumerGroup"
        );
    }
}
