//! Why there are not more gateways, or why another number would not help: the reason and the message for the status.

use crate::pipeline::policy::Load;

/// What limits the number itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// There are no more partitions.
    TooFewPartitions,
    /// The upper bound of the policy.
    MaxReplicas,
    /// `ClickHouse` is what limits.
    SinkLimited,
    /// A partition is too much for any gateway.
    PartitionSkewed,
    /// A partition stands in front of a message, or a gateway inserts nothing of its logs.
    PartitionStuck,
    /// No node takes more pods.
    Unschedulable,
    /// This hour's rescales are used up.
    Budget,
    /// Memory fills whatever the number of partitions; the limit should be raised.
    Memory,
}

impl Limit {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::TooFewPartitions,
        Self::MaxReplicas,
        Self::SinkLimited,
        Self::PartitionSkewed,
        Self::PartitionStuck,
        Self::Unschedulable,
        Self::Budget,
        Self::Memory,
    ];

    /// The one of a word in a status; `None` for a word of another version.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|limit| limit.word() == word)
    }

    /// In words, with what would help.
    pub fn words(self, load: Load) -> &'static str {
        match self {
            Self::TooFewPartitions => {
                "there are no partitions for more gateways; add partitions to the topic"
            }
            Self::MaxReplicas => "scaling.maxReplicas is reached; increase it, or gateway.resources",
            Self::SinkLimited => "ClickHouse is the limit: more gateways would only wait for it too",
            Self::PartitionSkewed => {
                "one partition has more than a gateway can read; spread the messages over the partitions"
            }
            Self::PartitionStuck => match load {
                Load::Partitions => {
                    "a partition does not advance, and more gateways would not help; see its gateway's log"
                }
                Load::Requests => {
                    "a gateway inserts nothing of what waits on its volume, and more gateways would not help; see the logs of the pod that \
                     Ready names"
                }
            },
            Self::Unschedulable => {
                "the gateways that were added are unschedulable; free resources or add nodes; the operator retries after 30 minutes"
            }
            Self::Budget => "the number changed as often in the last hour as it may; it stays for now",
            Self::Memory => {
                "gateways run out of memory, and more gateways do not help; increase gateway.resources.limits.memory"
            }
        }
    }

    /// Its word in a status.
    pub fn word(self) -> &'static str {
        match self {
            Self::TooFewPartitions => "TooFewPartitions",
            Self::MaxReplicas => "MaxReplicas",
            Self::SinkLimited => "SinkLimited",
            Self::PartitionSkewed => "PartitionSkewed",
            Self::PartitionStuck => "PartitionStuck",
            Self::Unschedulable => "Unschedulable",
            Self::Budget => "Budget",
            Self::Memory => "Memory",
        }
    }
}
