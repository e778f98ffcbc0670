//! When the next token is asked for. Pure.

use std::time::Duration;

/// How long after a failure the next try is, at first; twice as long after each one more.
pub const RETRY_WAIT: Duration = Duration::from_secs(1);

/// The longest time between two tries. Chosen: an endpoint that is back is noticed in half a minute, and one that is down has two requests a
/// minute from each gateway.
pub const RETRY_WAIT_MAX: Duration = Duration::from_secs(30);

/// How often a file is read again. The kubelet replaces a token after 80 % of its lifetime, which is 10 min at least: its last fifth is 2 min.
pub const FILE_LOOK: Duration = Duration::from_secs(30);

/// The shortest time between two tokens. An issuer whose tokens live for a second must not be asked without end.
pub const REFRESH_WAIT_MIN: Duration = Duration::from_secs(1);

/// The longest time until the next token. Chosen: a timer that a clock which jumps can delay by a day at most.
pub const REFRESH_WAIT_MAX: Duration = Duration::from_hours(24);

/// How long a token is used before the next one is asked for: two thirds of its lifetime. The last third is for tries after failures; brokers
/// end a connection at the end of its token's lifetime.
pub fn refresh_in(lifetime: Duration) -> Duration {
    (lifetime / 3 * 2).clamp(REFRESH_WAIT_MIN, REFRESH_WAIT_MAX)
}

/// How long to wait after this many failures in a row, 1 and more.
pub fn retry_in(failures: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(failures.saturating_sub(1).min(16));
    RETRY_WAIT.saturating_mul(doubled).min(RETRY_WAIT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_token_is_there_well_before_the_last_one_expires() {
        for (lifetime, expected) in [(0, 1), (1, 1), (3, 2), (300, 200), (3_600, 2_400), (10_000_000, 86_400)]
        {
            assert_eq!(
                refresh_in(Duration::from_secs(lifetime)),
                Duration::from_secs(expected),
                "{lifetime}"
            );
        }
        // Tries after a failure fit into the last third of a token of five minutes: 1 + 2 + 4 + 8 + 16 + 30 s.
        let tries: Duration = (1..=6).map(retry_in).sum();
        assert!(tries < Duration::from_secs(100), "{tries:?}");
    }

    #[test]
    fn failures_in_a_row_are_tried_again_ever_later_and_never_later_than_the_bound() {
        let seconds: Vec<u64> = (0..=8).map(|failures| retry_in(failures).as_secs()).collect();
        assert_eq!(seconds, [1, 1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(retry_in(u32::MAX), RETRY_WAIT_MAX);
    }
}
