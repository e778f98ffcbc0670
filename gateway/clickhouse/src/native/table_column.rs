//! A column of the table, filled row by row.
//!
//! `JSON` often has the same value in many rows: the spans of a resource, which follow each other, share its attributes. Such a value is
//! compared as a whole, and only parsed again when it changes: then each path appends it several times at once.

use super::Unfit;
use super::cursor::Cursor;
use super::kind::Kind;
use super::times::Once;
use super::values::Values;
use crate::frame::FrameEncoder;

/// The longest value that is kept for comparison. Chosen: a resource has a few hundred bytes, and a block few `JSON` columns.
const LAST_BYTES_MAX: usize = 16 << 10;

/// The values of a column.
#[derive(Debug)]
pub(super) struct TableColumn {
    /// Without the values that [`Last::again`] counts.
    values: Values,
    /// Set for columns that are compared.
    last: Option<Last>,
}

/// The value of the last row.
#[derive(Debug, Default)]
struct Last {
    /// In the encoding of a row; empty if there is none, or it is too long.
    bytes: Vec<u8>,
    /// The growth of columns for it besides its bytes, including first-time growth; repeats make them grow by less.
    grown: usize,
    /// Number of later rows with the same value.
    again: usize,
}

impl TableColumn {
    /// Without values.
    pub(super) fn new(kind: &Kind) -> Self {
        let last = matches!(kind, Kind::Json(_)).then(Last::default);
        Self { values: Values::new(kind), last }
    }

    /// Appends the row's next value.
    #[inline]
    pub(super) fn append(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Unfit> {
        match &mut self.last {
            None => self.values.append(cursor, Once),
            Some(last) => last.append(&mut self.values, cursor),
        }
    }

    /// Appends outstanding values, and compresses data that has become large.
    pub(super) fn spill(&mut self, encoder: &mut FrameEncoder) -> Result<(), Unfit> {
        if let Some(last) = &mut self.last {
            last.settle(&mut self.values)?;
        }
        self.values.spill(encoder);
        Ok(())
    }

    /// The values, complete up to the last [`Self::spill`].
    pub(super) fn values(&self) -> &Values {
        &self.values
    }

    /// Takes the values.
    pub(super) fn into_values(self) -> Values {
        self.values
    }

    /// Memory that they take, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.values.bytes() + self.last.as_ref().map_or(0, |last| last.bytes.capacity())
    }
}

impl Last {
    #[inline]
    fn append(&mut self, values: &mut Values, cursor: &mut Cursor<'_>) -> Result<(), Unfit> {
        // No value is the prefix of another one.
        if !self.bytes.is_empty() && cursor.rest().starts_with(&self.bytes) {
            cursor.take(self.bytes.len())?;
            cursor.grow(self.grown)?;
            self.again += 1;
            return Ok(());
        }
        self.settle(values)?;
        let start = *cursor;
        values.append(cursor, Once)?;
        self.bytes.clear();
        let value = start.up_to(cursor);
        if value.len() <= LAST_BYTES_MAX {
            self.bytes.extend_from_slice(value);
            self.grown = start.room() - cursor.room();
        }
        Ok(())
    }

    /// Appends the value once for each row that repeats it.
    #[inline]
    fn settle(&mut self, values: &mut Values) -> Result<(), Unfit> {
        match std::mem::take(&mut self.again) {
            0 => Ok(()),
            again => values.append(&mut Cursor::new(&self.bytes), again),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::stream::Output;
    use crate::row_frames::FRAME_RAW_BYTES;
    use crate::test_rows::{self, Chance};
    use bytes::Bytes;
    use proptest::prelude::*;

    fn frames(values: Values) -> Vec<Bytes> {
        let mut output = Output::new(FrameEncoder::new(FRAME_RAW_BYTES));
        values.put_prefix(output.raw());
        values.put_data(&mut output);
        output.finish()
    }

    proptest! {
        #[test]
        fn a_value_that_comes_again_is_as_if_it_was_read_again(seed: u64, rows in 1_usize..100) {
            let mut chance = Chance::new(seed);
            let columns = test_rows::columns(&mut chance);
            let kinds: Vec<_> =
                columns.columns().iter().map(|column| Kind::parse(&columns.type_name(column)).unwrap()).collect();
            let mut compared: Vec<_> = kinds.iter().map(TableColumn::new).collect();
            let mut read: Vec<_> = kinds.iter().map(Values::new).collect();
            let mut encoder = FrameEncoder::new(FRAME_RAW_BYTES);
            for _ in 0..rows {
                let row = test_rows::row(&columns, &mut chance);
                for _ in 0..=chance.below(4) {
                    let (mut one, mut other) = (Cursor::new(&row), Cursor::new(&row));
                    for (compared, read) in compared.iter_mut().zip(&mut read) {
                        compared.append(&mut one).unwrap();
                        read.append(&mut other, Once).unwrap();
                        prop_assert_eq!(one.rest(), other.rest());
                    }
                }
                if chance.below(9) == 0 {
                    for (compared, read) in compared.iter_mut().zip(&mut read) {
                        compared.spill(&mut encoder).unwrap();
                        read.spill(&mut encoder);
                    }
                }
            }
            for (mut compared, read) in compared.into_iter().zip(read) {
                compared.spill(&mut encoder).unwrap();
                prop_assert!(frames(compared.into_values()) == frames(read));
            }
        }
    }
}
