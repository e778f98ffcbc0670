//! The answer of a gateway to `/drainz`, `/drain` and `/resume`: what must be finished before the operator can remove the gateway.
//!
//! The gateway writes it; the operator and its kubectl plugin read it, also from gateways of earlier versions, which leave fields out.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What a gateway holds and has not committed. The operator removes a gateway once `blocks` and `uncommitted` are 0. It removes the queue volume
/// too unless that is damaged. If a log is `unreadable`, these numbers do not have its messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remaining {
    /// Sealed blocks that are not inserted, including those on the queue volume. At least 1 until the queue volume is opened.
    pub blocks: u64,
    /// Memory of all blocks, including open ones, in bytes.
    #[serde(default)]
    pub bytes: u64,
    /// Messages whose blocks are sealed and whose offsets are not committed. At least 1 while this process is a member of the group,
    /// because its last commit is still to come. Early gateways leave it out.
    #[serde(default)]
    pub uncommitted: u64,
    /// Whether something on the queue volume is kept until a person has looked at it: what cannot be read, or dead letters of `source.otlp`.
    /// A gateway that leaves it out also counts a volume as empty that it has not opened yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damaged: Option<bool>,
    /// Whether a log of `source.otlp` cannot be read now. Its messages are not in `uncommitted`, and may be read later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unreadable: bool,
    /// Whether it was drained and reads nothing until it is resumed; `false` again after a restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draining: Option<bool>,
    /// The port at which other pods may drain and resume it. Without it, the admin port takes these commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<u16>,
}

/// JSON, as it goes over HTTP.
impl fmt::Display for Remaining {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_over_http_as_earlier_operators_read_it() {
        let nothing = Remaining { damaged: Some(false), draining: Some(false), ..Remaining::default() };
        assert_eq!(
            nothing.to_string(),
            r#"{"blocks":0,"bytes":0,"uncommitted":0,"damaged":false,"draining":false}"#
        );
        let some = Remaining {
            blocks: 3,
            bytes: 196_608,
            uncommitted: 12,
            damaged: Some(true),
            unreadable: true,
            draining: Some(true),
            control: Some(9_091),
        };
        let text = r#"{"blocks":3,"bytes":196608,"uncommitted":12,"damaged":true,"unreadable":true,"draining":true,"control":9091}"#;
        assert_eq!(some.to_string(), text);
        assert_eq!(serde_json::from_str::<Remaining>(text).unwrap(), some);
    }

    #[test]
    fn what_earlier_gateways_leave_out_is_not_known() {
        let read: Remaining = serde_json::from_str(r#"{"blocks":2,"bytes":9,"uncommitted":1}"#).unwrap();
        assert_eq!(read, Remaining { blocks: 2, bytes: 9, uncommitted: 1, ..Remaining::default() });
        // Nothing must seem to be held only because it is not said.
        assert!(serde_json::from_str::<Remaining>(r#"{"bytes":0}"#).is_err());
    }
}
