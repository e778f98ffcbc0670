//! Decides which blocks go to the queue volume, and when.
//!
//! Place in the flow: delivery calls [`Spill::look`] periodically, and for each block that arrives. Owner: the delivery task. It decides;
//! the spool thread moves the blocks.
//!
//! - **When**: less than one chunk in [`SHORT_SHARE`] of the pool is free, or a worker waits for a chunk. That worker stops reading until
//!   there is room for a whole block, possibly long after the pool has stopped being short. Only blocks that were already moving to the
//!   volume free memory then; while ClickHouse is away nothing else does. So moving must start early enough for the workers to fill the
//!   free memory meanwhile. The same applies to a shard's part of the pool, for its blocks: its partitions stop when the part is full,
//!   however much the others leave free. With `delivery.commit: AfterEnqueue`, a block that has waited for [`ENQUEUE_AFTER`] is moved
//!   too, the oldest first. Its offsets are committed once it is on the volume, so the consumer group's lag counts only unread messages and
//!   those of open blocks, however long ClickHouse is away or behind.
//! - **How many**: until enough is free for a stopped worker to continue, and a quarter more; of a shard's part, a quarter. Never all of a
//!   small pool, unless a worker waits for it. So blocks are moved in runs, and a short backlog of inserts is sent from memory.
//! - **Which**: first the blocks of shards without successful inserts, the oldest first: the next run of this process can take over only
//!   blocks that follow the committed offset without a gap. Then blocks of slow shards, the newest first: the oldest are sent next, from
//!   memory, without the disk.
//! - **Not**: a block that is being sent. Its chunks would stay in use until the try ends. When the process shuts down, it is moved too,
//!   and the next run continues with it.
//! - **Gaps**: a block was being sent when later ones were moved. As soon as its try ends, it is moved too, while its shard has no
//!   successful inserts. If it were only in memory when the process dies, the next run would read its messages and all later ones again.
//!   If Kafka had deleted its messages meanwhile, its rows would be lost.
//!
//! A block counts for the shard that its chunks were taken for. If its range was first sent while there were fewer shards, it may go to
//! another one; the shard only decides which blocks are moved first.
//!
//! Limits: at most [`SPILLS_MAX`](crate::volume::spool::SPILLS_MAX) blocks are on their way to the volume. All blocks in memory are
//! checked while the pool is short, or while a shard is away that has blocks on the volume; else none.

