//! `LowCardinality(String)`: the distinct strings, and the index of each value.
//!
//! | bytes | meaning |
//! |---|---|
//! | prefix: `UInt64` | 1: the version |
//! | data: `UInt64` | the width of an index (0, 1, 2: 1, 2, 4 bytes), and `0x600`: the strings follow, and are complete |
//! | `UInt64` | number of strings; the first is the default. If a value can be null, the first stands for null, and the second is empty |
//! | | the strings |
//! | `UInt64` | number of values |
//! | | an index each |
//!
//! Without values there is no data.

use std::collections::HashMap;

use super::Unfit;
use super::cursor::Cursor;
use super::stream::Output;
use super::times::Times;
use crate::rowbinary::{put_string, put_u64};

const VERSION: u64 = 1;
const STRINGS_FOLLOW: u64 = 0x600;

/// Memory of an entry besides its bytes. Chosen: a box, an index and their entry in the table, which is at least half full.
const ENTRY_BYTES: usize = 128;

const _: () = assert!(ENTRY_BYTES >= 2 * size_of::<(Box<[u8]>, Slot)>());

/// Number of strings that are found without the seeded hash. Chosen: a topic has some dozens of services or operations.
const SLOTS: usize = 64;

/// Strings and indexes.
#[derive(Debug)]
pub(super) struct Dictionary {
    /// Whether a value can be null.
    nullable: bool,
    /// The strings in their encoding.
    strings: Vec<u8>,
    /// Seeded: senders choose these strings, and must not be able to choose collisions.
    known: HashMap<Box<[u8]>, Slot>,
    indexes: Vec<u32>,
    /// The last string of each slot, which is often the next one as well.
    slots: [Slot; SLOTS],
}

/// The first and last bytes of a string with its length; for up to [`ENDS_BYTES`] these are the whole string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ends {
    head: u64,
    tail: u64,
}

const ENDS_BYTES: usize = 16;

/// The position of a string.
#[derive(Debug, Clone, Copy)]
struct Slot {
    ends: Ends,
    /// The start of its bytes in `strings`.
    start: u32,
    end: u32,
    index: u32,
}

impl Dictionary {
    pub(super) fn new(nullable: bool) -> Self {
        let empty = u32::from(nullable);
        // An empty string is a zero, and so is the placeholder for null.
        let strings = vec![0; if nullable { 2 } else { 1 }];
        let none = Slot { ends: Ends::of(&[0]), start: empty, end: empty + 1, index: empty };
        let (known, slots) = (HashMap::from([(Box::default(), none)]), [none; SLOTS]);
        Self { nullable, strings, known, indexes: Vec::new(), slots }
    }

    /// Number of strings, including the placeholder for null.
    fn len(&self) -> usize {
        self.known.len() + usize::from(self.nullable)
    }

    #[inline(never)]
    pub(super) fn append(&mut self, cursor: &mut Cursor<'_>, times: impl Times) -> Result<(), Unfit> {
        if self.nullable && cursor.byte()? != 0 {
            self.pad(times.count());
            return Ok(());
        }
        let ends = Ends::of(cursor.rest());
        let slot = &self.slots[ends.slot()];
        let string = slot.start as usize..slot.end as usize;
        let is_same = slot.ends == ends
            && (string.len() <= ENDS_BYTES || cursor.rest().starts_with(&self.strings[string.clone()]));
        let index = if is_same {
            cursor.take(string.len())?;
            slot.index
        } else {
            self.search(cursor)?
        };
        for _ in 0..times.count() {
            self.indexes.push(index);
        }
        Ok(())
    }

    /// The index of a string that is not in its slot; puts it there.
    #[inline(never)]
    fn search(&mut self, cursor: &mut Cursor<'_>) -> Result<u32, Unfit> {
        let text = cursor.text()?;
        if let Some(known) = self.known.get(text) {
            self.slots[known.ends.slot()] = *known;
            return Ok(known.index);
        }
        // It is stored in the dictionary and in `known`.
        cursor.grow(2 * text.len() + ENTRY_BYTES)?;
        let narrow = |n| u32::try_from(n).expect("a block has fewer than 2^32 strings, and bytes of them");
        let (index, start) = (narrow(self.len()), narrow(self.strings.len()));
        put_string(&mut self.strings, text);
        let ends = Ends::of(&self.strings[start as usize..]);
        let slot = Slot { ends, start, end: narrow(self.strings.len()), index };
        self.known.insert(text.into(), slot);
        self.slots[ends.slot()] = slot;
        Ok(index)
    }

