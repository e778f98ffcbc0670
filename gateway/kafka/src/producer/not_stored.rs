//! Why Kafka has not acknowledged a message.

use rdkafka::{error::KafkaError, types::RDKafkaErrorCode as Code};

/// Why a request's messages are not all acknowledged. Some of them may be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotStored {
    /// A message is above the topic's limit, or became so: the next request is made of smaller messages.
    #[error(
        "topic {topic} refuses a message of {bytes} bytes; increase its max.message.bytes, or decrease the size of messages"
    )]
    TooLarge { topic: String, bytes: usize },
    /// No broker acknowledged it in time.
    #[error("Kafka did not acknowledge a message for topic {topic} in time: {why}")]
    TimedOut { topic: String, why: String },
    /// The topic or the partition does not exist.
    #[error("topic {topic} does not exist, or lacks a partition that it had; create it")]
    TopicMissing { topic: String },
    /// The client may not write the topic, or log in.
    #[error("Kafka does not authorize the edge to write to topic {topic}: {why}")]
    NotAuthorized { topic: String, why: String },
    /// The topic refuses messages for a reason of its configuration.
    #[error("topic {topic} refuses messages: {why}")]
    Unfit { topic: String, why: String },
    /// Another error, which passes.
    #[error("cannot produce to topic {topic}: {why}")]
    Failed { topic: String, why: String },
    /// There was no room for it in time.
    #[error(
        "messages for topic {topic} wait for Kafka, and there was no room for another one in time: {why}"
    )]
    NoRoom { topic: String, why: String },
    /// Its producer was replaced after a fatal error, or the process is ending.
    #[error(
        "the Kafka producer of this edge was replaced, or is ending, before a message was acknowledged; the log says why"
    )]
    Ended,
}

impl NotStored {
    /// The meaning of librdkafka's error for a message of this many bytes. `unacknowledged` is what is known of the brokers.
    pub(super) fn of(
        error: &KafkaError,
        topic: &str,
        bytes: usize,
        unacknowledged: impl FnOnce() -> String,
    ) -> Self {
        let (topic, why) = (topic.to_owned(), error.to_string());
        match error.rdkafka_error_code() {
            Some(Code::MessageSizeTooLarge | Code::MessageBatchTooLarge | Code::InvalidMessageSize) => {
                Self::TooLarge { topic, bytes }
            }
            Some(Code::MessageTimedOut) => Self::TimedOut { topic, why: unacknowledged() },
            Some(Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition) => {
                Self::TopicMissing { topic }
            }
            Some(
                Code::TopicAuthorizationFailed
                | Code::ClusterAuthorizationFailed
                | Code::SaslAuthenticationFailed
                | Code::Authentication,
            ) => Self::NotAuthorized { topic, why },
            Some(Code::InvalidTopic | Code::PolicyViolation | Code::InvalidRecord | Code::InvalidConfig) => {
                Self::Unfit { topic, why }
            }
            Some(Code::QueueFull) => Self::NoRoom { topic, why: unacknowledged() },
            Some(Code::PurgeQueue | Code::PurgeInflight | Code::Fatal) => Self::Ended,
            _ => Self::Failed { topic, why },
        }
    }

    /// The reason as a metric label.
    pub fn label(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "too_large",
            Self::TimedOut { .. } => "timed_out",
            Self::TopicMissing { .. } => "topic_missing",
            Self::NotAuthorized { .. } => "not_authorized",
            Self::Unfit { .. } => "unfit",
            Self::Failed { .. } => "failed",
            Self::NoRoom { .. } => "no_room",
            Self::Ended => "ended",
        }
    }

    /// All labels.
    pub const LABELS: [&'static str; 8] =
        ["too_large", "timed_out", "topic_missing", "not_authorized", "unfit", "failed", "no_room", "ended"];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_sorted_by_what_helps() {
        for (code, label) in [
            (Code::MessageSizeTooLarge, "too_large"),
            (Code::MessageTimedOut, "timed_out"),
            (Code::UnknownTopicOrPartition, "topic_missing"),
            (Code::TopicAuthorizationFailed, "not_authorized"),
            (Code::PolicyViolation, "unfit"),
            (Code::NotEnoughReplicas, "failed"),
            (Code::QueueFull, "no_room"),
            (Code::PurgeInflight, "ended"),
        ] {
            let reason = NotStored::of(&KafkaError::MessageProduction(code), "spans", 7, || "k:9092".into());
            assert_eq!(reason.label(), label, "{code:?}");
            assert!(NotStored::LABELS.contains(&label));
        }
        let of = |code| {
            NotStored::of(&KafkaError::MessageProduction(code), "spans", 7, || "k:9092 is away".into())
        };
        for code in [Code::MessageTimedOut, Code::QueueFull] {
            let text = of(code).to_string();
            assert!(text.contains("topic spans") && text.ends_with("k:9092 is away"), "{text}");
        }
        let large = of(Code::MessageSizeTooLarge);
        assert!(large.to_string().contains("topic spans refuses a message of 7 bytes"), "{large}");
    }
}
