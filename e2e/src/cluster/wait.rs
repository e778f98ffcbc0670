//! Waiting for a condition, with a deadline and with words when it passes.
//!
//! Job: the one way in which tests wait. Place in the flow: under every fixture. Limits: looks every [`POLL`]; an error
//! while looking is only the last thing seen, since servers go away in these tests on purpose.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::Instant;

/// Time between two looks: short beside what is waited for (seconds), and a handful of requests a second at most.
const POLL: Duration = Duration::from_millis(250);

/// What a look saw.
#[derive(Debug)]
pub enum Seen<T> {
    /// What was waited for.
    Done(T),
    /// Something else, in words that help when it stays so.
    NotYet(String),
}

/// Looks until it sees what is waited for; fails after `deadline` with `what` and the last thing seen.
pub async fn until<T>(
    what: &str,
    deadline: Duration,
    mut look: impl AsyncFnMut() -> Result<Seen<T>>,
) -> Result<T> {
    let started = Instant::now();
    loop {
        let last = match look().await {
            Ok(Seen::Done(value)) => return Ok(value),
            Ok(Seen::NotYet(seen)) => seen,
            Err(error) => format!("{error:#}"),
        };
        if started.elapsed() >= deadline {
            bail!("{what}: not within {deadline:?}; last seen: {last}");
        }
        tokio::time::sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[tokio::test]
    async fn a_passed_deadline_says_what_was_seen_last() {
        let mut looks = 0;
        let waited = until("the third look", Duration::ZERO, async || {
            looks += 1;
            Ok(Seen::<()>::NotYet(format!("look {looks}")))
        });
        assert_eq!(
            waited.await.unwrap_err().to_string(),
            "the third look: not within 0ns; last seen: look 1"
        );
    }

    #[tokio::test]
    async fn errors_are_waited_through() {
        let mut looks = 0;
        let waited = until("an answer", Duration::from_secs(5), async || {
            looks += 1;
            if looks < 2 { Err(anyhow!("away")) } else { Ok(Seen::Done(looks)) }
        });
        assert_eq!(waited.await.unwrap(), 2);
    }
}