    pub(super) fn pad(&mut self, count: usize) {
        self.indexes.resize(self.indexes.len() + count, 0);
    }

    pub(super) fn bytes(&self) -> usize {
        let strings = self.strings.capacity() + self.strings.len();
        size_of::<Self>()
            + strings
            + self.known.len() * ENTRY_BYTES
            + self.indexes.capacity() * size_of::<u32>()
    }

    pub(super) fn put_prefix(out: &mut Vec<u8>) {
        put_u64(out, VERSION);
    }

    pub(super) fn put_data(self, output: &mut Output) {
        if self.indexes.is_empty() {
            return;
        }
        let (width, code) = match self.len() {
            0..=0x100 => (1, 0),
            0x101..=0x1_0000 => (2, 1),
            _ => (4, 2),
        };
        put_u64(output.raw(), STRINGS_FOLLOW | code);
        put_u64(output.raw(), self.len() as u64);
        output.bytes(&self.strings);
        put_u64(output.raw(), self.indexes.len() as u64);
        let narrow = |index: &u32| index.to_le_bytes().into_iter().take(width);
        // In pieces: a second copy of all indexes would cost memory.
        for piece in self.indexes.chunks(4_096) {
            output.raw().extend(piece.iter().flat_map(narrow));
            output.cut_full();
        }
    }
}

impl Ends {
    /// The ends of the string at the start of `bytes`. Zeros follow a short string, and a string with too little behind it.
    #[inline]
    fn of(bytes: &[u8]) -> Self {
        let mut wide = [0; 8];
        let head = bytes.first_chunk().unwrap_or_else(|| {
            wide[..bytes.len()].copy_from_slice(bytes);
            &wide
        });
        // Of a string of 128 bytes or more, whose length takes more than one byte: the seven low bits of the length, and a bit.
        let length = usize::from(head[0]);
        let head = u64::from_le_bytes(*head);
        if length < 7 {
            return Self { head: head & u64::MAX >> (8 * (7 - length)), tail: 0 };
        }
        let tail = bytes.get(length - 7..).and_then(<[u8]>::first_chunk);
        Self { head, tail: tail.map_or(0, |tail| u64::from_le_bytes(*tail)) }
    }

    /// The slot of a string. The product is by 2^64 divided by the golden ratio: its high bits depend on all others.
    #[inline]
    fn slot(self) -> usize {
        let [.., high] =
            (self.head.rotate_left(32) ^ self.tail).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        usize::from(high) % SLOTS
    }
}

#[cfg(test)]
mod tests {
    use super::super::times::Once;
    use super::*;

    /// Strings of all lengths around the limits of the comparison, equal at both ends.
    #[test]
    fn each_string_has_one_index() {
        let mut strings: Vec<Vec<u8>> = Vec::new();
        for length in 0..40 {
            for byte in [0, b'a', b'b'] {
                let mut string = vec![b'-'; length];
                if let Some(middle) = string.get_mut(length / 2) {
                    *middle = byte;
                }
                strings.push(string);
            }
        }
        strings.extend([vec![b'x'; 127], vec![b'x'; 128], vec![b'x'; 255], vec![b'x'; 300]]);
        for nullable in [false, true] {
            let mut dictionary = Dictionary::new(nullable);
            let mut known = vec![Vec::new(); if nullable { 2 } else { 1 }];
            let mut expected = Vec::new();
            for string in strings.iter().chain(strings.iter().rev()).chain(&strings) {
                let mut row = vec![0; usize::from(nullable)];
                put_string(&mut row, string);
                // A string is the last of its bytes, or not.
                row.extend(vec![b'-'; expected.len() % 3 * 20]);
                dictionary.append(&mut Cursor::new(&row), Once).unwrap();
                let index = known.iter().rposition(|known| known == string).unwrap_or_else(|| {
                    known.push(string.clone());
                    known.len() - 1
                });
                expected.push(u32::try_from(index).unwrap());
            }
            assert_eq!(dictionary.indexes, expected);
            assert_eq!(dictionary.len(), known.len());
        }
    }

    #[test]
    fn a_length_in_more_bytes_than_it_needs_is_the_same_string() {
        let mut dictionary = Dictionary::new(false);
        for row in
            [b"\x83\0abc-----------".as_slice(), b"\x83\0abc", b"\x03abc", b"\x83\0abc-----------", b"\x80\0"]
        {
            let mut cursor = Cursor::new(row);
            dictionary.append(&mut cursor, Once).unwrap();
            assert!(cursor.rest().iter().all(|byte| *byte == b'-'));
        }
        assert_eq!(dictionary.indexes, [1, 1, 1, 1, 0]);
    }
}
