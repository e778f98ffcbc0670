//! What keeps a gateway from being taken away: what it holds, and what it has not committed.
//!
//! Place in the flow: [`crate::admin::health`] reads it off the parts; `/drainz` tells it, and leaving logs it step by step. The operator
//! takes a gateway away once `blocks` and `uncommitted` are 0, and its queue volume with it only if that is not damaged.

use std::fmt;

/// What is held and not committed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Remaining {
    /// Sealed blocks that are not inserted, those on the queue volume among them. At least 1 while it is not known what is there.
    pub blocks: u64,
    /// Memory that blocks take, those that are open among them, in bytes.
    pub bytes: u64,
    /// Messages whose blocks are sealed and whose offsets are not committed. At least 1 while this process is a member of the group:
    /// the commit with which a partition is given back is still to come.
    pub uncommitted: u64,
    /// Whether something on the queue volume cannot be read, and is kept until somebody has looked at it.
    pub is_damaged: bool,
    /// Whether it was asked to drain, and takes no part.
    pub is_draining: bool,
    /// The port at which other pods may tell it to drain and to take part. The admin server says it.
    pub control: Option<u16>,
}

/// As JSON, which `/drainz` answers with.
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
    /// Logs it beside a step of leaving.
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
