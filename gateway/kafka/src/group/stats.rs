//! The consumer's numbers for metrics: the poll thread writes them, a scrape reads them.

use crate::group::{
    membership::Phase,
    open_transactions::OpenTransaction,
    unfetched::{FetchErrors, Unfetched},
    watchdog::Still,
};
use rdkafka::error::KafkaError;
use sluice_gateway_config::UnfetchedCause;
use sluice_login::{Counts, Tokens};
use sluice_ranges::{Log, PartitionId};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// One partition's numbers from librdkafka's last statistics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PartitionStats {
    /// Messages between the committed offset and the end.
    pub lag_messages: Option<i64>,
    /// The offset behind the last message, from librdkafka's fetches or from the leader's answer, whichever is later. Before the first
    /// open transaction: the last stable offset.
    pub end_offset: Option<i64>,
    /// The offset behind the last message, including open transactions; only from librdkafka's fetches.
    pub high_watermark: Option<i64>,
    /// The offset of the oldest message in Kafka; only from librdkafka's fetches.
    pub log_start_offset: Option<i64>,
    /// The offset that was committed last.
    pub committed_offset: Option<i64>,
    /// The next offset: of the worker's queue, or, if that is empty, of the next fetch. Only the second passes offsets that are not
    /// messages (the end of a transaction).
    pub position: Option<i64>,
    /// The offset behind the last fetched message. Messages between it and the position are in the partition's queue, which a pause
    /// discards.
    pub fetched_offset: Option<i64>,
    /// Bytes of messages in its queue, decompressed.
    pub queued_bytes: u64,
    /// Whether Kafka does not know it.
    pub is_unknown: bool,
    /// Whether no broker leads it.
    pub is_leaderless: bool,
}

impl PartitionStats {
    /// Takes librdkafka's numbers. librdkafka reports unknown numbers as negative.
    pub(crate) fn of(partition: &rdkafka::statistics::Partition) -> Self {
        let known = |value: i64| (value >= 0).then_some(value);
        let fetched = known(partition.next_offset).filter(|_| partition.fetchq_cnt == 0);
        Self {
            lag_messages: known(partition.consumer_lag),
            end_offset: known(partition.ls_offset),
            high_watermark: known(partition.hi_offset),
            log_start_offset: known(partition.lo_offset),
            committed_offset: known(partition.committed_offset),
            position: known(partition.app_offset).max(fetched),
            fetched_offset: known(partition.next_offset),
            queued_bytes: partition.fetchq_size,
            is_unknown: partition.unknown,
            is_leaderless: partition.leader < 0,
        }
    }

    /// Adds what is known besides librdkafka's numbers. librdkafka takes the log's bounds from answers to fetches, which may have
    /// stopped, and the committed offset from commits, which may not have started.
    pub(crate) fn completed(self, log: Option<Log>, committed: Option<i64>) -> Self {
        let end_offset = self.end_offset.max(log.map(|log| log.end));
        let committed_offset = self.committed_offset.max(committed);
        let lag =
            end_offset.zip(committed_offset).map(|(end, committed)| end.saturating_sub(committed).max(0));
        Self {
            lag_messages: lag.or(self.lag_messages),
            end_offset,
            log_start_offset: self.log_start_offset.max(log.map(|log| log.start)),
            committed_offset,
            ..self
        }
    }

    /// The start of the first open transaction, and the number of offsets from there on; `None` if none is open.
    pub fn behind_open_transaction(&self) -> Option<(i64, u64)> {
        let (stable, high) = self.end_offset.zip(self.high_watermark)?;
        let messages = u64::try_from(high.saturating_sub(stable)).ok().filter(|messages| *messages > 0)?;
        Some((stable, messages))
    }
}

