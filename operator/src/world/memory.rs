//! What is remembered of each pipeline between two reconciles: its failures and waits, the samples and the last decision of the autoscaler, what
//! gateways counted while a revision is tried. It is lost with the process, which is harmless: what must outlive the process is in the status.
//!
//! One [`PipelineMemory`] for each pipeline, removed when the pipeline is gone. Each has its own lock, so that the autoscaler's decision about
//! one pipeline delays no other.

use kube::ResourceExt;
use sluice_crds::{ScalingMode, TracePipeline};
use sluice_plan::{
    Moment, RunsAgain, SchemaSeen,
    drain::stopped::StoppedSince,
    observed::UnreadSeen,
    rollout::Counts,
    scale::{Decision, History, LogTotals, Standing, State, Watched},
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// The first delay after a failure in seconds: long enough for a conflict to be over.
const DELAY_MIN_SECONDS: u64 = 1;
/// The longest delay in seconds: a person who repaired something outside waits this long at most.
const DELAY_MAX_SECONDS: u64 = 300;
/// Doublings of the first delay after which the longest is reached.
const DOUBLINGS_MAX: u32 = 9;
/// Seconds until a waiting pipeline is reconciled again; doubled each time.
pub const WAIT_MIN_SECONDS: u64 = 5;
/// The longest such wait in seconds. New topics of an empty cluster are noticed within it, and 50 unreachable clusters occupy only two of ten
/// parallel reconciles, at 2 s each.
const WAIT_MAX_SECONDS: u64 = 60;
/// A status that differs only in its lag is written once in this many seconds; while it differs each time, the wait doubles.
const LAG_SECONDS: u64 = 60;
/// The longest such wait in seconds. A pipeline whose lag comes and goes is written twelve times an hour at most. Chosen.
const LAG_SECONDS_MAX: u64 = 300;
/// If the API server refused to delete claims, the operator asks again once in this many seconds, and after a restart. A user may wait for a
/// right that was granted, but nothing else depends on it. Chosen.
const DELETION_SECONDS: u64 = 3_600;

/// A wanted `PodMonitor` is read once in this many seconds, since it is not watched. Within that time changes by others are reverted, and the
/// object is created once its CRD exists. Chosen.
pub const MONITOR_SECONDS: u64 = 300;

/// Namespace and name of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

impl Key {
    /// The key of a pipeline.
    pub fn of(pipeline: &TracePipeline) -> Self {
        Self { namespace: pipeline.namespace().unwrap_or_default(), name: pipeline.name_any() }
    }
}

/// When a status was last written for its lag alone.
#[derive(Debug)]
struct LagWritten {
    at: Instant,
    /// Seconds until it may be written again.
    wait_seconds: u64,
}

/// What is remembered of one pipeline.
#[derive(Debug, Default)]
pub struct PipelineMemory {
    failures: u32,
    failure: Option<String>,
    lag_written: Option<LagWritten>,
    deletion_asked: Option<Instant>,
    is_offsets_due: bool,
    /// Fields of the status that the API server has dropped, as JSON pointers.
    dropped_fields: Vec<String>,
    monitor: Option<MonitorLooked>,
    waits: u32,
    /// The generation of the spec that `waits` counts for.
    waits_with: Option<i64>,
    /// For the autoscaler.
    pub scaling: ScalingMemory,
    /// While the first gateway runs with a new revision.
    pub canary: Option<CanaryMemory>,
    /// While partitions have no reader.
    pub unread: Option<UnreadMemory>,
    /// Since when gateways with `source.otlp` do not run.
    pub stopped: StoppedSince,
    /// While gateways miss the table.
    pub schema: SchemaMemory,
}

/// Runs of the schema Job because gateways miss the table.
#[derive(Debug, Default)]
pub struct SchemaMemory {
    pub runs: RunsAgain,
    /// The UID of the Job that is deleted for it, empty if there was none, and what was seen then.
    pub outdated: Option<(String, SchemaSeen)>,
}

/// What the autoscaler remembers.
#[derive(Debug, Default)]
pub struct ScalingMemory {
    /// Topics with their numbers of partitions.
    pub topics: Vec<(String, u32)>,
    pub history: History,
    /// With `source.otlp`, what gateways have appended.
    pub logs: LogTotals,
    pub polled_at: Option<Moment>,
    /// When the gateways were asked for the newest sample.
    pub asked_at: Option<Moment>,
    pub polls: u32,
    pub state: Option<State>,
    pub decision: Option<Decision>,
    pub watched: Option<Watched>,
    /// The last that was known of gateways that do not insert what is in their logs.
    pub standing: Option<Standing>,
    /// The mode in which all of this was sampled.
    pub mode: ScalingMode,
}

/// What gateways counted while the first of them runs with a new revision.
#[derive(Debug)]
pub struct CanaryMemory {
    /// When that began.
    pub first: Counts,
    /// At the last look.
    pub last: Counts,
    /// When the gateways were asked for `last`.
    pub at: Moment,
    /// What that look showed; it holds until the next one.
    pub trouble: Option<String>,
}

/// Since when partitions have no reader.
#[derive(Debug, Clone)]
pub struct UnreadMemory {
    /// When gateways were asked last.
    pub at: Moment,
    pub since: Moment,
    pub unread: UnreadSeen,
}

/// When a `PodMonitor` was last read.
#[derive(Debug, Clone)]
struct MonitorLooked {
    /// UID and generation of the pipeline.
    pipeline: (String, i64),
    is_without_kind: bool,
    at: Instant,
}

/// A recorded failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// Delay before the next try; doubled each time.
    pub retry_after: Duration,
    /// Whether it differs from the last failure, and is logged.
    pub is_news: bool,
    /// Consecutive failures, including this one.
    pub count: u32,
}

