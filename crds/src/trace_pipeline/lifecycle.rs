//! Whether a pipeline runs, whether it is looked after, and what becomes of its gateways when it is deleted.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether a pipeline is looked after.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ManagementState {
    /// Its objects are kept as the spec says.
    #[default]
    Managed,
    /// Its objects are left as they are.
    Unmanaged,
}

/// What becomes of the gateways of a pipeline that is deleted.
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
