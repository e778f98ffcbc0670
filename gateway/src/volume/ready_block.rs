//! A block with its frames, in memory or on the volume, and what is known of its generation: what delivery sends.

use super::{
    block_frames::BlockFrames,
    spool::{Ended, Spool},
};
use crate::blocks::block::Block;
use sluice_clickhouse::column::TableColumns;
use sluice_ranges::Release;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;

/// Whether the generation of a block is still ours: shared by everything that is being sent of it.
#[derive(Debug, Default)]
pub struct GenerationStatus {
    is_over: AtomicBool,
    /// Whether that is because this process leaves.
    is_leaving: AtomicBool,
    /// When the partition was last known to be ours, in ms by [`sluice_kafka::clock`].
    proved_ms: AtomicU64,
    /// Blocks of it that wait for someone to act.
    halted: AtomicUsize,
    told: Notify,
}

/// Stands for a block that waits for someone to act; dropped when it has ended.
#[derive(Debug)]
pub struct Halting(Arc<GenerationStatus>);

impl Halting {
    /// One more of this generation.
    pub fn of(generation: &Arc<GenerationStatus>) -> Self {
        generation.halted.fetch_add(1, Ordering::Relaxed);
        Self(generation.clone())
    }
}

impl Drop for Halting {
    fn drop(&mut self) {
        self.0.halted.fetch_sub(1, Ordering::Relaxed);
    }
}

impl GenerationStatus {
    /// Blocks of it that wait for someone to act.
    pub fn halted(&self) -> usize {
        self.halted.load(Ordering::Relaxed)
    }

    /// Whether another owner has the partition.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Waits until another owner has it.
    pub async fn over(&self) {
        let told = self.told.notified();
        if !self.is_over() {
            told.await;
        }
    }

    /// When the partition was last known to be ours, by [`sluice_kafka::clock`]; zero when nobody has said since it was assigned.
    pub fn proved(&self) -> Duration {
        Duration::from_millis(self.proved_ms.load(Ordering::Relaxed))
    }

    pub(crate) fn prove(&self, at: Duration) {
        self.proved_ms.fetch_max(u64::try_from(at.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Whether it is over because this process leaves: what is on the queue volume is for its next run.
    pub fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Acquire)
    }

    pub(crate) fn end(&self, is_leaving: bool) {
        self.is_leaving.store(is_leaving, Ordering::Release);
        self.is_over.store(true, Ordering::Release);
        self.told.notify_waiters();
    }
}

/// A block and where its bytes are.
#[derive(Debug)]
pub struct BlockWithFrames {
    /// The block, without its frames.
    pub block: Block,
    /// Those.
    pub frames: Arc<BlockFrames>,
}

impl BlockWithFrames {
    /// Gives it up: its messages are another owner's, if Kafka still has them. Its record, if it has one, stays until that was asked,
    /// with `is_leaving` by the next run.
    pub fn abandon(self, spool: Option<&Spool>, is_leaving: bool) {
        if !is_leaving {
            self.frames.end(spool, Ended::Orphaned);
        }
        self.block.account.abandon();
    }
}

/// A block that may be sent.
#[derive(Debug)]
pub struct Ready {
    /// The block.
    pub sealed: BlockWithFrames,
    /// What its release says.
    pub release: Release,
    /// Whether its generation is still ours.
    pub generation: Arc<GenerationStatus>,
    /// The columns that it was encoded for, where those are not the ones that rows are encoded for now.
    pub columns: Option<Arc<TableColumns>>,
    /// Rows of it that are in the table or are read again, or may be: once it is in, they may be doubled.
    pub rows_elsewhere: u64,
}
