//! One member of gzip (RFC 1952).

use super::{INLINE_BYTES, Turn, Unreadable};
use crate::body::buffer::STEP_BYTES;
use flate2::{Decompress, FlushDecompress, Status};

/// The window of deflate: 2^15 bytes, which all of it uses.
const WINDOW_BITS: u8 = 15;

/// How much larger than itself a body may say that it becomes and is believed. Chosen: telemetry has 5 to 30.
const HINT_RATIO_MAX: usize = 64;

/// The decoder; it holds 32 KiB of window and 16 KiB of tables.
pub(super) struct Gzip(Decompress);

impl Gzip {
    pub fn new() -> Self {
        Self(Decompress::new_gzip(WINDOW_BITS))
    }

    /// Appends within the capacity of the output.
    pub fn decompress(&mut self, input: &[u8], output: &mut Vec<u8>) -> Result<Turn, Unreadable> {
        let before = self.0.total_in();
        let done = self.0.decompress_vec(input, output, FlushDecompress::None);
        let status = done.map_err(|error| Unreadable(error.to_string()))?;
        let taken = usize::try_from(self.0.total_in() - before).unwrap_or(usize::MAX);
        Ok(Turn { taken, is_ended: status == Status::StreamEnd })
    }
}

/// How large the output will be: the last four bytes of a body of one member, if that is likely; else a guess. One byte more, so that the
/// decoder ends without another step.
pub(super) fn size_hint(body: &[u8]) -> usize {
    let said = match body.last_chunk::<4>() {
        Some(size) => usize::try_from(u32::from_le_bytes(*size)).unwrap_or(usize::MAX),
        None => 0,
    };
    if said >= body.len() / 2 && said <= body.len().saturating_mul(HINT_RATIO_MAX) {
        return said.saturating_add(1);
    }
    body.len().saturating_mul(4).clamp(STEP_BYTES, INLINE_BYTES)
}
