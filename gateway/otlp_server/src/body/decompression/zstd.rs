//! One frame of zstd (RFC 8878).
//!
//! | bytes | is |
//! | --- | --- |
//! | 4 | magic number, little-endian: 0xFD2FB528, or 0x184D2A50 to 0x184D2A5F of a frame that is skipped |
//! | 1 | descriptor: bits 7-6 size of the content's size, bit 5 single segment, bits 1-0 size of the dictionary's id |
//! | 0 or 1 | window: bits 7-3 exponent, bits 2-0 mantissa; not in a single segment, whose window is its content |
//! | ... | id of the dictionary, size of the content |
//!
//! If the size of the content is known and the frame is whole, it is decompressed at once into room for it, and needs no window beside.

use super::{Turn, Unreadable};
use crate::failure::Failure;
use zstd_safe::{
    DCtx, DParameter, InBuffer, OutBuffer, find_frame_compressed_size, get_error_name, get_frame_content_size,
};

/// The largest window: 32 MiB, that of the highest levels which write to streams. RFC 8878 asks decoders for 8 MiB at least.
pub(super) const WINDOW_BYTES_MAX: u64 = 1 << WINDOW_LOG_MAX;
const WINDOW_LOG_MAX: u32 = 25;

/// What the decoder holds beside the window: its tables (96 KiB) and blocks before and after decompression (128 KiB each).
const DECODER_BYTES: usize = 384 << 10;

const MAGIC: u32 = 0xFD2F_B528;
const SKIPPED: u32 = 0x184D_2A50;

/// What the first bytes of a frame say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// Bytes of the content, if it is known.
    pub content_bytes: Option<u64>,
    /// Bytes of the window.
    pub window_bytes: u64,
}

/// Reads the first bytes of a frame.
pub(super) fn head(frame: &[u8]) -> Result<Head, Unreadable> {
    let unreadable = |words: &str| Unreadable(words.to_owned());
    let (magic, rest) = frame.split_first_chunk::<4>().ok_or_else(|| unreadable("it ends in the middle"))?;
    match u32::from_le_bytes(*magic) {
        MAGIC => {}
        magic if magic & 0xFFFF_FFF0 == SKIPPED => return Ok(Head { content_bytes: None, window_bytes: 0 }),
        _ => return Err(unreadable("no frame begins there")),
    }
    let content_bytes =
        get_frame_content_size(frame).map_err(|_| unreadable("the head of a frame is damaged"))?;
    if content_bytes.is_some() && find_frame_compressed_size(frame).is_err() {
        // It would be decompressed through a window that no permit is for.
        return Err(unreadable("it ends in the middle, or a block of it is damaged"));
    }
    let window_bytes = match (rest, content_bytes) {
        ([descriptor, ..], Some(content)) if descriptor & 0x20 != 0 => content,
        ([_, window, ..], _) => {
            let base = 1_u64 << (10 + (window >> 3));
            base + base / 8 * u64::from(window & 7)
        }
        _ => return Err(unreadable("it ends in the middle")),
    };
    Ok(Head { content_bytes, window_bytes })
}

/// Bytes that decoding takes beside input and output; `None` if the window is too large.
pub(super) fn scratch_bytes(head: &Head) -> Option<usize> {
    if head.content_bytes.is_some() {
        return Some(DECODER_BYTES);
    }
    if head.window_bytes > WINDOW_BYTES_MAX {
        return None;
    }
    usize::try_from(head.window_bytes).ok()?.checked_add(DECODER_BYTES)
}

pub(super) fn window_too_large(head: &Head) -> Failure {
    Failure::too_large(format!(
        "a frame of zstd has a window of {} bytes, and at most {WINDOW_BYTES_MAX} are read; compress with a lower level",
        head.window_bytes
    ))
}

/// Compressed bytes of a whole frame.
pub(super) fn frame_bytes(frame: &[u8]) -> Option<usize> {
    find_frame_compressed_size(frame).ok()
}

/// The decoder.
pub(super) struct Zstd(DCtx<'static>);

impl Zstd {
    pub fn new() -> Result<Self, Unreadable> {
        let mut decoder = DCtx::try_create().ok_or_else(|| Unreadable("no memory".to_owned()))?;
        decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX)).map_err(named)?;
        Ok(Self(decoder))
    }

    /// Appends within the capacity of the output.
    pub fn decompress(&mut self, input: &[u8], output: &mut Vec<u8>) -> Result<Turn, Unreadable> {
        let mut from = InBuffer::around(input);
        let filled = output.len();
        let mut to = OutBuffer::around_pos(output, filled);
        let left = self.0.decompress_stream(&mut to, &mut from).map_err(named)?;
        Ok(Turn { taken: from.pos(), is_ended: left == 0 })
    }
}

fn named(code: zstd_safe::ErrorCode) -> Unreadable {
    Unreadable(get_error_name(code).to_owned())
}
