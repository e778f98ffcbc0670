//! Formats times for people.

/// Milliseconds of a day.
const DAY_MILLIS: i64 = 86_400_000;

/// Milliseconds since 1970 as RFC 3339 in UTC, whole seconds: `2026-11-21T18:00:00Z`.
///
/// The date is Howard Hinnant's `civil_from_days` (<https://howardhinnant.github.io/date_algorithms.html>): years start in March, so the
/// leap day is the last day of a year, and 400 years have 146,097 days.
pub(super) fn utc(millis: i64) -> String {
    let (days, rest) = (millis.div_euclid(DAY_MILLIS), millis.rem_euclid(DAY_MILLIS) / 1_000);
    // Day 0 is 1 March of the year 0.
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_as_dates() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (1_700_000_000_123, "2023-11-14T22:13:20Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
        ] {
            assert_eq!(utc(millis), text);
        }
    }

    #[test]
    fn no_time_panics() {
        for millis in [i64::MIN, i64::MAX] {
            assert!(utc(millis).ends_with('Z'));
        }
    }
}
