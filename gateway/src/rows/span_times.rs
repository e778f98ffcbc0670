//! The times of spans and events in their rows.
//!
//! Wrong clocks would hide a row or break queries. A start of 0, or one that counts from the boot of a machine, lies in 1970, where a TTL
//! deletes the row. A real end after such a start makes a `Duration` of decades, and `addNanoseconds(Timestamp, Duration)` fails the whole
//! query. So times have limits:
//!
//! | the span has | the row has |
//! | --- | --- |
//! | a start before [`TIME_MIN`], or from [`TIME_MAX`] on | the timestamp of its Kafka message, not of the clock, so that reading it again gives the same row; the start is kept in [`ORIGINAL_START`] |
//! | an end more than [`DURATION_MAX`] after its start, or after [`TIME_MAX`]; any end of a span whose start is 0 | `Duration` 0; the end is kept in [`ORIGINAL_END`] |
//! | an event before [`TIME_MIN`], or from [`TIME_MAX`] on | the timestamp of its Kafka message; the time is kept in [`ORIGINAL_TIME`] |
//!
//! A span whose start and end both count from the boot of its machine keeps its `Duration`: the difference is right.
//!
//! Cost: four comparisons a span, one for each event.

use std::time::Duration;

/// Attribute with a span's start if the row's `Timestamp` is another time.
pub const ORIGINAL_START: &[u8] = b"sluice.start_time_unix_nano";

/// Attribute with a span's end if the row's `Duration` does not show it.
pub const ORIGINAL_END: &[u8] = b"sluice.end_time_unix_nano";

/// Attribute with an event's time if the row's is another time.
pub const ORIGINAL_TIME: &[u8] = b"sluice.time_unix_nano";

/// The earliest time of a span or an event, in ns since 1970: 2000-01-01 00:00:00 UTC. Chosen: no traces are older, and a clock that counts
/// from the boot of its machine reaches it after 30 years.
pub const TIME_MIN: u64 = 946_684_800 * 1_000_000_000;

/// The end of the times that `DateTime64(9)` holds without overflow in queries, in ns since 1970: 2262-04-11 23:47:16 UTC, the largest
/// `i64` of nanoseconds (ClickHouse documentation, `DateTime64`).
pub const TIME_MAX: u64 = i64::MAX.unsigned_abs();

/// The longest `Duration`. Chosen: ten years are longer than any workflow, and shorter than the decades between a clock that counts from
/// 0 and a real one.
pub const DURATION_MAX: Duration = Duration::from_hours(24 * 3_650);

/// [`DURATION_MAX`] in ns.
#[expect(clippy::cast_possible_truncation, reason = "ten years in ns are less than 2^59")]
const DURATION_NANOS_MAX: u64 = DURATION_MAX.as_nanos() as u64;

/// An attribute with a time that the row does not show.
pub type Original = (&'static [u8], u64);

/// The start and duration of a span as its row has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanTimes {
    /// `Timestamp`, in ns since 1970.
    pub start_nanos: i64,
    /// `Duration`, in ns.
    pub duration_nanos: u64,
    /// The start if it is not in `Timestamp`.
    original_start: Option<u64>,
    /// The end if it is not in `Duration`.
    original_end: Option<u64>,
}

impl SpanTimes {
    /// For a span from `start` to `end`, in ns since 1970, in a message with this timestamp.
    #[inline]
    pub fn of(start: u64, end: u64, message_nanos: i64) -> Self {
        let (start_nanos, original_start) = usable(start, message_nanos);
        let duration_nanos = end.saturating_sub(start);
        let row_end = start_nanos.unsigned_abs().saturating_add(duration_nanos);
        if duration_nanos <= DURATION_NANOS_MAX && row_end < TIME_MAX && start > 0 {
            Self { start_nanos, duration_nanos, original_start, original_end: None }
        } else {
            let original_end = Some(end).filter(|end| *end > 0);
            Self { start_nanos, duration_nanos: 0, original_start, original_end }
        }
    }

    /// Whether the row shows other times than the span.
    #[inline]
    pub fn are_replaced(&self) -> bool {
        self.original_start.is_some() || self.original_end.is_some()
    }

    /// The original times to store in the row's attributes, in their order.
    pub fn originals(&self) -> impl Iterator<Item = Original> {
        let start = self.original_start.map(|nanos| (ORIGINAL_START, nanos));
        start.into_iter().chain(self.original_end.map(|nanos| (ORIGINAL_END, nanos)))
    }
}

/// Rows with times that had to be corrected, and expired rows. Counted per message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TimeCounts {
    /// Spans whose row has the timestamp of the message.
    pub starts_replaced: u64,
    /// Spans whose row has a `Duration` of 0 instead of one beyond the limit.
    pub durations_replaced: u64,
    /// Events that have the timestamp of the message.
    pub events_replaced: u64,
    /// Rows that the table's TTL had expired before they were encoded.
    pub expired: u64,
}

impl TimeCounts {
    /// Counts the times of a span.
    pub fn count(&mut self, times: &SpanTimes) {
        self.starts_replaced += u64::from(times.original_start.is_some());
        self.durations_replaced += u64::from(times.original_end.is_some());
    }
}

