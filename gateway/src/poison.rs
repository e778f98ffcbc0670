//! Whether blocks that the server refuses are rows at fault, or everything is.
//!
//! Place in the flow: delivery asks before it bisects a block ([`crate::tries::Next::Bisect`]), and says when one was stored. Pure; one per
//! process. Limits: [`BLOCKS_REMEMBERED`].
//!
//! A few bad rows go to the dead-letter topic. When most blocks are refused the table, a view or this program is at fault, and
//! dead-lettering everything would hide that: then blocks wait, someone is called ([`Actor::Table`]), and each is sent again as any
//! halted block is. The first ones that are stored end it.

use sluice_clickhouse::outcome::Actor;
use std::collections::VecDeque;

/// Blocks that are looked back on. Chosen: seconds of a busy pipeline, a minute of a quiet one.
pub const BLOCKS_REMEMBERED: usize = 20;

/// Of those, how many may be bisected. Chosen: a producer that writes nonsense among good ones is seldom in every second block.
pub const BISECTS_MAX: usize = 10;

/// What became of the last blocks.
#[derive(Debug, Default)]
pub struct PoisonBudget(VecDeque<Outcome>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Stored,
    Bisected,
}

impl PoisonBudget {
    /// A block was stored as it was; parts of one that was bisected do not count.
    pub fn stored(&mut self) {
        self.remember(Outcome::Stored);
    }

    /// Whether a block may be bisected, which is then taken down as done.
    ///
    /// # Errors
    /// Who must act, when too many were.
    pub fn bisect(&mut self) -> Result<(), Actor> {
        let bisected = self.0.iter().filter(|outcome| **outcome == Outcome::Bisected).count();
        if bisected >= BISECTS_MAX {
            return Err(Actor::Table);
        }
        self.remember(Outcome::Bisected);
        Ok(())
    }

    fn remember(&mut self, outcome: Outcome) {
        if self.0.len() == BLOCKS_REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_bad_blocks_among_good_ones_are_bisected_for_ever() {
        let mut budget = PoisonBudget::default();
        for block in 0..1_000 {
            if block % 3 == 0 {
                assert_eq!(budget.bisect(), Ok(()), "block {block}");
            } else {
                budget.stored();
            }
        }
    }

    #[test]
    fn when_every_block_is_bad_someone_is_called_until_blocks_are_stored_again() {
        let mut budget = PoisonBudget::default();
        let bisected = (0..1_000).filter(|_| budget.bisect().is_ok()).count();
        assert_eq!(bisected, BISECTS_MAX);
        for _ in 0..BLOCKS_REMEMBERED - BISECTS_MAX {
            budget.stored();
        }
        assert_eq!(budget.bisect(), Err(Actor::Table), "all of them are still remembered");
        budget.stored();
        assert_eq!(budget.bisect(), Ok(()));
    }
}
