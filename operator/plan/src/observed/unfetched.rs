//! Gateways that Kafka gives no messages although some wait, as they say themselves.

use sluice_gateway_config::{UnfetchedCause, UnfetchedState};

/// Messages may wait for this many seconds after Kafka has refused them before that is said. Chosen: a right that is refused does not come
/// back by itself, and a broker that has just started may not know it yet.
const REFUSED_SECONDS: u64 = 10;

/// Messages may wait for this many seconds in all other cases: the leader of a partition moves, and brokers restart. Chosen, as for a gateway
/// that reaches no broker.
const UNFETCHED_SECONDS: u64 = 60;

/// A gateway that gets no messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfetchedSeen {
    /// The name of its pod.
    pub name: String,
    /// What it says.
    pub said: UnfetchedState,
}

impl UnfetchedSeen {
    /// Whether it has lasted.
    pub fn is_lasting(&self) -> bool {
        let seconds_max = match self.said.cause {
            UnfetchedCause::GroupRefused | UnfetchedCause::TopicRefused => REFUSED_SECONDS,
            UnfetchedCause::TopicUnknown | UnfetchedCause::NoLeader | UnfetchedCause::Other => {
                UNFETCHED_SECONDS
            }
        };
        self.said.seconds >= seconds_max
    }
}
