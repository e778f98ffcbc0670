//! The properties of every LZ4 block, as one function for tests and fuzzing.
//!
//! Job: encodes any bytes, and checks the block by the format's rules and by `lz4_flex`, whose decoder verifies everything. Place in the
//! flow: none; the gateway does not use it. Limits: allocates a few times the input.

use lz4_flex::block::decompress_into;

use crate::lz4::{Lz4Encoder, block_bytes_max};

/// The byte that fills the output and its surroundings before encoding.
const UNTOUCHED: u8 = 0xa5;

/// Bytes behind the output that must stay untouched.
const FENCE_BYTES: usize = 64;

/// One sequence of a block, as far as the rules concern it.
struct Sequence {
    literals: usize,
    /// Length and distance; the last sequence has none.
    found: Option<(usize, usize)>,
}

/// Encodes `raw`, and the same again with an encoder that has seen it before; returns the block's bytes.
///
/// # Panics
/// - When the block breaks a rule of the format, or does not decode to `raw`.
/// - When the block is above its bound, or was written past the output's end.
/// - When the second block differs from the first.
pub fn assert_round_trip(raw: &[u8]) -> usize {
    let bytes_max = block_bytes_max(raw.len());
    let mut encoder = Lz4Encoder::new();
    let first = encoded(&mut encoder, raw, bytes_max);
    assert!(first.len() <= bytes_max, "{} bytes became {}", raw.len(), first.len());
    let second = encoded(&mut encoder, raw, bytes_max + 1_000);
    assert!(first == second, "an encoder that was used, or more room, must not change the bytes");

    let mut back = vec![UNTOUCHED; raw.len()];
    let found = decompress_into(&first, &mut back);
    assert!(found.as_ref().is_ok_and(|bytes| *bytes == raw.len()), "decoding gave {found:?}");
    assert!(back == raw, "decoding gave other bytes");
    assert_rules(&first, raw.len());
    first.len()
}

/// Encodes into exactly `room` bytes, with a fence behind them.
fn encoded(encoder: &mut Lz4Encoder, raw: &[u8], room: usize) -> Vec<u8> {
    let mut out = vec![UNTOUCHED; room + FENCE_BYTES];
    let bytes = encoder.encode(raw, &mut out[..room]);
    assert!(out[room..].iter().all(|byte| *byte == UNTOUCHED), "the output's end was passed");
    out.truncate(bytes);
    out
}

/// Rules of the format that a decoder may forgive: <https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md>.
fn assert_rules(block: &[u8], raw_bytes: usize) {
    let (mut at, mut position, mut matches) = (0, 0, 0);
    loop {
        let sequence = read_sequence(block, &mut at);
        position += sequence.literals;
        let Some((length, distance)) = sequence.found else {
            assert!(matches == 0 || sequence.literals >= 5, "the last five bytes must be literals");
            break;
        };
        matches += 1;
        assert!(distance >= 1 && distance <= position, "a distance of {distance} at {position}");
        assert!(length >= 4 && position + 12 <= raw_bytes, "a match at {position} of {raw_bytes}");
        position += length;
    }
    assert!(position == raw_bytes, "sequences make {position} of {raw_bytes} bytes");
}

fn read_sequence(block: &[u8], at: &mut usize) -> Sequence {
    let token = usize::from(block[*at]);
    *at += 1;
    let literals = read_length(block, at, token >> 4);
    *at += literals;
    if *at == block.len() {
        return Sequence { literals, found: None };
    }
    let distance = usize::from(u16::from_le_bytes([block[*at], block[*at + 1]]));
    *at += 2;
    Sequence { literals, found: Some((read_length(block, at, token & 15) + 4, distance)) }
}

fn read_length(block: &[u8], at: &mut usize, in_token: usize) -> usize {
    let mut length = in_token;
    let mut more = in_token == 15;
    while more {
        length += usize::from(block[*at]);
        more = block[*at] == 255;
        *at += 1;
    }
    length
}
