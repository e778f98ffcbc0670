//! The number of tokens that a table must remember.
//!
//! Pure arithmetic. The operator uses it for tables that it creates, and for the number that it reports.

use crate::units::Duration;

/// Maximum time between a first try and its retry, in seconds, for which the retry is recognized. A replacement of a gateway, together
/// with a restart of a server, takes minutes; ten leave room. Chosen.
pub const SECONDS: u64 = 600;

/// The smallest window, blocks. Chosen: the default of replicated tables (25.9); about 1 MB of the server's memory.
pub const WINDOW_BLOCKS_MIN: u32 = 10_000;

/// The largest window, blocks. Chosen: a hundred times the smallest, about 100 MB of the server's memory.
pub const WINDOW_BLOCKS_MAX: u32 = 1_000_000;

/// Number of blocks whose tokens a table should remember if this number of partitions is sent to it. Each partition closes a block at the
/// latest when its oldest message is `max_interval` old.
///
/// A partition with little traffic closes one block per interval. With more traffic, a partition closes larger blocks instead of more, as
/// long as a block stays below `insert.maxBytes` in that time. So blocks per second = partitions / interval. The window is twice the number
/// of blocks in [`SECONDS`], since a busy partition closes more. It grows in powers of two, so that a growing topic rarely changes it.
pub fn window_blocks(partitions: u32, max_interval: Duration) -> u32 {
    let per_partition = (SECONDS * 1_000).div_ceil(max_interval.as_millis().max(1));
    let blocks = u64::from(partitions).saturating_mul(per_partition).saturating_mul(2);
    let mut window = u64::from(WINDOW_BLOCKS_MIN);
    while window < blocks && window < u64::from(WINDOW_BLOCKS_MAX) {
        window *= 2;
    }
    u32::try_from(window).unwrap_or(WINDOW_BLOCKS_MAX).min(WINDOW_BLOCKS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_follows_the_rate_of_blocks_in_powers_of_two() {
        let second = Duration::secs(1);
        for (partitions, interval, expected) in [
            (0, second, 10_000),
            (1, second, 10_000),
            (8, second, 10_000),
            (9, second, 20_000),
            (12, second, 20_000),
            (96, second, 160_000),
            (96, Duration::secs(10), 20_000),
            (96, Duration::secs(300), 10_000),
            (u32::MAX, Duration::millis(0), WINDOW_BLOCKS_MAX),
        ] {
            assert_eq!(window_blocks(partitions, interval), expected, "{partitions} {interval}");
        }
    }
}
