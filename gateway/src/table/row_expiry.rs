//! Which rows the table's TTL deletes: those that are too old, and those whose expiry does not fit the TTL's 32 bits.
//!
//! Owner: shared. The task that asks the servers about the guarantee sets it every half minute, since a TTL may be altered while the
//! gateway runs; every worker reads it once a message.

use sluice_clickhouse::{
    expiry::{ExpiryAges, ExpiryRule},
    ttl::RowTtl,
};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// The value for a table whose rows do not expire at an age.
const NEVER: u64 = u64::MAX;

/// [`ExpiryAges`], shared.
#[derive(Debug)]
pub struct RowExpiry {
    seconds: AtomicU64,
    seconds_in_32_bits: AtomicU64,
}

impl Default for RowExpiry {
    fn default() -> Self {
        Self { seconds: AtomicU64::new(NEVER), seconds_in_32_bits: AtomicU64::new(NEVER) }
    }
}

impl RowExpiry {
    /// Sets it from the TTLs of the tables of all shards.
    pub fn set<'a>(&self, ttls: impl IntoIterator<Item = &'a RowTtl> + Clone) {
        let ExpiryAges { age, age_in_32_bits } = ExpiryAges::of(ttls);
        let set = |at: &AtomicU64, age: Option<Duration>| {
            at.store(age.map_or(NEVER, |age| age.as_secs()), Ordering::Relaxed);
        };
        set(&self.seconds, age);
        set(&self.seconds_in_32_bits, age_in_32_bits);
    }

    /// The rule at this time, in ns since 1970.
    pub fn at(&self, now_nanos: u64) -> ExpiryRule {
        let age = |at: &AtomicU64| {
            let seconds = at.load(Ordering::Relaxed);
            (seconds != NEVER).then(|| Duration::from_secs(seconds))
        };
        ExpiryAges { age: age(&self.seconds), age_in_32_bits: age(&self.seconds_in_32_bits) }.at(now_nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_expire_at_the_shortest_age_of_all_shards() {
        let expiry = RowExpiry::default();
        assert_eq!(expiry.at(u64::MAX), ExpiryRule::NEVER);
        let (hour, day) = (RowTtl::of_age(Duration::from_hours(1)), RowTtl::of_age(Duration::from_hours(24)));
        expiry.set([&day, &RowTtl::default(), &hour]);
        assert_eq!(expiry.at(3_601_000_000_000), ExpiryRule::before(1_000_000_000));
        expiry.set([&RowTtl::of_other("toDate(Timestamp) + toIntervalHour(12)")]);
        assert_eq!(expiry.at(3_601_000_000_000), ExpiryRule::NEVER);
    }
}
