//! The state of the gateway as the admin server reports it.

use crate::{
    admin::server::Health,
    blocks::{batch::BlockAge, buffers::Pool},
    ground::{account::RowAccount, metrics::Metrics},
    source::{keeper::Keeper, numbers::SourceNumbers, opening::TOPIC, unreadable::UNREADABLE},
    volume::spool::Spool,
};
use prometheus::IntCounter;
use sluice_gateway_config::{GatewayState, Readiness, Remaining};
use sluice_kafka::{ConsumerStats, Drain, LogKeeper as _, Phase, watchdog::Still};
use sluice_spool::{Space, Volume};
use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// A poll thread that has not polled for this long is stuck. It polls 100 times a second; its longest allowed wait, for a revoked partition,
/// is a sixth of this.
const POLL_SILENCE_MAX: Duration = Duration::from_mins(1);

/// A member that has been out of its group for this long does not return soon: its coordinator is away, or the user may not read the group
/// any more. Chosen: 12 times as long as a member may take to give up its partitions in a rebalance, which all members wait for.
const OUTSIDE_MAX: Duration = Duration::from_mins(2);

/// Partitions that an answer names; the others are counted, in one reason more. The operator writes the same text into the pipeline's status.
const STUCK_NAMED_MAX: usize = 8;

/// Why rows cannot be written yet.
pub(super) struct TableMisfit {
    /// In words.
    pub(super) why: String,
    /// As a reason of the condition `SchemaReady`; `None` before the first look, and for a cause that has no such reason.
    pub(super) reason: Option<&'static str>,
}

/// The state of the gateway that others may read.
pub struct Status {
    pub(super) metrics: Arc<Metrics>,
    pub(super) pool: Arc<Pool>,
    volume: Option<Volume>,
    /// Whether an earlier run may have left blocks on the volume. Determined at the start, because nothing is written before the queue is
    /// opened.
    pub(super) may_hold_blocks: bool,
    pub(super) account: RowAccount,
    /// Why rows cannot be written yet; `None` once they can.
    table_misfit: Mutex<Option<TableMisfit>>,
    /// How often the table was looked at in vain.
    pub(super) table_failures: AtomicU64,
    pub(super) consumer: OnceLock<Arc<ConsumerStats>>,
    drain: Drain,
    pub(super) spool: OnceLock<Spool>,
    age_max: OnceLock<BlockAge>,
    /// What accepts OTLP, with `source.otlp`.
    pub(super) source: OnceLock<(Arc<SourceNumbers>, Arc<Keeper>)>,
}

/// Why partitions make the gateway not ready. The text is the same as long as the cause is, because the operator writes it into the status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stuck(Vec<Still>);

impl Stuck {
    /// Of the partitions that stand still, those that recovery did not help. `None` without any.
    pub fn of(still: Vec<Still>) -> Option<Self> {
        let stuck: Vec<Still> = still.into_iter().filter(|still| still.is_stuck).collect();
        (!stuck.is_empty()).then_some(Self(stuck))
    }

    fn reasons(&self) -> Vec<String> {
        let named = self.0.iter().take(STUCK_NAMED_MAX);
        let named = named.map(|Still { id, reason, .. }| format!("partition {id} stands still: {reason}"));
        let more = self.0.len().saturating_sub(STUCK_NAMED_MAX);
        named.chain((more > 0).then(|| format!("and {more} more"))).collect()
    }
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reasons().join("; "))
    }
}

impl Status {
    /// The state at the start.
    pub fn new(metrics: Arc<Metrics>, pool: Arc<Pool>, volume: Option<Volume>) -> Self {
        let may_hold_blocks = volume.as_ref().is_some_and(|volume| !volume.is_blank().unwrap_or(false));
        let unchecked =
            TableMisfit { why: "the gateway has not checked the table yet".to_owned(), reason: None };
        Self {
            metrics,
            pool,
            volume,
            may_hold_blocks,
            account: RowAccount::default(),
            table_misfit: Mutex::new(Some(unchecked)),
            table_failures: AtomicU64::new(0),
            consumer: OnceLock::new(),
            drain: Drain::default(),
            spool: OnceLock::new(),
            age_max: OnceLock::new(),
            source: OnceLock::new(),
        }
    }

