//! How old an open block becomes. By size, a range says where it ends: [`sluice_kafka::ranges`].

use sluice_gateway_config::Insert;
use std::time::Duration;

/// The age at which an open block is to be sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockAge(Duration);

impl BlockAge {
    /// `sink.clickhouse.insert.maxInterval`.
    pub fn of(insert: &Insert) -> Self {
        Self(insert.max_interval.to_std())
    }

    /// How much longer a block of this age may stay open; zero when it is due.
    pub fn time_left(self, age: Duration) -> Duration {
        self.0.saturating_sub(age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_comes_of_age() {
        let age_max = BlockAge::of(&Insert::default());
        assert_eq!(age_max.time_left(Duration::from_millis(400)), Duration::from_millis(600));
        assert_eq!(age_max.time_left(Duration::from_secs(2)), Duration::ZERO);
    }
}
