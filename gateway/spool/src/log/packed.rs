//! Packed messages: a large message takes a part of its bytes in the log.
//!
//! | bytes | field |
//! | --- | --- |
//! | 4 | bytes of the first piece as it is stored, little-endian |
//! | … | the same of each other piece |
//! | … | the pieces, without gaps |
//!
//! A piece is [`PIECE_BYTES`] of the message; the last one is the rest. It is stored as an LZ4 block
//! (<https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md>), or as it came if it has as many bytes as before. The table of the record says how many
//! bytes the message has, and the checksum of what is stored.
//!
//! **Packing** needs no memory beside the message and one block: each piece is written over bytes that were read before it. The first piece
//! decides. If it does not become smaller by an eighth, the message stays as it came, and little time is lost on bytes that do not compress.
//!
//! **Reading** is total, and takes a piece at a time. Before the message has memory, the sizes of its pieces are compared: no block becomes more than
//! [`EXPANSION_MAX`] times as large, so a message takes no more than this many times the bytes that are stored.
//!
//! Owner: any thread. Limits: messages of [`PACK_BYTES_MIN`] to [`BODY_BYTES_MAX`] bytes.

use crate::{files::FileAt, format::BODY_BYTES_MAX, log::table::TableEntry};
use std::io;

/// Messages below are not packed. Chosen: they share a record, whose header, marks and sync cost more than the bytes saved; and so small a
/// message repeats little.
pub const PACK_BYTES_MIN: usize = 4 << 10;

/// Bytes of a message that become one block. Measured for rows (`gateway/clickhouse/src/lz4.rs`): blocks of 64 KiB take a fifth more than those of
/// 256 KiB, and blocks of 512 KiB 3 % less.
pub const PIECE_BYTES: usize = 256 << 10;

/// A byte of a block stands for at most this many bytes (specified).
const EXPANSION_MAX: usize = 255;

/// Bytes of a piece's size.
const SIZE_BYTES: usize = 4;

/// Packs a message in its place, if that saves an eighth. Returns how many bytes it has from now on; `None` if it is not packed.
///
/// `encode` writes the LZ4 block of a piece to the front of `block`, which is as large as the encoder needs for [`PIECE_BYTES`], and returns its bytes.
///
/// # Panics
/// If `encode` returns more bytes than `block` has.
pub fn pack(
    message: &mut [u8],
    block: &mut [u8],
    mut encode: impl FnMut(&[u8], &mut [u8]) -> usize,
) -> Option<usize> {
    let bytes = message.len();
    if bytes < PACK_BYTES_MIN || bytes as u64 > BODY_BYTES_MAX {
        return None;
    }
    let pieces = bytes.div_ceil(PIECE_BYTES);
    // Invariant behind the first piece: at most where the next piece begins.
    let mut at = pieces.saturating_mul(SIZE_BYTES);
    for number in 0..pieces {
        let start = number.saturating_mul(PIECE_BYTES);
        let end = start.saturating_add(PIECE_BYTES).min(bytes);
        let piece = message.get(start..end).expect("a piece is a part of the message");
        let raw = piece.len();
        let packed = encode(piece, block);
        if number == 0 && at.saturating_add(packed) > raw.saturating_sub(raw >> 3) {
            return None;
        }
        let stored = packed.min(raw);
        if packed < raw {
            let block = block.get(..packed).expect("the block was written to the buffer");
            write(message, at, block);
        } else {
            message.copy_within(start..end, at);
        }
        let size = u32::try_from(stored).expect("a piece is small");
        write(message, number.saturating_mul(SIZE_BYTES), &size.to_le_bytes());
        at = at.saturating_add(stored);
    }
    Some(at)
}

/// Writes over bytes of a message that were read before.
fn write(message: &mut [u8], at: usize, bytes: &[u8]) {
    let place = message.get_mut(at..at.saturating_add(bytes.len()));
    place.expect("what is packed takes less than what was read").copy_from_slice(bytes);
}

