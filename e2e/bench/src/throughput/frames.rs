//! Compressed frames of an INSERT's body, as a server reads them with `decompress=1`.
//!
//! Job: cut a body into frames, check and unpack them. Place in the flow: the null sink checks a sample during the run; the count after the
//! run checks and unpacks all. Written separately, so that the gateway's encoder is not checked by its own decoder. Limits:
//! [`RAW_BYTES_MAX`] a frame.
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 16 | CityHash128 (version 1.0.2) of everything from offset 16, high half first, each half little-endian |
//! | 16 | 1 | method: `82` = LZ4 |
//! | 17 | 4 | little-endian: bytes from offset 16 to the end of the frame |
//! | 21 | 4 | little-endian: raw bytes |
//! | 25 | … | LZ4 block |

use anyhow::{Context as _, Result, ensure};
use cityhash_rs::cityhash_102_128;

/// The most raw bytes that a frame may claim. Chosen: ClickHouse's own clients cut at 1 MiB, and a damaged header must not cause a huge
/// allocation.
pub const RAW_BYTES_MAX: usize = 64 << 20;

const CHECKSUM_BYTES: usize = 16;
const METHOD_AND_SIZES_BYTES: usize = 9;
const METHOD_LZ4: u8 = 0x82;

/// One frame, borrowed from the body.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    checksum: &'a [u8],
    /// The bytes under the checksum: method, sizes and block.
    covered: &'a [u8],
    raw_bytes: usize,
}

/// Takes the next frame from the front of `body`; `None` at its end.
pub fn next<'a>(body: &mut &'a [u8]) -> Result<Option<Frame<'a>>> {
    if body.is_empty() {
        return Ok(None);
    }
    let (checksum, rest) = body.split_at_checked(CHECKSUM_BYTES).context("a frame ends in its checksum")?;
    let header = rest.get(..METHOD_AND_SIZES_BYTES).context("a frame ends in its header")?;
    ensure!(header[0] == METHOD_LZ4, "a frame has the unknown method {:#04x}", header[0]);
    let (bytes, raw_bytes) = (size(&header[1..5]), size(&header[5..9]));
    ensure!(bytes >= METHOD_AND_SIZES_BYTES, "a frame claims {bytes} bytes, its header included");
    ensure!(raw_bytes <= RAW_BYTES_MAX, "a frame claims {raw_bytes} raw bytes");
    let (covered, behind) = rest.split_at_checked(bytes).context("a frame ends in its block")?;
    *body = behind;
    Ok(Some(Frame { checksum, covered, raw_bytes }))
}

pub fn verify(mut body: &[u8]) -> Result<()> {
    while let Some(frame) = next(&mut body)? {
        frame.verify()?;
    }
    Ok(())
}

/// Checks every frame of a body and appends their raw bytes to `raw`.
pub fn unpack(mut body: &[u8], raw: &mut Vec<u8>) -> Result<()> {
    while let Some(frame) = next(&mut body)? {
        frame.verify()?;
        frame.unpack(raw)?;
    }
    Ok(())
}

impl Frame<'_> {
    fn verify(&self) -> Result<()> {
        // The hash is a pair of 64-bit words. This library returns one number, with the first word as its high half.
        let checksum = cityhash_102_128(self.covered).rotate_left(64).to_le_bytes();
        ensure!(
            checksum == self.checksum,
            "the checksum of a frame does not match its {} bytes",
            self.covered.len()
        );
        Ok(())
    }

    fn unpack(&self, raw: &mut Vec<u8>) -> Result<()> {
        let start = raw.len();
        raw.resize(start + self.raw_bytes, 0);
        let block = &self.covered[METHOD_AND_SIZES_BYTES..];
        let bytes = lz4_flex::block::decompress_into(block, &mut raw[start..]).context("unpack a frame")?;
        ensure!(bytes == self.raw_bytes, "a frame holds {bytes} raw bytes and claims {}", self.raw_bytes);
        Ok(())
    }
}

/// A little-endian number of four bytes.
fn size(bytes: &[u8]) -> usize {
    bytes.iter().rev().fold(0, |size, byte| size << 8 | usize::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "abc" as one LZ4 block of literals, framed by hand.
    fn frame() -> Vec<u8> {
        let covered = [0x82, 13, 0, 0, 0, 3, 0, 0, 0, 0x30, b'a', b'b', b'c'];
        let mut frame = cityhash_102_128(&covered).rotate_left(64).to_le_bytes().to_vec();
        frame.extend_from_slice(&covered);
        frame
    }

    #[test]
    fn frames_follow_one_another() {
        let body = [frame(), frame()].concat();
        let mut raw = Vec::new();
        unpack(&body, &mut raw).unwrap();
        assert_eq!(raw, b"abcabc");
        verify(&body).unwrap();
    }

    #[test]
    fn a_damaged_frame_is_found_wherever_the_damage_is() {
        for at in 0..frame().len() {
            let mut damaged = frame();
            damaged[at] ^= 1;
            assert!(verify(&damaged).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_body_that_ends_within_a_frame_is_refused() {
        let body = [frame(), frame()].concat();
        for length in (1..body.len()).filter(|length| *length != frame().len()) {
            assert!(verify(&body[..length]).is_err(), "{length} bytes");
        }
    }
}
