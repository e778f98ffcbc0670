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
    pub how: Silence,
}

/// What came instead of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Silence {
    /// It was not asked yet, as after a start of the operator.
    NotAsked,
    /// Nothing: there is no connection, or it breaks.
    Unreached,
    /// A connection, and nothing more: the process hangs or is stopped.
    Hangs,
    /// Something that is no answer, with what is wrong with it.
    Strange(String),
}

/// A gateway that takes connections at this address and answers none, with what helps and what that costs.
pub fn hanging_words((namespace, pod): (&str, &str), address: &str) -> String {
    hanging_cause(address) + &hanging_remedy(namespace, pod)
}

/// What such a gateway does.
pub(crate) fn hanging_cause(address: &str) -> String {
    format!(
        "takes connections at {address} and answers none: its process hangs or is stopped, or a proxy (service mesh) accepts them for it"
    )
}

/// What helps, as the end of a message.
pub(crate) fn hanging_remedy(namespace: &str, pod: &str) -> String {
    format!(
        ". kubectl logs {pod} -n {namespace} has its last words; kubectl delete pod {pod} -n {namespace} replaces it, after its grace period if the \
         process hangs. No span is lost: a queue volume stays, and Kafka or the clients send again what it has not acknowledged"
    )
}
