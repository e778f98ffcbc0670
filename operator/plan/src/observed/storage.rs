//! The storage class of the queue volumes.

/// What is observed of the storage class that the spec names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StorageClassSeen {
    /// The spec names none, or the operator did not read it: gateways that run already have their volumes.
    #[default]
    NotAsked,
    /// The class exists.
    Present,
    /// No class has that name.
    Missing,
}
