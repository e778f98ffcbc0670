//! The bytes of one row, read from the front.
//!
//! If a row was not written by the row encoder, the block is sent as rows. The same holds for a row that needs far more space in columns
//! than its own bytes: [`ROOM_BYTES`].

use super::Unfit;

/// Bytes by which one row may make columns grow besides its own. Chosen: the size of the largest row. Rows normally need some kilobytes,
/// for the first strings of a dictionary and for declared paths that return after thousands of rows.
const ROOM_BYTES: usize = 4 << 20;

/// How deep values may nest, as in [`crate::row_ends`].
const DEPTH_MAX: u8 = 200;

/// The rest of a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
    room: usize,
    depth: u8,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(rest: &'a [u8]) -> Self {
        Self { rest, room: ROOM_BYTES, depth: 0 }
    }

    /// Records that a column grows by bytes that the row does not have.
    #[inline]
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), Unfit> {
        self.room = self.room.checked_sub(bytes).ok_or(Unfit::Memory)?;
        Ok(())
    }

    /// Enters a value that may contain others.
    #[inline]
    pub(super) fn enter(&mut self) -> Result<(), Unfit> {
        if self.depth == DEPTH_MAX {
            return Err(Unfit::Value("values that are nested too deep"));
        }
        self.depth += 1;
        Ok(())
    }

    /// Leaves the value.
    #[inline]
    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }

    /// The remaining bytes.
    #[inline]
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Bytes by which columns may still grow.
    #[inline]
    pub(super) fn room(&self) -> usize {
        self.room
    }

    /// The bytes from here to a later place.
    #[inline]
    pub(super) fn up_to(&self, later: &Self) -> &'a [u8] {
        &self.rest[..self.rest.len() - later.rest.len()]
    }

    /// The next bytes.
    #[inline]
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Unfit> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Unfit::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next bytes, of a constant number.
    #[inline]
    pub(super) fn array<const COUNT: usize>(&mut self) -> Result<&'a [u8; COUNT], Unfit> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Unfit::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next byte.
    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, Unfit> {
        let (byte, rest) = self.rest.split_first().ok_or(Unfit::Short)?;
        self.rest = rest;
        Ok(*byte)
    }

    /// Whether the next number of bytes or elements takes one byte.
    #[inline]
    pub(super) fn is_short(&self) -> bool {
        self.rest.first().is_some_and(|first| *first < 0x80)
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
}
