//! How far the horizon lies ahead of the ranges.
//!
//! The horizon is a promise in the committed plan. A range that ends by size may be sent without a commit of its own if the message that
//! decided its end lies **below** the horizon. Everything else follows from two properties:
//!
//! - **It bounds where ranges are decided, not where they start.** Once the next owner has read up to it, it knows every range that an
//!   earlier owner can have sent, or can still send. Any other range needs a commit, which the group refuses from a member that lost the
//!   partition. (Suppose that the bound were the start of a range. An owner that does not know yet that it lost the partition could send a
//!   range across a place where the next owner has meanwhile cut by time. The model finds that within a few schedules.)
//! - **It never lies above the end of the log** at the time of the commit. So the next owner can always read up to it at once: cutting by
//!   time waits for reading, never for new messages.
//!
//! During a backlog the horizon lies seconds ahead, and messages never wait for a commit. At the end of the log, a range ends above the
//! horizon. It waits for one commit, like a range that ends by time.
//!
//! The horizon is not as far ahead as the log is long, because another rule takes effect only at the horizon: a change of settings during
//! a long backlog should not wait until its end.

use std::time::Duration;

/// How far ahead, in seconds at the pace of new ranges. Chosen: commits are a second apart, and a coordinator that moves takes a few.
pub const HORIZON_SECONDS: u32 = 10;

/// The minimum distance in offsets, used before a pace is known.
pub const HORIZON_OFFSETS_MIN: i64 = 4_096;

/// The maximum distance in offsets. More than ten seconds of the smallest messages that one partition can deliver.
pub const HORIZON_OFFSETS_MAX: i64 = 16 << 20;

/// The shortest time over which a pace is measured. Commits can follow each other within milliseconds.
const PACE_TIME_MIN: Duration = Duration::from_millis(500);

/// Offsets per second at which ranges are made.
#[derive(Debug)]
pub struct Pace {
    tail: i64,
    at: Duration,
    offsets_ahead: i64,
}

impl Pace {
    /// No pace is known yet.
    pub fn new(tail: i64, now: Duration) -> Self {
        Self { tail, at: now, offsets_ahead: HORIZON_OFFSETS_MIN }
    }

    /// Whether so few offsets are left that the next regular commit raises the horizon.
    pub fn runs_out(&self, offsets_left: i64) -> bool {
        offsets_left < self.offsets_ahead / 2
    }

    /// How many offsets the horizon lies ahead of `tail`, the end of the last range.
    pub fn offsets_ahead(&mut self, tail: i64, now: Duration) -> i64 {
        let elapsed = now.saturating_sub(self.at);
        if elapsed >= PACE_TIME_MIN {
            let made = u128::from(tail.saturating_sub(self.tail).max(0).unsigned_abs());
            let ahead = made * u128::from(HORIZON_SECONDS) * 1_000 / elapsed.as_millis().max(1);
            let ahead = i64::try_from(ahead).unwrap_or(HORIZON_OFFSETS_MAX);
            self.offsets_ahead = ahead.clamp(HORIZON_OFFSETS_MIN, HORIZON_OFFSETS_MAX);
            (self.tail, self.at) = (tail, now);
        }
        self.offsets_ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_horizon_runs_seconds_ahead_at_any_pace() {
        let mut pace = Pace::new(100, Duration::ZERO);
        let second = Duration::from_secs(1);
        assert_eq!(pace.offsets_ahead(50_000, Duration::from_millis(10)), HORIZON_OFFSETS_MIN);
        assert_eq!(pace.offsets_ahead(50_100, second), 500_000);
        assert_eq!(pace.offsets_ahead(50_200, 2 * second), HORIZON_OFFSETS_MIN);
        assert_eq!(pace.offsets_ahead(i64::MAX, 3 * second), HORIZON_OFFSETS_MAX);
        assert_eq!(pace.offsets_ahead(0, 4 * second), HORIZON_OFFSETS_MIN);
    }
}
