//! The deduplication token of a range: it makes the server drop a range that it already has.
//!
//! | part | why |
//! | --- | --- |
//! | cluster id, topic, partition | ranges of other logs are other ranges |
//! | first and last offset | which messages |
//! | content: a hash over the raw values | a topic that was created again, or compacted, has other messages under the same offsets; with equal tokens the server would drop their rows |
//!
//! Not included: the config, the encoder's version, the table's columns, keys and headers (they do not become rows). A retry by another
//! version of this program must have the same token.
//!
//! Cost: one pass of xxh3-128 over the raw values, the bytes that the walk reads next. Measured with twox-hash 2.1.5 on
//! an AMD EPYC with AVX2: see the workspace's `Cargo.toml`.

use crate::{OffsetRange, PartitionId};
use std::fmt;
use twox_hash::XxHash3_128;

/// Stands for "null" in place of a length: a message without a value differs from one with an empty value.
const NULL_LEN: u64 = u64::MAX;

/// A hash over the values of a range's messages, in order. It is copied rather than updated, so that a message can be taken back by using
/// the previous value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Content(u128);

/// What a range needs of a message's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    /// Its length; `None` for a message without a value.
    len: Option<u64>,
    hash: u128,
}

impl Digest {
    /// The digest of this value.
    pub fn of(value: Option<&[u8]>) -> Self {
        Self {
            len: value.map(|value| value.len() as u64),
            hash: XxHash3_128::oneshot(value.unwrap_or_default()),
        }
    }

    /// Bytes of the value; 0 without one.
    pub fn bytes(&self) -> u64 {
        self.len.unwrap_or(0)
    }
}

impl Content {
    /// This content plus one message: xxh3-128 of (content before, length of the value, xxh3-128 of the value).
    #[must_use]
    pub fn with(self, value: Digest) -> Self {
        let mut link = [0; 40];
        link[..16].copy_from_slice(&self.0.to_le_bytes());
        link[16..24].copy_from_slice(&value.len.unwrap_or(NULL_LEN).to_le_bytes());
        link[24..].copy_from_slice(&value.hash.to_le_bytes());
        Self(XxHash3_128::oneshot(&link))
    }

    /// The content of these values.
    pub fn of<'a>(values: impl IntoIterator<Item = Option<&'a [u8]>>) -> Self {
        values.into_iter().map(Digest::of).fold(Self::default(), Self::with)
    }
}

/// The value of `insert_deduplication_token`: 26 characters of a-z and 2-7.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u128);

impl Token {
    /// The token of a range of a partition of a cluster.
    pub fn of(cluster_id: &str, id: &PartitionId, range: OffsetRange, content: Content) -> Self {
        let mut bytes = Vec::with_capacity(cluster_id.len() + id.topic.len() + 56);
        for text in [cluster_id, &*id.topic] {
            bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes.extend_from_slice(&id.partition.to_le_bytes());
        bytes.extend_from_slice(&range.first.to_le_bytes());
        bytes.extend_from_slice(&(range.next - 1).to_le_bytes());
        bytes.extend_from_slice(&content.0.to_le_bytes());
        Self(XxHash3_128::oneshot(&bytes))
    }

    /// The beginning of it, to tell it from others where space is short.
    pub fn check(self) -> u32 {
        let [a, b, c, d, ..] = self.0.to_be_bytes();
        u32::from_be_bytes([a, b, c, d])
    }
}

/// RFC 4648 base32 in lower case.
const ALPHABET: [u8; 32] = *b"abcdefghijklmnopqrstuvwxyz234567";

impl Token {
    /// Parses the text form; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let mut value = 0_u128;
        for (place, letter) in text.bytes().enumerate() {
            let digit = u128::try_from(ALPHABET.iter().position(|known| *known == letter)?).ok()?;
            // The last group holds three bits.
            value = if place == 25 { (value << 3) | (digit >> 2) } else { (value << 5) | digit };
        }
        let token = Self(value);
        (token.to_string() == text).then_some(token)
    }
}

impl fmt::Display for Token {
    /// RFC 4648 base32 in lower case without padding, the most significant bits first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // 26 groups of 5 bits are 130: the last one ends with two zero bits.
        for group in 0..26u32 {
            let bits = if group == 25 { self.0 << 2 } else { self.0 >> (123 - 5 * group) };
            let index = usize::try_from(bits & 31).expect("5 bits");
            write!(f, "{}", char::from(ALPHABET[index]))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(topic: &str, partition: i32) -> PartitionId {
        PartitionId { topic: topic.into(), partition }
    }

    #[test]
    fn a_token_is_base32_of_128_bits() {
        assert_eq!(Token(0).to_string(), "a".repeat(26));
        assert_eq!(Token(u128::MAX).to_string(), format!("{}4", "7".repeat(25)));
        // The first 16 bytes of "foobarfoobarfoob" by `base32` of GNU coreutils.
        let bytes = u128::from_be_bytes(*b"foobarfoobarfoob");
        assert_eq!(Token(bytes).to_string(), "mzxw6ytbojtg633cmfzgm33pmi");
        for token in [Token(0), Token(1), Token(u128::MAX), Token(bytes)] {
            assert_eq!(Token::parse(&token.to_string()), Some(token));
        }
        for other in [
            "",
            "mzxw6ytbojtg633cmfzgm33pm",
            "mzxw6ytbojtg633cmfzgm33pmj",
            "mzxw6ytbojtg633cmfzgm33pmia",
            "1",
        ] {
            assert_eq!(Token::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_token_differs_with_each_of_its_parts_and_with_nothing_else() {
        let range = OffsetRange { first: 10, next: 20 };
        let content = Content::of([Some(&b"x"[..])]);
        let token = Token::of("c", &id("t", 1), range, content);
        assert_eq!(token, Token::of("c", &id("t", 1), range, content));
        let others = [
            Token::of("d", &id("t", 1), range, content),
            Token::of("c", &id("u", 1), range, content),
            Token::of("ct", &id("", 1), range, content),
            Token::of("c", &id("t", 2), range, content),
            Token::of("c", &id("t", 1), OffsetRange { first: 11, next: 20 }, content),
            Token::of("c", &id("t", 1), OffsetRange { first: 10, next: 21 }, content),
            Token::of("c", &id("t", 1), range, Content::default()),
        ];
        assert!(!others.contains(&token));
    }

    #[test]
    fn content_knows_where_a_value_ends_and_whether_there_is_one() {
        let ab = Content::of([Some(&b"a"[..]), Some(b"b")]);
        assert_ne!(ab, Content::of([Some(&b"ab"[..])]));
        assert_ne!(ab, Content::of([Some(&b"b"[..]), Some(b"a")]));
        assert_ne!(Content::of([None]), Content::of([Some(&b""[..])]));
        assert_ne!(Content::of([None]), Content::default());
    }

    /// Servers store the token in their tables: another hash or another layout would duplicate rows in flight.
    #[test]
    fn the_token_of_a_range_never_changes() {
        let content = Content::of([Some(&b"one"[..]), None, Some(b"three")]);
        let token = Token::of("cluster", &id("spans", 7), OffsetRange { first: 40, next: 43 }, content);
        assert_eq!(token.to_string(), "oesl5fcqiwqjz2yhnohzp4tv6m");
    }
}
