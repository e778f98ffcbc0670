//! Frames hold what was put into them, whatever was compressed before.

use std::cell::RefCell;

use sluice_clickhouse::frame::{self, FrameEncoder};
use sluice_clickhouse::lz4_round_trip::assert_round_trip;

use crate::reader::frames;

/// How often an input is repeated at the most, to make frames longer than inputs: LZ4 looks back 64 KiB, and counts long runs
/// in more than one byte.
const REPEATED_MAX: usize = 64;

thread_local! {
    // Small at first: it grows with its inputs.
    static ENCODER: RefCell<FrameEncoder> = RefCell::new(FrameEncoder::new(64));
}

/// Compresses the bytes behind the first two in two pieces, and reads both back. The first piece may be repeated.
///
/// # Panics
/// When a promise is broken.
pub fn check(bytes: &[u8]) {
    let [repeated, cut, raw @ ..] = bytes else { return };
    let (first, second) = raw.split_at(usize::from(*cut) * raw.len() / 256);
    let first = first.repeat(usize::from(*repeated) % REPEATED_MAX + 1);
    for raw in [&first[..], second] {
        assert_round_trip(raw);
        ENCODER.with_borrow_mut(|encoder| round_trip(encoder, raw));
    }
}

fn round_trip(encoder: &mut FrameEncoder, raw: &[u8]) {
    let frame = encoder.encode(raw);
    assert!(frame.len() <= frame::frame_bytes_max(raw.len()));
    let (mut decoded, mut unpacked) = (Vec::new(), Vec::new());
    assert_eq!(frame::decode(frame, &mut decoded), Ok(frame.len()));
    frames::unpack(frame, &mut unpacked).expect("the other reader reads it too");
    assert!(decoded == raw && unpacked == raw, "{} bytes come back otherwise", raw.len());
}
