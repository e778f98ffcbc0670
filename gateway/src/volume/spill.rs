//! Which blocks go to the queue volume, and when.
//!
//! Place in the flow: delivery tells it of every block that comes in, and has it look at the pool of chunks now and then. Owner: the
//! delivery task. It decides; the spool thread moves.
//!
//! - **When**: less than one chunk in [`SHORT_SHARE`] of the pool is free. Workers that get no chunk stop reading until a whole block's
//!   worth is free; what is free now is what they fill while blocks are on their way to the volume. With `delivery.commit: AfterEnqueue`
//!   also a block that has waited for [`ENQUEUE_AFTER`], the oldest first: its offsets are committed once it is on the volume, so that
//!   the consumer group's lag is what nobody has read yet, however long the sink is away or behind.
//! - **How many**: until so much is free that a worker which had to stop may go on, and a quarter more. So they go in runs, and a
//!   queue of inserts that only grew for a moment goes on from memory.
//! - **Which**: while blocks are inserted, if slowly, the newest first: the oldest are sent next, from memory, without the way over the
//!   disk. While nothing is inserted, the oldest first: the next run of this process can go on with what follows the committed offset
//!   without a gap, and with nothing behind one.
//! - **Not**: a block that is being sent. Its chunks would not come back before the try is over. Once the process leaves, it is moved too:
//!   the next run goes on with it.
//!
//! Limits: one weak pointer for each block in memory, and as many again, at least [`KEPT_MIN`], for what has left it meanwhile.

use crate::{
    blocks::buffers::Pool,
    volume::{block_frames::BlockFrames, spool::Spool},
};
use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

/// The share of the pool below which blocks are moved. Chosen: an eighth of the smallest pool is two blocks of the size rule, which
/// take a worker a tenth of a second to fill and the volume a hundredth to take.
const SHORT_SHARE: usize = 8;

/// How long a block may wait in memory before its offsets are committed from the volume instead. Chosen: an insert that is answered takes
/// a second or two, with its place in the queue, and should cost the volume nothing; and a lag of five seconds alerts nobody.
pub const ENQUEUE_AFTER: Duration = Duration::from_secs(5);

/// Weak pointers below which nobody looks which of them are dead. Chosen: they and what they keep allocated are 20 kB.
const KEPT_MIN: usize = 64;

/// Decides which blocks are moved.
pub struct Spill {
    pool: Arc<Pool>,
    spool: Spool,
    /// With the moments at which they came, and in that order.
    blocks: VecDeque<(Instant, Weak<BlockFrames>)>,
    /// How many of them are kept before those are left out that are not in memory any more.
    kept_max: usize,
    /// Whether what waits for long goes to the volume.
    enqueues: bool,
    /// Whether a run is under way.
    is_short: bool,
}

impl Spill {
    /// Nothing has come yet. `enqueues`: what waits for long goes to the volume, whether memory is short or not.
    pub fn new(pool: Arc<Pool>, spool: Spool, enqueues: bool) -> Self {
        Self { pool, spool, blocks: VecDeque::new(), kept_max: KEPT_MIN, enqueues, is_short: false }
    }

    /// A block has come in.
    pub fn add(&mut self, frames: &Arc<BlockFrames>, now: Instant) {
        if self.blocks.len() >= self.kept_max {
            self.leave_out();
            self.kept_max = (2 * self.blocks.len()).max(KEPT_MIN);
        }
        self.blocks.push_back((now, Arc::downgrade(frames)));
    }

    /// Moves blocks if there is reason to.
    pub fn look(&mut self, is_sink_away: bool, now: Instant) {
        self.move_overdue(now);
        let everything = self.spool.spills_everything();
        if !everything && !self.is_wanted() {
            return;
        }
        self.leave_out();
        let count = self.blocks.len();
        for place in 0..count {
            let index = if is_sink_away { place } else { count - 1 - place };
            if !(everything || self.is_wanted()) || !self.spool.takes_blocks() {
                return;
            }
            self.spill(index);
        }
    }

    /// Moves what has waited for [`ENQUEUE_AFTER`], the oldest first.
    fn move_overdue(&mut self, now: Instant) {
        let is_overdue = |came: Instant| now.saturating_duration_since(came) >= ENQUEUE_AFTER;
        if !self.enqueues || !self.blocks.front().is_some_and(|(came, _)| is_overdue(*came)) {
            return;
        }
        self.leave_out();
        let overdue = self.blocks.partition_point(|(came, _)| is_overdue(*came));
        for index in 0..overdue {
            if !self.spool.takes_blocks() {
                return;
            }
            self.spill(index);
        }
    }

    /// Whether nothing that has come in needs memory any more.
    pub fn is_everything_kept(&mut self) -> bool {
        self.leave_out();
        self.blocks.is_empty()
    }

