//! Metrics of rows whose times had to be corrected, and of expired rows.

use super::Maker;
use crate::rows::span_times::TimeCounts;
use prometheus::{IntCounter, IntCounterVec};

const START: &str = "start";
const DURATION: &str = "duration";
const EVENT: &str = "event";

/// Handles of these metrics.
#[derive(Debug, Clone)]
pub struct TimeMetrics {
    replaced: IntCounterVec,
    expired: IntCounter,
}

impl TimeMetrics {
    /// Creates and registers them.
    pub(super) fn new(make: &Maker) -> Self {
        let replaced = make.counters(
            "times_replaced_total",
            "Impossible times of spans: a start or an event that got its message's timestamp, or a duration set to 0.",
            &["time"],
        );
        for time in [START, DURATION, EVENT] {
            replaced.with_label_values(&[time]);
        }
        let expired = make.counter(
            "rows_expired_total",
            "Rows that an age in the table's TTL had expired before they were encoded; ClickHouse deletes them.",
        );
        Self { replaced, expired }
    }

    /// Counts the rows of a message.
    pub fn count(&self, counts: &TimeCounts) {
        let TimeCounts { starts_replaced, durations_replaced, events_replaced, expired } = *counts;
        for (time, rows) in
            [(START, starts_replaced), (DURATION, durations_replaced), (EVENT, events_replaced)]
        {
            if rows > 0 {
                self.replaced.with_label_values(&[time]).inc_by(rows);
            }
        }
        self.expired.inc_by(expired);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::metrics::reference;

    #[test]
    fn rows_are_counted_by_what_is_wrong() {
        let metrics = reference::metrics();
        let counts = TimeCounts { starts_replaced: 1, durations_replaced: 2, events_replaced: 3, expired: 4 };
        metrics.times.count(&counts);
        metrics.times.count(&TimeCounts { expired: 1, ..TimeCounts::default() });
        let text = metrics.text().unwrap();
        for line in [
            "sluice_gateway_times_replaced_total{time=\"start\"} 1",
            "sluice_gateway_times_replaced_total{time=\"duration\"} 2",
            "sluice_gateway_times_replaced_total{time=\"event\"} 3",
            "sluice_gateway_rows_expired_total 5",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
    }
}
