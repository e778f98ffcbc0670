//! Decides which blocks go to the queue volume, and when.
//!
//! Place in the flow: delivery adds every block that arrives, and calls [`Spill::look`] periodically. Owner: the delivery task. It decides;
//! the spool thread moves the blocks.
//!
//! - **When**: less than one chunk in [`SHORT_SHARE`] of the pool is free, or a worker waits for a chunk. That worker stops reading until
//!   there is room for a whole block, possibly long after the pool has stopped being short. Only blocks that were already moving to the
//!   volume free memory then; while ClickHouse is away nothing else does. So moving must start early enough for the workers to fill the
//!   free memory meanwhile. The same applies to a shard's part of the pool, for its blocks: its partitions stop when the part is full,
//!   however much the others leave free. With `delivery.commit: AfterEnqueue`, a block that has waited for [`ENQUEUE_AFTER`] is moved
//!   too, the oldest first. Its offsets are committed once it is on the volume, so the consumer group's lag counts only unread messages,
//!   however long ClickHouse is away or behind.
//! - **How many**: until enough is free for a stopped worker to continue, and a quarter more; of a shard's part, a quarter. Never all of a
//!   small pool, unless a worker waits for it. So blocks are moved in runs, and a short backlog of inserts is sent from memory.
//! - **Which**: first the blocks of shards without successful inserts, the oldest first: the next run of this process can take over only
//!   blocks that follow the committed offset without a gap. Then blocks of slow shards, the newest first: the oldest are sent next, from
//!   memory, without the disk.
//! - **Not**: a block that is being sent. Its chunks would stay in use until the try ends. When the process shuts down, it is moved too,
//!   and the next run continues with it.
//! - **Gaps**: a block that was being sent when later ones were moved is moved as soon as it is not, while its shard has no successful
//!   inserts. If it were only in memory when the process dies, the next run would read it and everything after it again; if Kafka
//!   had deleted it meanwhile, it would be lost.
//!
//! A block counts for the shard that its chunks were taken for. If its range was first sent while there were fewer shards, it may go to
//! another one; the shard only decides which blocks are moved first.
//!
//! Limits: one weak pointer for each block in memory, as many again, at least [`KEPT_MIN`], for blocks that have left it meanwhile, and one
//! for each block on its way to the volume, at most [`SPILLS_MAX`](crate::volume::spool::SPILLS_MAX). Each new block checks only
//! the latter. All blocks in memory are checked while the pool is short, or while a shard is away that has blocks on the volume.

use crate::{
    blocks::buffers::{Pool, Share},
    volume::{block_frames::BlockFrames, spool::Spool},
};
use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

/// The share of free memory in the pool below which blocks are moved. Chosen: an eighth of the smallest pool is two blocks of the size
/// rule; a worker fills them in a tenth of a second, and the volume takes them in a hundredth.
const SHORT_SHARE: usize = 8;

/// How long a block may wait in memory before its offsets are committed from the volume instead. Chosen: an insert takes a second or two,
/// including its wait in the queue, and should not use the volume; and no alert fires for a lag of five seconds.
pub const ENQUEUE_AFTER: Duration = Duration::from_secs(5);

/// Weak pointers below which dead ones are not removed. Chosen: they and what they keep allocated are 20 kB.
const KEPT_MIN: usize = 64;

/// Decides which blocks are moved.
pub struct Spill {
    pool: Arc<Pool>,
    spool: Spool,
    /// In the order of their arrival.
    blocks: VecDeque<Waiting>,
    /// The number of blocks so far, and of the next one.
    next: u64,
    /// Blocks that were handed over and had not arrived at the last look.
    coming: Vec<Coming>,
    /// The number of entries above which those of blocks no longer in memory are removed.
    kept_max: usize,
    /// Whether blocks that have waited long go to the volume.
    enqueues: bool,
    /// Whether a run is active because the pool is short.
    is_short: bool,
    /// The state of each shard's part of the pool.
    parts: Vec<Part>,
}

/// A block that has arrived.
struct Waiting {
    /// The number of blocks before it.
    number: u64,
    came: Instant,
    shard: usize,
    frames: Weak<BlockFrames>,
}

/// A block on its way to the volume.
struct Coming {
    shard: usize,
    frames: Weak<BlockFrames>,
}

