use super::*;
use crate::counters::Outcome;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use std::{
    future::Future as _,
    io::Write as _,
    pin::pin,
    task::{Context, Poll, Waker},
};
use zstd_safe::{CCtx, InBuffer, OutBuffer, compress, compress_bound};

/// One of [`forms`].
type Form = (&'static str, Compression, fn(&[u8]) -> Vec<u8>);

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn gzip_in_two(bytes: &[u8]) -> Vec<u8> {
    let (first, second) = bytes.split_at(bytes.len() / 3);
    [gzip(first), gzip(second)].concat()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(compress_bound(bytes.len()));
    compress(&mut out, bytes, 3).unwrap();
    out
}

/// As a client that writes to a stream: the size of the content is not in the frame.
fn zstd_streamed(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(compress_bound(bytes.len()) + 64);
    let (mut encoder, mut input) = (CCtx::create(), InBuffer::around(bytes));
    let mut to = OutBuffer::around(&mut out);
    while input.pos() < bytes.len() {
        encoder.compress_stream(&mut to, &mut input).unwrap();
    }
    while encoder.end_stream(&mut to).unwrap() > 0 {}
    out
}

/// A frame that is skipped, one with its size and one without.
fn zstd_in_three(bytes: &[u8]) -> Vec<u8> {
    let (first, second) = bytes.split_at(bytes.len() / 3);
    let skipped = [0x50, 0x2A, 0x4D, 0x18, 3, 0, 0, 0, 1, 2, 3];
    [skipped.to_vec(), zstd(first), zstd_streamed(second)].concat()
}

fn forms() -> [Form; 5] {
    [
        ("gzip", Compression::Gzip, gzip),
        ("gzip in two", Compression::Gzip, gzip_in_two),
        ("zstd", Compression::Zstd, zstd),
        ("zstd streamed", Compression::Zstd, zstd_streamed),
        ("zstd in three", Compression::Zstd, zstd_in_three),
    ]
}

/// Decompresses in steps of this many bytes, and checks that nothing is held afterwards.
fn decompressed(
    compression: Compression,
    body: &[u8],
    step: usize,
    within: (&ByteBudget, &Limits),
) -> Result<Vec<u8>, Failure> {
    let result = stepped(compression, body, step, within);
    assert_eq!(within.0.used_bytes(), 0);
    result
}

fn stepped(
    compression: Compression,
    body: &[u8],
    step: usize,
    (budget, limits): (&ByteBudget, &Limits),
) -> Result<Vec<u8>, Failure> {
    let mut input = Buffer::now(budget, body.len(), usize::MAX).unwrap();
    input.append(body).unwrap();
    let begun = pin!(Decompression::begin(compression, input, budget, limits));
    let Poll::Ready(begun) = begun.poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("it waits, although `permit_wait` is zero");
    };
    let mut work = begun?;
    while work.run(step)? == Progress::More {}
    let (bytes, permit) = work.finish();
    assert!(permit.bytes() >= bytes.len(), "{permit:?} for {} bytes", bytes.len());
    Ok(bytes.to_vec())
}

/// The same in one step, beside what others hold.
fn in_budget(
    compression: Compression,
    body: &[u8],
    within: (&ByteBudget, &Limits),
) -> Result<Vec<u8>, Failure> {
    stepped(compression, body, usize::MAX, within)
}

fn outcome(compression: Compression, body: &[u8], limits: &Limits) -> (Outcome, String) {
    let budget = ByteBudget::new(256 << 20);
    let failure = decompressed(compression, body, usize::MAX, (&budget, limits)).unwrap_err();
    (failure.outcome, failure.words)
}

/// Telemetry repeats itself, but for its ids.
fn telemetry(bytes: usize) -> Vec<u8> {
    let mut seed = 1_u32;
    let mut text = Vec::new();
    while text.len() < bytes {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        text.extend_from_slice(format!("{{\"spanId\":\"{seed:08x}\",\"name\":\"GET /\"}}").as_bytes());
    }
    text.truncate(bytes);
    text
}

