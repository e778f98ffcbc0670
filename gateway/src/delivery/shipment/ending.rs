//! How a block ends that is not left to another owner: it is stored, or its record on the queue volume cannot be read.
//!
//! Owner: the shipment's task. Each end is counted once and reported to the volume, the account of rows and the poll thread.

use super::Shipment;
use crate::{blocks::block::Block, volume::spool::Ended};
use sluice_kafka::Report;
use sluice_ranges::PartitionId;
use std::{
    sync::atomic::Ordering,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The end of a shipment.
#[derive(Debug)]
pub struct End {
    /// The partition of its block.
    pub id: PartitionId,
    /// Whether the block is not stored, and its record, if any, stays on the volume.
    pub is_given_up: bool,
}

impl Shipment {
    /// Settles a stored block; `dead_lettered` of its rows are dead letters.
    pub(super) async fn settle(mut self, dead_lettered: u64) {
        self.count_elsewhere();
        self.frames.end(self.shard.spool(), Ended::Settled).await;
        let is_only_copy = self.frames.is_only_copy();
        let Self { shard, block, encoded, .. } = self;
        if shard.failing.swap(false, Ordering::Relaxed) {
            tracing::info!("inserts succeed again");
            shard.recovered.notify_waiters();
        }
        if encoded.is_none() {
            shard.delivery.watch.accepted();
        }
        let metrics = &shard.delivery.metrics;
        metrics.rows_inserted.inc_by(block.rows - dead_lettered);
        metrics.blocks_inserted.inc();
        metrics.bytes_inserted.inc_by(block.bytes as u64);
        metrics.blocks_in_flight.dec();
        if let Some(seconds) = freshness_seconds(SystemTime::now(), block.span_end_nanos_max) {
            metrics.freshness_seconds.observe(seconds);
        }
        block.account.settled_but(dead_lettered);
        if is_only_copy {
            // For an only copy no range of its partition is in flight.
            if let Some(spool) = shard.spool() {
                // Also for a block that was sent whole: its note may be damaged.
                spool.unnote(block.token);
            }
            return;
        }
        let Block { id, generation, range, .. } = block;
        if shard.delivery.reports.send(Report::Settled { id, generation, range }).await.is_err() {
            // The poll thread has ended and commits nothing any more. The block is read again, and the server drops it by its token.
        }
    }

    /// Its record on the queue volume is damaged: its partition restarts at its committed offset.
    pub(super) async fn read_again(self) {
        tracing::error!(
            partition = %self.block.id,
            first = self.block.range.first,
            next = self.block.range.next,
            damage = %self.damage.as_ref().map(ToString::to_string).unwrap_or_default(),
            "a block on the queue volume cannot be read; the messages of it that Kafka has are read again"
        );
        self.shard.delivery.metrics.blocks_in_flight.dec();
        self.block.account.abandon();
        let Block { id, generation, .. } = self.block;
        if self.shard.delivery.reports.send(Report::ReadAgain { id, generation }).await.is_err() {
            // The poll thread has ended; the partition's next owner starts at its committed offset.
        }
    }

    /// Its record on the queue volume is damaged, and no process reads its messages again.
    pub(super) fn lose(self) {
        let rows = self.block.rows;
        tracing::error!(
            partition = %self.block.id,
            first = self.block.range.first,
            next = self.block.range.next,
            rows,
            damage = %self.damage.as_ref().map(ToString::to_string).unwrap_or_default(),
            "a block on the queue volume cannot be read and was the only copy of its rows: they are lost; its file is kept"
        );
        self.shard.delivery.metrics.blocks_in_flight.dec();
        self.shard.delivery.metrics.spool.rows_lost.inc_by(rows);
        self.block.account.lost();
    }
}

/// Seconds since the end of the latest span that had ended when it was read; `None` without one, or when the clock was set back.
fn freshness_seconds(now: SystemTime, span_end_nanos_max: u64) -> Option<f64> {
    let now = now.duration_since(UNIX_EPOCH).ok()?;
    let end = Duration::from_nanos(Some(span_end_nanos_max).filter(|nanos| *nanos > 0)?);
    Some(now.checked_sub(end)?.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freshness_is_the_time_since_the_latest_end_of_a_span() {
        let now = UNIX_EPOCH + Duration::from_secs(100);
        assert_eq!(freshness_seconds(now, 97_500_000_000), Some(2.5));
        assert_eq!(freshness_seconds(now, 100_000_000_000), Some(0.0));
        assert_eq!(freshness_seconds(now, 0), None, "no span has ended");
        assert_eq!(freshness_seconds(now, 100_000_000_001), None, "it had ended when it was read");
        assert_eq!(freshness_seconds(UNIX_EPOCH - Duration::from_secs(1), 1), None);
    }
}
