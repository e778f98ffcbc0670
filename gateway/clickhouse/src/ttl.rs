//! The age at which a table deletes rows: its TTL, as `engine_full` of `system.tables` prints it.
//!
//! Place in the flow: [`crate::ddl::difference`] compares it with the spec's. The gateway counts rows that are already expired when they
//! are inserted. `sluice-gateway audit` does not report expired rows as missing.

use std::time::Duration;

/// Maximum age in seconds for which `toDateTime(Timestamp) + age` is right for rows up to the year 2050: the time from there to the end
/// of its 32 bits in February 2106.
const AGE_OF_32_BITS_MAX: u64 = 1_770_359_295;

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
    /// By an expression that the gateway does not evaluate.
    Other(String),
}

impl RowTtl {
    /// The TTL of a table, from its engine with all its clauses: `MergeTree PARTITION BY … TTL … SETTINGS …`. The shortest, if there are
    /// several ages.
    pub fn in_engine(engine_full: &str) -> Self {
        let Some(ttl) = expression(engine_full) else { return Self::None };
        let deleting = || elements(ttl).into_iter().filter(|element| deletes(element));
        match deleting().filter_map(age).min() {
            Some(age) => Self::Age(age),
            None => deleting().next().map_or(Self::None, |other| Self::Other(other.to_owned())),
        }
    }

    /// The age at which rows are deleted, if it is a fixed one.
    pub fn age(&self) -> Option<Duration> {
        match self {
            Self::Age(age) => Some(*age),
            Self::None | Self::Other(_) => None,
        }
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

/// The age in a TTL that counts from `Timestamp`.
fn age(element: &str) -> Option<Duration> {
    let (from, interval) = element.split_once(" + ")?;
    let age = interval_seconds(interval)?;
    match from {
        "toDateTime64(Timestamp, 0)" | "Timestamp" => Some(Duration::from_secs(age)),
        // A sum that exceeds 32 bits lies in the past.
        "toDateTime(Timestamp)" if age < AGE_OF_32_BITS_MAX => Some(Duration::from_secs(age)),
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
        assert_eq!(ttl("toDateTime(Timestamp) + toIntervalHour(72)"), days(3));
        assert_eq!(ttl("toDateTime64(Timestamp, 0) + toIntervalDay(36500)"), days(36_500));
        assert_eq!(RowTtl::in_engine("MergeTree ORDER BY a TTL Timestamp + toIntervalWeek(1)"), days(7));
        assert_eq!(RowTtl::in_engine("MergeTree ORDER BY a SETTINGS x = 1"), RowTtl::None);
    }

    #[test]
    fn other_expressions_are_kept_as_they_are() {
        for other in [
            // Rows of the afternoon expire on arrival.
            "toDate(Timestamp) + toIntervalHour(12)",
            // 32 bits end in 2106.
            "toDateTime(Timestamp) + toIntervalDay(21000)",
            "toDateTime(Timestamp) + toIntervalDay(36500)",
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
