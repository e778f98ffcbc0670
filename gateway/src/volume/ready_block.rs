//! A block with its frames, in memory or on the volume, and the state of its generation: what delivery sends.

use super::block_frames::BlockFrames;
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

/// Whether this process still owns the generation of a block: shared by all blocks of the generation.
#[derive(Debug, Default)]
pub struct GenerationStatus {
    is_over: AtomicBool,
    /// Whether the generation is over because this process shuts down.
    is_leaving: AtomicBool,
    /// When this process last knew that it owns the partition, in ms by [`sluice_kafka::clock`].
    proved_ms: AtomicU64,
    /// Blocks of it that wait until someone acts.
    halted: AtomicUsize,
    told: Notify,
}

/// Counts a block that waits until someone acts, until it is dropped.
#[derive(Debug)]
pub struct Halting(Arc<GenerationStatus>);

impl Halting {
    /// Counts one more for this generation.
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

    /// Waits until another owner has the partition.
    pub async fn over(&self) {
        let told = self.told.notified();
        if !self.is_over() {
            told.await;
        }
    }

    /// When this process last knew that it owns the partition, by [`sluice_kafka::clock`]; zero if that was not confirmed since the
    /// assignment.
    pub fn proved(&self) -> Duration {
        Duration::from_millis(self.proved_ms.load(Ordering::Relaxed))
    }

    pub(crate) fn prove(&self, at: Duration) {
        self.proved_ms.fetch_max(u64::try_from(at.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Whether it is over because this process shuts down: blocks on the queue volume are then for its next run.
    pub fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Acquire)
    }

    pub(crate) fn end(&self, is_leaving: bool) {
        self.is_leaving.store(is_leaving, Ordering::Release);
        self.is_over.store(true, Ordering::Release);
        self.told.notify_waiters();
    }
}

/// A block and its frames.
#[derive(Debug)]
pub struct BlockWithFrames {
    /// The block, without its frames.
    pub block: Block,
    pub frames: BlockFrames,
}

/// A block that may be sent.
#[derive(Debug)]
pub struct Ready {
    /// The block.
    pub sealed: BlockWithFrames,
    pub release: Release,
    /// Whether this process still owns its generation.
    pub generation: Arc<GenerationStatus>,
    /// The columns that it was encoded for, if they are not those of new rows.
    pub columns: Option<Arc<TableColumns>>,
    /// Its rows that are, or may be, in the table or are read again: possible duplicates once it is stored.
    pub rows_elsewhere: u64,
}
