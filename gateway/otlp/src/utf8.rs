//! Whether a string is UTF-8, as proto3 demands of every `string`.
//!
//! Not every producer complies (one that cuts strings by bytes does not), and protobuf readers differ in whether they reject such
//! strings. The walk passes them to its sink, which decides.
//!
//! Cost: nearly all strings are ASCII. They are checked in words that may overlap: 6 to 16 instructions for up to 64 bytes, about 20 for
//! each further 64. (`[u8]::is_ascii` takes 240 for 100 bytes.)

/// The top bits of eight bytes. ASCII sets none.
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
pub(crate) fn is_ascii(text: &[u8]) -> bool {
    let bits = if let (Some(_), Some(last)) = (text.get(64), text.last_chunk::<64>()) {
        let (chunks, _) = text.as_chunks::<64>();
        chunks.iter().fold(words(last), |bits, chunk| bits | words(chunk))
    } else if let (Some(first), Some(last)) = (text.first_chunk::<32>(), text.last_chunk::<32>()) {
        words(first) | words(last)
    } else if let (Some(first), Some(last)) = (text.first_chunk::<16>(), text.last_chunk::<16>()) {
        words(first) | words(last)
    } else if let (Some(first), Some(last)) = (text.first_chunk::<8>(), text.last_chunk::<8>()) {
        words(first) | words(last)
    } else if let (Some(first), Some(last)) = (text.first_chunk::<4>(), text.last_chunk::<4>()) {
        u64::from(u32::from_ne_bytes(*first) | u32::from_ne_bytes(*last))
    } else {
        text.iter().fold(0, |bits, byte| bits | u64::from(*byte))
    };
    bits & TOP_BITS == 0
}

/// All words of this many bytes, a multiple of 8, in one.
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
            for at in 0..length {
                let text: Vec<u8> = (0..length).map(|place| if place == at { 0x80 } else { b'a' }).collect();
                assert!(!is_ascii(&text) && !is_utf8(&text), "{at} of {length}");
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
