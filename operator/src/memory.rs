//! What is remembered about each pipeline from one reconcile to the next: its failures, and when its lag was written.
//! Nothing in here is needed to go on after a restart.
//!
//! One small entry per pipeline, forgotten when the pipeline is gone.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// The first delay after a failure in seconds: long enough for a conflict to be over.
const DELAY_MIN_SECONDS: u64 = 1;
/// The longest delay in seconds: what a person who mended something outside would wait for.
const DELAY_MAX_SECONDS: u64 = 300;
/// Doublings of the first delay after which the longest is reached.
const DOUBLINGS_MAX: u32 = 9;
/// A status that differs in its lag alone is written once in this many seconds.
const LAG_SECONDS: u64 = 60;
/// Whether claims may be deleted that the API server did not let be deleted is asked once in this many seconds, and by an operator that
/// starts: a right that is granted is one that somebody waits for, and nothing depends on it. Chosen.
const DELETION_SECONDS: u64 = 3_600;

/// Namespace and name of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

#[derive(Debug, Default)]
struct Remembered {
    failures: u32,
    failure: Option<String>,
    lag_written: Option<Instant>,
    deletion_asked: Option<Instant>,
    is_offsets_due: bool,
}

/// A failure, and what to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// When to try again: twice as long each time.
    pub retry_after: Duration,
    /// Whether it is another failure than the last one, and so worth a line.
    pub is_news: bool,
}

/// All pipelines.
#[derive(Debug, Default)]
pub struct Memory {
    pipelines: Mutex<HashMap<Key, Remembered>>,
}

impl Memory {
    /// Remembers a failure.
    pub fn failed(&self, key: &Key, what: &str) -> Failure {
        let mut pipelines = self.pipelines();
        let remembered = pipelines.entry(key.clone()).or_default();
        let delay_seconds =
            (DELAY_MIN_SECONDS << remembered.failures.min(DOUBLINGS_MAX)).min(DELAY_MAX_SECONDS);
        remembered.failures = remembered.failures.saturating_add(1);
        let is_news = remembered.failure.as_deref() != Some(what);
        remembered.failure = Some(what.to_owned());
        Failure { retry_after: Duration::from_secs(delay_seconds), is_news }
    }

    /// Remembers a success; `true` when it ends a failure.
    pub fn succeeded(&self, key: &Key) -> bool {
        let mut pipelines = self.pipelines();
        let remembered = pipelines.entry(key.clone()).or_default();
        remembered.failures = 0;
        remembered.failure.take().is_some()
    }

    /// Whether a lag may be written now; from then on it was.
    pub fn may_write_lag(&self, key: &Key, now: Instant) -> bool {
        let mut pipelines = self.pipelines();
        let remembered = pipelines.entry(key.clone()).or_default();
        is_due(&mut remembered.lag_written, LAG_SECONDS, now)
    }

    /// Whether it may be asked now if claims may be deleted; from then on it was.
    pub fn may_ask_for_deletion(&self, key: &Key, now: Instant) -> bool {
        let mut pipelines = self.pipelines();
        let remembered = pipelines.entry(key.clone()).or_default();
        is_due(&mut remembered.deletion_asked, DELETION_SECONDS, now)
    }

    /// Whether a pipeline that came back from a rest waits for Kafka to say whether it still has the group's offsets.
    pub fn is_offsets_due(&self, key: &Key) -> bool {
        self.pipelines().get(key).is_some_and(|remembered| remembered.is_offsets_due)
    }

    /// Remembers whether it does.
    pub fn set_offsets_due(&self, key: &Key, is_due: bool) {
        self.pipelines().entry(key.clone()).or_default().is_offsets_due = is_due;
    }

    /// Forgets a pipeline that is gone; `false` when it was not known.
    pub fn forget(&self, key: &Key) -> bool {
        self.pipelines().remove(key).is_some()
    }

    /// Pipelines that are remembered: all that were reconciled and are still there.
    pub fn len(&self) -> usize {
        self.pipelines().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.pipelines().is_empty()
    }

    fn pipelines(&self) -> MutexGuard<'_, HashMap<Key, Remembered>> {
        self.pipelines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether so many seconds have passed since the last time; then this is the last time.
fn is_due(last: &mut Option<Instant>, seconds: u64, now: Instant) -> bool {
    let wait = Duration::from_secs(seconds);
    let is_due = last.is_none_or(|last| now.saturating_duration_since(last) >= wait);
    if is_due {
        *last = Some(now);
    }
    is_due
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key { namespace: "tracing".to_owned(), name: name.to_owned() }
    }

    #[test]
    fn delays_double_up_to_five_minutes_and_begin_again_after_a_success() {
        let memory = Memory::default();
        let delay = |name| memory.failed(&key(name), "x").retry_after.as_secs();
        let delays: Vec<u64> = (0..12).map(|_| delay("a")).collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        assert_eq!(delay("b"), 1);
        assert!(memory.succeeded(&key("a")));
        assert!(!memory.succeeded(&key("a")));
        assert_eq!(memory.failed(&key("a"), "x").retry_after.as_secs(), 1);
    }

    #[test]
    fn the_same_failure_again_is_no_news() {
        let memory = Memory::default();
        let news = ["x", "x", "y", "x"].map(|what| memory.failed(&key("a"), what).is_news);
        assert_eq!(news, [true, false, true, true]);
    }

    #[test]
    fn a_lag_is_written_once_a_minute() {
        let memory = Memory::default();
        let begin = Instant::now();
        let may = |seconds| memory.may_write_lag(&key("a"), begin + Duration::from_secs(seconds));
        assert_eq!([0, 30, 59, 60, 61, 120].map(may), [true, false, false, true, false, true]);
    }

    #[test]
    fn a_pipeline_that_is_gone_is_forgotten() {
        let memory = Memory::default();
        memory.failed(&key("a"), "x");
        assert!(memory.forget(&key("a")));
        assert!(memory.is_empty() && !memory.forget(&key("a")));
    }
}
