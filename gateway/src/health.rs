//! What the admin server is told about the gateway.

use crate::{admin::Health, buffers::Pool, metrics::Metrics};
use sluice_kafka::ConsumerStats;
use sluice_spool::Volume;
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// A poll thread that was not heard of for this long is stuck: it polls twenty times a second, and the longest wait that
/// it is allowed, for a revoked partition, is a sixth of this.
const POLL_SILENCE_MAX: Duration = Duration::from_mins(1);

/// The state of the gateway, as far as others may know it.
pub struct Status {
    metrics: Arc<Metrics>,
    pool: Arc<Pool>,
    volume: Option<Volume>,
    table_fits: AtomicBool,
    consumer: OnceLock<Arc<ConsumerStats>>,
}

impl Status {
    /// Nothing has happened yet.
    pub fn new(metrics: Arc<Metrics>, pool: Arc<Pool>, volume: Option<Volume>) -> Self {
        Self { metrics, pool, volume, table_fits: AtomicBool::new(false), consumer: OnceLock::new() }
    }

    /// The table was seen to fit.
    pub fn table_fits(&self) {
        self.table_fits.store(true, Ordering::Release);
    }

    /// The consumer was made.
    pub fn consumes(&self, stats: Arc<ConsumerStats>) {
        assert!(self.consumer.set(stats).is_ok(), "there is one consumer");
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
        // A partition that has gone must not stay with its last lag.
        metrics.lag_messages.reset();
        metrics.committed_offset.reset();
        let mut queued = 0;
        for (id, numbers) in stats.partitions() {
            queued += numbers.queued_bytes;
            let partition = id.partition.to_string();
            let labels = [&*id.topic, partition.as_str()];
            if let Some(lag) = numbers.lag_messages {
                metrics.lag_messages.with_label_values(&labels).set(lag);
            }
            if let Some(offset) = numbers.committed_offset {
                metrics.committed_offset.with_label_values(&labels).set(offset);
            }
        }
        metrics.memory_used_bytes.with_label_values(&["kafka"]).set(count(queued));
    }
}

/// The resident set, as the kernel counts it; `None` where it does not say.
fn resident_bytes() -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: i64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kib.checked_mul(1_024)
}

impl Health for Status {
    fn live(&self) -> Result<(), String> {
        match self.consumer.get().map(|stats| stats.since_last_poll()) {
            Some(silence) if silence > POLL_SILENCE_MAX => {
                Err(format!("the poll thread was not heard of for {} s", silence.as_secs()))
            }
            _ => Ok(()),
        }
    }

    fn ready(&self) -> Result<(), String> {
        if !self.table_fits.load(Ordering::Acquire) {
            return Err("the table was not seen to fit yet".to_owned());
        }
        let joined = self.consumer.get().is_some_and(|stats| stats.joined.load(Ordering::Acquire));
        if joined { Ok(()) } else { Err("the consumer group has not given an assignment yet".to_owned()) }
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
        metrics.ready.set(i64::from(self.ready().is_ok()));
        if let Some(stats) = self.consumer.get() {
            self.refresh_consumer(stats);
        }
        if let Some(Ok(space)) = self.volume.as_ref().map(Volume::space) {
            let bytes = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
            metrics.queue_volume_bytes.with_label_values(&["total"]).set(bytes(space.total));
            metrics.queue_volume_bytes.with_label_values(&["free"]).set(bytes(space.free));
        }
    }
}
