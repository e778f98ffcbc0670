//! A range whose block goes in parts: what is written down about it, so that nobody sends it, or a part that was taken apart, whole
//! again.
//!
//! A block of `rows` rows is divided on every level alike: on level `height` each part has [`FAN_OUT`]^`height` rows, the last
//! one what is left. [`RefusedParts`] names those of one level that the server refused; their own parts, one level below, are sent next.
//! What is on a level is a function of the number of rows alone, and every part has a token of its own, so that
//! sending one of them again, by whomever, stores nothing twice.
//!
//! **Once this is in a stored plan, nothing of a level above is sent any more.** The level below is sent only then. So one commit a
//! level is all that exactly-once takes, however many parts the level has.
//!
//! Limits: [`PARTED_MAX`] ranges in a plan, and [`REFUSED_MAX`] parts and [`REFUSED_BYTES_MAX`] for each.

use crate::OffsetRange;

/// RefusedParts that one is taken apart into. Chosen: a bad row among 100,000 is found with 9 commits and 35 inserts; 2 would take 17 commits
/// and as many inserts, 16 as few as 5 commits, and 80 inserts, each of which makes a part in the table.
pub const FAN_OUT: u64 = 4;

/// Levels at the most: 4^10 rows are more than the 1,048,449 that one INSERT may have.
pub const HEIGHT_MAX: u8 = 10;

/// Refused parts of one level at the most. Chosen: as many inserts as are tried for one block before someone is called.
pub const REFUSED_MAX: usize = 1_024;

/// Ranges of a partition that may go in parts at the same time. The last place is kept for the one that holds up all others.
pub const PARTED_MAX: usize = 3;

/// Bytes of the refused parts of one range in a plan. Chosen: 64 parts fit wherever they are in a block of the most rows.
pub const REFUSED_BYTES_MAX: usize = 260;

/// RefusedParts of one level that the server refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedParts {
    /// What the block's token begins with: in case that Kafka no longer has all of its messages, so that it is another one.
    pub check: u32,
    /// Rows of the block.
    pub rows: u64,
    /// Each part has 4^`height` rows, but for the last one; 0: they are rows.
    pub height: u8,
    /// The code that the server gave for one of them; 0 without one.
    pub code: u32,
    /// Their numbers, ascending; at least one.
    pub refused: Vec<u64>,
}

/// A range whose block goes in parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parted {
    /// The range.
    pub range: OffsetRange,
    /// How far it is.
    pub parts: RefusedParts,
}

impl RefusedParts {
    /// The height on which a block of so many rows is one part.
    ///
    /// # Panics
    /// When there are no rows, or more than any block has.
    pub fn height_of(rows: u64) -> u8 {
        assert!(rows > 0, "a block without rows is not sent");
        let height = (0..=HEIGHT_MAX).find(|height| part_rows(*height) >= rows);
        height.expect("no block has as many rows")
    }

    /// Whether it is what a block of this token and so many rows can be in.
    pub fn is_of(&self, check: u32, rows: u64) -> bool {
        self.check == check && self.rows == rows
    }

    /// Whether there is room for it in a plan.
    pub fn fits(&self) -> bool {
        let runs = runs(&self.refused);
        let bytes: usize = runs.iter().map(|(gap, length)| varint_bytes(*gap) + varint_bytes(*length)).sum();
        bytes <= REFUSED_BYTES_MAX && self.refused.len() <= REFUSED_MAX
    }

    /// Whether it can be: what a plan holds is checked before it is believed.
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

/// Numbers that follow each other, as the gap before them and how many there are.
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