/// The memory of all pipelines.
#[derive(Debug, Default)]
pub struct Memory {
    pipelines: Mutex<HashMap<Key, Arc<Mutex<PipelineMemory>>>>,
}

impl Memory {
    /// Reads and changes what is remembered of a pipeline, under its lock.
    pub fn with<T>(&self, key: &Key, change: impl FnOnce(&mut PipelineMemory) -> T) -> T {
        let memory = Arc::clone(self.pipelines().entry(key.clone()).or_default());
        let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut memory)
    }

    /// Records a failure.
    pub fn failed(&self, key: &Key, what: &str) -> Failure {
        self.with(key, |memory| {
            let delay_seconds =
                (DELAY_MIN_SECONDS << memory.failures.min(DOUBLINGS_MAX)).min(DELAY_MAX_SECONDS);
            memory.failures = memory.failures.saturating_add(1);
            let is_news = memory.failure.as_deref() != Some(what);
            memory.failure = Some(what.to_owned());
            Failure { retry_after: Duration::from_secs(delay_seconds), is_news, count: memory.failures }
        })
    }

    /// Number of consecutive failures.
    pub fn failures(&self, key: &Key) -> u32 {
        self.with(key, |memory| memory.failures)
    }

    /// Records a success. Returns whether the reconcile before failed.
    pub fn succeeded(&self, key: &Key) -> bool {
        self.with(key, |memory| {
            memory.failures = 0;
            memory.failure.take().is_some()
        })
    }

    /// Seconds until a waiting pipeline of this generation is reconciled again.
    pub fn wait_seconds(&self, key: &Key, generation: Option<i64>) -> u64 {
        self.with(key, |memory| {
            if memory.waits_with != generation {
                (memory.waits, memory.waits_with) = (0, generation);
            }
            let seconds = (WAIT_MIN_SECONDS << memory.waits.min(DOUBLINGS_MAX)).min(WAIT_MAX_SECONDS);
            memory.waits = memory.waits.saturating_add(1);
            seconds
        })
    }

    /// After an event, or when the pipeline no longer waits: the next wait is the shortest.
    pub fn concerned(&self, key: &Key) {
        // An event about a pipeline that is gone must not bring its memory back.
        let memory = self.pipelines().get(key).map(Arc::clone);
        if let Some(memory) = memory {
            memory.lock().unwrap_or_else(PoisonError::into_inner).waits = 0;
        }
    }

    /// Fields of the status that the API server dropped at the last write.
    pub fn dropped_fields(&self, key: &Key) -> Vec<String> {
        self.with(key, |memory| memory.dropped_fields.clone())
    }

    /// Sets [`Self::dropped_fields`].
    pub fn set_dropped_fields(&self, key: &Key, fields: Vec<String>) {
        self.with(key, |memory| memory.dropped_fields = fields);
    }

    /// Whether the lag may be written now. If so, records that it was.
    pub fn may_write_lag(&self, key: &Key, now: Instant) -> bool {
        self.with(key, |memory| {
            let wait_seconds = match &memory.lag_written {
                None => LAG_SECONDS,
                Some(last) => match now.saturating_duration_since(last.at).as_secs() {
                    since if since < last.wait_seconds => return false,
                    // Nothing was to be written for a while.
                    since if since >= 2 * last.wait_seconds => LAG_SECONDS,
                    _ => (2 * last.wait_seconds).min(LAG_SECONDS_MAX),
                },
            };
            memory.lag_written = Some(LagWritten { at: now, wait_seconds });
            true
        })
    }

    /// Records that the lag was not written after all.
    pub fn lag_not_written(&self, key: &Key) {
        self.with(key, |memory| memory.lag_written = None);
    }

    /// Whether to ask now if claims may be deleted. If so, records that it was asked.
    pub fn may_ask_for_deletion(&self, key: &Key, now: Instant) -> bool {
        self.with(key, |memory| is_due(&mut memory.deletion_asked, DELETION_SECONDS, now))
    }

    /// Whether to read the `PodMonitor` of a pipeline of this UID and generation now. One that is not wanted is read only once.
    pub fn is_monitor_due(
        &self,
        key: &Key,
        (pipeline, is_wanted): (&(String, i64), bool),
        now: Instant,
    ) -> bool {
        let is_late =
            |at| is_wanted && now.saturating_duration_since(at) >= Duration::from_secs(MONITOR_SECONDS);
        self.with(key, |memory| {
            memory.monitor.as_ref().is_none_or(|looked| looked.pipeline != *pipeline || is_late(looked.at))
        })
    }

    /// Whether the missing CRD of `PodMonitor` was already reported for this UID and generation.
    pub fn is_monitor_without_kind(&self, key: &Key, pipeline: &(String, i64)) -> bool {
        self.with(key, |memory| {
            memory
                .monitor
                .as_ref()
                .is_some_and(|looked| looked.pipeline == *pipeline && looked.is_without_kind)
        })
    }

    /// Records that the `PodMonitor` was read, and whether it is wanted while its CRD is missing.
    pub fn looked_at_monitor(
        &self,
        key: &Key,
        (pipeline, is_without_kind): ((String, i64), bool),
        at: Instant,
    ) {
        self.with(key, |memory| memory.monitor = Some(MonitorLooked { pipeline, is_without_kind, at }));
    }

    /// Whether a resumed pipeline still has to learn if Kafka kept the group's committed offsets.
    pub fn is_offsets_due(&self, key: &Key) -> bool {
        self.with(key, |memory| memory.is_offsets_due)
    }

    /// Sets [`Self::is_offsets_due`].
    pub fn set_offsets_due(&self, key: &Key, is_due: bool) {
        self.with(key, |memory| memory.is_offsets_due = is_due);
    }

    /// Removes the memory of a pipeline that is gone. Returns whether there was any.
    pub fn forget(&self, key: &Key) -> bool {
        self.pipelines().remove(key).is_some()
    }

    /// Number of pipelines with a memory: those that were reconciled and still exist.
    pub fn len(&self) -> usize {
        self.pipelines().len()
    }

    /// Whether no pipeline has a memory.
    pub fn is_empty(&self) -> bool {
        self.pipelines().is_empty()
    }

    fn pipelines(&self) -> MutexGuard<'_, HashMap<Key, Arc<Mutex<PipelineMemory>>>> {
        self.pipelines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether this many seconds have passed since `last`. If so, sets `last` to now.
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
    fn a_lag_is_written_once_a_minute_and_less_often_while_it_never_rests() {
        let memory = Memory::default();
        let begin = Instant::now();
        let may = |seconds| memory.may_write_lag(&key("a"), begin + Duration::from_secs(seconds));
        assert_eq!([0, 30, 59, 60].map(may), [true, false, false, true]);
        let waits = [61, 179, 180, 419, 420, 719, 720].map(may);
        assert_eq!(waits, [false, false, true, false, true, false, true], "2, 4, 5 and 5 minutes");
        assert_eq!([1_320, 1_379, 1_380].map(may), [true, false, true], "it rested for ten minutes");
        // One that is always different, looked at every 15 seconds for a day.
        let day =
            (0..5_760).filter(|look| memory.may_write_lag(&key("b"), begin + Duration::from_secs(look * 15)));
        assert!((286..=292).contains(&day.count()));
        // A write that failed is due again at once.
        assert!(memory.may_write_lag(&key("c"), begin) && !memory.may_write_lag(&key("c"), begin));
        memory.lag_not_written(&key("c"));
        assert!(memory.may_write_lag(&key("c"), begin));
    }

    #[test]
    fn a_pipeline_that_is_gone_is_forgotten() {
        let memory = Memory::default();
        memory.failed(&key("a"), "x");
        assert!(memory.forget(&key("a")));
        assert!(memory.is_empty() && !memory.forget(&key("a")));
    }
}
