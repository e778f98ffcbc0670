//! The use of the queue volume, and counters of its blocks.

use crate::volume::spool::Ended;
use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

/// The use of the volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Blocks on the volume.
    pub blocks: u64,
    /// Their rows.
    pub rows: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Whether something on it cannot be read, and is kept until a person has looked at it.
    pub is_damaged: bool,
    /// When the oldest block was appended, in ms since 1970; `None` without one.
    pub oldest_ms: Option<u64>,
}

/// A number of blocks and their bytes; only grows.
#[derive(Debug, Default)]
pub struct Count {
    blocks: AtomicU64,
    bytes: AtomicU64,
}

impl Count {
    pub(super) fn add(&self, bytes: u64) {
        self.blocks.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// Bytes of their bodies.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// The spool's counters since the start. The spool thread writes them; other threads read them.
#[derive(Debug, Default)]
pub struct Numbers {
    usage: Mutex<Usage>,
    /// Maximum bytes of its files.
    pub bytes_max: AtomicU64,
    /// Moved to the volume.
    pub appended: Count,
    /// Inserted from there.
    pub drained: Count,
    /// Dropped because Kafka has their messages.
    pub dropped: Count,
    /// Blocks of an earlier run that this one has taken over.
    pub taken_over: AtomicU64,
    /// Records that were found damaged.
    pub set_aside: AtomicU64,
    /// Times that a block found no room.
    pub refused: AtomicU64,
}

impl Numbers {
    /// The use of the volume.
    pub fn usage(&self) -> Usage {
        *self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn tell(&self, usage: Usage) {
        *self.usage.lock().unwrap_or_else(PoisonError::into_inner) = usage;
    }

    pub(super) fn ended(&self, ended: Ended, bytes: u64) {
        match ended {
            Ended::Settled => self.drained.add(bytes),
            Ended::Dropped => self.dropped.add(bytes),
            // A damaged block is counted where it is set aside; an orphaned one has not ended on the volume.
            Ended::Damaged | Ended::Orphaned | Ended::Left => {}
        }
    }
}
