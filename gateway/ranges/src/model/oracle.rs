//! The server, and an oracle that knows everything that it stores.

use crate::{OffsetRange, Token};
use std::collections::BTreeMap;

/// Seconds for which the server knows a token.
pub const WINDOW: u64 = 300;

/// The shard and the token of a range. Shards do not know each other's tokens.
pub type Destination = (u32, Token);

/// What must never happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// Two different ranges that overlap are sent.
    Overlap { sent: OffsetRange, other: OffsetRange },
    /// A range was sent under two tokens, or to two shards.
    Destinations { range: OffsetRange },
    /// A commit passed a message that is not stored.
    CommitPassed { offset: i64, missing: i64 },
    /// In the end a message is not stored.
    Lost { offset: i64 },
    /// In the end a message is stored more than once.
    Doubled { offset: i64, times: u32 },
    /// The last owner does not come to the end of the log.
    Stuck { offset: i64, end: i64 },
}

/// The server and its rows.
#[derive(Debug, Default)]
pub struct Oracle {
    /// When each token was stored last, in each shard.
    tokens: BTreeMap<Destination, u64>,
    /// Every range that was ever sent, stored or not.
    ranges: BTreeMap<(i64, i64), Destination>,
    /// How often the rows of a message are stored.
    rows: BTreeMap<i64, u32>,
    lost: Vec<OffsetRange>,
    doubtful: Vec<OffsetRange>,
    renamed: Vec<OffsetRange>,
}

impl Oracle {
    /// Records announced offsets: these are lost, those may be doubled.
    pub fn announce(&mut self, lost: OffsetRange, doubtful: OffsetRange) {
        self.lost.push(lost);
        self.doubtful.push(doubtful);
    }

    /// Records announced offsets: ranges of them may have tokens with another id of the cluster, too.
    pub fn rename(&mut self, renamed: OffsetRange) {
        self.renamed.push(renamed);
    }

    /// Whether a token is stored, as `system.part_log` would say.
    pub fn knows(&self, destination: Destination) -> bool {
        self.tokens.contains_key(&destination)
    }

    /// Records a range that is sent and that the server would accept.
    pub fn sent(&mut self, range: OffsetRange, destination: Destination) -> Result<(), Violation> {
        for (first, next) in self.ranges.keys() {
            let other = OffsetRange { first: *first, next: *next };
            let common = OffsetRange { first: range.first.max(*first), next: range.next.min(*next) };
            if other != range && common.first < common.next && !self.is_announced(common) {
                return Err(Violation::Overlap { sent: other, other: range });
            }
        }
        let known = self.ranges.insert((range.first, range.next), destination);
        let is_announced = self.is_announced(range) || self.is_renamed(range);
        if known.is_some_and(|known| known != destination) && !is_announced {
            return Err(Violation::Destinations { range });
        }
        Ok(())
    }

    /// Stores a range. `false` when it is dropped as a duplicate.
    pub fn insert(&mut self, destination: Destination, offsets: &[i64], now: u64) -> bool {
        if self.tokens.get(&destination).is_some_and(|stored| now - stored <= WINDOW) {
            return false;
        }
        self.tokens.insert(destination, now);
        for offset in offsets {
            *self.rows.entry(*offset).or_default() += 1;
        }
        true
    }

    /// A commit of this offset was stored.
    pub fn committed(&self, offset: i64, messages: impl Iterator<Item = i64>) -> Result<(), Violation> {
        for missing in messages.take_while(|message| *message < offset) {
            if !self.rows.contains_key(&missing) && !within(&self.lost, missing) {
                return Err(Violation::CommitPassed { offset, missing });
            }
        }
        Ok(())
    }

    /// Checks the final state. Rows may be doubled if an owner called a range of them doubtful, so that it counts them.
    pub fn judge(
        &self,
        messages: impl Iterator<Item = i64>,
        counted: &[OffsetRange],
    ) -> Result<(), Violation> {
        for offset in messages {
            match self.rows.get(&offset).copied().unwrap_or(0) {
                1 => {}
                0 if within(&self.lost, offset) => {}
                0 => return Err(Violation::Lost { offset }),
                _ if within(counted, offset) => {}
                times => return Err(Violation::Doubled { offset, times }),
            }
        }
        Ok(())
    }

    /// Whether every offset of a range was announced as sent with another id of the cluster.
    fn is_renamed(&self, range: OffsetRange) -> bool {
        (range.first..range.next).all(|offset| within(&self.renamed, offset))
    }

    /// Whether every offset of a range was announced as doubtful or lost.
    fn is_announced(&self, range: OffsetRange) -> bool {
        (range.first..range.next).all(|offset| within(&self.doubtful, offset) || within(&self.lost, offset))
    }
}

fn within(ranges: &[OffsetRange], offset: i64) -> bool {
    ranges.iter().any(|range| (range.first..range.next).contains(&offset))
}
