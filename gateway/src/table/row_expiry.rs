//! How old a row may be before the table's TTL deletes it.
//!
//! Owner: shared. The task that asks the servers about the guarantee sets it every half minute, since a TTL may be altered while the
//! gateway runs; every worker reads it once a message.

use sluice_clickhouse::ttl::RowTtl;
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// The value for a table whose rows do not expire at an age.
const NEVER: u64 = u64::MAX;

/// The age at which rows expire; of several shards, the shortest.
#[derive(Debug)]
pub struct RowExpiry {
    seconds: AtomicU64,
}

impl Default for RowExpiry {
    fn default() -> Self {
        Self { seconds: AtomicU64::new(NEVER) }
    }
}

impl RowExpiry {
    /// Sets it from the TTLs of the tables of all shards. A TTL that is not a plain age is ignored.
    pub fn set<'a>(&self, ttls: impl IntoIterator<Item = &'a RowTtl>) {
        let ages = ttls.into_iter().filter_map(RowTtl::age);
        let seconds = ages.min().map_or(NEVER, |age| age.as_secs());
        self.seconds.store(seconds, Ordering::Relaxed);
    }

    /// The `Timestamp` in ns since 1970 before which rows have expired; `i64::MIN` when they never do.
    pub fn before_nanos(&self, now_nanos: u64) -> i64 {
        match self.seconds.load(Ordering::Relaxed) {
            NEVER => i64::MIN,
            seconds => expired_before_nanos(now_nanos, Duration::from_secs(seconds)),
        }
    }
}

/// The `Timestamp` in ns since 1970 before which rows of a table that deletes them at an age have expired.
pub fn expired_before_nanos(now_nanos: u64, age: Duration) -> i64 {
    let age_nanos = i128::try_from(age.as_nanos()).unwrap_or(i128::MAX);
    i64::try_from(i128::from(now_nanos).saturating_sub(age_nanos)).unwrap_or(i64::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_expire_at_the_shortest_age_of_all_shards() {
        let expiry = RowExpiry::default();
        assert_eq!(expiry.before_nanos(u64::MAX), i64::MIN);
        let (hour, day) = (RowTtl::Age(Duration::from_hours(1)), RowTtl::Age(Duration::from_hours(24)));
        expiry.set([&day, &RowTtl::None, &hour]);
        assert_eq!(expiry.before_nanos(3_601_000_000_000), 1_000_000_000);
        expiry.set([&RowTtl::Other("toDate(Timestamp) + toIntervalHour(12)".into())]);
        assert_eq!(expiry.before_nanos(3_601_000_000_000), i64::MIN);
    }

    #[test]
    fn an_age_beyond_1970_expires_nothing_of_this_century() {
        assert_eq!(expired_before_nanos(1_000, Duration::from_nanos(1_500)), -500);
        assert_eq!(expired_before_nanos(0, Duration::MAX), i64::MIN);
    }
}
