//! Waiting for something outside of us to become true, with a deadline.

use std::time::{Duration, Instant};

use super::interrupt;

/// How often a probe is tried again: a tenth of the second that the quickest part takes to come up.
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// Calls `probe` until it gives a value, at most `patience`; then gives up with what the last try said.
///
/// # Errors
/// When the time is over, or we are asked to stop.
pub fn until<T>(patience: Duration, mut probe: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let end = Instant::now() + patience;
    loop {
        let said = match probe() {
            Ok(value) => return Ok(value),
            Err(said) => said,
        };
        interrupt::check()?;
        if Instant::now() >= end {
            return Err(said.context(format!("not within {} s", patience.as_secs())));
        }
        std::thread::sleep(TRY_AGAIN);
    }
}
