//! A range whose block is sent in parts. The plan records the refused parts, so that no owner sends the whole block, or a divided part,
//! again.
//!
//! A block of `rows` rows is divided on every level alike: on level `height` each part has [`FAN_OUT`]^`height` rows, and the last one
//! the rest. [`RefusedParts`] names the parts of one level that the server refused; their own parts, one level below, are sent next. The
//! parts of a level follow from the number of rows alone, and every part has a token of its own. So any owner that sends a part again
//! stores nothing twice.
//!
//! **Once a level is in a stored plan, no part of a level above is sent any more.** Only then is the level below sent. So exactly-once
//! takes one commit a level, however many parts the level has.
//!
//! Limits: [`PARTED_MAX`] ranges in a plan, and [`REFUSED_MAX`] parts and [`REFUSED_BYTES_MAX`] for each.

use crate::OffsetRange;

/// Parts into which a refused part is divided. Chosen: a bad row among 100,000 is found with 9 commits and 35 inserts. With 2 it would
/// take 17 commits and as many inserts; with 16, 5 commits and 80 inserts, and each insert makes a part in the table.
pub const FAN_OUT: u64 = 4;

/// Maximum number of levels: 4^10 rows are more than the 1,048,449 that one INSERT may have.
pub const HEIGHT_MAX: u8 = 10;

/// Maximum number of refused parts of one level. Chosen: as many inserts as are tried for one block before it waits for manual action.
pub const REFUSED_MAX: usize = 1_024;

/// Ranges of a partition that may be sent in parts at the same time. The last place is reserved for the range that blocks all others.
pub const PARTED_MAX: usize = 3;

/// Bytes of the refused parts of one range in a plan. Chosen: 64 parts fit wherever they are in a block of the most rows.
pub const REFUSED_BYTES_MAX: usize = 260;

/// The parts of one level that the server refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedParts {
    /// The beginning of the block's token. It differs if Kafka no longer has all messages of the block, which is then another block.
    pub check: u32,
    /// Rows of the block.
    pub rows: u64,
    /// Each part has 4^`height` rows, except the last one. With 0, parts are single rows.
    pub height: u8,
    /// The server's exception code for one of them; 0 if there is none.
    pub code: u32,
    /// Their numbers, ascending; at least one.
    pub refused: Vec<u64>,
}

/// A range whose block is sent in parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parted {
    pub range: OffsetRange,
    /// How far sending in parts is.
    pub parts: RefusedParts,
}

impl RefusedParts {
    /// The height at which a block of this many rows is one part.
    ///
    /// # Panics
    /// When there are no rows, or more than any block has.
    pub fn height_of(rows: u64) -> u8 {
        assert!(rows > 0, "a block without rows is not sent");
        let height = (0..=HEIGHT_MAX).find(|height| part_rows(*height) >= rows);
        height.expect("no block has as many rows")
    }

    /// Whether these can be parts of a block with this token and this many rows.
    pub fn is_of(&self, check: u32, rows: u64) -> bool {
        self.check == check && self.rows == rows
    }

    /// Whether there is room for it in a plan.
    pub fn fits(&self) -> bool {
        let runs = runs(&self.refused);
        let bytes: usize = runs.iter().map(|(gap, length)| varint_bytes(*gap) + varint_bytes(*length)).sum();
        bytes <= REFUSED_BYTES_MAX && self.refused.len() <= REFUSED_MAX
    }

    /// Whether the values are possible: parts of a plan are checked before they are used.
    pub(super) fn is_sound(&self) -> bool {
        let is_block = self.rows > 0 && self.height <= HEIGHT_MAX && self.rows <= part_rows(HEIGHT_MAX);
        let parts = self.rows.div_ceil(part_rows(self.height.min(HEIGHT_MAX)));
        let ascend = self.refused.is_sorted_by(|a, b| a < b);
        let is_within = self.refused.last().is_some_and(|last| *last < parts);
        is_block && ascend && is_within && self.fits()
    }
}

/// Rows of a part on this height.
pub fn part_rows(height: u8) -> u64 {
    FAN_OUT.pow(u32::from(height))
}

/// Runs of consecutive numbers, each as the gap before it and its length.
pub(super) fn runs(numbers: &[u64]) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    let mut next = 0;
    for number in numbers {
        match runs.last_mut() {
            Some((_, length)) if *number == next => *length += 1,
            _ => runs.push((number - next, 1)),
        }
        next = number + 1;
    }
    runs
}

fn varint_bytes(value: u64) -> usize {
    (64 - value.max(1).leading_zeros()).div_ceil(7) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(rows: u64, height: u8, refused: Vec<u64>) -> RefusedParts {
        RefusedParts { check: 1, rows, height, code: 469, refused }
    }

    #[test]
    fn a_block_is_one_part_on_its_height() {
        let heights = [1, 2, 4, 5, 16, 17, 100_000].map(RefusedParts::height_of);
        assert_eq!(heights, [0, 1, 1, 2, 2, 3, 9]);
    }

    #[test]
    fn what_follows_each_other_is_a_run() {
        assert_eq!(runs(&[0, 1, 2, 7, 9, 10]), [(0, 3), (4, 1), (1, 2)]);
        assert_eq!(runs(&[]), []);
        assert_eq!([0, 127, 128, 16_383, 16_384].map(varint_bytes), [1, 1, 2, 2, 3]);
    }

    #[test]
    fn sixty_four_parts_fit_wherever_they_are() {
        let rows = 1_048_449;
        let far = parts(rows, 0, (0..64).map(|number| number * 16_380).collect());
        assert!(far.is_sound(), "{far:?}");
        assert!(parts(rows, 0, (0..1_024).collect()).fits(), "they are one run");
        assert!(!parts(rows, 0, (0..1_025).collect()).fits());
        assert!(!parts(rows, 0, (0..rows).step_by(2).take(200).collect()).fits());
    }

    #[test]
    fn what_no_block_can_be_in_is_not_sound() {
        assert!(parts(5, 1, vec![1]).is_sound());
        for wrong in [
            parts(0, 0, vec![0]),
            parts(5, 1, vec![2]),
            parts(5, 0, vec![5]),
            parts(5, 0, vec![]),
            parts(5, 0, vec![1, 1]),
            parts(5, 200, vec![0]),
        ] {
            assert!(!wrong.is_sound(), "{wrong:?}");
        }
    }
}
