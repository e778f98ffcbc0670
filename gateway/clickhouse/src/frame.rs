//! One compressed frame, as ClickHouse reads them with `decompress=1`.
//!
//! Job: raw row bytes to a frame and back. Place in the flow: [`crate::row_frames`] encodes each full row buffer while it is still in
//! cache; decoding is for removing rows (a malformed message) and for tests. Owner: the worker thread. Frames follow one another without
//! an end mark, and a row may begin in one and end in the next.
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 16 | CityHash128 (version 1.0.2) of everything from offset 16, high half first, each half little-endian |
//! | 16 | 1 | method: `82` = LZ4 |
//! | 17 | 4 | little-endian: bytes from offset 16 to the end of the frame (these 9 of the header included) |
//! | 21 | 4 | little-endian: raw bytes |
//! | 25 | … | LZ4 block, without a size of its own |
//!
//! Limits: [`FRAME_BYTES_MAX`]; the server itself takes frames of up to 1 GiB.
//!
//! Blocks are encoded by [`crate::lz4`], which is on the hot path, and decoded by `lz4_flex`, which checks everything; the
//! hash is `cityhash-rs`, the one that the `clickhouse` crate uses.
//!
//! Source: <https://clickhouse.com/docs/interfaces/native-clients-interfaces-and-formats> and frames that ClickHouse
//! 26.7 accepted with its checksum verification on.

use std::ops::Range;

use cityhash_rs::cityhash_102_128;
use lz4_flex::block::decompress_into;

use crate::lz4::{Lz4Encoder, TABLE_BYTES, block_bytes_max};

/// Bytes before the LZ4 block.
pub const FRAME_HEADER_BYTES: usize = CHECKSUM_BYTES + METHOD_AND_SIZES_BYTES;

/// Maximum raw bytes of a frame. Chosen: 64 MiB is far above the frames cut here (256 KiB). A frame read from a disk that claims more is
/// damaged, and must not cause a large allocation.
pub const FRAME_RAW_BYTES_MAX: usize = 64 << 20;

/// The most bytes one frame may take.
pub const FRAME_BYTES_MAX: usize = frame_bytes_max(FRAME_RAW_BYTES_MAX);

const CHECKSUM_BYTES: usize = 16;
const METHOD_AND_SIZES_BYTES: usize = 9;
const METHOD_LZ4: u8 = 0x82;

const METHOD_AT: usize = CHECKSUM_BYTES;
const COMPRESSED_BYTES_AT: Range<usize> = 17..21;
const RAW_BYTES_AT: Range<usize> = 21..25;

/// Why bytes are not a frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The bytes end before the frame does.
    #[error("reading a frame: it needs {needed} bytes but has {found}")]
    Truncated { needed: usize, found: usize },
    /// The checksum does not match.
    #[error("reading a frame: its checksum does not match its {bytes} bytes")]
    Checksum { bytes: usize },
    /// The method is not LZ4.
    #[error("reading a frame: unknown compression method {method:#04x}")]
    Method { method: u8 },
    /// The sizes in the header are impossible.
    #[error("reading a frame: sizes of {compressed} compressed and {raw} raw bytes are impossible")]
    Sizes { compressed: usize, raw: usize },
    /// The LZ4 block does not hold what the header says.
    #[error("reading a frame: decompressing it to {raw} bytes: {reason}")]
    Decompress { raw: usize, reason: String },
}

/// Bytes that a frame of `raw` bytes takes at most.
pub const fn frame_bytes_max(raw: usize) -> usize {
    FRAME_HEADER_BYTES + block_bytes_max(raw)
}

/// Encodes frames into one buffer, which is zero-filled only when it grows.
pub struct FrameEncoder {
    /// Always filled to its length, so that frames overwrite existing bytes.
    out: Vec<u8>,
    lz4: Lz4Encoder,
}

impl FrameEncoder {
    /// An encoder for frames of up to `raw_bytes` without further allocation.
    pub fn new(raw_bytes: usize) -> Self {
        Self { out: vec![0; frame_bytes_max(raw_bytes)], lz4: Lz4Encoder::new() }
    }

    /// Memory held, in bytes: for the budget.
    pub fn memory_bytes(&self) -> usize {
        self.out.capacity() + TABLE_BYTES
    }