    /// Where workers and delivery account for rows.
    pub fn account(&self) -> RowAccount {
        self.account.clone()
    }

    /// The drain request that `/drain` and `/resume` set.
    pub fn drain_asked(&self) -> Drain {
        self.drain.clone()
    }

    /// Logs a step of the shutdown with what is still held.
    pub fn say(&self, step: &str) {
        let partitions = self.consumer.get().map(|stats| stats.partitions_owned.load(Ordering::Relaxed));
        let Remaining { blocks, bytes, damaged, .. } = self.remaining();
        let (partitions, damaged) = (partitions.unwrap_or(0), damaged == Some(true));
        let uncommitted = self.uncommitted_offsets();
        tracing::info!(blocks, bytes, uncommitted, damaged, partitions, "{step}");
    }

    /// Records what accepts OTLP, and keeps it.
    pub fn accepts(&self, numbers: Arc<SourceNumbers>, keeper: Arc<Keeper>) {
        assert!(self.source.set((numbers, keeper)).is_ok(), "there is one source");
    }

    /// Offsets that are not committed. [`Remaining::uncommitted`] also counts a member of the group, which holds nothing, as 1.
    fn uncommitted_offsets(&self) -> u64 {
        if let Some((_, keeper)) = self.source.get() {
            // Also before the logs are read.
            return keeper.messages_left();
        }
        self.consumer.get().map_or(0, |stats| stats.uncommitted.load(Ordering::Relaxed))
    }

    /// Records that the table fits.
    pub fn table_fits(&self) {
        *self.table_misfit() = None;
    }

    /// Records that the table is missing, does not fit, or could not be read. `reason` is that of the condition `SchemaReady`, if there is one.
    pub fn waits_for_table(&self, why: &str, reason: Option<&'static str>) {
        self.table_failures.fetch_add(1, Ordering::Relaxed);
        *self.table_misfit() = Some(TableMisfit { why: format!("waits for the table: {why}"), reason });
    }

    /// Why it takes no part in the group; empty while it does.
    fn not_ready_reasons(&self) -> Vec<String> {
        if self.drain.is_requested() {
            return vec!["it was drained and reads nothing until POST /resume".to_owned()];
        }
        if let Some((numbers, _)) = self.source.get() {
            // Whatever ClickHouse does, requests are kept: clients get an answer, and not none.
            let is_ending = numbers.is_ending.load(Ordering::Relaxed);
            let is_closed = !numbers.is_accepting.load(Ordering::Relaxed);
            let why = is_ending.then_some("the gateway is ending");
            let why = why.or(is_closed.then_some("the ports of OTLP are not open yet"));
            return why.map(str::to_owned).into_iter().collect();
        }
        if let Some(misfit) = &*self.table_misfit() {
            return vec![misfit.why.clone()];
        }
        let Some(stats) = self.consumer.get().filter(|stats| stats.joined.load(Ordering::Acquire)) else {
            let unconnected = self.consumer.get().and_then(|stats| stats.unconnected());
            let why = unconnected.map_or_else(String::new, |(why, _)| {
                format!(
                    ": {why}; check that pods can reach this address, which may be one that a broker announces (advertised.listeners)"
                )
            });
            return vec![format!("the consumer group has not assigned partitions yet{why}")];
        };
        if stats.outside_since().is_some_and(|since| since.elapsed() > OUTSIDE_MAX) {
            let seconds = OUTSIDE_MAX.as_secs();
            return vec![format!(
                "out of the consumer group for more than {seconds} s: nothing is read; check that the group's coordinator can be \
                 reached and that the user has READ on the group"
            )];
        }
        Stuck::of(stats.still()).as_ref().map_or_else(Vec::new, Stuck::reasons)
    }

