//! Which blocks go to the queue volume, and when.
//!
//! Place in the flow: delivery tells it of every block that comes in, and has it look at the pool of chunks now and then. Owner: the
//! delivery task. It decides; the spool thread moves.
//!
//! - **When**: less than one chunk in [`SHORT_SHARE`] of the pool is free. Workers that get no chunk stop reading until a whole block's
//!   worth is free; what is free now is what they fill while blocks are on their way to the volume.
//! - **How many**: until so much is free that a worker which had to stop may go on, and a quarter more. So they go in runs, and a
//!   queue of inserts that only grew for a moment goes on from memory.
//! - **Which**: while blocks are inserted, if slowly, the newest first: the oldest are sent next, from memory, without the way over the
//!   disk. While nothing is inserted, the oldest first: the next run of this process can go on with what follows the committed offset
//!   without a gap, and with nothing behind one.
//! - **Not**: a block that is being sent. Its chunks would not come back before the try is over.
//!
//! Limits: one weak pointer for each block that was in memory when it was looked at last.

use crate::{buffers::Pool, cargo::Cargo, spool::Spool};
use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
};

/// The share of the pool below which blocks are moved. Chosen: an eighth of the smallest pool is two blocks of the size rule, which
/// take a worker a tenth of a second to fill and the volume a hundredth to take.
const SHORT_SHARE: usize = 8;

/// Decides which blocks are moved.
pub struct Spill {
    pool: Arc<Pool>,
    spool: Spool,
    /// In the order in which they came.
    cargoes: VecDeque<Weak<Cargo>>,
    /// Whether a run is under way.
    is_short: bool,
}

impl Spill {
    /// Nothing has come yet.
    pub fn new(pool: Arc<Pool>, spool: Spool) -> Self {
        Self { pool, spool, cargoes: VecDeque::new(), is_short: false }
    }

    /// A block has come in.
    pub fn add(&mut self, cargo: &Arc<Cargo>) {
        self.cargoes.push_back(Arc::downgrade(cargo));
    }

    /// Moves blocks if there is reason to.
    pub fn look(&mut self, is_sink_away: bool) {
        let everything = self.spool.spills_everything();
        if !everything && !self.is_wanted() {
            return;
        }
        self.cargoes.retain(|cargo| cargo.upgrade().is_some_and(|cargo| cargo.is_in_memory()));
        let count = self.cargoes.len();
        for place in 0..count {
            let index = if is_sink_away { place } else { count - 1 - place };
            if !(everything || self.is_wanted()) || !self.spool.takes_blocks() {
                return;
            }
            if let Some(cargo) = self.cargoes[index].upgrade() {
                self.spool.spill(&cargo);
            }
        }
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

    #[test]
    fn a_run_ends_where_a_worker_may_go_on_and_never_wants_all() {
        const MIB: usize = 1 << 20;
        assert_eq!(marks(64 * MIB, 24 * MIB), (8 * MIB, 30 * MIB));
        assert_eq!(marks(1024 * MIB, 24 * MIB), (128 * MIB, 128 * MIB));
        assert_eq!(marks(32 * MIB, 28 * MIB), (4 * MIB, 24 * MIB));
    }
}