/// Reads a message that is packed; `None` if it is not what was written.
///
/// # Errors
/// Of the file, also if it ends before the message does.
pub(super) fn read<F: FileAt>(
    file: &F,
    at: u64,
    entry: &TableEntry,
    raw_bytes: u32,
) -> io::Result<Option<Vec<u8>>> {
    let count = usize::try_from(raw_bytes).unwrap_or(usize::MAX).div_ceil(PIECE_BYTES);
    let mut sizes = vec![0; count.saturating_mul(SIZE_BYTES)];
    let stored = u64::from(entry.bytes).checked_sub(sizes.len() as u64);
    let Some(stored) = stored.filter(|_| u64::from(raw_bytes) <= BODY_BYTES_MAX) else {
        return Ok(None);
    };
    file.read_exact_at(&mut sizes, at)?;
    let Some(pieces) = pieces(&sizes, raw_bytes, stored) else { return Ok(None) };
    let mut sum = crc32c::crc32c(&sizes);
    let mut at = at.saturating_add(sizes.len() as u64);
    let mut message = vec![0; usize::try_from(raw_bytes).unwrap_or(usize::MAX)];
    let mut block = vec![0; pieces.iter().copied().max().unwrap_or(0)];
    for (size, piece) in pieces.into_iter().zip(message.chunks_mut(PIECE_BYTES)) {
        let block = block.get_mut(..size).unwrap_or_default();
        file.read_exact_at(block, at)?;
        sum = crc32c::crc32c_append(sum, block);
        if !unpack(block, piece) {
            return Ok(None);
        }
        at = at.saturating_add(size as u64);
    }
    Ok((sum == entry.crc).then_some(message))
}

/// The sizes of the pieces of a message, which have `stored` bytes together; `None` if it has no such pieces.
fn pieces(sizes: &[u8], raw_bytes: u32, stored: u64) -> Option<Vec<usize>> {
    let (mut pieces, mut sum) = (Vec::new(), 0_u64);
    let mut raw_left = usize::try_from(raw_bytes).ok()?;
    for size in sizes.as_chunks::<SIZE_BYTES>().0 {
        let size = u32::from_le_bytes(*size);
        sum = sum.saturating_add(u64::from(size));
        let (size, raw) = (usize::try_from(size).ok()?, raw_left.min(PIECE_BYTES));
        if size > raw || size.saturating_mul(EXPANSION_MAX) < raw {
            return None;
        }
        raw_left = raw_left.saturating_sub(raw);
        pieces.push(size);
    }
    (sum == stored).then_some(pieces)
}