    /// The frame of `raw`, to be copied out before the next call.
    ///
    /// # Panics
    /// If `raw` is longer than [`FRAME_RAW_BYTES_MAX`]: callers cut long before.
    pub fn encode(&mut self, raw: &[u8]) -> &[u8] {
        assert!(raw.len() <= FRAME_RAW_BYTES_MAX, "a frame of {} raw bytes is above the limit", raw.len());
        let needed = frame_bytes_max(raw.len());
        if self.out.len() < needed {
            self.out.resize(needed, 0);
        }
        let block = self.lz4.encode(raw, &mut self.out[FRAME_HEADER_BYTES..]);
        let end = FRAME_HEADER_BYTES + block;
        self.out[METHOD_AT] = METHOD_LZ4;
        self.out[COMPRESSED_BYTES_AT].copy_from_slice(&size_bytes(METHOD_AND_SIZES_BYTES + block));
        self.out[RAW_BYTES_AT].copy_from_slice(&size_bytes(raw.len()));
        let checksum = checksum(&self.out[CHECKSUM_BYTES..end]);
        self.out[..CHECKSUM_BYTES].copy_from_slice(&checksum);
        &self.out[..end]
    }
}

/// Appends the raw bytes of the frame that `bytes` begins with to `raw`; returns the bytes of that frame.
///
/// # Errors
/// [`FrameError`] for anything that [`FrameEncoder`] would not have written; `raw` is then unchanged.
pub fn decode(bytes: &[u8], raw: &mut Vec<u8>) -> Result<usize, FrameError> {
    let frame_bytes = frame_bytes(bytes)?;
    let frame =
        bytes.get(..frame_bytes).ok_or(FrameError::Truncated { needed: frame_bytes, found: bytes.len() })?;
    let covered = &frame[CHECKSUM_BYTES..];
    if checksum(covered) != frame[..CHECKSUM_BYTES] {
        return Err(FrameError::Checksum { bytes: covered.len() });
    }
    let raw_bytes = read_size(&frame[RAW_BYTES_AT]);
    let before = raw.len();
    raw.resize(before + raw_bytes, 0);
    let reason = match decompress_into(&frame[FRAME_HEADER_BYTES..], &mut raw[before..]) {
        Ok(found) if found == raw_bytes => return Ok(frame_bytes),
        Ok(found) => format!("it holds {found}"),
        Err(error) => error.to_string(),
    };
    raw.truncate(before);
    Err(FrameError::Decompress { raw: raw_bytes, reason })
}

/// Bytes of the frame whose header `bytes` begins with, which may end before the frame does.
///
/// # Errors
/// [`FrameError`] if the header is incomplete, has another method, or claims sizes above the limits.
pub fn frame_bytes(bytes: &[u8]) -> Result<usize, FrameError> {
    let header = bytes
        .get(..FRAME_HEADER_BYTES)
        .ok_or(FrameError::Truncated { needed: FRAME_HEADER_BYTES, found: bytes.len() })?;
    if header[METHOD_AT] != METHOD_LZ4 {
        return Err(FrameError::Method { method: header[METHOD_AT] });
    }
    let compressed = read_size(&header[COMPRESSED_BYTES_AT]);
    let raw = read_size(&header[RAW_BYTES_AT]);
    if !(METHOD_AND_SIZES_BYTES..=FRAME_BYTES_MAX).contains(&compressed) || raw > FRAME_RAW_BYTES_MAX {
        return Err(FrameError::Sizes { compressed, raw });
    }
    Ok(CHECKSUM_BYTES + compressed)
}

/// The checksum as it lies in the frame.
fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    // The hash is a pair of 64-bit words; this library returns one number, with the first word as its high half.
    cityhash_102_128(bytes).rotate_left(64).to_le_bytes()
}

fn size_bytes(size: usize) -> [u8; 4] {
    u32::try_from(size).expect("sizes are bounded by FRAME_BYTES_MAX").to_le_bytes()
}

fn read_size(bytes: &[u8]) -> usize {
    bytes.iter().rev().fold(0, |size, byte| size << 8 | usize::from(*byte))
}

