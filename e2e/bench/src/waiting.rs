//! The wait of a measured run until its work is done.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use e2e_fixtures::produce::Topic;
use e2e_stack::process::interrupt;

/// Time between two checks: short beside the seconds of a run. Each check of a lag costs the broker a connection.
pub const LOOK: Duration = Duration::from_millis(250);

/// A run in which nothing moves for this long has failed. Chosen: longer than a rebalance (45 s), than any batch is held back, and than the
/// pause of a gateway between two tries while ClickHouse is away.
pub const STALL: Duration = Duration::from_mins(2);

/// Waits until a group has committed the end of every partition. `check` fails if the program that reads has ended.
pub async fn until_committed(
    topic: &Topic,
    group: &str,
    stall: Duration,
    mut check: impl FnMut() -> Result<()>,
) -> Result<()> {
    let left = async || {
        check()?;
        anyhow::Ok(topic.lag(group).await?.messages.unsigned_abs())
    };
    let stalled = |left: u64| format!("{left} messages behind, and it did not move for {stall:?}");
    until_none_is_left(stall, left, stalled).await
}

/// Waits until `left` returns 0. Fails with the words of `stalled` if that did not decrease for the time `stall`.
pub async fn until_none_is_left(
    stall: Duration,
    mut left: impl AsyncFnMut() -> Result<u64>,
    stalled: impl Fn(u64) -> String,
) -> Result<()> {
    let (mut least, mut moved) = (u64::MAX, Instant::now());
    loop {
        interrupt::check()?;
        let now = left().await?;
        if now == 0 {
            return Ok(());
        }
        if now < least {
            (least, moved) = (now, Instant::now());
        }
        ensure!(moved.elapsed() < stall, "{}", stalled(now));
        tokio::time::sleep(LOOK).await;
    }
}
