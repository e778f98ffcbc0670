//! A frame from elsewhere is read, or refused, by both readers alike.

use cityhash_rs::cityhash_102_128;
use sluice_clickhouse::frame;

use crate::reader::frames;

/// Raw bytes that a made-up header claims at the most, so that an input does not spend its time on clearing memory.
const RAW_BYTES_CLAIMED_MAX: u16 = 4_096;

/// Reads the bytes as they are, and as what stands behind a checksum that is right, which no random bytes would pass.
///
/// # Panics
/// When a promise is broken.
pub fn check(bytes: &[u8]) {
    alike(bytes);
    alike(&summed(bytes));
    if let Some((claimed, block)) = bytes.split_first_chunk() {
        let claimed = u16::from_le_bytes(*claimed) % RAW_BYTES_CLAIMED_MAX;
        alike(&summed(&headed(block, u32::from(claimed))));
    }
}

/// Both readers, which the same bytes give the same answer.
fn alike(bytes: &[u8]) {
    let mut raw = b"kept".to_vec();
    let decoded = frame::decode(bytes, &mut raw);
    let mut other = b"kept".to_vec();
    match decoded {
        Ok(length) => {
            frames::unpack(&bytes[..length], &mut other).expect("the other reader reads it too");
            assert_eq!(raw, other);
        }
        Err(error) => {
            assert_eq!(raw, b"kept", "a frame that is refused leaves nothing");
            assert!(!error.to_string().is_empty());
            let refused = bytes.is_empty() || frames::unpack(bytes, &mut other).is_err();
            assert!(refused, "the other reader reads what this one refuses: {error}");
        }
    }
}

/// Method and sizes before an LZ4 block.
fn headed(block: &[u8], raw_bytes: u32) -> Vec<u8> {
    let bytes = u32::try_from(9 + block.len()).expect("inputs are short");
    [&[0x82][..], &bytes.to_le_bytes(), &raw_bytes.to_le_bytes(), block].concat()
}

/// A right checksum before what it covers.
fn summed(covered: &[u8]) -> Vec<u8> {
    [&cityhash_102_128(covered).rotate_left(64).to_le_bytes()[..], covered].concat()
}
