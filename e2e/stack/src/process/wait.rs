//! Waits for an external state, with a deadline.

use std::time::{Duration, Instant};

use super::interrupt;

/// How often a probe is tried again: a tenth of the second that the quickest part takes to come up.
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// Calls `probe` until it gives a value, at most `patience`; then gives up with what the last try said.
pub fn until<T>(patience: Duration, probe: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    while_allowed(patience, interrupt::check, probe)
}

/// As [`until`], for as long as `allowed` has no error: what has to be done on the way out goes on when we are asked to stop.
///
/// # Errors
/// When the time is over, or that of `allowed`.
pub fn while_allowed<T>(
    patience: Duration,
    allowed: impl Fn() -> anyhow::Result<()>,
    mut probe: impl FnMut() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let end = Instant::now() + patience;
    loop {
        let said = match probe() {
            Ok(value) => return Ok(value),
            Err(said) => said,
        };
        allowed()?;
        if Instant::now() >= end {
            return Err(said.context(format!("not within {} s", patience.as_secs())));
        }
        std::thread::sleep(TRY_AGAIN);
    }
}