/// Whether a piece was written to all of its place.
fn unpack(block: &[u8], piece: &mut [u8]) -> bool {
    if block.len() == piece.len() {
        piece.copy_from_slice(block);
        return true;
    }
    let bytes = piece.len();
    lz4_flex::block::decompress_into(block, piece).is_ok_and(|written| written == bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lz4_flex::block::{compress_into, get_maximum_output_size};
    use std::cell::Cell;

    /// A file that is read.
    struct Content(Vec<u8>);

    impl FileAt for Content {
        fn size(&self) -> io::Result<u64> {
            Ok(self.0.len() as u64)
        }

        fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
            let at = usize::try_from(at).unwrap();
            let piece = self.0.get(at..at.saturating_add(buffer.len()));
            buffer.copy_from_slice(piece.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        }

        fn write_all_at(&self, _: &[u8], _: u64) -> io::Result<()> {
            unreachable!("it is read only")
        }

        fn truncate(&self, _: u64) -> io::Result<()> {
            unreachable!("it is read only")
        }

        fn sync(&self) -> io::Result<()> {
            unreachable!("it is read only")
        }
    }

    /// The message packed, and how many pieces were encoded for that.
    fn packed(message: &[u8]) -> (Option<Vec<u8>>, u32) {
        let (mut bytes, encoded) = (message.to_vec(), Cell::new(0_u32));
        let mut block = vec![0; get_maximum_output_size(PIECE_BYTES)];
        let packed = pack(&mut bytes, &mut block, |piece, block| {
            encoded.set(encoded.get().saturating_add(1));
            compress_into(piece, block).unwrap()
        });
        if packed.is_none() {
            assert!(bytes == message, "it stays as it is");
        }
        let packed = packed.map(|packed| {
            bytes.truncate(packed);
            bytes
        });
        (packed, encoded.get())
    }

    /// What is read of stored bytes, whose checksum is right.
    fn unpacked(stored: &[u8], raw_bytes: usize) -> Option<Vec<u8>> {
        let raw_bytes = u32::try_from(raw_bytes).unwrap();
        let bytes = u32::try_from(stored.len()).unwrap();
        let entry = TableEntry { bytes, crc: crc32c::crc32c(stored), raw_bytes: Some(raw_bytes) };
        let file = Content([b"before", stored].concat());
        read(&file, 6, &entry, raw_bytes).unwrap()
    }

    /// Bytes that repeat.
    fn text(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| u8::try_from(at.wrapping_mul(at) % 7).unwrap()).collect()
    }

    /// Bytes that do not repeat.
    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let next = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u8::try_from(state >> 56).unwrap()
        };
        (0..bytes).map(next).collect()
    }

    #[test]
    fn what_repeats_is_smaller_and_read_as_it_was() {
        for bytes in [PACK_BYTES_MIN, 8_000, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES - 1] {
            let message = text(bytes);
            let stored = packed(&message).0.unwrap();
            assert!(stored.len() < bytes >> 1, "{bytes}: {}", stored.len());
            assert!(unpacked(&stored, bytes) == Some(message), "{bytes}");
        }
    }

    #[test]
    fn what_does_not_repeat_or_is_small_stays_as_it_came() {
        assert_eq!(packed(&text(PACK_BYTES_MIN - 1)), (None, 0));
        assert_eq!(packed(&noise(PACK_BYTES_MIN)), (None, 1));
        assert_eq!(packed(&noise(8 * PIECE_BYTES)), (None, 1), "the first piece decides");
    }

    #[test]
    fn a_piece_that_does_not_repeat_is_stored_as_it_came() {
        let message = [text(PIECE_BYTES), noise(2 * PIECE_BYTES), text(100)].concat();
        let stored = packed(&message).0.unwrap();
        assert!(stored.len() < message.len() - (PIECE_BYTES >> 1), "{}", stored.len());
        assert!(unpacked(&stored, message.len()) == Some(message));
    }

    #[test]
    fn another_length_or_size_is_no_message() {
        let bytes = PIECE_BYTES + 5_000;
        let stored = packed(&text(bytes)).0.unwrap();
        for wrong in [0, 1, bytes - 1, bytes + 1, PIECE_BYTES, 2 * PIECE_BYTES + 1, 1 << 28, (1 << 28) + 1] {
            assert_eq!(unpacked(&stored, wrong), None, "{wrong}");
        }
        for at in 0..8 {
            let mut stored = stored.clone();
            *stored.get_mut(at).unwrap() ^= 1;
            assert_eq!(unpacked(&stored, bytes), None, "size at {at}");
        }
        for end in [0, 3, 8, stored.len() - 1] {
            assert_eq!(unpacked(stored.get(..end).unwrap(), bytes), None, "cut at {end}");
        }
    }

    #[test]
    fn bytes_that_are_no_block_are_no_message_and_take_no_memory() {
        let piece = |size: u32, bytes: &[u8]| [size.to_le_bytes().as_slice(), bytes].concat();
        assert_eq!(unpacked(&piece(200, &[0xff; 200]), 5_000), None);
        // It would be 256 MiB.
        let few = piece(1, &[]).repeat(1_024);
        assert_eq!(unpacked(&[few, vec![0; 1_024]].concat(), 1 << 28), None);
        let (mut stored, bytes) = (packed(&text(9_000)).0.unwrap(), 9_000);
        *stored.get_mut(20).unwrap() ^= 0x55;
        assert!(unpacked(&stored, bytes) != Some(text(bytes)), "only the checksum tells");
    }
}