impl std::fmt::Debug for FrameEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrameEncoder").field("out_bytes", &self.out.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(raw: &[u8]) -> Vec<u8> {
        FrameEncoder::new(raw.len()).encode(raw).to_vec()
    }

    fn decoded(bytes: &[u8]) -> Result<Vec<u8>, FrameError> {
        let mut raw = Vec::new();
        let used = decode(bytes, &mut raw)?;
        assert_eq!(used, bytes.len());
        Ok(raw)
    }

    #[test]
    fn sizes_of_the_header_add_up() {
        assert_eq!(FRAME_HEADER_BYTES, 25);
        assert_eq!(COMPRESSED_BYTES_AT.start, METHOD_AT + 1);
        assert_eq!(RAW_BYTES_AT.end, FRAME_HEADER_BYTES);
    }

    #[test]
    fn a_frame_is_what_the_server_takes() {
        // Two frames that ClickHouse 26.7 read as these texts, with its checksum verification on.
        assert_eq!(frame(b"hello"), GOLDEN_HELLO);
        assert_eq!(frame(&[b'a'; 100]), GOLDEN_RUN);
        assert_eq!(decoded(GOLDEN_HELLO).unwrap(), b"hello");
    }

    #[rustfmt::skip]
    const GOLDEN_HELLO: &[u8] = &[
        0xaf, 0x27, 0x50, 0x49, 0xb2, 0x07, 0xbe, 0x89,  // checksum of what follows, high half
        0xc3, 0x41, 0xc7, 0x64, 0x1d, 0xe5, 0x54, 0x41,  // low half
        0x82,                                            // LZ4
        0x0f, 0x00, 0x00, 0x00,                          // 15 bytes: 9 of header, 6 of block
        0x05, 0x00, 0x00, 0x00,                          // 5 raw bytes
        0x50, b'h', b'e', b'l', b'l', b'o',              // five literals, no match
    ];
    #[rustfmt::skip]
    const GOLDEN_RUN: &[u8] = &[
        0x2d, 0xe0, 0x3d, 0xbc, 0x04, 0x1b, 0x82, 0x4f,  // checksum
        0x53, 0x42, 0x4d, 0x1c, 0x38, 0x01, 0x81, 0xab,
        0x82,                                            // LZ4
        0x14, 0x00, 0x00, 0x00,                          // 20 bytes: 9 of header, 11 of block
        0x64, 0x00, 0x00, 0x00,                          // 100 raw bytes
        0x1f, b'a', 0x01, 0x00, 0x4b,                    // one literal, then 94 bytes from one byte back
        0x50, b'a', b'a', b'a', b'a', b'a',              // five literals end the block
    ];

    #[test]
    fn an_encoder_can_be_used_again_for_longer_and_shorter_frames() {
        let mut encoder = FrameEncoder::new(16);
        for raw in [vec![7; 100_000], vec![], vec![1], vec![9; 70_000]] {
            let frame = encoder.encode(&raw).to_vec();
            assert!(frame.len() <= frame_bytes_max(raw.len()));
            assert_eq!(decoded(&frame).unwrap(), raw);
        }
    }

    #[test]
    fn every_damaged_byte_is_noticed() {
        let good = frame(b"hello hello hello hello hello");
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x01;
            assert!(decoded(&bad).is_err(), "byte {at}");
        }
    }

    #[test]
    fn every_truncation_is_noticed() {
        let good = frame(&[5; 1000]);
        for len in 0..good.len() {
            assert!(matches!(decoded(&good[..len]), Err(FrameError::Truncated { .. })), "{len} bytes");
        }
    }

    #[test]
    fn a_header_that_asks_for_too_much_is_refused_before_anything_is_allocated() {
        let mut bad = frame(b"hello");
        bad[RAW_BYTES_AT].copy_from_slice(&u32::MAX.to_le_bytes());
        let expected = FrameError::Sizes { compressed: bad.len() - 16, raw: u32::MAX as usize };
        assert_eq!(decoded(&bad), Err(expected));
    }

    #[test]
    fn a_checked_frame_whose_block_is_not_lz4_is_an_error() {
        let mut bad = frame(b"hello");
        bad[FRAME_HEADER_BYTES] = 0xff;
        let sum = checksum(&bad[CHECKSUM_BYTES..]);
        bad[..CHECKSUM_BYTES].copy_from_slice(&sum);
        assert!(matches!(decoded(&bad), Err(FrameError::Decompress { raw: 5, .. })));
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(raw in proptest::collection::vec(any::<u8>(), 0..3000), run in 0_usize..3000) {
            let mut raw = raw;
            raw.extend(std::iter::repeat_n(0x55, run));
            prop_assert_eq!(decoded(&frame(&raw)).unwrap(), raw);
        }

        #[test]
        fn any_bytes_give_a_frame_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut raw = b"kept".to_vec();
            prop_assert!(decode(&bytes, &mut raw).is_err());
            prop_assert_eq!(&raw[..], b"kept");
        }
    }
}
