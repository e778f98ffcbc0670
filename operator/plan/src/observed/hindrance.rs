//! What keeps the operator from doing as it has planned.

/// Why a pipeline is not looked after as its spec says, although nothing may be wrong with that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hindrance {
    /// The reason of `Ready`.
    pub reason: &'static str,
    /// What happened, for people.
    pub message: String,
    /// Whether it stays until a person does something; else it may pass by itself.
    pub stays: bool,
}
