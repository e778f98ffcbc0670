//! Topics and partitions, as Kafka answers.

use sluice_crds::status::reason;
use std::collections::BTreeMap;

/// Each topic of the spec, by name.
pub type Partitions = BTreeMap<String, TopicSeen>;

/// What Kafka says of one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TopicSeen {
    /// It has this many partitions.
    Known(u32),
    /// Kafka answers that there is no such topic.
    Missing,
    /// Kafka does not answer.
    Unavailable {
        /// Which way.
        failure: SourceFailure,
        /// What the client said, for people.
        message: String,
    },
}

/// In which way Kafka does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceFailure {
    /// No broker could be connected to.
    Unreachable,
    /// The operator has not asked it lately: it waits for other clusters.
    NotAsked,
    /// A broker is connected and does not answer in time.
    Timeout,
    /// A broker was reached, and no TLS connection came of it.
    TlsFailed,
    /// The broker refused user or password, or the right to see the topic.
    AuthFailed,
}

impl SourceFailure {
    /// The reason in a condition.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Unreachable | Self::NotAsked => reason::UNREACHABLE,
            Self::Timeout => reason::TIMEOUT,
            Self::TlsFailed => reason::TLS_FAILED,
            Self::AuthFailed => reason::AUTH_FAILED,
        }
    }
}
