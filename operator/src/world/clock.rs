//! This machine's clock.

use k8s_openapi::jiff::Timestamp;
use sluice_plan::Moment;
use std::time::SystemTime;

/// A clock: the system's, or that of a test.
pub type Clock = fn() -> Moment;

/// The system's time.
pub fn now() -> Moment {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Moment(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// As Kubernetes writes times.
pub fn timestamp(Moment(milliseconds): Moment) -> Timestamp {
    let milliseconds = i64::try_from(milliseconds).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(milliseconds).unwrap_or(Timestamp::MAX)
}
