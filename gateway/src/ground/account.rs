//! Counts where every row is, so that no row can disappear unnoticed.
//!
//! Place in the flow: workers open an [`OpenRows`] with a block and count the rows of each message. Sealing turns it into [`RowsInFlight`],
//! which stays with the block until delivery records what happened to its rows. Owner: each guard belongs to the thread that holds the
//! block; the sums are shared atomics.
//!
//! ```text
//!  walked ──> open ──seal──> in flight ──> settled by insert | dead-lettered | abandoned | lost
//!               `──────────────────────────────────────────────────────────> abandoned
//! ```
//!
//! imbalance = walked − settled − dead-lettered − abandoned − lost − in flight. It is 0 whenever no guard is changing hands, and so at
//! rest. Two defects make it differ permanently. A block holds other rows than were counted: the block itself counts its rows too. Or a
//! block disappears: a guard that is dropped takes its rows out of flight and counts them nowhere.
//!
//! Abandoned rows are not lost: their generation is over, their offsets are not committed, and the next owner reads them again. Lost rows
//! were only on the queue volume, and cannot be read there.
//!
//! Limits: none of its own. Cost: two additions a message.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// The sums since the start, in rows. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct RowAccount(Arc<Sums>);

#[derive(Debug, Default)]
struct Sums {
    walked: AtomicU64,
    settled: AtomicU64,
    dead_lettered: AtomicU64,
    abandoned: AtomicU64,
    lost: AtomicU64,
    in_flight: AtomicU64,
}

/// Rows of an open block. If it is dropped without [`seal`](Self::seal) or [`abandon`](Self::abandon), they count as missing.
#[derive(Debug)]
#[must_use = "rows that are dropped without a result count as missing"]
pub struct OpenRows {
    account: RowAccount,
    rows: u64,
}

/// Rows of a sealed block. If it is dropped without a result, they count as missing.
#[derive(Debug)]
#[must_use = "rows that are dropped without a result count as missing"]
pub struct RowsInFlight {
    account: RowAccount,
    rows: u64,
}

impl RowAccount {
    /// The guard of a new block, without rows.
    pub fn open(&self) -> OpenRows {
        OpenRows { account: self.clone(), rows: 0 }
    }

    /// Rows that were read and are counted nowhere: must be 0 at rest. Positive for rows that disappeared, negative for rows that were
    /// never read.
    pub fn imbalance(&self) -> i64 {
        let Sums { walked, settled, dead_lettered, abandoned, lost, in_flight } = &*self.0;
        let read = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        let found = read(settled)
            .wrapping_add(read(dead_lettered))
            .wrapping_add(read(abandoned))
            .wrapping_add(read(lost))
            .wrapping_add(read(in_flight));
        // The difference of two counters; either may be larger.
        read(walked).wrapping_sub(found).cast_signed()
    }

    /// Rows of open blocks and of sealed blocks without a result.
    pub fn in_flight(&self) -> u64 {
        self.0.in_flight.load(Ordering::Relaxed)
    }

    /// Rows that were given up when their generation ended; the next owner reads them again.
    pub fn abandoned(&self) -> u64 {
        self.0.abandoned.load(Ordering::Relaxed)
    }

    fn take_out(&self, rows: u64) {
        self.0.in_flight.fetch_sub(rows, Ordering::Relaxed);
    }

    fn add(sum: &AtomicU64, rows: u64) {
        sum.fetch_add(rows, Ordering::Relaxed);
    }
}

impl OpenRows {
    /// Counts rows that a message has added to the block.
    pub fn walked(&mut self, rows: u64) {
        self.rows += rows;
        RowAccount::add(&self.account.0.walked, rows);
        RowAccount::add(&self.account.0.in_flight, rows);
    }

    /// The guard of the next block, without rows, in the same account.
    pub fn anew(&self) -> Self {
        self.account.open()
    }