/// The consumer's numbers. None is updated per message.
#[derive(Debug)]
pub struct ConsumerStats {
    started: Instant,
    last_poll_millis: AtomicU64,
    /// Whether the group has given this member an assignment, even an empty one.
    pub joined: AtomicBool,
    /// Why a connection failed, while no broker can be reached, and since when: the first reason, so that a status with it stays the same.
    unconnected: Mutex<Option<(String, Instant)>>,
    /// Since when the coordinator refuses the user the group.
    group_refused: Mutex<Option<Instant>>,
    fetch_errors: Mutex<FetchErrors>,
    unfetched: Mutex<Option<Unfetched>>,
    pub partitions_owned: AtomicI64,
    /// Assignments and revocations.
    pub rebalances: AtomicU64,
    /// Commits that the coordinator confirmed.
    pub commits: AtomicU64,
    /// Commits that the coordinator refused, or that never reached it.
    pub commit_failures: AtomicU64,
    /// Ranges that settled after their generation was over.
    pub stale_ranges: AtomicU64,
    /// Partitions that started without a plan, so that earlier ranges in flight were unknown.
    pub fresh_starts: AtomicU64,
    /// Partitions that were read up to the horizon of another size rule, and restarted with the rule of this process.
    pub rule_changes: AtomicU64,
    /// Ranges that were cut where an earlier owner may have sent longer ones.
    pub doubtful_ranges: AtomicU64,
    /// Offsets that Kafka deleted before they were read, counted once a commit has passed them.
    pub messages_lost: AtomicU64,
    /// Partitions that this version must not read.
    pub partitions_halted: AtomicU64,
    /// Offsets of ranges that have ended and are not committed.
    pub uncommitted: AtomicU64,
    /// Whether any topic is compacted, as far as the brokers have answered.
    pub is_topic_compacted: AtomicBool,
    phase: AtomicU8,
    partitions: Mutex<BTreeMap<PartitionId, PartitionStats>>,
    seconds_left: Mutex<BTreeMap<PartitionId, f64>>,
    overtaken: Mutex<BTreeMap<PartitionId, u64>>,
    open_transactions: Mutex<BTreeMap<PartitionId, OpenTransaction>>,
    still: Mutex<Vec<Still>>,
    outside_since: Mutex<Option<Instant>>,
    tokens: OnceLock<Arc<Tokens>>,
}

impl Default for ConsumerStats {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            last_poll_millis: AtomicU64::new(0),
            joined: AtomicBool::new(false),
            unconnected: Mutex::default(),
            group_refused: Mutex::default(),
            fetch_errors: Mutex::default(),
            unfetched: Mutex::default(),
            is_topic_compacted: AtomicBool::new(false),
            partitions_owned: AtomicI64::new(0),
            rebalances: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            commit_failures: AtomicU64::new(0),
            stale_ranges: AtomicU64::new(0),
            fresh_starts: AtomicU64::new(0),
            rule_changes: AtomicU64::new(0),
            doubtful_ranges: AtomicU64::new(0),
            messages_lost: AtomicU64::new(0),
            partitions_halted: AtomicU64::new(0),
            uncommitted: AtomicU64::new(0),
            phase: AtomicU8::new(Phase::Away as u8),
            partitions: Mutex::default(),
            seconds_left: Mutex::default(),
            overtaken: Mutex::default(),
            open_transactions: Mutex::default(),
            still: Mutex::default(),
            outside_since: Mutex::default(),
            tokens: OnceLock::new(),
        }
    }
}

impl ConsumerStats {
    /// Time since the poll thread was last active.
    pub fn since_last_poll(&self) -> Duration {
        let last = Duration::from_millis(self.last_poll_millis.load(Ordering::Relaxed));
        self.started.elapsed().saturating_sub(last)
    }

    pub(crate) fn polled(&self) {
        let millis = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_poll_millis.store(millis, Ordering::Relaxed);
    }

    /// Whether this process takes part in the group.
    pub fn phase(&self) -> Phase {
        Phase::of(self.phase.load(Ordering::Acquire))
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
        if phase != Phase::Member {
            *locked(&self.outside_since) = None;
            *locked(&self.group_refused) = None;
        }
    }

    /// Why a connection to a broker failed, while none can be reached, and how long ago that began.
    pub fn unconnected(&self) -> Option<(String, Duration)> {
        let unconnected = locked(&self.unconnected);
        unconnected.as_ref().map(|(reason, since)| (reason.clone(), since.elapsed()))
    }

    /// Keeps the first reason. It is without the time that the try took, which differs each time.
    pub(crate) fn fails_to_connect(&self, reason: &str) {
        let reason = reason.split_once(" (after ").map_or(reason, |(reason, _)| reason);
        locked(&self.unconnected).get_or_insert_with(|| (reason.to_owned(), Instant::now()));
    }

    pub(crate) fn connects(&self) {
        *locked(&self.unconnected) = None;
    }

    /// Records that the coordinator refuses the user the group. Over once this member is in the group.
    pub(crate) fn group_refuses(&self, now: Instant) {
        locked(&self.group_refused).get_or_insert(now);
    }

