//! Expected bytes of a row.
//!
//! Nearly all are at most [`WIDE_BYTES`] long. They are compared as four words with a mask for the bytes behind the end: without a call
//! or a branch on the length. With `starts_with`, 8.5 % of all time was in `memcmp` (`rich`, perf, 24 November 2026).

use crate::rowbinary::put_string;

/// Bytes that are compared at once. Chosen: a path's length, name and type take 10 to 30.
const WIDE_BYTES: usize = 32;

/// Number of words for them.
const WORDS: usize = WIDE_BYTES / 8;

/// A prefix to compare with.
#[derive(Debug)]
pub(super) struct Prefix {
    bytes: Box<[u8]>,
    /// The first bytes; zeros behind the end.
    first: [u64; WORDS],
    /// All bits set for each of these, none behind the end.
    mask: [u64; WORDS],
}

impl Prefix {
    pub(super) fn new(bytes: &[u8]) -> Self {
        let (mut first, mut mask) = ([0; WIDE_BYTES], [0; WIDE_BYTES]);
        for ((first, mask), byte) in first.iter_mut().zip(&mut mask).zip(bytes) {
            (*first, *mask) = (*byte, 0xff);
        }
        Self { bytes: bytes.into(), first: words(&first), mask: words(&mask) }
    }

    /// A string in the encoding of a row.
    pub(super) fn of_string(string: &[u8]) -> Self {
        let mut bytes = Vec::new();
        put_string(&mut bytes, string);
        Self::new(&bytes)
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether `bytes` start with it.
    #[inline]
    pub(super) fn begins(&self, bytes: &[u8]) -> bool {
        match bytes.first_chunk() {
            Some(wide) if self.bytes.len() <= WIDE_BYTES => {
                let wide = words(wide);
                let differs = |word: usize| (wide[word] ^ self.first[word]) & self.mask[word];
                differs(0) | differs(1) | differs(2) | differs(3) == 0
            }
            _ => bytes.starts_with(&self.bytes),
        }
    }
}

#[inline]
fn words(bytes: &[u8; WIDE_BYTES]) -> [u64; WORDS] {
    let (words, _) = bytes.as_chunks();
    std::array::from_fn(|word| u64::from_le_bytes(words[word]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_what_starts_with_it_and_nothing_else() {
        let bytes: Vec<u8> = (1..100).collect();
        for length in 0..=70 {
            let prefix = Prefix::new(&bytes[..length]);
            assert_eq!(prefix.len(), length);
            for end in 0..bytes.len() {
                assert_eq!(prefix.begins(&bytes[..end]), end >= length, "{length} of {end} bytes");
            }
            for at in 0..length {
                let mut other = bytes.clone();
                other[at] ^= 0x10;
                assert!(!prefix.begins(&other), "byte {at} of {length}");
            }
        }
    }
}
