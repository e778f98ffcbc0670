//! A text as 24 bits, for plans and blocks on queue volumes, which have room for no more.

use twox_hash::XxHash3_64;

/// 24 bits of a hash, never 0: 0 stands for none where it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ShortHash(u32);

impl ShortHash {
    /// Over these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let [a, b, c, ..] = XxHash3_64::oneshot(bytes).to_le_bytes();
        Self(u32::from_le_bytes([a, b, c, 0]).max(1))
    }

    /// The number, from 1 to 2^24 − 1.
    pub fn number(self) -> u32 {
        self.0
    }

    /// From such a number; `None` for any other.
    pub fn of_number(number: u32) -> Option<Self> {
        (1..1 << 24).contains(&number).then_some(Self(number))
    }
}
