//! The bytes of one row, read from the front.
//!
//! [`crate::row_ends`] has found where the row ends, so that nothing here fails for rows that the row encoder wrote; what fails all the
//! same makes the block go as rows.

use super::Unfit;

/// What is left of a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    /// What is left.
    #[inline]
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next bytes.
    #[inline]
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Unfit> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Unfit::Value("no end"))?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next byte.
    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, Unfit> {
        let (byte, rest) = self.rest.split_first().ok_or(Unfit::Value("no end"))?;
        self.rest = rest;
        Ok(*byte)
    }

    /// A number of bytes or elements.
    #[inline]
    pub(super) fn length(&mut self) -> Result<usize, Unfit> {
        let first = self.byte()?;
        if first < 0x80 { Ok(first.into()) } else { self.long_length(first) }
    }

    #[inline(never)]
    fn long_length(&mut self, first: u8) -> Result<usize, Unfit> {
        let mut length = usize::from(first & 0x7f);
        for shift in (7..usize::BITS - 7).step_by(7) {
            let byte = self.byte()?;
            length |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(length);
            }
        }
        Err(Unfit::Value("a length that no row can have"))
    }

    /// A string's bytes.
    #[inline]
    pub(super) fn text(&mut self) -> Result<&'a [u8], Unfit> {
        let length = self.length()?;
        self.take(length)
    }

    /// A string's length and bytes, as they are.
    #[inline]
    pub(super) fn text_as_it_is(&mut self) -> Result<&'a [u8], Unfit> {
        let start = self.rest;
        self.text()?;
        Ok(&start[..start.len() - self.rest.len()])
    }
}