/// The state of a shard's part of the pool.
#[derive(Clone, Default)]
struct Part {
    /// Whether a run is active.
    is_short: bool,
    /// Its bytes on their way to the volume at the last look.
    coming: u64,
    /// The number of its last block that was moved. Earlier blocks in memory leave a gap before it.
    moved_up_to: Option<u64>,
}

impl Spill {
    /// Without blocks, for this many shards. `enqueues`: blocks that have waited long go to the volume even if memory is not short.
    pub fn new(pool: Arc<Pool>, spool: Spool, shards: usize, enqueues: bool) -> Self {
        let parts = vec![Part::default(); shards.max(1)];
        Self {
            pool,
            spool,
            blocks: VecDeque::new(),
            next: 0,
            coming: Vec::new(),
            kept_max: KEPT_MIN,
            enqueues,
            is_short: false,
            parts,
        }
    }

    /// Adds a block of this shard.
    pub fn add(&mut self, frames: &Arc<BlockFrames>, shard: usize, now: Instant) {
        if self.blocks.len() >= self.kept_max {
            self.leave_out();
            self.kept_max = (2 * self.blocks.len()).max(KEPT_MIN);
        }
        let frames = Arc::downgrade(frames);
        self.blocks.push_back(Waiting { number: self.next, came: now, shard, frames });
        self.next += 1;
    }

    /// Moves blocks if there is a reason. `is_away`: whether inserts into a shard fail.
    pub fn look(&mut self, is_away: impl Fn(usize) -> bool, now: Instant) {
        self.move_overdue(now);
        self.close_gaps(&is_away);
        let everything = self.spool.spills_everything();
        self.count_coming();
        let mut is_short = self.is_wanted();
        for shard in 0..self.parts.len() {
            is_short |= self.is_part_short(shard);
        }
        if !everything && !is_short {
            return;
        }
        self.leave_out();
        for index in self.order(is_away) {
            if !self.spool.takes_blocks() {
                return;
            }
            let shard = self.blocks[index].shard;
            if everything || self.is_wanted() || self.is_part_short(shard) {
                self.spill(index);
            }
        }
    }

    /// The order of moving: the blocks of shards that are away, the oldest first; then the others, the newest first.
    fn order(&self, is_away: impl Fn(usize) -> bool) -> Vec<usize> {
        let (mut order, others): (Vec<_>, Vec<_>) =
            (0..self.blocks.len()).partition(|index| is_away(self.blocks[*index].shard));
        order.extend(others.into_iter().rev());
        order
    }

    /// Moves blocks that have waited for [`ENQUEUE_AFTER`], the oldest first.
    fn move_overdue(&mut self, now: Instant) {
        let is_overdue = |block: &Waiting| now.saturating_duration_since(block.came) >= ENQUEUE_AFTER;
        if !self.enqueues || !self.blocks.front().is_some_and(is_overdue) {
            return;
        }
        self.leave_out();
        let overdue = self.blocks.partition_point(is_overdue);
        for index in 0..overdue {
            if !self.spool.takes_blocks() {
                return;
            }
            self.spill(index);
        }
    }

    /// Moves blocks in memory that come before blocks on the volume, of shards without successful inserts.
    fn close_gaps(&mut self, is_away: impl Fn(usize) -> bool) {
        let moved_up_to = |(shard, part): (usize, &Part)| part.moved_up_to.filter(|_| is_away(shard));
        let gaps: Vec<Option<u64>> = self.parts.iter().enumerate().map(moved_up_to).collect();
        let Some(last) = gaps.iter().flatten().max() else { return };
        self.leave_out();
        for index in 0..self.blocks.partition_point(|block| block.number < *last) {
            let Waiting { number, shard, .. } = self.blocks[index];
            if !self.spool.takes_blocks() {
                return;
            }
            if gaps[shard].is_some_and(|moved_up_to| number < moved_up_to) {
                self.spill(index);
            }
        }
    }

    /// Whether no block needs memory any more.
    pub fn is_everything_kept(&mut self) -> bool {
        self.leave_out();
        self.blocks.is_empty()
    }

    /// Hands over a block, unless it must not be moved now.
    fn spill(&mut self, index: usize) {
        let Waiting { number, shard, frames, .. } = &self.blocks[index];
        let bytes = frames.upgrade().map_or(0, |frames| self.spool.spill(&frames));
        if bytes > 0 {
            let part = &mut self.parts[*shard];
            part.coming += bytes;
            part.moved_up_to = part.moved_up_to.max(Some(*number));
            self.coming.push(Coming { shard: *shard, frames: frames.clone() });
        }
    }

