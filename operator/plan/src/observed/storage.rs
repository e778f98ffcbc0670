//! The storage class of the queue volumes.

/// What there is to see of the storage class that the spec names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StorageClassSeen {
    /// None is named, or it was not looked for: gateways that run have their volumes.
    #[default]
    NotAsked,
    /// The server has it.
    Present,
    /// The server has none of that name.
    Missing,
}
