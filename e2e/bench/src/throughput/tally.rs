//! Which numbers arrived, and how often.
//!
//! Job: exact counts of lost and doubled spans. Place in the flow: gets every row that the null sink received. Limits: one bit a span.

/// Bits in a word of the set.
const WORD_BITS: u64 = 64;

/// Counts of the rows of a run.
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

    /// All rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Numbers without a row.
    pub fn lost(&self) -> u64 {
        self.spans - self.unique
    }

    /// Rows beyond the first of a number.
    pub fn doubled(&self) -> u64 {
        self.rows - self.foreign - self.unique
    }

    /// Rows of spans that were not produced.
    pub fn foreign(&self) -> u64 {
        self.foreign
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
        assert_eq!((tally.rows(), tally.lost(), tally.doubled(), tally.foreign()), (103, 2, 3, 2));
    }
}
