//! The age at which a table deletes rows: its TTL, as `engine_full` of `system.tables` prints it.
//!
//! Place in the flow: [`crate::ddl::difference`] compares it with the spec's. The gateway counts rows that are already expired when they
//! are inserted. `sluice-gateway audit` does not report expired rows as missing.
//!
//! `toDateTime(Timestamp) + age` has 32 bits: it wraps in February 2106. A row whose `Timestamp` plus the age is later expires at once.
//! `toDateTime64(Timestamp, 0) + age` and `Timestamp + age` have 64 bits.

use std::time::Duration;

/// The seconds after which a `DateTime` begins again at 1970.
pub const SECONDS_OF_32_BITS: u64 = 1 << 32;

/// 2026-11-01 00:00:00 UTC, in seconds since 1970: the month of this rule. New rows are later, unless a clock is wrong.
const NEW_ROWS_SINCE: u64 = 1_793_491_200;

/// Suffixes of a TTL that moves or recompresses rows instead of deleting them.
const KEEPS_ROWS: [&str; 3] = [" TO DISK ", " TO VOLUME ", " RECOMPRESS "];

/// When a table deletes its rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RowTtl {
    /// Never.
    #[default]
    None,
    /// At this age, counted from `Timestamp`.
    Age(Duration),
    /// At this age, counted from `toDateTime(Timestamp)`: at once, if `Timestamp` plus the age is beyond 32 bits. Less than
    /// [`SECONDS_OF_32_BITS`].
    AgeIn32Bits(Duration),
    /// By an expression that the gateway does not evaluate.
    Other(String),
}

impl RowTtl {
    /// The TTL of a table, from its engine with all its clauses: `MergeTree PARTITION BY … TTL … SETTINGS …`. The shortest, if there are
    /// several ages.
    pub fn in_engine(engine_full: &str) -> Self {
        let Some(ttl) = expression(engine_full) else { return Self::None };
        let deleting = || elements(ttl).into_iter().filter(|element| deletes(element));
        let shortest = deleting().filter_map(fixed).min_by_key(|ttl| ttl.age().or(ttl.age_in_32_bits()));
        let other = || deleting().next().map_or(Self::None, |other| Self::Other(other.to_owned()));
        shortest.unwrap_or_else(other)
    }

    /// The age at which rows of every time are deleted, if it is a fixed one.
    pub fn age(&self) -> Option<Duration> {
        match self {
            Self::Age(age) => Some(*age),
            Self::None | Self::AgeIn32Bits(_) | Self::Other(_) => None,
        }
    }

    /// The age of [`RowTtl::AgeIn32Bits`].
    pub fn age_in_32_bits(&self) -> Option<Duration> {
        match self {
            Self::AgeIn32Bits(age) => Some(*age),
            Self::None | Self::Age(_) | Self::Other(_) => None,
        }
    }

    /// What it deletes although the rows are not old: a clause for a message about the table. `None` if it deletes no such rows.
    pub fn wrapped(&self) -> Option<&'static str> {
        let age = self.age_in_32_bits()?.as_secs();
        Some(if age.saturating_add(NEW_ROWS_SINCE) >= SECONDS_OF_32_BITS {
            "the present TTL exceeds 32 bits (toDateTime) and deletes every new row at once"
        } else {
            "the present TTL has 32 bits (toDateTime) and deletes rows at once whose Timestamp plus its age is after 2106-02-07"
        })
    }
}

/// `toDateTime(Timestamp) + toIntervalDay(3)` of `MergeTree … TTL toDateTime(Timestamp) + toIntervalDay(3) SETTINGS …`.
pub(crate) fn expression(engine_full: &str) -> Option<&str> {
    let (_, rest) = engine_full.split_once(" TTL ")?;
    Some(rest.rsplit_once(" SETTINGS ").map_or(rest, |(ttl, _)| ttl).trim())
}

