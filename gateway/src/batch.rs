//! When a block closes: by size, by rows or by age. Pure.

use sluice_gateway_config::Insert;
use std::time::Duration;

/// The rule, from the config: the most that a block may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchRule {
    rows: u64,
    message_bytes: u64,
    age: Duration,
}

impl BatchRule {
    /// The rule of `sink.clickhouse.insert`.
    pub fn of(insert: &Insert) -> Self {
        Self {
            rows: u64::from(insert.max_rows),
            message_bytes: insert.max_bytes.get(),
            age: insert.max_interval.to_std(),
        }
    }

    /// Whether a block with so many rows, from messages of so many bytes, closes. It depends on the messages alone:
    /// whoever reads them again closes it at the same place.
    pub fn is_full(&self, rows: u64, message_bytes: u64) -> bool {
        rows >= self.rows || message_bytes >= self.message_bytes
    }

    /// How much longer a block of this age may stay open; zero when it is due.
    pub fn time_left(&self, age: Duration) -> Duration {
        self.age.saturating_sub(age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_closes_by_rows_bytes_or_age() {
        let rule = BatchRule::of(&Insert::default());
        assert!(!rule.is_full(99_999, (16 << 20) - 1));
        assert!(rule.is_full(100_000, 0));
        assert!(rule.is_full(0, 16 << 20));
        assert_eq!(rule.time_left(Duration::from_millis(400)), Duration::from_millis(600));
        assert_eq!(rule.time_left(Duration::from_secs(2)), Duration::ZERO);
    }
}
