//! Which rows a TTL has deleted at a moment: those that are too old, and those whose expiry does not fit the TTL's 32 bits.
//!
//! Place in the flow: the gateway counts such rows when it inserts them; `sluice-gateway audit` does not report them as missing. Pure.

use crate::ttl::{RowTtl, SECONDS_OF_32_BITS};
use std::time::Duration;

/// One second, ns.
const SECOND_NANOS: u64 = 1_000_000_000;

/// The ages at which rows expire, from the TTLs of the tables of all shards. A rule of a TTL that is not a plain age is ignored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExpiryAges {
    /// Of several shards, the shortest.
    pub age: Option<Duration>,
    /// The same of the TTLs that count in 32 bits.
    pub age_in_32_bits: Option<Duration>,
}

impl ExpiryAges {
    /// From the TTLs of the tables of all shards.
    pub fn of<'a>(ttls: impl IntoIterator<Item = &'a RowTtl> + Clone) -> Self {
        let age = ttls.clone().into_iter().filter_map(RowTtl::age).min();
        let age_in_32_bits = ttls.into_iter().filter_map(RowTtl::age_in_32_bits).min();
        Self { age, age_in_32_bits }
    }

    /// The rule at this time, in ns since 1970.
    pub fn at(self, now_nanos: u64) -> ExpiryRule {
        let before_nanos = self.age.map_or(i64::MIN, |age| expired_before_nanos(now_nanos, age));
        let wrapping = self
            .age_in_32_bits
            .map(|age| Wrapping { age_seconds: age.as_secs(), now_seconds: now_nanos / SECOND_NANOS });
        ExpiryRule { before_nanos, wrapping }
    }
}

/// The rule for one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpiryRule {
    /// Rows with an earlier `Timestamp`, in ns since 1970, have expired.
    before_nanos: i64,
    wrapping: Option<Wrapping>,
}

impl ExpiryRule {
    /// No row expires.
    pub const NEVER: Self = Self::before(i64::MIN);

    /// Rows with an earlier `Timestamp`, in ns since 1970, have expired.
    pub const fn before(nanos: i64) -> Self {
        Self { before_nanos: nanos, wrapping: None }
    }

    /// Whether the TTL deletes a row with this `Timestamp`, in ns since 1970.
    #[inline]
    pub fn has_expired(&self, timestamp_nanos: i64) -> bool {
        timestamp_nanos < self.before_nanos
            || self.wrapping.is_some_and(|wrapping| wrapping.has_expired(timestamp_nanos))
    }

    /// Whether the TTL deletes a row with this `Timestamp` only because its 32 bits wrap: the row has not reached its age.
    pub fn has_wrapped(&self, timestamp_nanos: i64) -> bool {
        timestamp_nanos >= self.before_nanos
            && self.wrapping.is_some_and(|wrapping| {
                wrapping.has_expired(timestamp_nanos) && wrapping.wraps(timestamp_nanos)
            })
    }
}

/// A TTL `toDateTime(Timestamp) + age`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wrapping {
    age_seconds: u64,
    now_seconds: u64,
}

impl Wrapping {
    /// Computes as the server does: the seconds of the row, and their sum with the age, each keep 32 bits. 0 stands for no TTL.
    fn has_expired(self, timestamp_nanos: i64) -> bool {
        let expiry = self.expiry(timestamp_nanos).rem_euclid(i128::from(SECONDS_OF_32_BITS));
        expiry != 0 && expiry <= i128::from(self.now_seconds)
    }

    /// Whether the row's expiry does not fit 32 bits.
    fn wraps(self, timestamp_nanos: i64) -> bool {
        !(0..i128::from(SECONDS_OF_32_BITS)).contains(&self.expiry(timestamp_nanos))
    }

    /// The seconds of the row and the age, without a limit.
    fn expiry(self, timestamp_nanos: i64) -> i128 {
        let seconds = i128::from(timestamp_nanos).div_euclid(i128::from(SECOND_NANOS));
        seconds + i128::from(self.age_seconds)
    }
}

/// The `Timestamp` in ns since 1970 before which rows of a table that deletes them at an age have expired.
fn expired_before_nanos(now_nanos: u64, age: Duration) -> i64 {
    let age_nanos = i128::try_from(age.as_nanos()).unwrap_or(i128::MAX);
    i64::try_from(i128::from(now_nanos).saturating_sub(age_nanos)).unwrap_or(i64::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_beyond_1970_expires_nothing_of_this_century() {
        assert_eq!(expired_before_nanos(1_000, Duration::from_nanos(1_500)), -500);
        assert_eq!(expired_before_nanos(0, Duration::MAX), i64::MIN);
    }

    /// 2026-11-28 00:00:00 UTC.
    const NOW_SECONDS: u64 = 1_795_824_000;

    const DAY: i64 = 86_400;

    /// Whether a row with this `Timestamp` in seconds has expired now, by a TTL of this many days in 32 bits.
    fn has_expired(days: u64, seconds: i64) -> bool {
        rule(days).has_expired(seconds * SECOND_NANOS.cast_signed())
    }

    fn rule(days: u64) -> ExpiryRule {
        let ttl = RowTtl::of_age_in_32_bits(Duration::from_hours(24 * days));
        ExpiryAges::of([&ttl]).at(NOW_SECONDS * SECOND_NANOS)
    }

    #[test]
    fn a_row_whose_expiry_exceeds_32_bits_has_expired_at_once() {
        let now = NOW_SECONDS.cast_signed();
        let end = SECONDS_OF_32_BITS.cast_signed();
        assert!(has_expired(1, now - DAY - 1) && !has_expired(1, now - DAY + 1));
        assert!(!has_expired(1, now) && !has_expired(1, now + DAY));
        // A day before the end in February 2106, the sum is still within 32 bits; a row of 2109 is beyond.
        assert!(!has_expired(1, end - DAY - 1));
        assert!(has_expired(1, end - DAY + 1));
        assert!(has_expired(1, end + 3 * 365 * DAY));
        // 136 years later, the same time of 32 bits is in the future.
        assert!(!has_expired(1, end + now));
        // A TTL of 100 years expires every row of today.
        assert!(has_expired(36_500, now) && has_expired(36_500, now - 365 * DAY));
    }

    #[test]
    fn a_row_that_has_reached_its_age_has_not_wrapped() {
        let has_wrapped = |days, seconds: i64| rule(days).has_wrapped(seconds * SECOND_NANOS.cast_signed());
        let (now, end) = (NOW_SECONDS.cast_signed(), SECONDS_OF_32_BITS.cast_signed());
        assert!(has_expired(30, now - 40 * DAY) && !has_wrapped(30, now - 40 * DAY));
        assert!(has_wrapped(30, end - 30 * DAY + 1) && has_wrapped(36_500, now));
        assert!(!has_wrapped(30, now), "it has not expired");
        // Another rule of the TTL deletes it because of its age.
        let (old, wide) = (
            RowTtl::of_age(Duration::from_hours(24)),
            RowTtl::of_age_in_32_bits(Duration::from_hours(24 * 36_500)),
        );
        let both = ExpiryAges::of([&old, &wide]).at(NOW_SECONDS * SECOND_NANOS);
        let nanos = |seconds: i64| seconds * SECOND_NANOS.cast_signed();
        assert!(!both.has_wrapped(nanos(now - 2 * DAY)) && both.has_wrapped(nanos(now)));
    }
}
