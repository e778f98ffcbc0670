//! Partitions that no gateway reads: fewer are owned by all gateways together than Kafka has.
//!
//! For a moment that is usual: in every rebalance, and while a gateway that is started again has its partitions kept. What is not over after
//! [`UNREAD_SECONDS`] is said.

/// Partitions may be without a reader for this many seconds before that is said: longer than a rebalance takes, and shorter than the session
/// of a gateway that ended without leaving its group ([`sluice_gateway_config::SESSION_SECONDS`]). Chosen.
pub const UNREAD_SECONDS: u64 = 30;

/// Partitions without a reader that are named; the others are counted. Chosen for the length of a message.
pub const UNREAD_NAMED_MAX: usize = 3;

/// Partitions without a reader, as all gateways say that run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadSeen {
    /// How many.
    pub partitions: u32,
    /// Of how many.
    pub of: u32,
    /// For how long some are.
    pub seconds: u64,
    /// The first [`UNREAD_NAMED_MAX`] of them, as `topic/number`; empty while gateways do not name all that they own.
    pub named: Vec<String>,
}
