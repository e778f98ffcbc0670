//! The fields of a message of Kafka's, one after the other.
//!
//! Source: Kafka's protocol guide, protocol primitive types of 4.1: big-endian numbers; strings and arrays either plain, with a length of
//! fixed width before them, or compact, with a varint that is one more. Pure: each call gives `None` where the bytes end too soon.

/// The bytes that are not read yet.
#[derive(Clone, Debug)]
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Of a whole message, or of what is behind a part of it that somebody else has read.
    pub fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// How many bytes are not read yet.
    pub fn left(&self) -> usize {
        self.0.len()
    }

    /// So many bytes as they are.
    pub fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    /// The same, of a length that the type says.
    pub fn array<const BYTES: usize>(&mut self) -> Option<[u8; BYTES]> {
        self.take(BYTES)?.try_into().ok()
    }

    /// Two bytes, big-endian.
    pub fn i16(&mut self) -> Option<i16> {
        self.array().map(i16::from_be_bytes)
    }

    /// Four bytes, big-endian.
    pub fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    /// Eight bytes, big-endian.
    pub fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_be_bytes)
    }

    /// LEB128 of at most 63 bits.
    pub fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..63).step_by(7) {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A string with a length of 2 bytes; none is empty.
    pub fn string(&mut self) -> Option<String> {
        let length = self.i16()?;
        let bytes = self.take(usize::try_from(length).unwrap_or(0))?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }

    /// A string of either kind. A compact one has its length + 1 before it, and 0 for none.
    pub fn text(&mut self, compact: bool) -> Option<String> {
        if !compact {
            return self.string();
        }
        let length = usize::try_from(self.varint()?).ok()?.saturating_sub(1);
        Some(String::from_utf8_lossy(self.take(length)?).into_owned())
    }

    /// How many elements an array has.
    pub fn count(&mut self, compact: bool) -> Option<usize> {
        if compact {
            usize::try_from(self.varint()?).ok().map(|count| count.saturating_sub(1))
        } else {
            self.i32().map(|count| usize::try_from(count).unwrap_or(0))
        }
    }

    /// Tagged fields, which are passed over.
    pub fn tags(&mut self) -> Option<()> {
        for _ in 0..self.varint()? {
            self.varint()?;
            let bytes = usize::try_from(self.varint()?).ok()?;
            self.take(bytes)?;
        }
        Some(())
    }
}
