//! What a person reads when Kafka does not answer: the error, the brokers that were asked, and what to check. Pure.

use super::Error;
use sluice_login as login;
use sluice_plan::SourceFailure;

/// The words. The operator connects from its own pod, so a network policy may keep it out while gateways read.
pub(super) fn words(error: &Error, failure: SourceFailure, brokers: &str) -> String {
    let names_brokers = matches!(error, Error::Create { .. } | Error::Refused { .. } | Error::Token { .. });
    let asked = if names_brokers { String::new() } else { format!(" (brokers: {brokers})") };
    format!("{error}{asked}; check {}", to_check(error, failure))
}

fn to_check(error: &Error, failure: SourceFailure) -> &'static str {
    match (error, failure) {
        (Error::Token { source, .. }, _) => of_login(source),
        (Error::Create { source, .. }, _) => of_settings(&source.to_string()),
        (Error::Refused { reason, .. }, SourceFailure::AuthFailed) if takes_no_login(reason) => {
            "the port of the listener, which takes no logins, or remove source.kafka.sasl"
        }
        (_, SourceFailure::TlsFailed) if error.is_cut_handshake() => {
            "source.kafka.tls and the port of the listener, which speaks no TLS or has no broker behind it"
        }
        (_, SourceFailure::TlsFailed) => {
            "source.kafka.tls, the key ca.crt of its Secret, and the port of the listener"
        }
        (Error::Refused { .. }, SourceFailure::AuthFailed) => {
            "the credentials and source.kafka.sasl.mechanism"
        }
        (_, SourceFailure::AuthFailed) => "the ACLs: the user needs Describe on topics and group",
        (_, SourceFailure::Unreachable) if error.is_closed() => {
            "whether the listener wants source.kafka.tls or source.kafka.sasl: a broker accepts connections there and closes them"
        }
        (Error::Refused { .. }, SourceFailure::Timeout) => {
            "what listens there: it accepts connections and does not answer, as a broker that hangs, a proxy without a broker, or a listener of another protocol"
        }
        (_, SourceFailure::Timeout) => "the brokers, and whether a firewall drops the operator's packets",
        (_, SourceFailure::Unreachable | SourceFailure::NotAsked) => {
            "source.kafka.bootstrapServers, DNS and network policies: the operator's own pod must reach the brokers"
        }
    }
}

/// What of the settings librdkafka cannot use, by the property that it names.
fn of_settings(said: &str) -> &'static str {
    const FIELDS: [(&str, &str); 3] = [
        ("ssl.ca.pem", "the key of source.kafka.tls.caSecretRef, which must hold certificates in PEM"),
        (
            "ssl.certificate.pem",
            "the certificate of source.kafka.tls.clientCertificateSecretRef, which must be in PEM",
        ),
        (
            "ssl.key.pem",
            "the key of source.kafka.tls.clientCertificateSecretRef, which must be in PEM, not encrypted, and the one of the certificate",
        ),
    ];
    let found = FIELDS.iter().find(|(property, _)| said.contains(property));
    found.map_or("source.kafka.properties, and the keys of the Secrets for Kafka", |(_, field)| field)
}

/// Whether the broker has named its mechanisms, and has none.
fn takes_no_login(reason: &str) -> bool {
    let mechanisms = reason.split_once("supported mechanisms:").map(|(_, mechanisms)| mechanisms);
    mechanisms.is_some_and(|mechanisms| mechanisms.trim().is_empty())
}

