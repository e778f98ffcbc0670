//! A range that may be sent, and what is known of earlier owners.

use super::{Destination, Now, RefusedParts};
use crate::OffsetRange;

/// A range that may be sent now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// Its offsets.
    pub range: OffsetRange,
    /// Seconds since 1970 before which no owner sent it: the age of its token is counted from here.
    pub first_sent: u64,
    /// Whether an earlier owner may have sent it.
    pub is_inherited: bool,
    /// Set if an earlier owner sent it in parts: it must not be sent whole.
    pub parts: Option<RefusedParts>,
    /// Its routing ([`Settings::routing_epoch`](super::Settings::routing_epoch)).
    pub routing_epoch: u32,
    /// Where that routing's shard was that earlier owners sent to, if the plan records it; else where it is now.
    pub destination: Option<Destination>,
}

/// What the found plan says of ranges that an earlier owner may have sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inherited {
    /// They start below this offset.
    pub horizon: i64,
    /// The time before which none was sent; `None` without a plan.
    pub t0: Option<u64>,
}

impl Inherited {
    /// The time before which no range that starts here was sent, if this owner sends it first.
    pub fn first_sent(self, first: i64, now: Now) -> u64 {
        self.t0.filter(|_| self.covers(first)).unwrap_or(now.unix_seconds)
    }

    /// Whether an earlier owner may have sent a range that starts here.
    pub fn covers(self, first: i64) -> bool {
        self.t0.is_some() && first < self.horizon
    }
}
