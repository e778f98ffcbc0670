//! The encoder against the format's rules and `lz4_flex`'s decoder, on bytes made to reach every edge.

use super::*;
use crate::lz4_round_trip::assert_round_trip;
use proptest::collection::vec;
use proptest::prelude::*;

fn encoded(raw: &[u8]) -> Vec<u8> {
    let mut out = vec![0; block_bytes_max(raw.len())];
    let bytes = Lz4Encoder::new().encode(raw, &mut out);
    out.truncate(bytes);
    out
}

/// Bytes in which no four repeat within reach: a counter, mixed.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x1234_5678_9abc_def0_u64;
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(bytes);
    out
}

#[test]
fn short_input_is_literals() {
    assert_eq!(encoded(b""), [0x00]);
    assert_eq!(encoded(b"hello"), *b"\x50hello");
    assert_eq!(encoded(&[7; 15])[..2], [0xf0, 0x00]);
}

#[test]
fn every_length_of_every_kind_comes_back() {
    let noise = noise(700);
    let words: Vec<u8> = b"service.name=cart;".iter().copied().cycle().take(700).collect();
    for bytes in 0..700 {
        assert_round_trip(&noise[..bytes]);
        assert_round_trip(&words[..bytes]);
        assert_round_trip(&vec![0; bytes]);
    }
}

/// A match of `length` bytes behind `literals` bytes that match nothing, and again noise behind it.
fn match_after(literals: usize, length: usize) -> Vec<u8> {
    let all = noise(literals + 2 * length + 200);
    let (repeated, rest) = all.split_at(length);
    let (between, after) = rest.split_at(literals);
    [repeated, between, repeated, &after[..100]].concat()
}

#[test]
fn lengths_at_their_edges_come_back() {
    let edges = [4, 5, 15, 19, 255, 270, 510, 525, 765, 780, 1_020, 1_035];
    for edge in edges.into_iter().flat_map(|edge| edge - 2..=edge + 6) {
        for other in [16, 40, 300] {
            assert_round_trip(&match_after(other, edge));
            assert_round_trip(&match_after(edge, other));
        }
    }
}

#[test]
fn a_match_is_found_up_to_65535_bytes_back_and_not_beyond() {
    for (distance, is_found) in
        [(65_533, true), (65_534, true), (65_535, true), (65_536, false), (65_537, false)]
    {
        // Zeros pass quickly and reset the search's patience; the marked bytes are all that could repeat far away.
        let mut raw = vec![0; 70_000];
        let marked = noise(40);
        raw[1_000..1_040].copy_from_slice(&marked);
        raw[1_000 + distance..1_040 + distance].copy_from_slice(&marked);
        let bytes = assert_round_trip(&raw);
        let block = encoded(&raw);
        let times = block.windows(16).filter(|window| *window == &marked[8..24]).count();
        assert_eq!(times, if is_found { 1 } else { 2 }, "{distance} bytes back, {bytes} bytes");
    }
}

#[test]
fn positions_that_differ_by_a_multiple_of_64_ki_are_not_taken_for_one_another() {
    let row = noise(64);
    for copies in [2, 3, 5] {
        let mut raw = noise(copies * 65_536);
        for copy in 0..copies {
            raw[copy * 65_536..copy * 65_536 + 64].copy_from_slice(&row);
        }
        assert_round_trip(&raw);
    }
}

#[test]
fn noise_stays_within_its_bound_and_costs_little_more_than_itself() {
    for bytes in [1, 14, 15, 270, 4_096, 65_535, 65_536, 262_145, 1 << 20] {
        assert!(assert_round_trip(&noise(bytes)) <= block_bytes_max(bytes));
    }
    assert_eq!(encoded(&noise(100_000)).len(), 100_000 + 2 + (100_000 - 15) / 255);
}

#[test]
fn a_run_takes_one_match() {
    assert_eq!(encoded(&[b'a'; 100]), *b"\x1fa\x01\x00\x4b\x50aaaaa");
    assert!(assert_round_trip(&vec![0; 262_144]) < 1_100);
}

#[test]
#[should_panic(expected = "a block of 100 bytes needs 116, not 115")]
fn too_little_room_is_refused() {
    Lz4Encoder::new().encode(&[0; 100], &mut [0; 115]);
}

/// Pieces that rows are made of: noise, runs, and what stood before.
#[derive(Debug, Clone)]
enum Piece {
    Noise(Vec<u8>),
    Run(u8, usize),
    /// From so far back, this many bytes.
    Again(usize, usize),
}

fn piece() -> impl Strategy<Value = Piece> {
    let back = prop_oneof![1_usize..64, 1_usize..5_000, 65_500_usize..65_600];
    prop_oneof![
        vec(any::<u8>(), 0..40).prop_map(Piece::Noise),
        vec(0_u8..4, 0..300).prop_map(Piece::Noise),
        (any::<u8>(), prop_oneof![0_usize..50, 250_usize..300, 0_usize..9_000])
            .prop_map(|(byte, run)| Piece::Run(byte, run)),
        (back, prop_oneof![4_usize..40, 4_usize..2_000]).prop_map(|(back, bytes)| Piece::Again(back, bytes)),
    ]
}

fn joined(pieces: &[Piece]) -> Vec<u8> {
    let mut raw: Vec<u8> = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Noise(bytes) => raw.extend_from_slice(bytes),
            Piece::Run(byte, run) => raw.extend(std::iter::repeat_n(*byte, *run)),
            Piece::Again(back, bytes) => {
                for _ in 0..*bytes {
                    let from = raw.len().checked_sub(*back);
                    raw.push(from.map_or(0, |from| raw[from]));
                }
            }
        }
    }
    raw
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_bytes_come_back(raw in vec(any::<u8>(), 0..400)) {
        assert_round_trip(&raw);
    }

    #[test]
    fn repetitive_bytes_come_back(raw in vec(0_u8..3, 0..4_000)) {
        assert_round_trip(&raw);
    }

    #[test]
    fn pieces_that_repeat_come_back(pieces in vec(piece(), 0..60)) {
        assert_round_trip(&joined(&pieces));
    }

    #[test]
    fn pieces_beyond_the_reach_of_a_distance_come_back(lead in 65_000_usize..70_000, pieces in vec(piece(), 1..30)) {
        let mut raw = noise(lead);
        raw.extend(joined(&pieces));
        raw.extend_from_within(..2_000);
        assert_round_trip(&raw);
    }
}
