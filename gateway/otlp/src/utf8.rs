//! Whether a string is UTF-8, as proto3 demands of every `string`.
//!
//! Not every producer keeps to that (one that cuts strings by bytes does not), and readers of protobuf differ in whether they refuse it. The
//! walk gives such strings to its sink, which decides.
//!
//! Cost: nearly all strings are ASCII and have 8 to 64 bytes. One alone is looked at in words that may overlap: 8 to 16 instructions. Those of
//! attributes stand close to each other: [`ascii_len`] looks at all bytes up to the next that is not ASCII, 32 at a time.

/// The top bits of eight bytes, none of which is set in ASCII.
const TOP_BITS: u64 = 0x8080_8080_8080_8080;

/// Whether a string is UTF-8.
#[inline(always)]
pub fn is_utf8(text: &[u8]) -> bool {
    is_ascii(text) || is_other_utf8(text)
}

#[cold]
#[inline(never)]
fn is_other_utf8(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok()
}

/// Whether all bytes are ASCII.
#[inline(always)]
fn is_ascii(text: &[u8]) -> bool {
    let bits = if text.len() > 64 {
        return text.is_ascii();
    } else if let (Some(first), Some(last)) = (text.first_chunk::<32>(), text.last_chunk::<32>()) {
        words(first) | words(last)
    } else if let (Some(first), Some(last)) = (text.first_chunk::<16>(), text.last_chunk::<16>()) {
        words(first) | words(last)
    } else if let (Some(first), Some(last)) = (text.first_chunk::<8>(), text.last_chunk::<8>()) {
        words(first) | words(last)
    } else {
        text.iter().fold(0, |bits, byte| bits | u64::from(*byte))
    };
    bits & TOP_BITS == 0
}

/// How many bytes there are in front of the first that is not ASCII.
#[inline(never)]
pub(crate) fn ascii_len(bytes: &[u8]) -> usize {
    let (chunks, rest) = bytes.as_chunks::<32>();
    let ascii = chunks.iter().take_while(|chunk| words(chunk) & TOP_BITS == 0).count();
    let here = chunks.get(ascii).map_or(rest, |chunk| &chunk[..]);
    ascii.saturating_mul(32).saturating_add(ascii_len_by_words(here))
}

#[inline(always)]
fn ascii_len_by_words(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut len = 0_usize;
    for word in words {
        match u64::from_le_bytes(*word) & TOP_BITS {
            0 => len = len.saturating_add(8),
            bits => return len.saturating_add(bits.trailing_zeros() as usize / 8),
        }
    }
    len.saturating_add(rest.iter().take_while(|byte| byte.is_ascii()).count())
}

/// All words of so many bytes, a multiple of 8, in one.
#[inline(always)]
fn words<const N: usize>(bytes: &[u8; N]) -> u64 {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().fold(0, |bits, word| bits | u64::from_ne_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_that_is_not_ascii_is_found_wherever_it_stands() {
        for length in 0..200 {
            let text = vec![b'a'; length];
            assert!(is_ascii(&text) && is_utf8(&text), "{length}");
            assert_eq!(ascii_len(&text), length);
            for at in 0..length {
                let text: Vec<u8> = (0..length).map(|place| if place == at { 0x80 } else { b'a' }).collect();
                assert!(!is_ascii(&text) && !is_utf8(&text), "{at} of {length}");
                assert_eq!(ascii_len(&text), at, "of {length}");
            }
        }
    }

    #[test]
    fn other_characters_are_utf8_and_their_pieces_are_not() {
        for text in ["é", "long enough for two words: 😀", "\u{80}\u{7ff}\u{800}\u{ffff}\u{10ffff}"] {
            assert!(is_utf8(text.as_bytes()), "{text}");
            let (_, cut_short) = text.as_bytes().split_last().unwrap();
            assert!(!is_utf8(cut_short), "{text}");
        }
        for broken in [&b"\xed\xa0\x80"[..], b"\xc0\x80", b"\xf4\x90\x80\x80"] {
            assert!(!is_utf8(broken), "{}", broken.escape_ascii());
        }
    }
}