/// The time for a row in ns since 1970, and the original if it is another one.
#[inline]
pub fn usable(nanos: u64, message_nanos: i64) -> (i64, Option<u64>) {
    match i64::try_from(nanos) {
        Ok(fits) if (TIME_MIN..TIME_MAX).contains(&nanos) => (fits, None),
        _ => (message_nanos, Some(nanos)),
    }
}

/// The time, in ns, of rows whose spans have no usable one: the timestamp of their Kafka message, given in ms. A message may have none,
/// which gives 1970, or any number that its producer wrote: the nearest time that `DateTime64(9)` can hold is used.
pub fn message_nanos(message_millis: Option<i64>) -> i64 {
    const LATEST: i64 = i64::MAX - 1;
    const { assert!(LATEST.unsigned_abs() < TIME_MAX, "it is usable itself") };
    message_millis.unwrap_or(0).saturating_mul(1_000_000).clamp(0, LATEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_780_000_000_000_000_000;
    const MESSAGE: i64 = 1_780_000_000_123_000_000;
    /// The time of a clock that counts from boot.
    const BOOT: u64 = 44_511_913_730_532;

    fn times(start: u64, end: u64) -> (i64, u64, Vec<Original>) {
        let times = SpanTimes::of(start, end, MESSAGE);
        assert_eq!(times.are_replaced(), times.originals().next().is_some());
        (times.start_nanos, times.duration_nanos, times.originals().collect())
    }

    #[test]
    fn a_span_of_a_good_clock_is_as_it_says() {
        let now = NOW.cast_signed();
        assert_eq!(times(NOW, NOW + 7), (now, 7, vec![]));
        assert_eq!(times(NOW, NOW), (now, 0, vec![]));
        assert_eq!(times(NOW, NOW - 7), (now, 0, vec![]), "an end before the start");
        assert_eq!(times(NOW, 0), (now, 0, vec![]), "no end");
        assert_eq!(times(NOW, NOW + DURATION_NANOS_MAX), (now, DURATION_NANOS_MAX, vec![]));
        assert_eq!(times(TIME_MIN, TIME_MIN), (TIME_MIN.cast_signed(), 0, vec![]));
        assert_eq!(times(TIME_MAX - 2, TIME_MAX - 1), ((TIME_MAX - 2).cast_signed(), 1, vec![]));
    }

    #[test]
    fn an_impossible_start_becomes_the_timestamp_of_the_message() {
        let start = |nanos| (ORIGINAL_START, nanos);
        assert_eq!(times(BOOT, BOOT + 9), (MESSAGE, 9, vec![start(BOOT)]), "the difference is right");
        assert_eq!(times(TIME_MIN - 1, TIME_MIN), (MESSAGE, 1, vec![start(TIME_MIN - 1)]));
        assert_eq!(times(TIME_MAX, TIME_MAX + 5), (MESSAGE, 5, vec![start(TIME_MAX)]));
        assert_eq!(times(u64::MAX, 3), (MESSAGE, 0, vec![start(u64::MAX)]));
        assert_eq!(times(0, 0), (MESSAGE, 0, vec![start(0)]));
    }

    #[test]
    fn an_impossible_duration_is_zero_and_the_end_is_kept() {
        let (start, end) = (|nanos| (ORIGINAL_START, nanos), |nanos| (ORIGINAL_END, nanos));
        assert_eq!(times(0, NOW), (MESSAGE, 0, vec![start(0), end(NOW)]), "56 years");
        assert_eq!(times(0, BOOT), (MESSAGE, 0, vec![start(0), end(BOOT)]), "12 hours that nobody measured");
        assert_eq!(times(BOOT, NOW), (MESSAGE, 0, vec![start(BOOT), end(NOW)]));
        let late = NOW + DURATION_NANOS_MAX + 1;
        assert_eq!(times(NOW, late), (NOW.cast_signed(), 0, vec![end(late)]));
        assert_eq!(times(NOW, u64::MAX), (NOW.cast_signed(), 0, vec![end(u64::MAX)]));
        assert_eq!(times(TIME_MAX - 1, TIME_MAX), ((TIME_MAX - 1).cast_signed(), 0, vec![end(TIME_MAX)]));
    }

    #[test]
    fn no_timestamp_and_duration_overflow_together() {
        for start in [0, 1, BOOT, TIME_MIN, NOW, TIME_MAX - 1, u64::MAX] {
            for end in [0, 1, BOOT + 5, NOW, TIME_MAX - 1, TIME_MAX, u64::MAX] {
                for message in [0, MESSAGE, message_nanos(Some(i64::MAX))] {
                    let SpanTimes { start_nanos, duration_nanos, .. } = SpanTimes::of(start, end, message);
                    let sum = start_nanos.checked_add_unsigned(duration_nanos);
                    assert!(sum.is_some_and(|sum| sum < i64::MAX), "{start} {end} {message}");
                }
            }
        }
    }

    #[test]
    fn the_timestamp_of_a_message_becomes_a_time_that_the_column_holds() {
        assert_eq!(message_nanos(None), 0);
        assert_eq!(message_nanos(Some(1_600_000_000_000)), 1_600_000_000_000_000_000);
        for (millis, nanos) in [(i64::MIN, 0), (-1, 0), (i64::MAX, i64::MAX - 1), (1 << 60, i64::MAX - 1)] {
            assert_eq!(message_nanos(Some(millis)), nanos);
            assert!(nanos == 0 || usable(nanos.unsigned_abs(), 7) == (nanos, None), "{millis}");
        }
    }
}
