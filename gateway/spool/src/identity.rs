//! Whose volume this is: a small JSON file at its root.
//!
//! | field | meaning |
//! | --- | --- |
//! | `format` | version of the volume's layout, [`FORMAT`] |
//! | `pipeline` | `namespace/name` of the pipeline that first claimed the volume |
//!
//! A volume of another pipeline, or of a layout that this program does not know, is left alone.

use serde::{Deserialize, Serialize};

/// The layout that this program writes.
pub const FORMAT: u32 = 1;

/// The content of the identity file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Identity {
    /// Version of the volume's layout.
    pub format: u32,
    /// `namespace/name` of the pipeline.
    pub pipeline: String,
}

impl Identity {
    /// The identity of a volume that this program makes for a pipeline.
    pub fn of(namespace: &str, name: &str) -> Self {
        Self { format: FORMAT, pipeline: format!("{namespace}/{name}") }
    }
}
