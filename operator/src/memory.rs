//! What is remembered about each pipeline from one reconcile to the next: its failures, and when its lag was written.
//! Nothing in here is needed to go on after a restart.
//!
//! One small entry per pipeline, forgotten when the pipeline is gone.

use kube::ResourceExt;
use sluice_crds::TracePipeline;
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
/// What a pipeline waits for is looked for again after this many seconds, then after twice as long each time.
pub const WAIT_MIN_SECONDS: u64 = 5;
/// The longest such wait in seconds: an empty cluster that is about to be filled is seen within it, and fifty that are away take up
/// two reconciles of ten at a time, at two seconds each.
const WAIT_MAX_SECONDS: u64 = 60;
/// A status that differs in its lag alone is written once in this many seconds.
const LAG_SECONDS: u64 = 60;
/// Whether claims may be deleted that the API server did not let be deleted is asked once in this many seconds, and by an operator that
/// starts: a right that is granted is one that somebody waits for, and nothing depends on it. Chosen.
const DELETION_SECONDS: u64 = 3_600;

/// A `PodMonitor` that is wanted is looked at once in this many seconds, as it is not watched: what somebody else changed of it is taken
/// back within that time, and so long after its kind has appeared it is made. Chosen.
pub const MONITOR_SECONDS: u64 = 300;

/// Namespace and name of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Key {
    /// The key of a pipeline.
    pub fn of(pipeline: &TracePipeline) -> Self {
        Self { namespace: pipeline.namespace().unwrap_or_default(), name: pipeline.name_any() }
    }
}

#[derive(Debug, Default)]
struct Remembered {
    failures: u32,
    failure: Option<String>,
    lag_written: Option<Instant>,
    deletion_asked: Option<Instant>,
    is_offsets_due: bool,
    monitor: Option<MonitorLooked>,
    waits: u32,
    /// The generation that it waits with.
    waits_with: Option<i64>,
}

/// When a `PodMonitor` was looked at last.
#[derive(Debug, Clone)]
struct MonitorLooked {
    /// UID and generation of the pipeline.
    pipeline: (String, i64),
    is_without_kind: bool,
    at: Instant,
}