    /// Seals the block; `rows_in_block` is the block's own count.
    pub fn seal(mut self, rows_in_block: u64) -> RowsInFlight {
        self.account.take_out(std::mem::take(&mut self.rows));
        RowAccount::add(&self.account.0.in_flight, rows_in_block);
        RowsInFlight { account: self.account.clone(), rows: rows_in_block }
    }

    /// Gives up the open block: its partition was revoked, and its messages are read again.
    pub fn abandon(mut self) {
        let rows = std::mem::take(&mut self.rows);
        self.account.take_out(rows);
        RowAccount::add(&self.account.0.abandoned, rows);
    }
}

impl RowsInFlight {
    /// The number of rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// All rows are in the table.
    pub fn settled(self) {
        self.settled_but(0);
    }

    /// All rows are in the table, except `dead_lettered` rows, whose dead letters are acknowledged.
    ///
    /// # Panics
    /// If there are fewer rows than `dead_lettered`.
    pub fn settled_but(mut self, dead_lettered: u64) {
        let rows = std::mem::take(&mut self.rows);
        let settled =
            rows.checked_sub(dead_lettered).expect("a block has the rows that are dead-lettered of it");
        self.account.take_out(rows);
        RowAccount::add(&self.account.0.settled, settled);
        RowAccount::add(&self.account.0.dead_lettered, dead_lettered);
    }

    /// The block is dropped: its generation is over, and another owner inserts its rows.
    pub fn abandon(mut self) {
        let rows = std::mem::take(&mut self.rows);
        self.account.take_out(rows);
        RowAccount::add(&self.account.0.abandoned, rows);
    }

    /// The block cannot be read, and it was the only copy of its rows.
    pub fn lost(mut self) {
        let rows = std::mem::take(&mut self.rows);
        self.account.take_out(rows);
        RowAccount::add(&self.account.0.lost, rows);
    }

    /// Splits it for a block that is sent in pieces: `rows` of it, and the rest.
    ///
    /// # Panics
    /// If there are fewer rows.
    pub fn split(mut self, rows: u64) -> (Self, Self) {
        let all = std::mem::take(&mut self.rows);
        let rest = all.checked_sub(rows).expect("a part is no larger than the whole");
        let part = |rows| Self { account: self.account.clone(), rows };
        (part(rows), part(rest))
    }
}

impl Drop for OpenRows {
    fn drop(&mut self) {
        self.account.take_out(self.rows);
    }
}

