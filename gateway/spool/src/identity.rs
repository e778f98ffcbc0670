//! The pipeline of a volume: a small JSON file at its root.
//!
//! | field | meaning |
//! | --- | --- |
//! | `format` | version of the volume's layout, [`FORMAT`] |
//! | `pipeline` | `namespace/name` of the pipeline that first claimed the volume |
//!
//! A volume of another pipeline, or of an unknown layout, is left unchanged.

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
    /// The identity of a volume that this program creates for a pipeline.
    pub fn of(namespace: &str, name: &str) -> Self {
        Self { format: FORMAT, pipeline: format!("{namespace}/{name}") }
    }

    /// The pipeline as a number, which segments contain: 64-bit FNV-1a of its name. It detects segments that were copied from the volume
    /// of another pipeline. It is on the disk and never changes.
    pub fn number(&self) -> u64 {
        self.pipeline.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_pipeline_never_changes() {
        // The reference values of FNV-1a: of nothing, and of "foobar".
        let number = |pipeline: &str| Identity { format: FORMAT, pipeline: pipeline.to_owned() }.number();
        assert_eq!(number(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(number("foobar"), 0x8594_4171_f739_67e8);
        assert_ne!(number("tracing/prod"), number("tracing/test"));
    }
}
