//! A range that may be sent, and what is known of those before it.

use super::{Destination, Now, Parts};
use crate::partition::OffsetRange;

/// A range that may be sent now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// Its offsets.
    pub range: OffsetRange,
    /// Seconds since 1970 before which nobody sent it: the age of its token is counted from here.
    pub first_sent: u64,
    /// Whether an owner before may have sent it.
    pub is_inherited: bool,
    /// An owner before sent it in parts: it must not be sent whole.
    pub parts: Option<Parts>,
    /// The routing that it goes by ([`Settings::routing_epoch`](super::Settings::routing_epoch)).
    pub routing_epoch: u32,
    /// Where the shard of that routing was that owners before sent to, where the plan says it; else where it is now.
    pub destination: Option<Destination>,
}

/// What the plan that was found says of ranges that an owner before may have sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inherited {
    /// They begin below.
    pub horizon: i64,
    /// None was sent before; `None` without a plan.
    pub t0: Option<u64>,
}

impl Inherited {
    /// Before which moment no range that begins here was sent, if it is sent first by us now.
    pub fn first_sent(self, first: i64, now: Now) -> u64 {
        self.t0.filter(|_| self.covers(first)).unwrap_or(now.unix_seconds)
    }

    /// Whether an owner before may have sent a range that begins here.
    pub fn covers(self, first: i64) -> bool {
        self.t0.is_some() && first < self.horizon
    }
}
