//! What a person reads when Kafka does not answer: the error, the brokers that were asked, and what to check. Pure.

use super::Error;
use sluice_plan::SourceFailure;

/// The words. The operator connects from its own pod, so a network policy may keep it out while gateways read.
pub(super) fn words(error: &Error, failure: SourceFailure, brokers: &str) -> String {
    let names_brokers = matches!(error, Error::Create { .. } | Error::Refused { .. });
    let asked = if names_brokers { String::new() } else { format!(" (brokers: {brokers})") };
    format!("{error}{asked}; check {}", to_check(error, failure))
}

fn to_check(error: &Error, failure: SourceFailure) -> &'static str {
    match (error, failure) {
        (Error::Create { .. }, _) => "source.kafka.properties, and the keys of the Secrets for Kafka",
        (_, SourceFailure::TlsFailed) => {
            "source.kafka.tls, the key ca.crt of its Secret, and the port of the listener"
        }
        (Error::Refused { .. }, SourceFailure::AuthFailed) => {
            "the credentials and source.kafka.sasl.mechanism"
        }
        (_, SourceFailure::AuthFailed) => "the ACLs: the user needs Describe on topics and group",
        (_, SourceFailure::Timeout) => "the brokers, and whether a firewall drops the operator's packets",
        (_, SourceFailure::Unreachable) => {
            "source.kafka.bootstrapServers, DNS and network policies: the operator's own pod must reach the brokers"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdkafka::{error::KafkaError, types::RDKafkaErrorCode};

    #[test]
    fn brokers_and_remedy_are_named() {
        let away = Error::Metadata {
            topic: "spans".into(),
            source: KafkaError::MetadataFetch(RDKafkaErrorCode::BrokerTransportFailure),
        };
        let said = words(&away, SourceFailure::Unreachable, "a:9092,b:9092");
        assert!(
            said.contains("topic spans") && said.contains("(brokers: a:9092,b:9092); check source.kafka"),
            "{said}"
        );
        let refused = Error::Refused {
            brokers: "a:9092".into(),
            code: RDKafkaErrorCode::SaslAuthenticationFailed,
            reason: "sasl://a:9092/1: wrong password".into(),
        };
        assert_eq!(
            words(&refused, SourceFailure::AuthFailed, "a:9092"),
            "cannot connect to Kafka at a:9092: sasl://a:9092/1: wrong password; check the credentials and source.kafka.sasl.mechanism"
        );
        let code = RDKafkaErrorCode::TopicAuthorizationFailed;
        let hidden =
            words(&Error::Topic { topic: "spans".into(), code }, SourceFailure::AuthFailed, "a:9092");
        assert!(hidden.ends_with("the user needs Describe on topics and group"), "{hidden}");
    }
}
