//! The clocks of planned ranges.

use rustix::time::{ClockId, clock_gettime};
use sluice_ranges::Now;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The current time: by a clock that counts while the machine sleeps, and by wall-clock time, which machines share.
pub fn now() -> Now {
    let boot = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(boot.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(boot.tv_nsec).unwrap_or(0);
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now { steady: Duration::new(seconds, nanos), unix_seconds: unix.as_secs() }
}
