//! Whether a pipeline runs, whether the operator manages it, and what happens to its gateways when it is deleted.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether the operator manages a pipeline.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ManagementState {
    /// Its objects are kept as the spec says.
    #[default]
    Managed,
    /// The operator does not change its objects.
    Unmanaged,
}

/// What happens to the gateways of a pipeline that is deleted.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeletionPolicy {
    /// They insert and commit what they hold, then everything is removed.
    #[default]
    Drain,
    /// Everything is removed at once.
    Immediate,
    /// Everything stays.
    Orphan,
}
