//! What was found when a queue was opened.

use crate::entry::{BlockId, Coordinates, Entry};

/// What was found when a queue was opened. Every appended block that is missing is named here.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Blocks in the queue.
    pub blocks: u64,
    /// Their rows.
    pub rows: u64,
    /// How many of them were sent, or may have been.
    pub sent: u64,
    /// Damaged marks: each of their blocks is held as one that may have been sent.
    pub doubtful_marks: u64,
    /// Records that were damaged after their blocks were settled: no data is lost.
    pub damaged_when_settled: u64,
    /// Torn tails.
    pub cut: Vec<Cut>,
    /// Segments with damage.
    pub set_aside: Vec<SetAside>,
}

/// Records of a segment that were not completely written, and are gone. Their sync had not returned, or they were damaged since. None of
/// them was [kept](crate::Queue::keep_blocks), unless the power failed as well.
#[derive(Debug, PartialEq, Eq)]
pub struct Cut {
    /// The segment's file.
    pub file: String,
    /// Bytes at its end that were cut off.
    pub bytes: u64,
    /// Blocks whose headers can be read.
    pub blocks: Vec<Coordinates>,
    /// Records whose headers cannot be read either; at least one if the bytes are not all zeros. After a loss of power, a disk may leave
    /// zeros where nothing was synced, and nowhere else.
    pub headless: usize,
    /// Whether the segment records that the caller relies on kept blocks: none of these was kept then. A program that does not record it
    /// may not have marked blocks as kept either.
    pub is_reliance_known: bool,
}

/// A segment with damage.
#[derive(Debug, PartialEq, Eq)]
pub struct SetAside {
    /// The name under which the file is kept.
    pub file: String,
    /// The first fault in it.
    pub reason: String,
    /// Whether it was set aside by an earlier run.
    pub before: bool,
    /// Blocks that cannot be read and are not settled. Each is reported again until it is settled.
    pub lost: Vec<Lost>,
}

/// A block that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// The id for settling it, after its range was read from Kafka again or counted.
    pub id: BlockId,
    /// Its partition, offsets and rows; `None` if its header is damaged too.
    pub coordinates: Option<Coordinates>,
    /// Whether it was [marked](crate::Queue::mark_only_copy) as the only copy of its rows.
    pub is_only_copy: bool,
    /// Whether the caller relies on it once it was kept; `None` if that is not recorded.
    pub relied_on: Option<bool>,
}

impl Lost {
    pub(crate) fn of(id: BlockId, entry: &Entry, relied_on: Option<bool>) -> Self {
        let is_only_copy = entry.only_copy.is_some();
        Self { id, coordinates: entry.coordinates.clone(), is_only_copy, relied_on }
    }
}