    /// Removes the entries of blocks that are no longer in memory.
    fn leave_out(&mut self) {
        self.blocks.retain(|block| block.frames.upgrade().is_some_and(|frames| frames.is_in_memory()));
    }

    /// Counts the blocks on their way to the volume, and removes those that have arrived.
    fn count_coming(&mut self) {
        let Self { coming, parts, .. } = self;
        for part in parts.iter_mut() {
            part.coming = 0;
        }
        coming.retain(|Coming { shard, frames }| {
            let bytes = frames.upgrade().and_then(|frames| frames.spilling_bytes());
            parts[*shard].coming += bytes.unwrap_or(0);
            bytes.is_some()
        });
    }

    /// Whether more memory is needed than is free or becomes free soon.
    fn is_wanted(&mut self) -> bool {
        let redo = self.pool.redo_bytes();
        let (least, enough) = marks(self.pool.total_bytes(), redo);
        let free = self.pool.free_bytes().saturating_add(usize_of(self.spool.spilling_bytes()));
        let waits = self.pool.is_waited_for();
        let mark = if waits {
            enough.max(redo)
        } else if self.is_short {
            enough
        } else {
            least
        };
        self.is_short = free < mark;
        self.is_short
    }

    /// The same for a shard's part of the pool.
    fn is_part_short(&mut self, shard: usize) -> bool {
        let Some(Share { bytes, free_bytes }) = self.pool.share(shard) else { return false };
        let part = &mut self.parts[shard];
        let free = free_bytes.saturating_add(usize_of(part.coming));
        part.is_short = free < part_mark(bytes, part.is_short);
        part.is_short
    }
}

