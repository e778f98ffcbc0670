//! What was found when a queue was opened.

use crate::entry::{BlockId, Coordinates, Entry};

/// What was found when a queue was opened. Nothing that was appended is missing without being named here.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Blocks that are in the queue.
    pub blocks: u64,
    /// Their rows.
    pub rows: u64,
    /// How many of them were sent, or may have been.
    pub sent: u64,
    /// Marks that were not whole: each of their blocks is held as one that may have been sent.
    pub doubtful_marks: u64,
    /// Records that were damaged after their blocks had been settled: nothing is lost with them.
    pub damaged_when_settled: u64,
    /// Torn tails.
    pub cut: Vec<Cut>,
    /// Segments with damage.
    pub set_aside: Vec<SetAside>,
}

/// Records of a segment that were not written to their end: they are gone. Their sync had not returned, or they were damaged since. None of
/// them was [kept](crate::Queue::keep_blocks), unless the power was lost as well.
#[derive(Debug, PartialEq, Eq)]
pub struct Cut {
    /// The segment's file.
    pub file: String,
    /// Bytes at its end that were cut off.
    pub bytes: u64,
    /// Blocks whose headers can be read.
    pub blocks: Vec<Coordinates>,
    /// Records whose headers cannot be read either, one at least where so many bytes are not all zeros. A disk that lost its power
    /// may leave zeros where nothing was synced, and nowhere else.
    pub headless: usize,
    /// Whether it was written down when somebody relies on blocks of this segment: then on none of these. A program that wrote that
    /// nowhere may have marked nothing as kept either.
    pub is_reliance_known: bool,
}

/// A segment with damage.
#[derive(Debug, PartialEq, Eq)]
pub struct SetAside {
    /// The name under which the file is kept.
    pub file: String,
    /// What is wrong with it first.
    pub reason: String,
    /// Whether it had been set aside before the queue was opened.
    pub before: bool,
    /// Blocks that cannot be read and are not settled. Each is reported again until it is settled.
    pub lost: Vec<Lost>,
}

/// A block that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// To settle it with, once it was read again or counted.
    pub id: BlockId,
    /// What it covers; `None` when its header is damaged too.
    pub coordinates: Option<Coordinates>,
    /// Whether it was [marked](crate::Queue::mark_only_copy) as the only copy of its rows.
    pub is_only_copy: bool,
    /// Whether somebody may rely on it once it was kept; `None` where that was not written down.
    pub relied_on: Option<bool>,
}

impl Lost {
    pub(crate) fn of(id: BlockId, entry: &Entry, relied_on: Option<bool>) -> Self {
        let is_only_copy = entry.only_copy.is_some();
        Self { id, coordinates: entry.coordinates.clone(), is_only_copy, relied_on }
    }
}
