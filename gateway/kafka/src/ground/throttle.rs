//! Limits how often a log line is repeated.
//!
//! Owner: the code that logs the line. Limits: [`CAUSES_MAX`] causes within an interval; further ones are not logged.

use std::time::{Duration, Instant};

/// How often the same cause is logged, unless a line has an interval of its own. Chosen: often enough to be found in the part of a log that
/// is kept, and only a few lines an hour.
pub const SAY_INTERVAL: Duration = Duration::from_mins(10);

/// Causes of a line that are logged within an interval. Chosen: more than there are at a time.
const CAUSES_MAX: usize = 16;

/// A log line: when it was logged, by cause.
#[derive(Debug)]
pub struct Throttle<Cause = ()> {
    interval: Duration,
    said: Vec<(Cause, Instant)>,
}

impl<Cause> Default for Throttle<Cause> {
    fn default() -> Self {
        Self::every(SAY_INTERVAL)
    }
}

impl<Cause> Throttle<Cause> {
    /// Logs the same cause once in this interval.
    pub fn every(interval: Duration) -> Self {
        Self { interval, said: Vec::new() }
    }

    /// When the line was last logged, within the interval.
    pub fn last(&self) -> Option<Instant> {
        self.said.last().map(|(_, at)| *at)
    }

    /// Whether a cause is to be logged now: it is new, or was logged an interval ago. If so, records it as logged.
    pub fn is_due(&mut self, cause: Cause, now: Instant) -> bool
    where
        Cause: PartialEq,
    {
        self.said.retain(|(_, at)| now.saturating_duration_since(*at) < self.interval);
        let is_due = self.said.len() < CAUSES_MAX && self.said.iter().all(|(said, _)| *said != cause);
        if is_due {
            self.said.push((cause, now));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_cause_is_said_when_it_is_new_and_now_and_then() {
        let (mut line, start) = (Throttle::default(), Instant::now());
        let course = [
            (0, "table", true),
            (5, "table", false),
            (6, "other", true),
            (7, "access", true),
            // Different causes alternate.
            (8, "table", false),
            (9, "other", false),
            (600, "table", true),
            (601, "other", false),
            (631, "other", true),
        ];
        for (seconds, cause, is_due) in course {
            assert_eq!(line.is_due(cause, start + seconds * SECOND), is_due, "{cause} at {seconds} s");
        }
    }

    #[test]
    fn what_is_said_is_bounded() {
        let (mut line, start) = (Throttle::default(), Instant::now());
        let mut lines = |from: u32, at| (from..from + 100).filter(|cause| line.is_due(*cause, at)).count();
        assert_eq!([lines(0, start), lines(0, start), lines(1_000, start)], [CAUSES_MAX, 0, 0]);
        assert_eq!(lines(1_000, start + SAY_INTERVAL), CAUSES_MAX);
    }

    #[test]
    fn what_stays_true_is_said_now_and_then() {
        let (mut line, start) = (Throttle::default(), Instant::now());
        let said = (0..3_600).filter(|seconds| line.is_due((), start + *seconds * SECOND));
        assert_eq!(said.collect::<Vec<u32>>(), [0, 600, 1_200, 1_800, 2_400, 3_000]);
        assert_eq!(line.last(), Some(start + 3_000 * SECOND));
    }
}
