//! What a pipeline is to do, by its metadata and spec, before anything else is decided.

use sluice_crds::{ManagementState, TracePipeline};

/// What a pipeline is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// As the spec says.
    Run,
    /// To have no gateways, and to keep everything else.
    Suspend,
    /// To stay unchanged, whatever the spec says.
    LeaveAlone,
    /// To go.
    Remove,
}

impl Intent {
    /// Deletion comes before `Unmanaged`, and `Unmanaged` before `suspend`.
    pub fn of(pipeline: &TracePipeline) -> Self {
        match (&pipeline.metadata.deletion_timestamp, pipeline.spec.management_state) {
            (Some(_), _) => Self::Remove,
            (None, ManagementState::Unmanaged) => Self::LeaveAlone,
            (None, ManagementState::Managed) if pipeline.spec.suspend => Self::Suspend,
            (None, ManagementState::Managed) => Self::Run,
        }
    }
}
