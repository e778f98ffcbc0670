//! The outcome of a letter.

use rdkafka::types::RDKafkaErrorCode as Code;

/// The place of a delivered letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivered {
    /// The dead-letter topic.
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
    /// Whether a part of it was left out.
    pub left_out: bool,
}

/// Why a letter cannot be delivered: `delivery.deadLetter.onMissing` decides what follows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The topic does not exist, and the cluster does not create it.
    #[error("the dead-letter topic {topic} does not exist, and Kafka refused to create it: {why}")]
    Missing { topic: String, why: String },
    /// The gateway may not describe or write the topic.
    #[error("Kafka does not authorize the gateway for the dead-letter topic {topic}: {why}")]
    NotAuthorized { topic: String, why: String },
    /// The topic rejects even a letter without a value.
    #[error(
        "the dead-letter topic {topic} rejects even a letter without a value: increase its max.message.bytes"
    )]
    TooLarge { topic: String },
    /// The topic rejects letters for another reason of its configuration.
    #[error("the dead-letter topic {topic} rejects letters: {why}")]
    Unfit { topic: String, why: String },
    /// The dead letters on the queue volume have no room.
    #[error("the dead letters on the queue volume {volume} have no room: {why}")]
    Full { volume: String, why: String },
    /// The process is ending.
    #[error("the dead letter was not sent: the process is ending")]
    Ended,
}

impl Refused {
    /// The reason as a metric label.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "missing",
            Self::NotAuthorized { .. } => "not_authorized",
            Self::TooLarge { .. } => "too_large",
            Self::Unfit { .. } => "unfit",
            Self::Full { .. } => "full",
            Self::Ended => "ended",
        }
    }
}

/// What follows from an error of the brokers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Send it again after a while.
    Again,
    /// Look for the topic, then send it again.
    FindTopic,
    /// Send less of it.
    Trim,
    /// The brokers do not allow it.
    NotAuthorized,
    /// The topic rejects it until its configuration changes.
    Unfit,
}

/// Classifies an error. Errors that are not listed pass on their own: brokers that are away, leaders that move.
pub(super) fn next(code: Option<Code>) -> Next {
    match code {
        Some(Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition) => Next::FindTopic,
        Some(Code::MessageSizeTooLarge | Code::MessageBatchTooLarge | Code::InvalidMessageSize) => Next::Trim,
        Some(
            Code::TopicAuthorizationFailed
            | Code::ClusterAuthorizationFailed
            | Code::SaslAuthenticationFailed
            | Code::Authentication,
        ) => Next::NotAuthorized,
        Some(Code::InvalidTopic | Code::PolicyViolation | Code::InvalidRecord | Code::InvalidConfig) => {
            Next::Unfit
        }
        _ => Next::Again,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_sorted_by_what_follows() {
        for (code, expected) in [
            (Code::UnknownTopicOrPartition, Next::FindTopic),
            (Code::MessageSizeTooLarge, Next::Trim),
            (Code::TopicAuthorizationFailed, Next::NotAuthorized),
            (Code::InvalidRecord, Next::Unfit),
            (Code::NotLeaderForPartition, Next::Again),
            (Code::MessageTimedOut, Next::Again),
            (Code::PurgeInflight, Next::Again),
        ] {
            assert_eq!(next(Some(code)), expected, "{code:?}");
        }
        assert_eq!(next(None), Next::Again);
    }
}
