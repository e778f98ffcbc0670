//! The five bytes before a message of gRPC.
//!
//! | bytes | is |
//! | --- | --- |
//! | 1 | 0, or 1 if the message is compressed as the header `grpc-encoding` says |
//! | 4 | length of the message, big-endian |

use bytes::{Buf, Bytes};

/// What the five bytes say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MessageHead {
    pub is_compressed: bool,
    pub bytes: u32,
}

/// The first byte is neither 0 nor 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message of gRPC begins with 0 or 1, and this one with {0}")]
pub(crate) struct WrongFlag(u8);

/// Reads the five bytes, which may come in several chunks.
#[derive(Debug, Default)]
pub(crate) struct HeadReader {
    read: [u8; 5],
    filled: usize,
}

impl HeadReader {
    /// Takes what it needs of a chunk; `None` if it needs more.
    pub fn read(&mut self, chunk: &mut Bytes) -> Result<Option<MessageHead>, WrongFlag> {
        let missing = &mut self.read[self.filled..];
        let taken = missing.len().min(chunk.len());
        chunk.copy_to_slice(&mut missing[..taken]);
        self.filled += taken;
        let [flag, length @ ..] = self.read;
        if self.filled > 0 && flag > 1 {
            return Err(WrongFlag(flag));
        }
        let is_whole = self.filled == self.read.len();
        Ok(is_whole.then(|| MessageHead { is_compressed: flag == 1, bytes: u32::from_be_bytes(length) }))
    }

    /// How many of the five it has.
    pub fn filled(&self) -> usize {
        self.filled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_head_is_the_same_however_it_is_cut(bytes in proptest::collection::vec(any::<u8>(), 0..12), cuts in proptest::collection::vec(0_usize..4, 12)) {
            let mut reader = HeadReader::default();
            let (mut rest, mut found) = (Bytes::from(bytes.clone()), Ok(None));
            for cut in cuts {
                let mut chunk = rest.split_to(cut.min(rest.len()));
                found = reader.read(&mut chunk);
                if !matches!(found, Ok(None)) {
                    // What it does not need it leaves.
                    rest = Bytes::from([chunk, rest].concat());
                    break;
                }
                prop_assert!(chunk.is_empty());
            }
            match bytes.as_slice() {
                [flag, ..] if *flag > 1 && reader.filled() > 0 => prop_assert_eq!(found, Err(WrongFlag(*flag))),
                [flag, a, b, c, d, left @ ..] if reader.filled() == 5 => {
                    let head = MessageHead { is_compressed: *flag == 1, bytes: u32::from_be_bytes([*a, *b, *c, *d]) };
                    prop_assert_eq!(found, Ok(Some(head)));
                    prop_assert_eq!(&rest[..], left);
                }
                _ => prop_assert_eq!(found, Ok(None)),
            }
        }
    }
}
