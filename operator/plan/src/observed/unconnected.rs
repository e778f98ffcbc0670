//! Gateways that reach no broker, as they say themselves.

/// A gateway may reach no broker for this many seconds before that is said: brokers restart, and a new pod waits for
/// its network. Chosen, as for a gateway that is not ready.
pub const UNCONNECTED_SECONDS: u64 = 60;

/// A gateway that reaches no broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnconnectedSeen {
    /// The name of its pod.
    pub name: String,
    /// How the first connection failed, with its address.
    pub reason: String,
    /// For how long it has reached none.
    pub seconds: u64,
}
