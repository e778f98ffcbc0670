//! Waits for an external state, with a deadline.

use std::time::{Duration, Instant};

use super::interrupt;

/// Time between two calls of a probe: a tenth of the second that the fastest part takes to start.
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// Calls `probe` until it returns a value, for at most `patience`; then fails with the error of the last call.
pub fn until<T>(patience: Duration, probe: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    while_allowed(patience, interrupt::check, probe)
}

/// As [`until`], but ends early only if `allowed` returns an error. Cleaning up uses it, because that goes on after an interrupt.
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