/// The elements between commas outside of parentheses.
fn elements(ttl: &str) -> Vec<&str> {
    let (mut depth, mut start, mut elements) = (0_i32, 0, Vec::new());
    for (at, char) in ttl.char_indices() {
        match char {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                elements.push(ttl[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    elements.push(ttl[start..].trim());
    elements
}

fn deletes(element: &str) -> bool {
    !KEEPS_ROWS.iter().any(|keeps| element.contains(keeps))
}

/// A TTL that counts from `Timestamp`.
fn fixed(element: &str) -> Option<RowTtl> {
    let (from, interval) = element.split_once(" + ")?;
    let age = interval_seconds(interval)?;
    match from {
        "toDateTime64(Timestamp, 0)" | "Timestamp" => Some(RowTtl::Age(Duration::from_secs(age))),
        "toDateTime(Timestamp)" if age < SECONDS_OF_32_BITS => {
            Some(RowTtl::AgeIn32Bits(Duration::from_secs(age)))
        }
        // `toDate(Timestamp)` counts from midnight, so that rows are deleted up to a day too early.
        _ => None,
    }
}

fn interval_seconds(interval: &str) -> Option<u64> {
    let units = [("Second", 1), ("Minute", 60), ("Hour", 3_600), ("Day", 86_400), ("Week", 604_800)];
    units.iter().find_map(|(unit, seconds)| {
        let number = interval.strip_prefix(&format!("toInterval{unit}("))?.strip_suffix(')')?;
        number.parse::<u64>().ok()?.checked_mul(*seconds)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ttl(expression: &str) -> RowTtl {
        RowTtl::in_engine(&format!("MergeTree ORDER BY a TTL {expression} SETTINGS x = 1"))
    }

    #[test]
    fn an_age_from_the_timestamp_is_read() {
        let days = |days: u64| RowTtl::Age(Duration::from_hours(24 * days));
        assert_eq!(ttl("toDateTime64(Timestamp, 0) + toIntervalSecond(259200)"), days(3));
        assert_eq!(ttl("toDateTime64(Timestamp, 0) + toIntervalDay(3)"), days(3));
        assert_eq!(ttl("toDateTime64(Timestamp, 0) + toIntervalDay(36500)"), days(36_500));
        assert_eq!(RowTtl::in_engine("MergeTree ORDER BY a TTL Timestamp + toIntervalWeek(1)"), days(7));
        assert_eq!(RowTtl::in_engine("MergeTree ORDER BY a SETTINGS x = 1"), RowTtl::None);
    }

    #[test]
    fn an_age_of_32_bits_is_told_apart() {
        let days = |days: u64| RowTtl::AgeIn32Bits(Duration::from_hours(24 * days));
        let short = ttl("toDateTime(Timestamp) + toIntervalHour(72)");
        assert_eq!(short, days(3));
        assert_eq!((short.age(), short.age_in_32_bits()), (None, Some(Duration::from_hours(72))));
        assert!(short.wrapped().unwrap().contains("after 2106-02-07"), "{short:?}");
        // With 28,900 days, rows of today are kept until 2105; 29,000 days are too many.
        for (age, deletes_all) in [(28_900, false), (29_000, true), (36_500, true)] {
            let long = ttl(&format!("toDateTime(Timestamp) + toIntervalDay({age})"));
            assert_eq!(long, days(age));
            assert_eq!(long.wrapped().unwrap().contains("every new row"), deletes_all, "{long:?}");
        }
        assert_eq!(ttl("Timestamp + toIntervalDay(36500)").wrapped(), None);
        assert_eq!(RowTtl::None.wrapped(), None);
    }

    #[test]
    fn other_expressions_are_kept_as_they_are() {
        for other in [
            // Rows of the afternoon expire on arrival.
            "toDate(Timestamp) + toIntervalHour(12)",
            // More than 32 bits of seconds.
            "toDateTime(Timestamp) + toIntervalDay(50000)",
            "Timestamp + toIntervalDay(3) WHERE a = 1",
            "Other + toIntervalDay(3)",
            "if(a, b, c)",
        ] {
            assert_eq!(ttl(other), RowTtl::Other(other.into()));
        }
    }

    #[test]
    fn of_several_elements_the_earliest_that_deletes_counts() {
        let age = RowTtl::Age(Duration::from_hours(48));
        let (moves, deletes) =
            ("Timestamp + toIntervalDay(1) TO VOLUME 'cold'", "Timestamp + toIntervalDay(2)");
        assert_eq!(ttl(moves), RowTtl::None);
        assert_eq!(ttl(&format!("{moves}, {deletes}")), age);
        assert_eq!(ttl(&format!("{deletes}, f(a, b)")), age);
        assert_eq!(ttl(&format!("{deletes}, Timestamp + toIntervalDay(9)")), age);
    }
}