impl Drop for RowsInFlight {
    fn drop(&mut self) {
        self.account.take_out(self.rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What may happen to rows.
    #[derive(Debug, Clone, Copy)]
    enum Step {
        Open,
        Walk {
            block: prop::sample::Index,
            rows: u64,
        },
        Seal {
            block: prop::sample::Index,
        },
        AbandonOpen {
            block: prop::sample::Index,
        },
        Settle {
            block: prop::sample::Index,
            dead_lettered: prop::sample::Index,
        },
        Abandon {
            block: prop::sample::Index,
        },
        Split {
            block: prop::sample::Index,
            at: prop::sample::Index,
        },
        /// A defect: a sealed block disappears.
        Vanish {
            block: prop::sample::Index,
        },
        /// A defect: the block has more or fewer rows than were counted.
        SealOthers {
            block: prop::sample::Index,
            more: i64,
        },
    }

    fn steps(with_defects: bool) -> impl Strategy<Value = Vec<Step>> {
        let block = || any::<prop::sample::Index>();
        let sound = prop_oneof![
            2 => Just(Step::Open),
            4 => (block(), 0u64..10_000).prop_map(|(block, rows)| Step::Walk { block, rows }),
            2 => block().prop_map(|block| Step::Seal { block }),
            1 => block().prop_map(|block| Step::AbandonOpen { block }),
            2 => (block(), block()).prop_map(|(block, dead_lettered)| Step::Settle { block, dead_lettered }),
            1 => block().prop_map(|block| Step::Abandon { block }),
            1 => (block(), block()).prop_map(|(block, at)| Step::Split { block, at }),
        ];
        let step = if with_defects {
            prop_oneof![
                8 => sound,
                1 => block().prop_map(|block| Step::Vanish { block }),
                1 => (block(), -3i64..4).prop_map(|(block, more)| Step::SealOthers { block, more }),
            ]
            .boxed()
        } else {
            sound.boxed()
        };
        prop::collection::vec(step, 0..60)
    }

    fn remove<T>(list: &mut Vec<T>, index: prop::sample::Index) -> Option<T> {
        (!list.is_empty()).then(|| list.swap_remove(index.index(list.len())))
    }

    fn up_to(index: prop::sample::Index, rows: u64) -> u64 {
        index.index(usize::try_from(rows).unwrap() + 1) as u64
    }

    /// A world of blocks, and the imbalance that the account should show.
    #[derive(Default)]
    struct World {
        account: RowAccount,
        open: Vec<OpenRows>,
        sealed: Vec<RowsInFlight>,
        missed: i64,
    }

    impl World {
        fn play(&mut self, step: Step) {
            match step {
                Step::Open => self.open.push(self.account.open()),
                Step::Walk { block, rows } => {
                    if !self.open.is_empty() {
                        block.get_mut(&mut self.open).walked(rows);
                    }
                }
                Step::Seal { block } => {
                    if let Some(open) = remove(&mut self.open, block) {
                        let rows = open.rows;
                        self.sealed.push(open.seal(rows));
                    }
                }
                Step::AbandonOpen { block } => {
                    remove(&mut self.open, block).into_iter().for_each(OpenRows::abandon);
                }
                Step::Settle { block, dead_lettered } => {
                    if let Some(rows) = remove(&mut self.sealed, block) {
                        let dead_lettered = up_to(dead_lettered, rows.rows());
                        rows.settled_but(dead_lettered);
                    }
                }
                Step::Abandon { block } => {
                    remove(&mut self.sealed, block).into_iter().for_each(RowsInFlight::abandon);
                }
                Step::Split { block, at } => {
                    if let Some(rows) = remove(&mut self.sealed, block) {
                        let at = up_to(at, rows.rows());
                        self.sealed.extend(<[_; 2]>::from(rows.split(at)));
                    }
                }
                Step::Vanish { block } => {
                    if let Some(rows) = remove(&mut self.sealed, block) {
                        self.missed += rows.rows().cast_signed();
                    }
                }
                Step::SealOthers { block, more } => {
                    if let Some(open) = remove(&mut self.open, block) {
                        let rows = open.rows.saturating_add_signed(more);
                        self.missed += open.rows.cast_signed() - rows.cast_signed();
                        self.sealed.push(open.seal(rows));
                    }
                }
            }
        }
    }

    proptest! {
        /// Whatever happens to blocks, the account balances after every step, and at rest nothing is in flight.
        #[test]
        fn rows_consumed_equal_rows_accounted(steps in steps(false)) {
            let mut world = World::default();
            for step in steps {
                world.play(step);
                prop_assert_eq!(world.account.imbalance(), 0);
            }
            world.open.drain(..).for_each(OpenRows::abandon);
            world.sealed.drain(..).for_each(RowsInFlight::settled);
            prop_assert_eq!((world.account.imbalance(), world.account.in_flight()), (0, 0));
        }

        /// The imbalance is exactly the rows that disappeared or appeared, permanently.
        #[test]
        fn rows_that_vanish_are_missed(steps in steps(true)) {
            let mut world = World::default();
            for step in steps {
                world.play(step);
                prop_assert_eq!(world.account.imbalance(), world.missed);
            }
        }
    }

    #[test]
    fn a_block_that_is_dropped_without_a_word_is_missed() {
        let account = RowAccount::default();
        let mut open = account.open();
        open.walked(7);
        assert_eq!((account.imbalance(), account.in_flight()), (0, 7));
        drop(open.seal(7));
        assert_eq!((account.imbalance(), account.in_flight()), (7, 0));
    }
}