use crate::{
    blocks::buffers::{Pool, Share},
    volume::{
        block_table::{BlockTable, Number},
        spool::Spool,
    },
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// The share of free memory in the pool below which blocks are moved. Chosen: an eighth of the smallest pool is two blocks of the size
/// rule; a worker fills them in a tenth of a second, and the volume takes them in a hundredth.
const SHORT_SHARE: usize = 8;

/// How long a block may wait in memory before its offsets are committed from the volume instead. Chosen: an insert takes a second or two,
/// including its wait in the queue, and should not use the volume; and no alert fires for a lag of five seconds.
pub const ENQUEUE_AFTER: Duration = Duration::from_secs(5);

/// Decides which blocks are moved.
pub struct Spill {
    pool: Arc<Pool>,
    spool: Spool,
    /// Whether blocks that have waited long go to the volume.
    enqueues: bool,
    /// Whether a run is active because the pool is short.
    is_short: bool,
    /// The state of each shard's part of the pool.
    parts: Vec<Part>,
}

/// The state of a shard's part of the pool.
#[derive(Clone, Default)]
struct Part {
    /// Whether a run is active.
    is_short: bool,
    /// Its last block that was moved. Earlier blocks in memory leave a gap before it.
    moved_up_to: Option<Number>,
}

impl Spill {
    /// For this many shards. `enqueues`: blocks that have waited long go to the volume even if memory is not short.
    pub fn new(pool: Arc<Pool>, spool: Spool, shards: usize, enqueues: bool) -> Self {
        Self { pool, spool, enqueues, is_short: false, parts: vec![Part::default(); shards.max(1)] }
    }

    /// Moves blocks if there is a reason. `is_away`: whether inserts into a shard fail.
    pub fn look(&mut self, blocks: &mut BlockTable, is_away: impl Fn(usize) -> bool, now: Instant) {
        self.move_overdue(blocks, now);
        self.close_gaps(blocks, &is_away);
        let everything = self.spool.spills_everything();
        let mut is_short = self.is_wanted(blocks);
        for shard in 0..self.parts.len() {
            is_short |= self.is_part_short(blocks, shard);
        }
        if !everything && !is_short {
            return;
        }
        for (number, shard) in order(blocks, is_away) {
            if !blocks.takes_blocks() {
                return;
            }
            if everything || self.is_wanted(blocks) || self.is_part_short(blocks, shard) {
                self.spill(blocks, number, shard);
            }
        }
    }

    /// Moves blocks that have waited for [`ENQUEUE_AFTER`], the oldest first.
    fn move_overdue(&mut self, blocks: &mut BlockTable, now: Instant) {
        if self.enqueues {
            let is_overdue = |came: Instant| now.saturating_duration_since(came) >= ENQUEUE_AFTER;
            let overdue = blocks.in_memory().take_while(|(_, _, came)| is_overdue(*came));
            self.spill_all(overdue.map(|(number, shard, _)| (number, shard)).collect(), blocks);
        }
    }

    /// Moves blocks in memory that come before blocks on the volume, of shards without successful inserts.
    fn close_gaps(&mut self, blocks: &mut BlockTable, is_away: impl Fn(usize) -> bool) {
        let moved_up_to = |(shard, part): (usize, &Part)| part.moved_up_to.filter(|_| is_away(shard));
        let gaps: Vec<Option<Number>> = self.parts.iter().enumerate().map(moved_up_to).collect();
        let Some(last) = gaps.iter().flatten().max() else { return };
        let before = blocks.in_memory().take_while(|(number, ..)| number < last);
        let in_gaps = before.filter(|(number, shard, _)| gaps[*shard].is_some_and(|up_to| *number < up_to));
        self.spill_all(in_gaps.map(|(number, shard, _)| (number, shard)).collect(), blocks);
    }

    fn spill_all(&mut self, all: Vec<(Number, usize)>, blocks: &mut BlockTable) {
        for (number, shard) in all {
            if !blocks.takes_blocks() {
                return;
            }
            self.spill(blocks, number, shard);
        }
    }

    /// Hands over a block, unless it must not be moved now.
    fn spill(&mut self, blocks: &mut BlockTable, number: Number, shard: usize) {
        if blocks.spill(number).is_some() {
            let part = &mut self.parts[shard];
            part.moved_up_to = part.moved_up_to.max(Some(number));
        }
    }

    /// Whether more memory is needed than is free or becomes free soon.
    fn is_wanted(&mut self, blocks: &BlockTable) -> bool {
        let redo = self.pool.redo_bytes();
        let (least, enough) = marks(self.pool.total_bytes(), redo);
        let free = self.pool.free_bytes().saturating_add(usize_of(blocks.coming_bytes().iter().sum()));
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
    fn is_part_short(&mut self, blocks: &BlockTable, shard: usize) -> bool {
        let Some(Share { bytes, free_bytes }) = self.pool.share(shard) else { return false };
        let part = &mut self.parts[shard];
        let free = free_bytes.saturating_add(usize_of(blocks.coming_bytes()[shard]));
        part.is_short = free < part_mark(bytes, part.is_short);
        part.is_short
    }
}

/// The order of moving: the blocks of shards that are away, the oldest first; then the others, the newest first.
fn order(blocks: &BlockTable, is_away: impl Fn(usize) -> bool) -> Vec<(Number, usize)> {
    let in_memory = blocks.in_memory().map(|(number, shard, _)| (number, shard));
    let (mut order, others): (Vec<_>, Vec<_>) = in_memory.partition(|(_, shard)| is_away(*shard));
    order.extend(others.into_iter().rev());
    order
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
        blocks::{buffers::CHUNK_BYTES, chunks::Chunks},
        volume::{
            block_frames::{BlockFrames, Loaded},
            spool::Ended,
            test_volume::{BLOCK_BYTES, Volume, release_of, sealed, sealed_in, served},
        },
    };

    const ALMOST: Duration = Duration::from_millis(4_999);

    /// What decides, and the blocks that it decides about.
    struct Test {
        spill: Spill,
        table: BlockTable,
        pool: Arc<Pool>,
        spool: Spool,
        start: Instant,
    }

    impl Test {
        fn new(spool: Spool, pool: Pool, shards: usize, enqueues: bool) -> Self {
            let pool = Arc::new(pool);
            let spill = Spill::new(pool.clone(), spool.clone(), shards, enqueues);
            let table = BlockTable::new(Some(spool.clone()), shards);
            Self { spill, table, pool, spool, start: Instant::now() }
        }

        /// Adds a block that may be sent. It came this long after the start.
        fn add(&mut self, first: i64, after: Duration) -> BlockFrames {
            self.add_to(Chunks::default(), 0, first, after)
        }

        fn add_to(&mut self, chunks: Chunks, shard: usize, first: i64, after: Duration) -> BlockFrames {
            let block = sealed_in(chunks, &self.pool, first, self.spill.enqueues);
            let added = self.table.add(block, 9, shard, self.start + after);
            self.table.release(&added, &release_of(&added.block));
            added.block.account.settled();
            added.frames
        }

        fn look(&mut self, is_away: impl Fn(usize) -> bool, after: Duration) {
            self.spill.look(&mut self.table, is_away, self.start + after);
        }

        /// Whether it is on the volume, or on its way there.
        fn was_moved(&self, frames: &BlockFrames) -> bool {
            self.table.was_moved(frames.number())
        }

        fn moved(&self, blocks: &[BlockFrames]) -> usize {
            blocks.iter().filter(|frames| self.was_moved(frames)).count()
        }

        /// What a try would send.
        async fn load(&mut self, frames: &mut BlockFrames) -> Loaded {
            let spool = self.spool.clone();
            served(&mut self.table, frames.load(Some(&spool), 5)).await.unwrap()
        }

        async fn event(&mut self) {
            let event = self.table.events_in.recv().await.unwrap();
            self.table.take(event);
        }
    }

    #[test]
    fn a_run_ends_where_a_worker_may_go_on_and_never_wants_all() {
        const MIB: usize = 1 << 20;
        assert_eq!(marks(64 * MIB, 24 * MIB), (8 * MIB, 30 * MIB));
        assert_eq!(marks(1024 * MIB, 24 * MIB), (128 * MIB, 128 * MIB));
        assert_eq!(marks(32 * MIB, 28 * MIB), (4 * MIB, 24 * MIB));
    }

    #[tokio::test]
    async fn a_worker_that_waits_gets_the_room_it_waits_for() {
        // As large as that of a gateway with little memory: at the end of a run, less is free than a worker waits for.
        const POOL: usize = 32 << 20;
        let volume = Volume::new("waits");
        let mut test = Test::new(volume.open(64 << 20), Pool::new(POOL as u64, 1, 1), 1, false);
        assert!(marks(POOL, test.pool.redo_bytes()).1 < test.pool.redo_bytes());
        let count = i64::try_from(POOL / 2 / BLOCK_BYTES).unwrap();
        let blocks: Vec<_> = (0..count).map(|place| test.add(10 * place, Duration::ZERO)).collect();
        test.look(|_| true, Duration::ZERO);
        assert_eq!(test.moved(&blocks), 0, "half of it is free");
        assert!(!test.pool.claim_redo(false));
        let waiting = test.pool.wait();
        while !test.pool.claim_redo(false) {
            test.look(|_| true, Duration::ZERO);
            assert!(test.moved(&blocks) > 0, "nothing is on its way");
            test.event().await;
        }
        drop(waiting);
        let moved = test.moved(&blocks);
        assert!(moved < blocks.len(), "no more than that");
        test.look(|_| true, Duration::ZERO);
        assert_eq!(test.moved(&blocks), moved, "nobody waits any more");
    }

    #[tokio::test]
    async fn no_gap_stays_before_what_was_moved_while_the_sink_is_away() {
        let volume = Volume::new("gaps");
        let pool = Pool::new(64 * CHUNK_BYTES as u64, 0, 0);
        let mut test = Test::new(volume.open(64 << 20), pool, 1, false);
        // Three chunks each: seven of 64 are left, an eighth is eight.
        let mut blocks: Vec<_> = (0..19).map(|place| test.add(10 * place, Duration::ZERO)).collect();
        let trying = test.load(&mut blocks[0]).await;
        test.look(|_| true, Duration::ZERO);
        assert!(!test.was_moved(&blocks[0]) && test.moved(&blocks[1..]) > 1);
        let before = test.moved(&blocks[1..]);
        drop(trying);
        while test.table.coming_bytes()[0] > 0 {
            test.event().await;
        }
        test.look(|_| false, Duration::ZERO);
        assert!(!test.was_moved(&blocks[0]), "it is inserted next");
        test.look(|_| true, Duration::ZERO);
        assert!(test.was_moved(&blocks[0]));
        assert_eq!(test.moved(&blocks[1..]), before, "what came behind them leaves no gap");
    }

    #[test]
    fn what_waits_for_long_goes_to_the_volume_where_that_commits_it() {
        for enqueues in [false, true] {
            let volume = Volume::new(&format!("overdue-{enqueues}"));
            let mut test = Test::new(volume.open(64 << 20), Pool::new(64 << 20, 1, 1), 1, enqueues);
            let old = test.add(20, Duration::ZERO);
            let young = test.add(30, Duration::from_millis(1));
            for is_sink_away in [false, true] {
                test.look(|_| is_sink_away, ALMOST);
                assert!(!test.was_moved(&old) && !test.was_moved(&young), "memory is not short");
            }
            test.look(|_| true, ENQUEUE_AFTER);
            assert_eq!((test.was_moved(&old), test.was_moved(&young)), (enqueues, false), "{enqueues}");
        }
    }

    #[test]
    fn what_is_being_sent_or_has_no_plan_yet_is_looked_at_again() {
        let volume = Volume::new("again");
        let mut test = Test::new(volume.open(64 << 20), Pool::new(64 << 20, 1, 1), 1, true);
        let unplanned = test.table.add(sealed(&test.pool, 20, true), 9, 0, test.start);
        test.look(|_| true, ENQUEUE_AFTER);
        assert!(!test.was_moved(&unplanned.frames));
        test.table.release(&unplanned, &release_of(&unplanned.block));
        test.look(|_| true, 2 * ENQUEUE_AFTER);
        assert!(test.was_moved(&unplanned.frames));
        unplanned.block.account.settled();
    }

    #[tokio::test]
    async fn who_leaves_keeps_everything_on_the_volume_and_knows_when_that_is_done() {
        let volume = Volume::new("leaving");
        let mut test = Test::new(volume.open(64 << 20), Pool::new(64 << 20, 1, 1), 1, false);
        let (waits, mut sent) = (test.add(0, Duration::ZERO), test.add(10, Duration::ZERO));
        let spool = test.spool.clone();
        let trying = test.load(&mut sent).await;
        test.look(|_| true, Duration::ZERO);
        assert!(!test.was_moved(&waits) && test.table.uses_memory(), "memory is not short");
        spool.spill_everything();
        test.look(|_| true, Duration::ZERO);
        while test.table.uses_memory() {
            // Also one that is being sent.
            test.event().await;
        }
        drop(trying);
        while spool.usage().blocks < 2 {
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
        let volume = Volume::new("forgotten");
        let mut test = Test::new(volume.open(64 << 20), Pool::new(64 << 20, 1, 1), 1, false);
        let stays = test.add(0, Duration::ZERO);
        for at in 1..1_000 {
            let frames = test.add(10 * at, Duration::ZERO);
            test.look(|_| false, Duration::ZERO);
            test.table.end(frames.number(), Ended::Settled);
        }
        let left: Vec<Number> = test.table.in_memory().map(|(number, ..)| number).collect();
        assert_eq!(left, [stays.number()]);
    }

    #[tokio::test]
    async fn a_shard_that_has_filled_its_part_spills_though_the_pool_is_not_short() {
        let volume = Volume::new("share");
        let pool = Pool::new(64 * CHUNK_BYTES as u64, 0, 0).shared_by(2);
        let mut test = Test::new(volume.open(64 << 20), pool, 2, false);
        let of_shard =
            |test: &mut Test, shard, first| test.add_to(Chunks::of(shard), shard, first, Duration::ZERO);
        // Three chunks each: 27 of 32, and of the other 3.
        let mut blocks: Vec<_> = (0..9).map(|place| of_shard(&mut test, 0, 10 * place)).collect();
        blocks.push(of_shard(&mut test, 1, 500));
        test.look(|shard| shard == 0, Duration::ZERO);
        assert_eq!(test.moved(&blocks), 0, "an eighth of its part is free");
        let last = of_shard(&mut test, 0, 600);
        assert!(test.pool.free_bytes() > 3 * test.pool.total_bytes() / SHORT_SHARE, "the pool is not short");
        test.look(|shard| shard == 0, Duration::ZERO);
        let moved: Vec<_> = blocks.iter().map(|frames| test.was_moved(frames)).collect();
        // 30 of 32: until 8 are free, with what is on its way.
        assert!(moved[..2].iter().all(|moved| *moved) && !moved[3..].contains(&true), "{moved:?}");
        assert!(!test.was_moved(&last));

        let sent = moved.iter().filter(|moved| **moved).count();
        let coming = [test.table.coming_bytes()[0], test.table.coming_bytes()[1]];
        assert_eq!(coming, [(sent * BLOCK_BYTES) as u64, 0]);
        for _ in 0..sent {
            test.event().await;
        }
        assert_eq!(test.table.coming_bytes()[0], 0, "they have arrived");
    }
}
