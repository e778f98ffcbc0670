//! A fact about each shard that is true or not, for other threads: one sets it, the workers read it when a block may be due.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// One flag for each shard, by its position in the config. Clones are the same flags.
#[derive(Debug, Clone, Default)]
pub struct ShardFlags(Arc<[AtomicBool]>);

impl ShardFlags {
    /// For this number of shards; the fact holds for none.
    pub fn of(shards: usize) -> Self {
        Self((0..shards).map(|_| AtomicBool::new(false)).collect())
    }

    /// Sets it for one shard.
    pub fn say(&self, shard: usize, holds: bool) {
        if let Some(said) = self.0.get(shard) {
            said.store(holds, Ordering::Relaxed);
        }
    }

    /// Whether it holds for this shard.
    pub fn is(&self, shard: usize) -> bool {
        self.0.get(shard).is_some_and(|said| said.load(Ordering::Relaxed))
    }

    /// The number of shards.
    pub fn shards(&self) -> usize {
        self.0.len()
    }
}