    /// Takes an error that the queue of a partition gave.
    pub(crate) fn fails_to_fetch(&self, id: &PartitionId, error: &KafkaError) {
        locked(&self.fetch_errors).hear(id, error);
    }

    /// How the last fetches failed. Not to be held for long: workers wait for it.
    pub(crate) fn fetch_errors(&self) -> MutexGuard<'_, FetchErrors> {
        locked(&self.fetch_errors)
    }

    /// Messages that are not fetched, and why; `None` while all are.
    pub fn unfetched(&self) -> Option<Unfetched> {
        let refused = locked(&self.group_refused).map(|since| Unfetched {
            cause: UnfetchedCause::GroupRefused,
            topic: None,
            partitions: 0,
            error: None,
            time: since.elapsed(),
        });
        refused.or_else(|| locked(&self.unfetched).clone())
    }

    /// Publishes what is not fetched.
    pub fn publish_unfetched(&self, unfetched: Option<Unfetched>) {
        *locked(&self.unfetched) = unfetched;
    }

    /// Sets the tokens that this process logs in with.
    pub(crate) fn logs_in_with(&self, tokens: Option<Arc<Tokens>>) {
        if let Some(tokens) = tokens {
            // The first ones stay: a process has one consumer.
            self.tokens.get_or_init(|| tokens);
        }
    }

    /// How many tokens there were; `None` for a login without tokens.
    pub fn token_counts(&self) -> Option<Counts> {
        self.tokens.get().map(|tokens| tokens.counts())
    }

    /// Since when this member is out of the group: its coordinator does not know it yet or no longer. A rebalance passes through that
    /// state too.
    pub fn outside_since(&self) -> Option<Instant> {
        *locked(&self.outside_since)
    }

    /// Publishes librdkafka's view of the group while this process is a member. The coordinator is reachable if `state` is `up`; the
    /// member has its assignment if `join_state` is `steady`.
    pub fn see_group(&self, state: &str, join_state: &str, now: Instant) {
        let mut since = locked(&self.outside_since);
        if state == "up" && join_state == "steady" {
            *since = None;
            *locked(&self.group_refused) = None;
        } else {
            since.get_or_insert(now);
        }
    }

    /// A copy of the partitions' numbers.
    pub fn partitions(&self) -> BTreeMap<PartitionId, PartitionStats> {
        locked(&self.partitions).clone()
    }

    pub(crate) fn replace(&self, partitions: BTreeMap<PartitionId, PartitionStats>) {
        *locked(&self.partitions) = partitions;
    }

    /// Partitions that make no progress, from the watchdog's last check.
    pub fn still(&self) -> Vec<Still> {
        locked(&self.still).clone()
    }

    /// Publishes the watchdog's result.
    pub fn publish_still(&self, still: Vec<Still>) {
        *locked(&self.still) = still;
    }

    /// Seconds until Kafka's retention reaches a partition's position, if that can be estimated.
    pub fn seconds_left(&self) -> BTreeMap<PartitionId, f64> {
        locked(&self.seconds_left).clone()
    }

    /// Publishes the retention estimates.
    pub fn publish_seconds_left(&self, seconds_left: BTreeMap<PartitionId, f64>) {
        *locked(&self.seconds_left) = seconds_left;
    }

    /// Messages that Kafka's retention deleted before they were settled, and that are not [counted as lost](Self::messages_lost) yet;
    /// only partitions that have any.
    pub fn overtaken(&self) -> BTreeMap<PartitionId, u64> {
        locked(&self.overtaken).clone()
    }

    /// Publishes these messages.
    pub fn publish_overtaken(&self, overtaken: BTreeMap<PartitionId, u64>) {
        *locked(&self.overtaken) = overtaken;
    }

    /// Messages that wait behind an open transaction; only partitions that have any.
    pub fn open_transactions(&self) -> BTreeMap<PartitionId, OpenTransaction> {
        locked(&self.open_transactions).clone()
    }

    /// Publishes the open transactions.
    pub fn publish_open_transactions(&self, open: BTreeMap<PartitionId, OpenTransaction>) {
        *locked(&self.open_transactions) = open;
    }
}

