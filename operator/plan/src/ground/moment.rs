//! Moments, which are arguments of every decision: nothing in this package has a clock.

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A moment, in milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Moment(pub u64);

impl Moment {
    /// Seconds since an earlier moment; 0 when the clock went back.
    pub fn seconds_since(self, earlier: Self) -> f64 {
        Duration::from_millis(self.0.saturating_sub(earlier.0)).as_secs_f64()
    }

    /// The moment this many seconds later.
    #[must_use]
    pub fn plus_seconds(self, seconds: u32) -> Self {
        Self(self.0.saturating_add(u64::from(seconds) * 1_000))
    }

    /// The moment of a time that the API server wrote. It writes whole seconds.
    pub(crate) fn of(time: &Time) -> Self {
        Self::of_timestamp(time.0)
    }

    /// The moment of a time; the epoch for one before it.
    pub(crate) fn of_timestamp(time: Timestamp) -> Self {
        Self(u64::try_from(time.as_millisecond()).unwrap_or(0))
    }

    /// The time for a status, in whole seconds, as the API server stores it.
    pub(crate) fn time(self) -> Time {
        let seconds = i64::try_from(self.0 / 1_000).unwrap_or(i64::MAX);
        Time(Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH))
    }
}
