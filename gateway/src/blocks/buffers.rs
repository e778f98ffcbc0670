//! The pool of chunks for all compressed bytes.
//!
//! All memory of blocks, open or in flight, is in chunks of [`CHUNK_BYTES`] from one pool. Its size is the budget's part `blocks`. The
//! empty pool is the back-pressure: a worker that gets no chunk seals what it has and stops reading until blocks are inserted.
//!
//! Sealing a block needs a last frame, and so chunks, possibly while the pool is empty. So the pool keeps a reserve that only sealing may
//! use, large enough to seal every open block once. Blocks that hold chunks can always be sealed, and sealed blocks are inserted sooner
//! or later, which frees their chunks.
//!
//! Any thread may take and return chunks; the free list is a bounded channel.

use crossbeam_channel::{Receiver, Sender, bounded};
use sluice_clickhouse::row_frames::FRAME_RAW_BYTES;
use sluice_gateway_config::budget::BLOCK_BYTES_MAX;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

/// Size of a chunk: a quarter of a frame's raw size. An open block wastes half a chunk on average.
pub const CHUNK_BYTES: usize = 64 << 10;

/// Maximum chunks for the last frame of a block: a full frame that does not compress.
const SEAL_CHUNKS: usize = FRAME_RAW_BYTES / CHUNK_BYTES + 1;

/// Chunks of the largest block.
#[expect(clippy::cast_possible_truncation, reason = "24 MiB fit every address space")]
pub(super) const BLOCK_CHUNKS_MAX: usize = BLOCK_BYTES_MAX as usize / CHUNK_BYTES;

/// The pool. One per process.
#[derive(Debug)]
pub struct Pool {
    free: Receiver<Vec<u8>>,
    home: Sender<Vec<u8>>,
    total: usize,
    reserve: usize,
    redo: AtomicBool,
    replay: AtomicBool,
    /// Workers that wait for room.
    waiting: AtomicUsize,
    /// Chunks held by each sharer of the pool.
    held: Arc<[AtomicUsize]>,
}

/// The part of the pool that belongs to one sharer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// All of it.
    pub bytes: usize,
    /// What its blocks have not taken. They may take more, because an open block is always completed.
    pub free_bytes: usize,
}

/// What a chunk is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A full frame of an open block; must not use the reserve.
    Fill,
    /// The last frame of a block.
    Seal,
}

/// Why a frame could not be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The pool has no chunk for this purpose.
    #[error("no free chunk")]
    PoolEmpty,
    /// The block would be larger than [`BLOCK_BYTES_MAX`].
    #[error("the block is full")]
    BlockFull,
}

impl Pool {
    /// A pool of `bytes`, for at most `open_blocks` open blocks on `workers` threads.
    pub fn new(bytes: u64, open_blocks: usize, workers: usize) -> Self {
        let total = usize::try_from(bytes / CHUNK_BYTES as u64).unwrap_or(usize::MAX);
        let (home, free) = bounded(total);
        for _ in 0..total {
            // Only address space: the pages are not used until a frame is written to them.
            home.try_send(Vec::with_capacity(CHUNK_BYTES)).expect("the channel has room for every chunk");
        }
        // Workers that check at the same time may each take one chunk more.
        let reserve = open_blocks * SEAL_CHUNKS + workers;
        let held = [AtomicUsize::new(0)].into();
        let (redo, replay, waiting) = (AtomicBool::new(false), AtomicBool::new(false), AtomicUsize::new(0));
        Self { free, home, total, reserve, redo, replay, waiting, held }
    }

    /// Divides the pool among `count` sharers: [`Pool::has_share`].
    #[must_use]
    pub fn shared_by(self, count: usize) -> Self {
        Self { held: (0..count.max(1)).map(|_| AtomicUsize::new(0)).collect(), ..self }
    }

    /// Whether a sharer uses less than its part, so that it may open a block or read on. A single sharer is limited only by the empty pool.
    pub fn has_share(&self, sharer: usize) -> bool {
        self.share(sharer).is_none_or(|share| share.free_bytes > 0)
    }

    /// The part of a sharer. `None` if there is only one sharer.
    pub fn share(&self, sharer: usize) -> Option<Share> {
        let count = self.held.len();
        let part = self.total / count;
        let free = part.saturating_sub(self.held[sharer % count].load(Ordering::Relaxed));
        (count > 1).then_some(Share { bytes: part * CHUNK_BYTES, free_bytes: free * CHUNK_BYTES })
    }

    /// Bytes of all chunks of the pool.
    pub fn total_bytes(&self) -> usize {
        self.total * CHUNK_BYTES
    }

    /// Bytes of free chunks.
    pub fn free_bytes(&self) -> usize {
        self.free.len() * CHUNK_BYTES
    }

    /// Bytes that must be free before a message that ran out of chunks is encoded again.
    pub fn redo_bytes(&self) -> usize {
        (self.reserve + BLOCK_CHUNKS_MAX).min(self.total) * CHUNK_BYTES
    }