proptest! {
    #[test]
    fn what_was_compressed_comes_out_again(bytes in prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..5_000),
        (0_usize..400_000).prop_map(telemetry),
    ], step in 1_usize..100_000) {
        let budget = ByteBudget::new(64 << 20);
        for (name, compression, compressed) in forms() {
            let out = decompressed(compression, &compressed(&bytes), step, (&budget, &Limits::default()));
            prop_assert!(out.as_ref().is_ok_and(|out| *out == bytes), "{name}: {:?}", out.map(|out| out.len()));
        }
    }

    #[test]
    fn damaged_bodies_are_malformed_or_read_and_never_hold_memory(
        size in 0_usize..50_000, form in 0_usize..5, place: proptest::sample::Index, byte: u8, cut: proptest::sample::Index
    ) {
        let (_, compression, compressed) = forms()[form];
        let mut body = compressed(&telemetry(size));
        *place.get_mut(&mut body) = byte;
        let budget = ByteBudget::new(1 << 20);
        for body in [&body[..], &body[..cut.index(body.len())]] {
            // The budget is small: a part that says that it is large may also have no room.
            if let Err(failure) = decompressed(compression, body, INLINE_BYTES, (&budget, &Limits::default())) {
                let known = [Outcome::Malformed, Outcome::TooLarge, Outcome::NoMemory];
                prop_assert!(known.contains(&failure.outcome), "{failure:?}");
            }
        }
    }

    #[test]
    fn random_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 1..300), is_gzip: bool) {
        let (compression, magic) = if is_gzip {
            (Compression::Gzip, &[0x1F, 0x8B, 8][..])
        } else {
            (Compression::Zstd, &[0x28, 0xB5, 0x2F, 0xFD][..])
        };
        let budget = ByteBudget::new(1 << 20);
        for body in [bytes.clone(), [magic, &bytes].concat()] {
            drop(decompressed(compression, &body, INLINE_BYTES, (&budget, &Limits::default())));
        }
    }
}

#[test]
fn a_body_of_the_largest_size_passes_and_one_byte_more_does_not() {
    let limits = Limits { decompressed_bytes_max: 100_000, ..Limits::default() };
    let budget = ByteBudget::new(64 << 20);
    for (name, compression, compressed) in forms() {
        let out = decompressed(compression, &compressed(&telemetry(100_000)), 1_000, (&budget, &limits));
        assert_eq!(out.unwrap().len(), 100_000, "{name}");
        let (outcome, words) = outcome(compression, &compressed(&telemetry(100_001)), &limits);
        assert_eq!(outcome, Outcome::TooLarge, "{name}: {words}");
        assert!(words.contains("100000 bytes"), "{words}");
    }
}

#[test]
fn a_bomb_is_refused_by_its_ratio() {
    let limits = Limits { decompression_ratio_max: 500, ..Limits::default() };
    for (name, compression, compressed) in forms() {
        let (outcome, words) = outcome(compression, &compressed(&vec![0; 8 << 20]), &limits);
        assert_eq!(outcome, Outcome::TooLarge, "{name}");
        assert!(words.contains("500 times"), "{name}: {words}");
    }
}

#[test]
fn small_equal_spans_may_have_any_ratio() {
    let limits = Limits { decompression_ratio_max: 10, ..Limits::default() };
    let budget = ByteBudget::new(64 << 20);
    for (_, compression, compressed) in forms() {
        let out = decompressed(compression, &compressed(&vec![0; 1 << 20]), 1_000, (&budget, &limits));
        assert_eq!(out.unwrap().len(), 1 << 20);
    }
}

#[test]
fn a_body_that_does_not_fit_the_budget_now_should_come_again() {
    let budget = ByteBudget::new(64 << 20);
    for (name, compression, compressed) in forms() {
        let body = compressed(&telemetry(2 << 20));
        let others = budget.try_take((64 << 20) - (600 << 10) - body.len()).unwrap();
        let failure = in_budget(compression, &body, (&budget, &Limits::default())).unwrap_err();
        assert_eq!(budget.used_bytes(), u64::try_from(others.bytes()).unwrap());
        assert_eq!(failure.outcome, Outcome::NoMemory, "{name}");
        assert_eq!(failure.after, Some(Duration::from_secs(1)));
    }
}

