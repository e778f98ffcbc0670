//! The wait until the merges of a case are quiet.
//!
//! Job: find the moment at which the bill ends. Place in the flow: after the inserts, before the logs are read. The server looks for merges
//! in the background, at longer and longer intervals from 10 s on, and a larger age of parts allows more of them; so merges never end for
//! certain. They count as quiet when none has run or begun for a given time. Limits: the wait has a longest time.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::account::DATABASE;
use super::servers::{CaseServer, Reading};
use crate::schema_bench::Table;
use e2e_stack::process::interrupt;
use e2e_stack::say;

/// Time between two looks at the merges. Each look is a query, which costs the server about 2 ms; no figure of the bill has that.
const LOOK: Duration = Duration::from_secs(1);

/// Marks the looks in the server's log.
pub const LOOK_COMMENT: &str = "bill-look";

/// Time between two progress lines.
const SAID: Duration = Duration::from_mins(1);

#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// What the server had used when the last merge had ended.
    pub reading: Reading,
    /// When that was read, in microseconds since 1970 by the server's clock; 0 if no merge was seen.
    pub read_at_us: u64,
    pub is_quiet: bool,
}

/// Waits until no merge has run for the time `quiet`, for at most the time `most`.
pub async fn until_quiet(
    case: &str,
    (table, server): (&Table, &CaseServer),
    (quiet, most): (Duration, Duration),
) -> Result<Ended> {
    // Makes the log, if no merge was logged yet.
    server.client.execute("SYSTEM FLUSH LOGS part_log").await?;
    let query = merges_query();
    let start = Instant::now();
    let (mut seen, mut reading, mut read_at_us) = (Seen::default(), server.reading()?, 0);
    let mut told = Instant::now();
    loop {
        interrupt::check()?;
        let [running, begun, now_us] = table.numbers(&query).await?;
        if seen.look(start.elapsed(), running, begun) {
            (reading, read_at_us) = (server.reading()?, now_us);
        }
        let is_quiet = seen.quiet_for(start.elapsed()) >= quiet;
        if is_quiet || start.elapsed() >= most {
            return Ok(Ended { reading, read_at_us, is_quiet });
        }
        if told.elapsed() >= SAID {
            told = Instant::now();
            say::progress(case, &format!("{running} merges run, {begun} have begun"));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Merges of the case's tables that run, all that have begun, and the server's time in microseconds.
fn merges_query() -> String {
    format!(
        "SELECT (SELECT count() FROM system.merges WHERE database = '{DATABASE}'), \
         (SELECT count() FROM system.part_log WHERE event_type = 'MergePartsStart' AND database = '{DATABASE}'), \
         toUnixTimestamp64Micro(now64(6)) SETTINGS log_comment = '{LOOK_COMMENT}'"
    )
}

/// What the looks have seen.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    begun: u64,
    /// Whether one ran at the last look.
    is_running: bool,
    /// When a merge ran or had begun, since the wait began.
    active: Duration,
}

impl Seen {
    /// Notes a look; returns whether a merge has run since the look before, also if it has ended by now.
    fn look(&mut self, now: Duration, running: u64, begun: u64) -> bool {
        let is_active = running > 0 || begun > self.begun;
        let has_run = is_active || self.is_running;
        (self.begun, self.is_running) = (begun, running > 0);
        if is_active {
            self.active = now;
        }
        has_run
    }

    fn quiet_for(&self, now: Duration) -> Duration {
        now.saturating_sub(self.active)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_are_quiet_since_the_last_one_ran_or_began() {
        let seconds = Duration::from_secs;
        let mut seen = Seen::default();
        assert!(seen.look(seconds(0), 1, 7), "it runs");
        assert!(seen.look(seconds(1), 0, 7), "it ran on after the look before");
        assert!(!seen.look(seconds(10), 0, 7));
        assert_eq!(seen.quiet_for(seconds(10)), seconds(10));
        assert!(seen.look(seconds(20), 0, 8), "it began and ended between two looks");
        assert!(!seen.look(seconds(30), 0, 8));
        assert_eq!(seen.quiet_for(seconds(30)), seconds(10));
    }

    #[test]
    fn without_any_merge_it_is_quiet_from_the_beginning() {
        let mut seen = Seen::default();
        assert!(!seen.look(Duration::from_secs(5), 0, 0));
        assert_eq!(seen.quiet_for(Duration::from_secs(5)), Duration::from_secs(5));
    }
}
