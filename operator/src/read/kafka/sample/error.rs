//! Why Kafka gave no answer about a source.

use super::Source;
use crate::read::kafka::{self, remedy, security::Unreadable};
use rdkafka::types::RDKafkaErrorCode;
use sluice_plan::{SourceFailure, words::plural};

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// In which way Kafka does not answer.
    pub failure: SourceFailure,
    /// What the client said, for people.
    pub message: String,
    /// Whether no broker answered. A refusal is an answer; a connection that ends during its TLS handshake is none.
    pub(super) is_silence: bool,
}

impl Error {
    pub(super) fn of(error: &kafka::Error, source: &Source) -> Self {
        let failure = match error.code() {
            Some(RDKafkaErrorCode::OperationTimedOut | RDKafkaErrorCode::RequestTimedOut) => {
                SourceFailure::Timeout
            }
            Some(
                RDKafkaErrorCode::Authentication
                | RDKafkaErrorCode::SaslAuthenticationFailed
                | RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::GroupAuthorizationFailed
                | RDKafkaErrorCode::ClusterAuthorizationFailed,
            ) => SourceFailure::AuthFailed,
            Some(RDKafkaErrorCode::SSL) => SourceFailure::TlsFailed,
            Some(_) if error.is_cut_handshake() => SourceFailure::TlsFailed,
            _ => SourceFailure::Unreachable,
        };
        let message = remedy::words(error, failure, source.cluster.bootstrap_servers());
        let is_silence = match failure {
            SourceFailure::Unreachable | SourceFailure::NotAsked | SourceFailure::Timeout => true,
            SourceFailure::TlsFailed => error.is_cut_handshake(),
            SourceFailure::AuthFailed => false,
        };
        Self { failure, message, is_silence }
    }

    /// No broker answered.
    pub(crate) fn silence(failure: SourceFailure, message: String) -> Self {
        Self { failure, message, is_silence: true }
    }

    /// Kafka was not asked, since its Secrets cannot be used.
    pub fn unasked(why: &Unreadable) -> Self {
        Self::silence(SourceFailure::Unreachable, why.to_string())
    }

    pub(super) fn slow(source: &Source) -> Self {
        let message = format!("Kafka at {} does not answer in time", source.cluster.bootstrap_servers());
        Self::silence(SourceFailure::Timeout, message)
    }

    pub(super) fn too_many(source: &Source, most: usize) -> Self {
        let message = format!(
            "Kafka at {} is not asked yet: the operator waits for {}, and may open no more Kafka clients; increase kafkaClientsMax of the chart \
             (--kafka-clients-max)",
            source.cluster.bootstrap_servers(),
            plural(most, "other cluster")
        );
        Self::silence(SourceFailure::NotAsked, message)
    }

    pub(super) fn broken_off(broken: &tokio::task::JoinError) -> Self {
        let message = format!("the question to Kafka broke off: {broken}");
        Self::silence(SourceFailure::Unreachable, message)
    }
}
