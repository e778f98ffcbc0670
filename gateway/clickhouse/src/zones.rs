//! How far apart the local times of two time zones are.
//!
//! Job: margins for conditions on dates. A server writes dates in the time zone that it has then, and it may be asked in another one.

use std::time::Duration;

/// The largest distance. Specified: zones are from 12 hours behind UTC to 14 hours ahead of it.
pub(crate) const ZONES_APART_MAX: Duration = Duration::from_hours(12 + 14);

/// The number of days by which the dates of one moment may differ in two zones.
pub(crate) const ZONE_DAYS_APART_MAX: u64 = ZONES_APART_MAX.as_secs().div_ceil(86_400);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_one_moment_differ_by_at_most_two_days() {
        let days = (0..24).flat_map(|hour: i64| {
            let date = move |zone: i64| (hour + zone).div_euclid(24);
            (-12..=14).flat_map(move |one| (-12..=14).map(move |other| date(one).abs_diff(date(other))))
        });
        assert_eq!(days.max(), Some(ZONE_DAYS_APART_MAX));
    }
}