    pub(super) fn table_misfit(&self) -> MutexGuard<'_, Option<TableMisfit>> {
        // Poisoning is harmless: the value is always complete.
        self.table_misfit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the consumer's statistics.
    pub fn consumes(&self, stats: Arc<ConsumerStats>) {
        assert!(self.consumer.set(stats).is_ok(), "there is one consumer");
    }

    /// How large the queue volume is; `None` without one.
    pub fn volume_space(&self) -> Option<Result<Space, sluice_spool::Error>> {
        self.volume.as_ref().map(Volume::space)
    }

    /// Records the opened queue.
    pub fn spools(&self, spool: Spool) {
        assert!(self.spool.set(spool).is_ok(), "there is one queue volume");
    }

    /// Records the age at which blocks close.
    pub fn closes_by(&self, age_max: BlockAge) {
        assert!(self.age_max.set(age_max).is_ok(), "all workers share it");
    }

    /// Blocks on the queue volume, and whether something must stay on it: what is damaged, or with `source.otlp` dead letters and logs that cannot be read. Before the queue is
    /// opened, it is unknown what an earlier run has left. The answer must not be 0 then, because the operator would delete the volume.
    fn on_volume(&self) -> (u64, bool) {
        if let Some((numbers, _)) = self.source.get() {
            // Messages count as not committed.
            let has_letters = numbers.letter_bytes.load(Ordering::Relaxed) > 0;
            return (0, has_letters || numbers.has_damage());
        }
        self.spool.get().map_or((u64::from(self.may_hold_blocks), false), |spool| {
            let usage = spool.usage();
            (usage.blocks, usage.is_damaged)
        })
    }

    fn refresh_spool(&self, spool: &Spool) {
        let metrics = &self.metrics.spool;
        let count = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let (usage, numbers) = (spool.usage(), spool.numbers());
        metrics.bytes.set(count(usage.bytes));
        metrics.bytes_max.set(count(numbers.bytes_max.load(Ordering::Relaxed)));
        metrics.blocks.set(count(usage.blocks));
        metrics.rows.set(count(usage.rows));
        metrics.oldest_seconds.set(usage.oldest_ms.map_or(0.0, seconds_since));
        let moved = [
            (&metrics.appended, &numbers.appended),
            (&metrics.drained, &numbers.drained),
            (&metrics.dropped, &numbers.dropped),
        ];
        for (moved, counted) in moved {
            catch_up(&moved.blocks, counted.blocks());
            catch_up(&moved.bytes, counted.bytes());
        }
        catch_up(&metrics.taken_over, numbers.taken_over.load(Ordering::Relaxed));
        catch_up(&metrics.damaged, numbers.set_aside.load(Ordering::Relaxed));
        catch_up(&metrics.refused, numbers.refused.load(Ordering::Relaxed));
    }

    fn refresh_source(&self, numbers: &SourceNumbers, keeper: &Keeper) {
        let metrics = &self.metrics.requests;
        let count = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        metrics.server.show(&numbers.counters);
        metrics.log_bytes.set(count(numbers.log_bytes.load(Ordering::Relaxed)));
        metrics.log_bytes_max.set(count(numbers.log_bytes_max.load(Ordering::Relaxed)));
        metrics.letter_bytes.set(count(numbers.letter_bytes.load(Ordering::Relaxed)));
        metrics.damaged.set(i64::from(numbers.has_damage()));
        // While the table cannot be used, no consumer reads the logs, and requests wait.
        if self.consumer.get().is_none() {
            self.metrics.partition_still.reset();
            for log in keeper.logs() {
                let partition = log.id.partition.to_string();
                let lag = self.metrics.lag_messages.with_label_values(&[&*log.id.topic, partition.as_str()]);
                lag.set(count(log.waiting()));
            }
        }
        for log in numbers.unreadable.numbers() {
            let log = log.to_string();
            self.metrics.partition_still.with_label_values(&[TOPIC, log.as_str(), UNREADABLE]).set(1);
        }
        let used = count(numbers.permits.used_bytes());
        self.metrics.memory_used_bytes.with_label_values(&["requests"]).set(used);
    }