/// The operator has the content of Secrets in memory: what is in a file is its own, and so is an identity of AWS.
fn of_login(error: &login::Error) -> &'static str {
    use login::{Content, Error, Server};
    match error {
        Error::File { what: Content::ClientAssertion, .. } => {
            "the operator's --kafka-assertion, and the volume that has its file"
        }
        Error::File { what: Content::StsToken | Content::AgentToken, .. }
        | Error::NoIdentity { .. }
        | Error::Endpoint { server: Server::AwsSts | Server::EksPodIdentity, .. }
        | Error::Authorities { server: Server::AwsSts | Server::EksPodIdentity, .. }
        | Error::Unreachable { server: Server::AwsSts | Server::EksPodIdentity, .. }
        | Error::Slow { server: Server::AwsSts | Server::EksPodIdentity, .. }
        | Error::Refused { server: Server::AwsSts | Server::EksPodIdentity, .. }
        | Error::Nonsense { server: Server::AwsSts | Server::EksPodIdentity, .. } => {
            "the identity of AWS of the operator's own ServiceAccount, which --kafka-aws uses"
        }
        Error::File { .. } | Error::Token { .. } => {
            "the operator's --kafka-token, and the volume that has its file"
        }
        Error::Keys { .. } => "the keys of the Secret that source.kafka.sasl.oauth.awsMskIam names",
        Error::Endpoint { .. }
        | Error::Authorities { .. }
        | Error::Unreachable { .. }
        | Error::Slow { .. }
        | Error::Refused { .. }
        | Error::Nonsense { .. } => {
            "source.kafka.sasl.oauth, and that the operator's own pod reaches the token endpoint"
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
        let without_token = |source| {
            let error = Error::Token { brokers: "a:9092".into(), source: Box::new(source) };
            words(&error, SourceFailure::AuthFailed, "a:9092")
        };
        let said = without_token(login::Error::Slow {
            server: login::Server::TokenEndpoint,
            endpoint: "https://login".into(),
            seconds: 5,
        });
        assert!(
            said.starts_with("cannot log in to Kafka at a:9092: the token endpoint https://login does not answer within 5 s; check")
                && said.ends_with("; check source.kafka.sasl.oauth, and that the operator's own pod reaches the token endpoint")
                && !said.contains("(brokers:"),
            "{said}"
        );
        let of_file = |what| login::Error::File { what, path: "/token".into(), reason: "gone".into() };
        for (error, expected) in [
            (
                of_file(login::Content::ClientAssertion),
                "check the operator's --kafka-assertion, and the volume",
            ),
            (
                of_file(login::Content::StsToken),
                "check the identity of AWS of the operator's own ServiceAccount",
            ),
            (login::Error::NoIdentity { reason: "none".into() }, "which --kafka-aws uses"),
            (
                login::Error::Keys { reason: "empty".into() },
                "the Secret that source.kafka.sasl.oauth.awsMskIam names",
            ),
        ] {
            let said = without_token(error);
            assert!(said.contains(expected), "{said}");
        }
        let said = without_token(of_file(login::Content::Token));
        assert!(
            said.ends_with("; check the operator's --kafka-token, and the volume that has its file"),
            "{said}"
        );
        let code = RDKafkaErrorCode::TopicAuthorizationFailed;
        let hidden =
            words(&Error::Topic { topic: "spans".into(), code }, SourceFailure::AuthFailed, "a:9092");
        assert!(hidden.ends_with("the user needs Describe on topics and group"), "{hidden}");
    }

    #[test]
    fn who_closes_connections_or_has_other_settings_is_told_what_to_check() {
        let cut = Error::Refused {
            brokers: "a:9092".into(),
            code: RDKafkaErrorCode::BrokerTransportFailure,
            reason: "ssl://a:9092/1: SSL handshake failed: Disconnected".into(),
        };
        let said = words(&cut, SourceFailure::TlsFailed, "a:9092");
        assert!(said.ends_with("which speaks no TLS or has no broker behind it"), "{said}");
        let closed = Error::Refused {
            brokers: "a:9092".into(),
            code: RDKafkaErrorCode::BrokerTransportFailure,
            reason: "a:9092/1: Disconnected: connection closed by peer".into(),
        };
        let said = words(&closed, SourceFailure::Unreachable, "a:9092");
        assert!(said.contains("check whether the listener wants source.kafka.tls or"), "{said}");
        let silent = Error::Refused {
            brokers: "a:9092".into(),
            code: RDKafkaErrorCode::OperationTimedOut,
            reason: "a:9092/bootstrap: Connection setup timed out in state APIVERSION_QUERY".into(),
        };
        let said = words(&silent, SourceFailure::Timeout, "a:9092");
        assert!(
            said.contains("a:9092/bootstrap: ") && said.contains("accepts connections and does not"),
            "{said}"
        );
        for (mechanisms, expected) in
            [("  ", "which takes no logins"), (" PLAIN", "the credentials and source.kafka.sasl.mechanism")]
        {
            let reason =
                format!("sasl://a:9092/1: Request not valid: broker's supported mechanisms:{mechanisms}");
            let code = RDKafkaErrorCode::SaslAuthenticationFailed;
            let said =
                words(&Error::Refused { brokers: "a".into(), code, reason }, SourceFailure::AuthFailed, "a");
            assert!(said.contains(expected), "{said}");
        }
        for (said, expected) in [
            (
                "ssl.key.pem failed: key values mismatch",
                "the key of source.kafka.tls.clientCertificateSecretRef",
            ),
            ("failed to read certificate #0 from ssl.ca.pem", "the key of source.kafka.tls.caSecretRef"),
            ("No such configuration property", "source.kafka.properties, and the keys"),
        ] {
            assert!(of_settings(said).starts_with(expected), "{said}");
        }
    }
}
