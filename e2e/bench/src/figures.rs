//! Figures of reports: how they are converted, rounded and written in a table.

use std::time::Duration;

/// Microseconds, bytes and counts are exact up to 2^53, which is enough for a report.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
pub fn float(count: u64) -> f64 {
    count as f64
}

pub fn seconds(microseconds: u64) -> f64 {
    float(microseconds) / 1e6
}

pub fn mib(bytes: u64) -> f64 {
    float(bytes) / f64::from(1 << 20)
}

/// With three digits behind the point.
pub fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

pub fn ratio(of: f64, to: f64) -> f64 {
    if to > 0.0 { of / to } else { 0.0 }
}

/// The smallest value that so many percent of the sorted values do not exceed (nearest rank); `None` without values.
pub fn percentile(sorted: &[Duration], percent: usize) -> Option<Duration> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

/// The requirements that are not met, of these, each with the words for the other case.
pub fn broken(required: impl IntoIterator<Item = (bool, String)>) -> Vec<String> {
    required.into_iter().filter(|(holds, _)| !holds).map(|(_, words)| words).collect()
}

/// A cell with so many digits behind the point; `-` for an unknown value.
pub fn cell(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

/// A cell with a count; `-` for an unknown one.
pub fn count_cell(count: Option<u64>) -> String {
    count.map_or_else(|| "-".to_owned(), |count| count.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_value_of_the_nearest_rank() {
        let sorted: Vec<Duration> = (1..=20).map(Duration::from_millis).collect();
        for (percent, expected) in [(0, 1), (50, 10), (51, 11), (90, 18), (95, 19), (99, 20), (100, 20)] {
            assert_eq!(percentile(&sorted, percent), Some(Duration::from_millis(expected)), "{percent}");
        }
        assert_eq!(percentile(&sorted[..1], 50), Some(Duration::from_millis(1)));
        assert_eq!(percentile(&[], 50), None);
    }
}
