//! How long to wait before the next try. Pure: the random part is an argument.

use std::time::Duration;

/// The first wait.
pub const WAIT_MIN: Duration = Duration::from_millis(200);

/// The longest wait: the longest time until a recovered server is noticed.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The first wait when someone must act; longer, because nothing changes until then.
const HALT_WAIT_MIN: Duration = Duration::from_secs(2);

/// How urgent the next try is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Soon.
    Quick,
    /// Not until someone may have acted.
    Slow,
}

/// The wait before try number `tries + 1`. Its upper bound doubles with each try, from the least to the most. `random` (0 to 1) chooses a
/// value between half the bound and the bound, so that gateways that failed together do not return together.
pub fn wait(pace: Pace, tries: u32, random: f64) -> Duration {
    let least = match pace {
        Pace::Quick => WAIT_MIN,
        Pace::Slow => HALT_WAIT_MIN,
    };
    let doubled = least.saturating_mul(2u32.saturating_pow(tries.saturating_sub(1).min(16)));
    doubled.min(WAIT_MAX).mul_f64(0.5 + 0.5 * random.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_a_limit() {
        let waits: Vec<u128> = (1..=7).map(|tries| wait(Pace::Quick, tries, 1.0).as_millis()).collect();
        assert_eq!(waits, [200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(wait(Pace::Slow, 1, 1.0), Duration::from_secs(2));
        assert_eq!(wait(Pace::Quick, u32::MAX, 1.0), WAIT_MAX);
    }

    #[test]
    fn the_random_part_is_half_of_it() {
        assert_eq!(wait(Pace::Quick, 1, 0.0), Duration::from_millis(100));
    }
}
