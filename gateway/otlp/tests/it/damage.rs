//! Bytes damaged like by a bug or a bad disk.

use crate::rng::Rng;

pub fn damaged(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=rng.below(3) {
        if bytes.is_empty() {
            break;
        }
        let at = rng.below(bytes.len());
        match rng.below(6) {
            0 => bytes[at] ^= 1 << rng.below(8),
            1 => bytes[at] = rng.byte(),
            2 => bytes.truncate(at),
            3 => bytes.insert(at, rng.byte()),
            4 => {
                bytes.remove(at);
            }
            _ => splice(&mut bytes, at, rng),
        }
    }
    bytes
}

/// Moves a piece of the message to another place.
fn splice(bytes: &mut Vec<u8>, at: usize, rng: &mut Rng) {
    let from = rng.below(bytes.len());
    let length = rng.below(bytes.len() - from).min(64);
    let piece = bytes[from..from + length].to_vec();
    let replaced = if rng.one_in(2) { length.min(bytes.len() - at) } else { 0 };
    bytes.splice(at..at + replaced, piece);
}