    /// Requests the right to encode a message again that ran out of chunks. One worker at a time has this right, and gets it only once
    /// chunks for a whole block are free. So the message fits, and two workers cannot block each other forever.
    ///
    /// A worker with the right to [replay](Pool::claim_replay) needs only one free chunk: its own block holds the others, and it must be
    /// able to continue.
    pub fn claim_redo(&self, replays: bool) -> bool {
        let free = self.free.len();
        let enough =
            free >= self.reserve + BLOCK_CHUNKS_MAX || free == self.total || (replays && free > self.reserve);
        enough && self.redo.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Returns the right.
    pub fn release_redo(&self) {
        self.redo.store(false, Ordering::Release);
    }

    /// Requests the right to fill a block that must not be ended early. The blocks of all partitions could fill the pool like that, and
    /// none could be sent. So a worker that finds the pool empty drops such blocks, except the one that has this right.
    pub fn claim_replay(&self) -> bool {
        self.replay.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Returns the right.
    pub fn release_replay(&self) {
        self.replay.store(false, Ordering::Release);
    }

    /// Records that a worker waits for room, until the result is dropped.
    pub fn wait(self: &Arc<Self>) -> Waiting {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(self.clone())
    }

    /// Whether a worker waits for room. Then all workers drop blocks that must not be ended early, beyond their
    /// [share](Pool::replay_share). Those of a worker that finds room for itself, or has no message to encode, could otherwise fill the
    /// pool forever.
    pub fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Bytes that one of `workers` may keep in blocks that must not be ended early, beside the one with the right to replay. It is so
    /// small that this one always finds room.
    pub fn replay_share(&self, workers: usize) -> usize {
        self.total.saturating_sub(BLOCK_CHUNKS_MAX + self.reserve) / workers.max(1) * CHUNK_BYTES
    }

    /// Lends this many bytes of free chunks, without the reserve. `None` if there are not enough. A caller that asks again must hold
    /// nothing that others wait for, because inserting the blocks in the pool may need all of it. A request for more than the pool has
    /// (for the block of a process that had a larger pool) is granted once all of it but the reserve is free.
    pub fn lend(&self, bytes: u64) -> Option<Loan> {
        let most = self.total.saturating_sub(self.reserve);
        let wanted =
            usize::try_from(bytes.div_ceil(CHUNK_BYTES as u64)).map_or(most, |wanted| wanted.min(most));
        let mut loan = Loan { chunks: 0, home: self.home.clone() };
        while loan.chunks < wanted {
            if self.free.len() <= self.reserve {
                return None;
            }
            drop(self.free.try_recv().ok()?);
            loan.chunks += 1;
        }
        Some(loan)
    }

    /// A free chunk for a block of this sharer.
    pub(super) fn take(&self, purpose: Purpose, sharer: usize) -> Result<Chunk, StoreError> {
        if purpose == Purpose::Fill && self.free.len() <= self.reserve {
            return Err(StoreError::PoolEmpty);
        }
        let bytes = self.free.try_recv().map_err(|_| StoreError::PoolEmpty)?;
        let sharer = sharer % self.held.len();
        self.held[sharer].fetch_add(1, Ordering::Relaxed);
        Ok(Chunk { bytes, home: self.home.clone(), held: self.held.clone(), sharer })
    }
}

/// Bytes of free chunks, used as memory of another kind; the chunks' own memory is returned to the system meanwhile.
#[derive(Debug)]
pub struct Loan {
    chunks: usize,
    home: Sender<Vec<u8>>,
}

impl Drop for Loan {
    fn drop(&mut self) {
        for _ in 0..self.chunks {
            // The channel has room for every chunk; it is closed only when the process ends.
            if self.home.try_send(Vec::with_capacity(CHUNK_BYTES)).is_err() {}
        }
    }
}

/// A worker waits for room while this exists.
#[derive(Debug)]
pub struct Waiting(Arc<Pool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A chunk of the pool; it returns there when dropped.
#[derive(Debug)]
pub(super) struct Chunk {
    pub bytes: Vec<u8>,
    home: Sender<Vec<u8>>,
    held: Arc<[AtomicUsize]>,
    sharer: usize,
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        self.held[self.sharer].fetch_sub(1, Ordering::Relaxed);
        // The channel has room for every chunk; it is closed only when the process ends.
        if self.home.try_send(bytes).is_err() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::chunks::Chunks;
    use bytes::Bytes;
    use sluice_clickhouse::row_frames::FrameStore as _;

    const MIB: u64 = 1 << 20;

    #[test]
    fn who_has_its_share_of_the_pool_leaves_the_rest_to_others() {
        let pool = Pool::new(MIB, 0, 0).shared_by(2);
        let mut one = Chunks::of(0);
        one.store(&pool, Purpose::Fill).append(&vec![7; 7 * CHUNK_BYTES]).unwrap();
        assert!(pool.has_share(0) && pool.has_share(1));
        assert_eq!(pool.share(0), Some(Share { bytes: 8 * CHUNK_BYTES, free_bytes: CHUNK_BYTES }));
        one.store(&pool, Purpose::Fill).append(&[7]).unwrap();
        assert!(!pool.has_share(0) && pool.has_share(1));
        drop(one.into_bytes());
        assert!(pool.has_share(0));
        let alone = Pool::new(MIB, 0, 0);
        let mut all = Chunks::default();
        all.store(&alone, Purpose::Seal).append(&vec![7; 16 * CHUNK_BYTES]).unwrap();
        assert!(alone.has_share(0) && alone.share(0).is_none(), "an empty pool is its limit");
    }

    #[test]
    fn chunks_come_back_when_the_last_copy_is_dropped() {
        let pool = Pool::new(8 * MIB, 2, 1);
        let mut chunks = Chunks::default();
        chunks.store(&pool, Purpose::Fill).append(&vec![7; 200_000]).unwrap();
        assert_eq!(pool.free_bytes(), pool.total_bytes() - 4 * CHUNK_BYTES);
        let bytes = chunks.into_bytes();
        let copy = bytes.clone();
        drop(bytes);
        assert_eq!(pool.free_bytes(), pool.total_bytes() - 4 * CHUNK_BYTES);
        assert_eq!(copy.iter().map(Bytes::len).sum::<usize>(), 200_000);
        drop(copy);
        assert_eq!(pool.free_bytes(), pool.total_bytes());
    }

    #[test]
    fn the_reserve_is_for_sealing() {
        let pool = Pool::new(MIB, 2, 1);
        let mut chunks = Chunks::default();
        let frame = vec![1; CHUNK_BYTES];
        let mut kept = 0;
        while chunks.store(&pool, Purpose::Fill).append(&frame).is_ok() {
            kept += 1;
        }
        assert_eq!(kept, 16 - (2 * SEAL_CHUNKS + 1));
        assert_eq!(chunks.store(&pool, Purpose::Fill).append(&frame), Err(StoreError::PoolEmpty));
        chunks.store(&pool, Purpose::Seal).append(&frame).unwrap();
    }

    #[test]
    fn what_is_lent_is_none_of_the_reserve_and_comes_back() {
        let pool = Pool::new(MIB, 2, 1);
        let spare = (16 - (2 * SEAL_CHUNKS + 1)) * CHUNK_BYTES;
        let mut chunks = Chunks::default();
        chunks.store(&pool, Purpose::Fill).append(&[1]).unwrap();
        assert!(pool.lend(spare as u64).is_none());
        assert_eq!(pool.free_bytes(), pool.total_bytes() - CHUNK_BYTES, "what is not enough is given back");
        drop(chunks);
        let loan = pool.lend(2 * MIB).unwrap();
        assert_eq!(pool.free_bytes(), pool.total_bytes() - spare, "no more than there is");
        let mut chunks = Chunks::default();
        assert_eq!(chunks.store(&pool, Purpose::Fill).append(&[1]), Err(StoreError::PoolEmpty));
        chunks.store(&pool, Purpose::Seal).append(&[1]).unwrap();
        drop((loan, chunks));
        assert_eq!(pool.free_bytes(), pool.total_bytes());
        Chunks::default().store(&pool, Purpose::Fill).append(&vec![1; spare]).unwrap();
    }

    #[test]
    fn one_worker_redoes_at_a_time() {
        let pool = Pool::new(64 * MIB, 2, 2);
        assert!(pool.claim_redo(false));
        assert!(!pool.claim_redo(false));
        pool.release_redo();
        assert!(pool.claim_redo(false));
    }

    #[test]
    fn the_one_that_replays_goes_on_with_a_chunk_and_the_others_leave_it_room() {
        let pool = Pool::new(64 * MIB, 2, 2);
        assert!(pool.claim_replay());
        assert!(!pool.claim_replay());
        let mut others = Vec::new();
        let share = 2 * pool.replay_share(2);
        for _ in 0..share / CHUNK_BYTES {
            let mut chunks = Chunks::default();
            chunks.store(&pool, Purpose::Fill).append(&vec![1; CHUNK_BYTES]).unwrap();
            others.push(chunks);
        }
        let mut own = Chunks::default();
        for _ in 0..BLOCK_CHUNKS_MAX {
            assert!(pool.claim_redo(true), "{} bytes are free", pool.free_bytes());
            pool.release_redo();
            assert!(!pool.claim_redo(false) || own.is_empty(), "the others wait for a whole block's worth");
            pool.release_redo();
            own.store(&pool, Purpose::Fill).append(&vec![1; CHUNK_BYTES]).unwrap();
        }
        pool.release_replay();
        assert!(pool.claim_replay());
        assert_eq!(Pool::new(24 * MIB, 8, 1).replay_share(1), 0);
    }
}