/// A failure, and what to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// When to try again: twice as long each time.
    pub retry_after: Duration,
    /// Whether it is another failure than the last one, and so worth a line.
    pub is_news: bool,
    /// How many there are in a row, with this one.
    pub count: u32,
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
        Failure { retry_after: Duration::from_secs(delay_seconds), is_news, count: remembered.failures }
    }

    /// How many failures there were in a row.
    pub fn failures(&self, key: &Key) -> u32 {
        self.pipelines().get(key).map_or(0, |remembered| remembered.failures)
    }

    /// Remembers a success; `true` when it ends a failure.
    pub fn succeeded(&self, key: &Key) -> bool {
        let mut pipelines = self.pipelines();
        let remembered = pipelines.entry(key.clone()).or_default();
        remembered.failures = 0;
        remembered.failure.take().is_some()
    }

    /// How many seconds a pipeline of this generation waits before what it waits for is looked for again.
    pub fn wait_seconds(&self, key: &Key, generation: Option<i64>) -> u64 {
        let mut pipelines = self.pipelines();
        let remembered = pipelines.entry(key.clone()).or_default();
        if remembered.waits_with != generation {
            (remembered.waits, remembered.waits_with) = (0, generation);
        }
        let seconds = (WAIT_MIN_SECONDS << remembered.waits.min(DOUBLINGS_MAX)).min(WAIT_MAX_SECONDS);
        remembered.waits = remembered.waits.saturating_add(1);
        seconds
    }

    /// Something happened, or it waits no more: the next wait is a short one.
    pub fn concerned(&self, key: &Key) {
        if let Some(remembered) = self.pipelines().get_mut(key) {
            remembered.waits = 0;
        }
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

    /// Whether the `PodMonitor` of a pipeline of this UID and generation is to be looked at; one that is not wanted only once.
    pub fn is_monitor_due(
        &self,
        key: &Key,
        (pipeline, is_wanted): (&(String, i64), bool),
        now: Instant,
    ) -> bool {
        let pipelines = self.pipelines();
        let looked = pipelines.get(key).and_then(|remembered| remembered.monitor.as_ref());
        let is_late =
            |at| is_wanted && now.saturating_duration_since(at) >= Duration::from_secs(MONITOR_SECONDS);
        looked.is_none_or(|looked| looked.pipeline != *pipeline || is_late(looked.at))
    }

    /// Whether it was said of this UID and generation that the cluster does not know the kind.
    pub fn is_monitor_without_kind(&self, key: &Key, pipeline: &(String, i64)) -> bool {
        let pipelines = self.pipelines();
        let looked = pipelines.get(key).and_then(|remembered| remembered.monitor.as_ref());
        looked.is_some_and(|looked| looked.pipeline == *pipeline && looked.is_without_kind)
    }

    /// Remembers that it was looked at, and whether it is wanted of a cluster that does not know the kind.
    pub fn looked_at_monitor(
        &self,
        key: &Key,
        (pipeline, is_without_kind): ((String, i64), bool),
        at: Instant,
    ) {
        let looked = MonitorLooked { pipeline, is_without_kind, at };
        self.pipelines().entry(key.clone()).or_default().monitor = Some(looked);
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
    fn waits_double_up_to_a_minute_and_are_short_again_after_an_event_or_an_edit() {
        let memory = Memory::default();
        let wait = |generation| memory.wait_seconds(&key("a"), Some(generation));
        assert_eq!((0..7).map(|_| wait(1)).collect::<Vec<_>>(), [5, 10, 20, 40, 60, 60, 60]);
        assert_eq!([wait(2), wait(2)], [5, 10], "an edit");
        memory.concerned(&key("a"));
        assert_eq!([wait(2), wait(2)], [5, 10], "an event");
    }

    #[test]
    fn a_pod_monitor_is_looked_at_once_for_a_spec_and_now_and_then_where_it_is_wanted() {
        let memory = Memory::default();
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        let of = |generation| ("uid".to_owned(), generation);
        let is_due =
            |generation, is_wanted, now| memory.is_monitor_due(&key("a"), (&of(generation), is_wanted), now);
        assert!(is_due(1, false, begun));
        memory.looked_at_monitor(&key("a"), (of(1), true), begun);
        assert!(!is_due(1, false, after(100 * MONITOR_SECONDS)));
        assert!(!is_due(1, true, after(MONITOR_SECONDS - 1)));
        assert!(is_due(1, true, after(MONITOR_SECONDS)));
        assert!(is_due(2, false, begun), "another spec");
        assert!(
            memory.is_monitor_due(&key("a"), (&("other".to_owned(), 1), false), begun),
            "another pipeline"
        );
        assert!(memory.is_monitor_without_kind(&key("a"), &of(1)));
        assert!(!memory.is_monitor_without_kind(&key("a"), &of(2)), "it is said of each spec");
    }

    /// Ten reconciles at a time, two seconds for each look at a cluster that is away: after two minutes a healthy pipeline that is
    /// edited in any second finds a free place.
    #[test]
    fn forty_clusters_that_are_away_leave_room_for_a_pipeline_that_is_well() {
        const PLACES: usize = 10;
        const LOOK_SECONDS: u64 = 2;
        let memory = Memory::default();
        let mut due: Vec<(u64, usize)> = (0..40).map(|at| (0, at)).collect();
        let mut busy_until = [0_u64; PLACES];
        for second in 0..600 {
            for place in busy_until.iter_mut().filter(|until| **until <= second) {
                due.sort_unstable();
                let Some((_, pipeline)) = due.first().copied().filter(|(at, _)| *at <= second) else { break };
                *place = second + LOOK_SECONDS;
                let wait = memory.wait_seconds(&key(&pipeline.to_string()), Some(1));
                due[0].0 = *place + wait;
            }
            let is_free = busy_until.iter().any(|until| *until <= second);
            let waits = due.iter().filter(|(at, _)| *at <= second).count();
            assert!(second < 120 || is_free || waits < PLACES, "second {second}: {waits} wait for a place");
        }
        let looks = 40 * LOOK_SECONDS;
        let share = |every: u64| looks / (every + LOOK_SECONDS);
        assert!(share(WAIT_MAX_SECONDS) < 2 && share(WAIT_MIN_SECONDS) > PLACES as u64, "the reason for it");
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
