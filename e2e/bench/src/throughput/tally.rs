//! Which numbers arrived, and how often.
//!
//! Job: exact counts of lost and doubled spans. Place in the flow: gets every row that the null sink received. Limits: one bit a span.

use serde::Serialize;

/// Bits in a word of the set.
const WORD_BITS: u64 = 64;

/// The rows of a run, compared with its spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stored {
    pub rows: u64,
    /// Spans without a row.
    pub lost: u64,
    /// Rows beyond the first of a span.
    pub doubled: u64,
    /// Rows of spans that were not produced.
    pub foreign: u64,
}

#[derive(Clone, Debug)]
pub struct Tally {
    spans: u64,
    seen: Vec<u64>,
    unique: u64,
    rows: u64,
    foreign: u64,
}

impl Tally {
    /// A tally of the numbers below `spans`.
    pub fn new(spans: u64) -> Tally {
        let words =
            usize::try_from(spans.div_ceil(WORD_BITS)).expect("a count of spans that fits into memory");
        Tally { spans, seen: vec![0; words], unique: 0, rows: 0, foreign: 0 }
    }

    /// Counts a row: of the span with `number`, or `None` for a row of no produced span.
    pub fn add(&mut self, number: Option<u64>) {
        self.rows += 1;
        let Some(number) = number.filter(|number| *number < self.spans) else {
            self.foreign += 1;
            return;
        };
        let (word, bit) = (number / WORD_BITS, 1 << (number % WORD_BITS));
        if let Some(word) = usize::try_from(word).ok().and_then(|index| self.seen.get_mut(index)) {
            self.unique += u64::from(*word & bit == 0);
            *word |= bit;
        }
    }

    pub fn stored(&self) -> Stored {
        let Tally { spans, unique, rows, foreign, .. } = *self;
        Stored { rows, lost: spans - unique, doubled: rows - foreign - unique, foreign }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_doubled_and_foreign_are_counted_apart() {
        let mut tally = Tally::new(100);
        (0..98).for_each(|number| tally.add(Some(number)));
        for number in [Some(0), Some(0), Some(64), Some(100), None] {
            tally.add(number);
        }
        assert_eq!(tally.stored(), Stored { rows: 103, lost: 2, doubled: 3, foreign: 2 });
    }
}