    fn refresh_consumer(&self, stats: &ConsumerStats) {
        let metrics = &self.metrics;
        let count = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        metrics.partitions_owned.set(stats.partitions_owned.load(Ordering::Relaxed));
        metrics.rebalances.set(count(stats.rebalances.load(Ordering::Relaxed)));
        metrics.stale_ranges.set(count(stats.stale_ranges.load(Ordering::Relaxed)));
        metrics.commits.with_label_values(&["ok"]).set(count(stats.commits.load(Ordering::Relaxed)));
        metrics
            .commits
            .with_label_values(&["failed"])
            .set(count(stats.commit_failures.load(Ordering::Relaxed)));
        if let Some(counts) = stats.token_counts() {
            metrics.tokens.show(counts.granted, counts.failed, counts.expires_ms);
        }
        // A revoked partition must not keep its last lag.
        metrics.lag_messages.reset();
        metrics.committed_offset.reset();
        metrics.position.reset();
        let mut queued = 0;
        for (id, numbers) in stats.partitions() {
            queued += numbers.queued_bytes;
            let partition = id.partition.to_string();
            let labels = [&*id.topic, partition.as_str()];
            if let Some(lag) = numbers.lag_messages {
                metrics.lag_messages.with_label_values(&labels).set(lag);
            }
            if let Some(position) = numbers.position {
                metrics.position.with_label_values(&labels).set(position);
            }
            if let Some(offset) = numbers.committed_offset {
                metrics.committed_offset.with_label_values(&labels).set(offset);
            }
        }
        metrics.memory_used_bytes.with_label_values(&["kafka"]).set(count(queued));
        self.refresh_halts(stats);
    }

    /// Partitions that stand still, and messages that Kafka is about to delete.
    fn refresh_halts(&self, stats: &ConsumerStats) {
        let metrics = &self.metrics;
        metrics.partition_still.reset();
        for Still { id, reason, .. } in stats.still() {
            let partition = id.partition.to_string();
            metrics.partition_still.with_label_values(&[&*id.topic, &partition, reason.label()]).set(1);
        }
        metrics.retention_seconds_left.reset();
        for (id, seconds) in stats.seconds_left() {
            let partition = id.partition.to_string();
            metrics.retention_seconds_left.with_label_values(&[&*id.topic, &partition]).set(seconds);
        }
        metrics.open_transactions.show(&stats.open_transactions());
        metrics.messages_overtaken.reset();
        for (id, messages) in stats.overtaken() {
            let partition = id.partition.to_string();
            metrics
                .messages_overtaken
                .with_label_values(&[&*id.topic, &partition])
                .set(i64::try_from(messages).unwrap_or(i64::MAX));
        }
        catch_up(&metrics.messages_lost, stats.messages_lost.load(Ordering::Relaxed));
        catch_up(&metrics.fresh_starts, stats.fresh_starts.load(Ordering::Relaxed));
        catch_up(&metrics.rule_changes, stats.rule_changes.load(Ordering::Relaxed));
        catch_up(&metrics.doubtful_ranges, stats.doubtful_ranges.load(Ordering::Relaxed));
        let halted = stats.partitions_halted.load(Ordering::Relaxed);
        metrics.partitions_halted.set(i64::try_from(halted).unwrap_or(i64::MAX));
    }
}

/// Raises a counter to a sum that is kept elsewhere. A concurrent scrape may see an old value; the next one is right.
fn catch_up(counter: &IntCounter, sum: u64) {
    counter.inc_by(sum.saturating_sub(counter.get()));
}

/// Seconds since a moment in ms since 1970; 0 for a moment in the future.
fn seconds_since(ms: u64) -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(Duration::from_millis(ms)).as_secs_f64()
}

