//! What keeps the operator from carrying out its plan.

/// Why a pipeline is not reconciled, although its spec may be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReconcileFailure {
    /// The reason of `Ready`.
    pub reason: &'static str,
    /// What happened, for people.
    pub message: String,
    /// Whether it stays until a person acts; else it may pass.
    pub stays: bool,
}