fn usize_of(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The free bytes of the pool at which a run starts, and at which it ends.
fn marks(total: usize, redo: usize) -> (usize, usize) {
    let least = total / SHORT_SHARE;
    // Never all of it: open blocks keep their chunks in any case. A worker that waits for more has sealed its own blocks.
    (least, (redo + redo / 4).clamp(least, total - total / 4))
}

/// The free bytes of a part of the pool at which a run starts, or ends if it `is_short`: twice as much, so that each run moves several
/// blocks. Its partitions continue as soon as one of its chunks is free.
fn part_mark(bytes: usize, is_short: bool) -> usize {
    let least = bytes / SHORT_SHARE;
    if is_short { 2 * least } else { least }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        blocks::buffers::{CHUNK_BYTES, Chunks},
        volume::{
            block_frames::tests::{BLOCK_BYTES, Volume, sealed, sealed_in},
            ready_block::BlockWithFrames,
            spool::Ended,
        },
    };

    const ALMOST: Duration = Duration::from_millis(4_999);

    fn frames(pool: &Pool, first: i64, is_enqueued: bool) -> Arc<BlockFrames> {
        released(sealed(pool, first, is_enqueued))
    }

    fn released(sealed: BlockWithFrames) -> Arc<BlockFrames> {
        sealed.block.account.settled();
        sealed.frames.release(0, None);
        sealed.frames
    }

    /// A block on its way to the volume is handed over at once; it may have arrived by now.
    fn was_moved(frames: &Arc<BlockFrames>) -> bool {
        frames.spillable_bytes().is_none()
    }

    #[test]
    fn a_run_ends_where_a_worker_may_go_on_and_never_wants_all() {
        const MIB: usize = 1 << 20;
        assert_eq!(marks(64 * MIB, 24 * MIB), (8 * MIB, 30 * MIB));
        assert_eq!(marks(1024 * MIB, 24 * MIB), (128 * MIB, 128 * MIB));
        assert_eq!(marks(32 * MIB, 28 * MIB), (4 * MIB, 24 * MIB));
    }

    #[test]
    fn a_worker_that_waits_gets_the_room_it_waits_for() {
        // As large as that of a gateway with little memory: at the end of a run, less is free than a worker waits for.
        const POOL: usize = 32 << 20;
        let (volume, pool) = (Volume::new("waits"), Arc::new(Pool::new(POOL as u64, 1, 1)));
        assert!(marks(POOL, pool.redo_bytes()).1 < pool.redo_bytes());
        let mut spill = Spill::new(pool.clone(), volume.open(64 << 20), 1, false);
        let start = Instant::now();
        let count = i64::try_from(POOL / 2 / BLOCK_BYTES).unwrap();
        let blocks: Vec<_> = (0..count).map(|place| frames(&pool, 10 * place, false)).collect();
        for frames in &blocks {
            spill.add(frames, 0, start);
        }
        spill.look(|_| true, start);
        assert!(!blocks.iter().any(was_moved), "half of it is free");
        assert!(!pool.claim_redo(false));
        let waiting = pool.wait();
        while !pool.claim_redo(false) {
            spill.look(|_| true, start);
            assert!(blocks.iter().any(was_moved), "nothing is on its way");
            std::thread::yield_now();
        }
        drop(waiting);
        let moved = blocks.iter().filter(|frames| was_moved(frames)).count();
        assert!(moved < blocks.len(), "no more than that");
        spill.look(|_| true, start);
        assert_eq!(blocks.iter().filter(|frames| was_moved(frames)).count(), moved, "nobody waits any more");
    }

    #[tokio::test]
    async fn no_gap_stays_before_what_was_moved_while_the_sink_is_away() {
        let (volume, pool) = (Volume::new("gaps"), Arc::new(Pool::new(64 * CHUNK_BYTES as u64, 0, 0)));
        let spool = volume.open(64 << 20);
        let mut spill = Spill::new(pool.clone(), spool.clone(), 1, false);
        let start = Instant::now();
        // Three chunks each: seven of 64 are left, an eighth is eight.
        let blocks: Vec<_> = (0..19).map(|place| frames(&pool, 10 * place, false)).collect();
        for frames in &blocks {
            spill.add(frames, 0, start);
        }
        let trying = blocks[0].load(Some(&spool), 5).await.unwrap();
        spill.look(|_| true, start);
        let moved = |blocks: &[Arc<BlockFrames>]| blocks.iter().filter(|frames| was_moved(frames)).count();
        assert!(blocks[0].is_in_memory() && moved(&blocks[1..]) > 1);
        let before = moved(&blocks[1..]);
        drop(trying);
        while spool.spilling_bytes() > 0 {
            std::thread::yield_now();
        }
        spill.look(|_| false, start);
        assert!(!was_moved(&blocks[0]), "it is inserted next");
        spill.look(|_| true, start);
        assert!(was_moved(&blocks[0]));
        assert_eq!(moved(&blocks[1..]), before, "what came behind them leaves no gap");
    }

    #[test]
    fn what_waits_for_long_goes_to_the_volume_where_that_commits_it() {
        for enqueues in [false, true] {
            let (volume, pool) =
                (Volume::new(&format!("overdue-{enqueues}")), Arc::new(Pool::new(64 << 20, 1, 1)));
            let mut spill = Spill::new(pool.clone(), volume.open(64 << 20), 1, enqueues);
            let (old, young) = (frames(&pool, 20, enqueues), frames(&pool, 30, enqueues));
            let start = Instant::now();
            spill.add(&old, 0, start);
            spill.add(&young, 0, start + Duration::from_millis(1));
            for is_sink_away in [false, true] {
                spill.look(|_| is_sink_away, start + ALMOST);
                assert!(!was_moved(&old) && !was_moved(&young), "memory is not short");
            }
            spill.look(|_| true, start + ENQUEUE_AFTER);
            assert_eq!((was_moved(&old), was_moved(&young)), (enqueues, false), "enqueues: {enqueues}");
        }
    }

    #[test]
    fn what_is_being_sent_or_has_no_plan_yet_is_looked_at_again() {
        let (volume, pool) = (Volume::new("again"), Arc::new(Pool::new(64 << 20, 1, 1)));
        let mut spill = Spill::new(pool.clone(), volume.open(64 << 20), 1, true);
        let unplanned = sealed(&pool, 20, true);
        unplanned.block.account.settled();
        let start = Instant::now();
        spill.add(&unplanned.frames, 0, start);
        spill.look(|_| true, start + ENQUEUE_AFTER);
        assert!(!was_moved(&unplanned.frames));
        unplanned.frames.release(0, None);
        spill.look(|_| true, start + 2 * ENQUEUE_AFTER);
        assert!(was_moved(&unplanned.frames));
    }

    #[tokio::test]
    async fn who_leaves_keeps_everything_on_the_volume_and_knows_when_that_is_done() {
        let (volume, pool) = (Volume::new("leaving"), Arc::new(Pool::new(64 << 20, 1, 1)));
        let spool = volume.open(64 << 20);
        let mut spill = Spill::new(pool.clone(), spool.clone(), 1, false);
        let start = Instant::now();
        let (waits, sent) = (frames(&pool, 0, false), frames(&pool, 10, false));
        spill.add(&waits, 0, start);
        spill.add(&sent, 0, start);
        let trying = sent.load(Some(&spool), 5).await.unwrap();
        spill.look(|_| true, start);
        assert!(!was_moved(&waits) && !spill.is_everything_kept(), "memory is not short");
        spool.spill_everything();
        spill.look(|_| true, start);
        while !spill.is_everything_kept() {
            std::thread::yield_now();
        }
        drop(trying);
        while spool.usage().blocks < 2 {
            // Also one that is being sent.
            std::thread::yield_now();
        }
        let asked = spool.times_asked();
        assert!(!spool.is_everything_kept());
        spool.everything_is_kept(asked);
        assert!(spool.is_everything_kept());
        spool.spill_everything();
        assert!(!spool.is_everything_kept(), "it was asked again since");
    }

    #[test]
    fn blocks_that_never_needed_the_volume_are_forgotten() {
        let (volume, pool) = (Volume::new("forgotten"), Arc::new(Pool::new(64 << 20, 1, 1)));
        let mut spill = Spill::new(pool.clone(), volume.open(64 << 20), 1, false);
        let start = Instant::now();
        let stays = frames(&pool, 0, false);
        spill.add(&stays, 0, start);
        for at in 1..1_000 {
            let frames = frames(&pool, 10 * at, false);
            spill.add(&frames, 0, start);
            spill.look(|_| false, start);
            frames.end(None, Ended::Settled);
        }
        assert!(spill.blocks.len() <= KEPT_MIN, "{}", spill.blocks.len());
        assert!(spill.blocks.iter().any(|block| block.frames.ptr_eq(&Arc::downgrade(&stays))));
    }

    #[test]
    fn a_shard_that_has_filled_its_part_spills_though_the_pool_is_not_short() {
        let (volume, pool) =
            (Volume::new("share"), Arc::new(Pool::new(64 * CHUNK_BYTES as u64, 0, 0).shared_by(2)));
        let mut spill = Spill::new(pool.clone(), volume.open(64 << 20), 2, false);
        let start = Instant::now();
        let of_shard = |shard, first| (shard, released(sealed_in(Chunks::of(shard), &pool, first, false)));
        // Three chunks each: 27 of 32, and of the other 3.
        let blocks: Vec<_> = (0..9).map(|place| of_shard(0, 10 * place)).chain([of_shard(1, 500)]).collect();
        for (shard, frames) in &blocks {
            spill.add(frames, *shard, start);
        }
        spill.look(|shard| shard == 0, start);
        assert!(blocks.iter().all(|(_, frames)| !was_moved(frames)), "an eighth of its part is free");
        assert!(spill.coming.is_empty(), "none is on its way, and none is looked at");
        let last = of_shard(0, 600);
        spill.add(&last.1, 0, start);
        assert!(pool.free_bytes() > 3 * pool.total_bytes() / SHORT_SHARE, "the pool is not short");
        spill.look(|shard| shard == 0, start);
        let moved: Vec<_> = blocks.iter().map(|(_, frames)| was_moved(frames)).collect();
        // 30 of 32: until 8 are free, with what is on its way.
        assert!(moved[..2].iter().all(|moved| *moved) && !moved[3..].contains(&true), "{moved:?}");
        assert!(!was_moved(&last.1));

        let sent = moved.iter().filter(|moved| **moved).count();
        assert_eq!(spill.coming.len(), sent);
        let coming = [spill.parts[0].coming, spill.parts[1].coming];
        assert_eq!(coming, [(sent * BLOCK_BYTES) as u64, 0]);
        while blocks[..sent].iter().any(|(_, frames)| frames.is_in_memory()) {
            std::thread::yield_now();
        }
        spill.look(|shard| shard == 0, start);
        assert_eq!((spill.coming.len(), spill.parts[0].coming), (0, 0), "they have arrived");
    }
}
