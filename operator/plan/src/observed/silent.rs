//! Gateways that are ready for the kubelet and do not answer the operator. What they own, insert and reject is unknown then, whatever the
//! other facts say.

/// A gateway may give no answer for this many seconds before that is said: two looks at a pipeline of a fixed number of gateways lie 30 s
/// apart, and a request that a busy node loses is followed by one that it answers. Chosen.
pub const SILENT_SECONDS: u64 = 60;

/// A ready gateway that did not answer when it was asked last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SilentSeen {
    /// The name of its pod.
    pub name: String,
    /// Where it was asked.
    pub address: String,
    /// For how long it has given no answer.
    pub seconds: u64,
    /// What is wrong with what it answers; `None` while nothing comes.
    pub refusal: Option<String>,
}
