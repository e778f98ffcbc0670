//! The clock that measures the age of tokens and doubts.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time since 1970, by a clock that is never set back and counts while the machine sleeps.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    started: Duration,
    since_1970: Duration,
}

impl Clock {
    /// Starts with the machine's time.
    pub fn start() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started: sluice_kafka::clock::now().steady, since_1970 }
    }

    pub fn now(&self) -> Duration {
        self.since_1970 + sluice_kafka::clock::now().steady.saturating_sub(self.started)
    }
}