    fn spill(&self, index: usize) {
        if let Some(frames) = self.blocks[index].1.upgrade() {
            self.spool.spill(&frames);
        }
    }

    /// Loses sight of what needs no memory any more.
    fn leave_out(&mut self) {
        self.blocks.retain(|(_, frames)| frames.upgrade().is_some_and(|frames| frames.is_in_memory()));
    }

    /// Whether more memory is wanted than is free or on its way to be.
    fn is_wanted(&mut self) -> bool {
        let (least, enough) = marks(self.pool.total_bytes(), self.pool.redo_bytes());
        let coming = usize::try_from(self.spool.spilling_bytes()).unwrap_or(usize::MAX);
        let free = self.pool.free_bytes().saturating_add(coming);
        self.is_short = free < if self.is_short { enough } else { least };
        self.is_short
    }
}

/// Free bytes of the pool at which a run begins, and at which it ends.
fn marks(total: usize, redo: usize) -> (usize, usize) {
    let least = total / SHORT_SHARE;
    // Never all of it: open blocks have their chunks whatever is moved.
    (least, (redo + redo / 4).clamp(least, total - total / 4))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::{
        block_frames::tests::{Volume, stowed},
        spool::Ended,
    };

    const ALMOST: Duration = Duration::from_millis(4_999);

    fn frames(pool: &Pool, first: i64, is_enqueued: bool) -> Arc<BlockFrames> {
        let stowed = stowed(pool, first, is_enqueued);
        stowed.block.account.settled();
        stowed.frames.release(0);
        stowed.frames
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
    fn what_waits_for_long_goes_to_the_volume_where_that_commits_it() {
        for enqueues in [false, true] {
            let (volume, pool) =
                (Volume::new(&format!("overdue-{enqueues}")), Arc::new(Pool::new(64 << 20, 1, 1)));
            let mut spill = Spill::new(pool.clone(), volume.open(64 << 20), enqueues);
            let (old, young) = (frames(&pool, 20, enqueues), frames(&pool, 30, enqueues));
            let start = Instant::now();
            spill.add(&old, start);
            spill.add(&young, start + Duration::from_millis(1));
            for is_sink_away in [false, true] {
                spill.look(is_sink_away, start + ALMOST);
                assert!(!was_moved(&old) && !was_moved(&young), "memory is not short");
            }
            spill.look(true, start + ENQUEUE_AFTER);
            assert_eq!((was_moved(&old), was_moved(&young)), (enqueues, false), "enqueues: {enqueues}");
        }
    }

    #[test]
    fn what_is_being_sent_or_has_no_plan_yet_is_looked_at_again() {
        let (volume, pool) = (Volume::new("again"), Arc::new(Pool::new(64 << 20, 1, 1)));
        let mut spill = Spill::new(pool.clone(), volume.open(64 << 20), true);
        let unplanned = stowed(&pool, 20, true);
        unplanned.block.account.settled();
        let start = Instant::now();
        spill.add(&unplanned.frames, start);
        spill.look(true, start + ENQUEUE_AFTER);
        assert!(!was_moved(&unplanned.frames));
        unplanned.frames.release(0);
        spill.look(true, start + 2 * ENQUEUE_AFTER);
        assert!(was_moved(&unplanned.frames));
    }

    #[tokio::test]
    async fn who_leaves_keeps_everything_on_the_volume_and_knows_when_that_is_done() {
        let (volume, pool) = (Volume::new("leaving"), Arc::new(Pool::new(64 << 20, 1, 1)));
        let spool = volume.open(64 << 20);
        let mut spill = Spill::new(pool.clone(), spool.clone(), false);
        let start = Instant::now();
        let (waits, sent) = (frames(&pool, 0, false), frames(&pool, 10, false));
        spill.add(&waits, start);
        spill.add(&sent, start);
        let trying = sent.load(Some(&spool), 5).await.unwrap();
        spill.look(true, start);
        assert!(!was_moved(&waits) && !spill.is_everything_kept(), "memory is not short");
        spool.spill_everything();
        spill.look(true, start);
        while !spill.is_everything_kept() {
            std::thread::yield_now();
        }
        drop(trying);
        while spool.usage().blocks < 2 {
            // One that is being sent too.
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
        let mut spill = Spill::new(pool.clone(), volume.open(64 << 20), false);
        let start = Instant::now();
        let stays = frames(&pool, 0, false);
        spill.add(&stays, start);
        for at in 1..1_000 {
            let frames = frames(&pool, 10 * at, false);
            spill.add(&frames, start);
            spill.look(false, start);
            frames.end(None, Ended::Settled);
        }
        assert!(spill.blocks.len() <= KEPT_MIN, "{}", spill.blocks.len());
        assert!(spill.blocks.iter().any(|(_, frames)| frames.ptr_eq(&Arc::downgrade(&stays))));
    }
}