/// Whatever a body says of its size, or does not say, the largest one fits a budget of the limits: no answer asks for it again for ever.
#[test]
fn the_largest_body_fits_a_budget_of_itself_before_and_after() {
    let limits = Limits { decompressed_bytes_max: 4 << 20, ..Limits::default() };
    let text = telemetry(4 << 20);
    for (name, compression, compressed) in forms() {
        let body = compressed(&text);
        // The window of a stream of zstd at its usual level, and what decoders hold.
        let decoder = (2 << 20) + (512 << 10);
        let budget = ByteBudget::new(u64::try_from(body.len() + text.len() + decoder).unwrap());
        let out = decompressed(compression, &body, usize::MAX, (&budget, &limits));
        assert!(out.is_ok_and(|out| out == text), "{name}");
    }
}

#[test]
fn what_can_never_fit_the_budget_is_too_large_and_says_so() {
    let text = telemetry(4 << 20);
    for (name, compression, compressed) in forms() {
        let budget = ByteBudget::new(3 << 20);
        let failure =
            decompressed(compression, &compressed(&text), usize::MAX, (&budget, &Limits::default()));
        let failure = failure.unwrap_err();
        assert_eq!((failure.outcome, failure.after), (Outcome::TooLarge, None), "{name}: {}", failure.words);
        assert!(failure.words.contains("3145728 bytes"), "{}", failure.words);
    }
}

#[test]
fn many_empty_parts_are_too_many() {
    for (compression, part) in [(Compression::Gzip, gzip(&[])), (Compression::Zstd, zstd(&[]))] {
        let (outcome, words) = outcome(compression, &part.repeat(1_025), &Limits::default());
        assert_eq!(outcome, Outcome::TooLarge);
        assert!(words.contains("1024"), "{words}");
        let budget = ByteBudget::new(1 << 20);
        let out = decompressed(compression, &part.repeat(1_024), 1, (&budget, &Limits::default()));
        assert_eq!(out.unwrap(), b"");
    }
}

#[test]
fn a_window_that_is_too_large_is_named() {
    // Without a size of its content; the window is 2^31 bytes.
    let frame = [0x28, 0xB5, 0x2F, 0xFD, 0x00, 21 << 3, 0x01, 0x00, 0x00];
    let (outcome, words) = outcome(Compression::Zstd, &frame, &Limits::default());
    assert_eq!(outcome, Outcome::TooLarge);
    assert!(words.contains("2147483648"), "{words}");
    let head =
        zstd::head(&[0x28, 0xB5, 0x2F, 0xFD, 0x00, (13 << 3) | 3, 0, 0, 0]).map_err(|why| why.0).unwrap();
    assert_eq!((head.window_bytes, head.content_bytes), ((8 << 20) + (3 << 20), None));
}

#[test]
fn a_frame_that_says_more_than_it_has_holds_no_window() {
    // The content is 20 MiB by its head, and the frame ends.
    let mut frame = zstd(&telemetry(20 << 20));
    frame.truncate(300_000);
    let (outcome, words) = outcome(Compression::Zstd, &frame, &Limits::default());
    assert_eq!(outcome, Outcome::Malformed);
    assert!(words.contains("in the middle"), "{words}");
}

#[test]
fn what_follows_a_whole_body_is_malformed() {
    for (name, compression, compressed) in forms() {
        let body = [compressed(b"spans"), b"rest".to_vec()].concat();
        assert_eq!(outcome(compression, &body, &Limits::default()).0, Outcome::Malformed, "{name}");
    }
}

#[test]
fn names_are_read_as_clients_write_them() {
    let gzip = Ok(Some(Compression::Gzip));
    assert_eq!(["gzip", "GZIP", " x-gzip"].map(Compression::of), [gzip; 3]);
    assert_eq!(["", "identity"].map(Compression::of), [Ok(None); 2]);
    assert_eq!(["deflate", "gzip, gzip", "br"].map(Compression::of), [Err(Unknown); 3]);
}
