//! What must be finished before the operator can remove a gateway: blocks that it holds, and messages that it has not committed.
//!
//! [`crate::admin::health`] collects it; `/drainz` returns it, and each step of the shutdown logs it. The operator removes a gateway once
//! `blocks` and `uncommitted` are 0. It removes the queue volume too unless that is damaged.

use std::fmt;

/// What is held and not committed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Remaining {
    /// Sealed blocks that are not inserted, including those on the queue volume. At least 1 until the queue volume is opened.
    pub blocks: u64,
    /// Memory of all blocks, including open ones, in bytes.
    pub bytes: u64,
    /// Messages whose blocks are sealed and whose offsets are not committed. At least 1 while this process is a member of the group,
    /// because its last commit is still to come.
    pub uncommitted: u64,
    /// Whether something on the queue volume cannot be read, and is kept until a person has looked at it.
    pub is_damaged: bool,
    /// Whether it was drained and reads nothing until it is resumed.
    pub is_draining: bool,
    /// The port at which other pods may drain and resume it. The admin server sets it.
    pub control: Option<u16>,
}

/// JSON, as `/drainz` returns it.
impl fmt::Display for Remaining {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { blocks, bytes, uncommitted, is_damaged, is_draining, control } = self;
        write!(
            f,
            r#"{{"blocks":{blocks},"bytes":{bytes},"uncommitted":{uncommitted},"damaged":{is_damaged},"draining":{is_draining}"#
        )?;
        if let Some(port) = control {
            write!(f, r#","control":{port}"#)?;
        }
        f.write_str("}")
    }
}

impl Remaining {
    /// Logs it with a step of the shutdown.
    pub fn say(&self, partitions: i64, step: &str) {
        let Self { blocks, bytes, uncommitted, is_damaged: damaged, .. } = *self;
        tracing::info!(blocks, bytes, uncommitted, damaged, partitions, "{step}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_as_the_operator_reads_it() {
        assert_eq!(
            Remaining::default().to_string(),
            r#"{"blocks":0,"bytes":0,"uncommitted":0,"damaged":false,"draining":false}"#
        );
        let some = Remaining {
            blocks: 3,
            bytes: 196_608,
            uncommitted: 12,
            is_damaged: true,
            is_draining: true,
            control: Some(9_091),
        };
        assert_eq!(
            some.to_string(),
            r#"{"blocks":3,"bytes":196608,"uncommitted":12,"damaged":true,"draining":true,"control":9091}"#
        );
    }
}
