//! Texts with errors.

use crate::rng::Rng;

/// Pieces with a meaning in JSON or in OTLP/JSON.
const PIECES: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\"",
    b"\\",
    b"\\u",
    b"\\ud800",
    b"\\udc00",
    b"null",
    b"-",
    b"1e999",
    b"18446744073709551616",
    b"{\"values\":[",
    b"\"arrayValue\":",
    b"\xFF",
    b"\xED\xA0\x80",
    b"\xEF\xBB\xBF",
    b"0",
    b"=",
    b"{}",
];

/// The text with a few bytes changed, removed, doubled or inserted.
pub fn damaged(text: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut damaged = text.to_vec();
    for _ in 0..=rng.below(3) {
        let at = rng.below(damaged.len() + 1);
        let end = (at + rng.below(12)).min(damaged.len());
        match rng.below(5) {
            0 => drop(damaged.drain(at..end)),
            1 => damaged.truncate(at),
            2 => damaged.extend_from_within(at..end),
            3 => damaged[at..end].fill(rng.byte()),
            _ => drop(damaged.splice(at..at, PIECES[rng.below(PIECES.len())].iter().copied())),
        }
    }
    damaged
}
