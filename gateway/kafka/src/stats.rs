//! What the consumer knows about itself, for the metrics: plain numbers that the poll thread writes and a scrape reads.

use crate::partition::PartitionId;
use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Numbers of one partition as of librdkafka's last statistics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PartitionStats {
    /// Messages between the committed offset and the end.
    pub lag_messages: Option<i64>,
    /// The offset behind the last message.
    pub end_offset: Option<i64>,
    /// The offset that was committed last.
    pub committed_offset: Option<i64>,
    /// Bytes of messages in its queue, decompressed.
    pub queued_bytes: u64,
}

/// Numbers of the consumer. None of them is touched per message.
#[derive(Debug)]
pub struct ConsumerStats {
    started: Instant,
    last_poll_millis: AtomicU64,
    /// Whether the group has given this member an assignment, be it an empty one.
    pub joined: AtomicBool,
    /// Partitions that are owned.
    pub partitions_owned: AtomicI64,
    /// Assignments and revocations.
    pub rebalances: AtomicU64,
    /// Commits that the coordinator confirmed.
    pub commits: AtomicU64,
    /// Commits that it refused, or that never reached it.
    pub commit_failures: AtomicU64,
    /// Ranges that settled under a generation that was over.
    pub stale_ranges: AtomicU64,
    /// Partitions that began without knowing what was in flight before.
    pub fresh_starts: AtomicU64,
    /// Ranges that were cut where an owner before may have sent longer ones.
    pub doubtful_ranges: AtomicU64,
    /// Offsets that Kafka deleted before they were read.
    pub messages_lost: AtomicU64,
    /// Partitions that this program must not read.
    pub partitions_halted: AtomicU64,
    partitions: Mutex<BTreeMap<PartitionId, PartitionStats>>,
}

impl Default for ConsumerStats {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            last_poll_millis: AtomicU64::new(0),
            joined: AtomicBool::new(false),
            partitions_owned: AtomicI64::new(0),
            rebalances: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            commit_failures: AtomicU64::new(0),
            stale_ranges: AtomicU64::new(0),
            fresh_starts: AtomicU64::new(0),
            doubtful_ranges: AtomicU64::new(0),
            messages_lost: AtomicU64::new(0),
            partitions_halted: AtomicU64::new(0),
            partitions: Mutex::default(),
        }
    }
}

impl ConsumerStats {
    /// Time since the poll thread was last heard of.
    pub fn since_last_poll(&self) -> Duration {
        let last = Duration::from_millis(self.last_poll_millis.load(Ordering::Relaxed));
        self.started.elapsed().saturating_sub(last)
    }

    pub(crate) fn polled(&self) {
        let millis = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_poll_millis.store(millis, Ordering::Relaxed);
    }

    /// A copy of the partitions' numbers.
    pub fn partitions(&self) -> BTreeMap<PartitionId, PartitionStats> {
        self.locked().clone()
    }

    pub(crate) fn replace(&self, partitions: BTreeMap<PartitionId, PartitionStats>) {
        *self.locked() = partitions;
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<PartitionId, PartitionStats>> {
        // A map of numbers is whole whatever the thread that held it died of.
        self.partitions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
