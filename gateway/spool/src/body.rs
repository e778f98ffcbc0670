//! A block's body, read piece by piece into the caller's buffer.
//!
//! The last piece is only handed out when the checksum of the whole is right. Whoever sends the pieces with a
//! `Content-Length` therefore never completes a body that is not what was appended: the server gets less than it was promised.
//!
//! Owner: whoever drains; it outlives the queue and the removal of its segment.

use crate::files::{Fatal, FileAt, is_short};
use std::sync::Arc;

/// Why a body was not read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The volume failed, which says nothing of the body.
    #[error(transparent)]
    Failed(#[from] Fatal),
    /// It is not what was written.
    #[error(transparent)]
    Damaged(#[from] Damage),
}

/// A body is not what was written.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// Its file ends within it.
    #[error("a block's body is truncated")]
    Short,
    /// Its checksum is another one.
    #[error("a block's body is damaged (checksum {found:08x}, expected {expected:08x})")]
    Checksum {
        /// Of what was read.
        found: u32,
        /// Of what was written.
        expected: u32,
    },
}

/// A body that is being read.
#[derive(Debug)]
pub struct Body<F> {
    file: Arc<F>,
    /// The file's name, for people.
    name: Arc<str>,
    at: u64,
    left: u64,
    sum: u32,
    expected: u32,
}

/// The rest of it, to be read once more.
impl<F> Clone for Body<F> {
    fn clone(&self) -> Self {
        Self { file: self.file.clone(), name: self.name.clone(), ..*self }
    }
}

impl<F: FileAt> Body<F> {
    pub(crate) fn new((file, name): (Arc<F>, Arc<str>), (at, bytes): (u64, u64), expected: u32) -> Self {
        Self { file, name, at, left: bytes, sum: 0, expected }
    }

    /// Bytes that are still to be read.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Fills the buffer from its front, and says how far; 0 at the end. After damage nothing more can be read; after a failure the same piece
    /// may be.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize, BodyError> {
        let want = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let Some(piece) = buffer.get_mut(..want).filter(|piece| !piece.is_empty()) else { return Ok(0) };
        match self.file.read_exact_at(piece, self.at) {
            Ok(()) => {}
            Err(error) if is_short(&error) => return Err(Damage::Short.into()),
            Err(error) => return Err(Fatal::of("read", &self.name)(error).into()),
        }
        self.sum = crc32c::crc32c_append(self.sum, piece);
        self.at = self.at.saturating_add(want as u64);
        self.left = self.left.saturating_sub(want as u64);
        if self.left == 0 && self.sum != self.expected {
            return Err(Damage::Checksum { found: self.sum, expected: self.expected }.into());
        }
        Ok(want)
    }

    /// Reads the rest through a buffer, to see whether it is whole.
    pub fn verify(mut self, buffer: &mut [u8]) -> Result<(), BodyError> {
        while self.read(buffer)? > 0 {}
        Ok(())
    }
}