/// Plain values are consistent even if a thread panicked while it held the lock.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_out_of_its_group_from_when_it_is_not_steady_until_it_is() {
        let (stats, start) = (ConsumerStats::default(), Instant::now());
        stats.enter(Phase::Member);
        stats.see_group("up", "wait-join", start);
        stats.see_group("query-coord", "init", start + Duration::from_secs(5));
        assert_eq!(stats.outside_since(), Some(start));
        stats.see_group("up", "steady", start + Duration::from_secs(10));
        assert_eq!(stats.outside_since(), None);
        let later = start + Duration::from_secs(15);
        stats.see_group("up", "wait-metadata", later);
        assert_eq!(stats.outside_since(), Some(later));
        stats.enter(Phase::Draining);
        assert_eq!(stats.outside_since(), None, "it is about to leave");
    }

    #[test]
    fn a_group_is_refused_until_this_member_is_in_it() {
        let (stats, start) = (ConsumerStats::default(), Instant::now());
        let cause = || stats.unfetched().map(|unfetched| unfetched.cause);
        stats.enter(Phase::Member);
        stats.group_refuses(start);
        stats.see_group("query-coord", "init", start);
        assert_eq!(cause(), Some(UnfetchedCause::GroupRefused));
        stats.see_group("up", "steady", start);
        assert_eq!(cause(), None);
        stats.group_refuses(start);
        stats.enter(Phase::Leaving);
        assert_eq!(cause(), None, "it is about to leave");
    }

    #[test]
    fn the_first_reason_of_a_failed_connection_stays_until_a_broker_is_reached() {
        let stats = ConsumerStats::default();
        stats.fails_to_connect(
            "a:9092/1: Connect to ipv4#10.0.0.1:9092 failed: Connection refused (after 3ms in state CONNECT)",
        );
        stats.fails_to_connect("b:9092/2: Failed to resolve 'b:9092'");
        let kept = "a:9092/1: Connect to ipv4#10.0.0.1:9092 failed: Connection refused";
        assert_eq!(stats.unconnected().map(|(reason, _)| reason).as_deref(), Some(kept));
        stats.connects();
        assert_eq!(stats.unconnected(), None);
    }

    #[test]
    fn a_partition_that_is_not_fetched_ends_where_its_leader_says() {
        let fetched = PartitionStats {
            lag_messages: Some(0),
            end_offset: Some(10),
            log_start_offset: Some(3),
            committed_offset: Some(10),
            ..PartitionStats::default()
        };
        assert_eq!(fetched.completed(None, None), fetched);
        assert_eq!(fetched.completed(Some(Log { start: 2, end: 9 }), Some(10)), fetched, "that is older");
        let asked = fetched.completed(Some(Log { start: 5, end: 25 }), Some(10));
        assert_eq!((asked.end_offset, asked.log_start_offset), (Some(25), Some(5)));
        assert_eq!(asked.lag_messages, Some(15));
        let never_fetched = PartitionStats::default().completed(Some(Log { start: 0, end: 7 }), Some(4));
        assert_eq!((never_fetched.end_offset, never_fetched.lag_messages), (Some(7), Some(3)));
        let never_committed = PartitionStats::default().completed(Some(Log { start: 0, end: 7 }), None);
        assert_eq!(never_committed.lag_messages, None);
    }

    #[test]
    fn what_lies_behind_the_last_stable_offset_is_no_lag_and_is_known() {
        let numbers = rdkafka::statistics::Partition {
            ls_offset: 5,
            hi_offset: 12,
            committed_offset: 5,
            consumer_lag: 0,
            ..Default::default()
        };
        let fetched = PartitionStats::of(&numbers);
        assert_eq!((fetched.lag_messages, fetched.behind_open_transaction()), (Some(0), Some((5, 7))));
        let ended = fetched.completed(Some(Log { start: 0, end: 20 }), Some(5));
        assert_eq!((ended.lag_messages, ended.behind_open_transaction()), (Some(15), None));
        assert_eq!(PartitionStats::default().behind_open_transaction(), None);
    }

    #[test]
    fn the_position_passes_over_what_is_no_message_once_nothing_is_queued() {
        let of = |app_offset, next_offset, fetchq_cnt| {
            let numbers =
                rdkafka::statistics::Partition { app_offset, next_offset, fetchq_cnt, ..Default::default() };
            PartitionStats::of(&numbers).position
        };
        assert_eq!(of(-1_001, -1_001, 0), None, "nothing was fetched");
        assert_eq!(of(-1_001, 5, 0), Some(5), "an empty partition was asked for its next message");
        assert_eq!(of(10, 11, 0), Some(11), "a marker stands behind the last message");
        assert_eq!(of(10, 500, 490), Some(10), "the worker has not taken what is queued");
        assert_eq!(of(10, 7, 0), Some(10), "what was fetched ahead was given back");
    }
}
