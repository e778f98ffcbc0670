//! A block's body, read piece by piece into the caller's buffer.
//!
//! The last piece is returned only if the checksum of the whole body is right. So a sender with a `Content-Length` never completes a
//! damaged body: the server receives fewer bytes than announced.
//!
//! Owner: the thread that sends the block. A body outlives the queue and the removal of its segment.

use crate::files::{Fatal, FileAt, is_short};
use std::sync::Arc;

/// Why a body was not read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The volume failed; the body may be intact.
    #[error(transparent)]
    Failed(#[from] Fatal),
    /// The body is damaged.
    #[error(transparent)]
    Damaged(#[from] Damage),
}

/// How a body is damaged.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// The file ends within it.
    #[error("a block's body is truncated")]
    Short,
    /// Its checksum is wrong.
    #[error("a block's body is damaged (checksum {found:08x}, expected {expected:08x})")]
    Checksum { found: u32, expected: u32 },
}

/// A body that is being read.
#[derive(Debug)]
pub struct Body<F> {
    file: Arc<F>,
    /// The file's name, for messages.
    name: Arc<str>,
    at: u64,
    left: u64,
    sum: u32,
    expected: u32,
}

/// A copy reads the rest of the body once more.
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

    /// Fills the buffer from the front, and returns how far; 0 at the end. After damage nothing more can be read; after a failure the
    /// same piece can be read again.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize, BodyError> {
        let want = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let Some(piece) = buffer.get_mut(..want).filter(|piece| !piece.is_empty()) else { return Ok(0) };
        match self.file.read_exact_at(piece, self.at) {
            Ok(()) => {}
            Err(error) if is_short(&error) => return Err(Damage::Short.into()),
            Err(error) => return Err(Fatal::of_read("read", &self.name)(error).into()),
        }
        self.sum = crc32c::crc32c_append(self.sum, piece);
        self.at = self.at.saturating_add(want as u64);
        self.left = self.left.saturating_sub(want as u64);
        if self.left == 0 && self.sum != self.expected {
            return Err(Damage::Checksum { found: self.sum, expected: self.expected }.into());
        }
        Ok(want)
    }

    /// Reads the rest through a buffer, to check that it is intact.
    pub fn verify(mut self, buffer: &mut [u8]) -> Result<(), BodyError> {
        while self.read(buffer)? > 0 {}
        Ok(())
    }
}