/// The resident set as the kernel reports it; `None` if it does not.
pub(crate) fn resident_bytes() -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: i64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kib.checked_mul(1_024)
}

impl Health for Status {
    fn live(&self) -> Result<(), String> {
        match self.consumer.get().map(|stats| stats.since_last_poll()) {
            Some(silence) if silence > POLL_SILENCE_MAX => {
                Err(format!("the poll thread has not polled Kafka for {} s", silence.as_secs()))
            }
            _ => Ok(()),
        }
    }

    fn readiness(&self) -> Readiness {
        let reasons = self.not_ready_reasons();
        Readiness { ready: reasons.is_empty(), reasons }
    }

    fn drain(&self) {
        if !self.drain.is_requested() {
            self.say("draining: the gateway leaves the group and inserts everything that it holds");
        }
        self.drain.request();
    }

    fn resume(&self) {
        if self.drain.is_requested() {
            self.say("resuming: the gateway joins the group again");
        }
        self.drain.resume();
    }

    fn remaining(&self) -> Remaining {
        let count = |value: i64| u64::try_from(value).unwrap_or(0);
        let is_member = self.consumer.get().is_some_and(|stats| stats.phase() != Phase::Away);
        // Before the messages are counted: those that were under way are in the logs then.
        let may_append = self.source.get().is_some_and(|(_, keeper)| keeper.may_append());
        let (on_volume, is_damaged) = self.on_volume();
        Remaining {
            // Blocks that an earlier run has left enter `blocks_in_flight` only after Kafka was asked about them.
            blocks: count(self.metrics.blocks_in_flight.get()).max(on_volume),
            damaged: Some(is_damaged),
            unreadable: self.source.get().is_some_and(|(numbers, _)| numbers.unreadable.any()),
            bytes: (self.pool.total_bytes() - self.pool.free_bytes()) as u64,
            uncommitted: self.uncommitted_offsets().max(u64::from(is_member || may_append)),
            draining: Some(self.drain.is_requested()),
            control: None,
        }
    }

    fn state(&self) -> GatewayState {
        self.to_state()
    }

    fn refresh(&self) {
        let metrics = &self.metrics;
        let bytes = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
        let free = self.pool.free_bytes();
        metrics.block_pool_bytes.with_label_values(&["free"]).set(bytes(free));
        metrics.block_pool_bytes.with_label_values(&["used"]).set(bytes(self.pool.total_bytes() - free));
        metrics.memory_used_bytes.with_label_values(&["blocks"]).set(bytes(self.pool.total_bytes() - free));
        if let Some(resident) = resident_bytes() {
            metrics.memory_used_bytes.with_label_values(&["process"]).set(resident);
        }
        if let Some(age_max) = self.age_max.get() {
            metrics.block_age_seconds_max.set(age_max.most_of_all(Instant::now()).as_secs_f64());
        }
        metrics.ready.set(i64::from(self.not_ready_reasons().is_empty()));
        metrics.ledger_imbalance_rows.set(self.account.imbalance());
        metrics.rows_in_flight.set(i64::try_from(self.account.in_flight()).unwrap_or(i64::MAX));
        catch_up(&metrics.rows_abandoned, self.account.abandoned());
        if let Some(stats) = self.consumer.get() {
            self.refresh_consumer(stats);
        }
        if let Some(spool) = self.spool.get() {
            self.refresh_spool(spool);
        }
        if let Some((numbers, keeper)) = self.source.get() {
            self.refresh_source(numbers, keeper);
        }
        if let Some(Ok(space)) = self.volume.as_ref().map(Volume::space) {
            let bytes = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
            metrics.queue_volume_bytes.with_label_values(&["total"]).set(bytes(space.total));
            metrics.queue_volume_bytes.with_label_values(&["free"]).set(bytes(space.free));
        }
    }
}

#[cfg(test)]
#[path = "health_tests.rs"]
mod tests;
