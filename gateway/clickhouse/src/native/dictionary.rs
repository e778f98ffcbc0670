//! `LowCardinality(String)`: which strings there are, and which each value is.
//!
//! | bytes | meaning |
//! |---|---|
//! | prefix: `UInt64` | 1: the version |
//! | data: `UInt64` | how wide an index is (0, 1, 2: 1, 2, 4 bytes), and `0x600`: the strings follow, and are all of them |
//! | `UInt64` | number of strings; the first is the default. If a value can be none, that is the first, and the second is empty |
//! | | the strings |
//! | `UInt64` | number of values |
//! | | an index each |
//!
//! Without a value there is no data.

use std::collections::HashMap;

use super::Unfit;
use super::cursor::Cursor;
use super::stream::Output;
use crate::rowbinary::{put_string, put_u64};

const VERSION: u64 = 1;
const STRINGS_FOLLOW: u64 = 0x600;

/// What an entry takes beside its bytes. Chosen: a box, an index and their place in the table, which is half empty at the most.
const ENTRY_BYTES: usize = 64;

/// Strings and indexes.
#[derive(Debug)]
pub(super) struct Dictionary {
    /// Whether a value can be none.
    nullable: bool,
    /// The strings as they are written.
    strings: Vec<u8>,
    /// Seeded: senders choose these strings, and must not be able to choose collisions.
    known: HashMap<Box<[u8]>, u32>,
    indexes: Vec<u32>,
    /// The last string, which is often the next one, too.
    last: (Vec<u8>, u32),
}

impl Dictionary {
    pub(super) fn new(nullable: bool) -> Self {
        let empty = u32::from(nullable);
        // An empty string is a zero, and so is what stands for none.
        let strings = vec![0; if nullable { 2 } else { 1 }];
        let known = HashMap::from([(Box::default(), empty)]);
        Self { nullable, strings, known, indexes: Vec::new(), last: (Vec::new(), empty) }
    }

    /// Strings that there are, with what stands for none.
    fn len(&self) -> usize {
        self.known.len() + usize::from(self.nullable)
    }

    #[inline]
    pub(super) fn append(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Unfit> {
        if self.nullable && cursor.byte()? != 0 {
            self.indexes.push(0);
            return Ok(());
        }
        let text = cursor.text()?;
        if self.last.0 != text {
            self.last.1 = self.index_of(text, cursor)?;
            self.last.0.clear();
            self.last.0.extend_from_slice(text);
        }
        self.indexes.push(self.last.1);
        Ok(())
    }

    fn index_of(&mut self, text: &[u8], cursor: &mut Cursor<'_>) -> Result<u32, Unfit> {
        if let Some(index) = self.known.get(text) {
            return Ok(*index);
        }
        // It is in the dictionary, known, and the last one.
        cursor.grow(2 * text.len() + ENTRY_BYTES)?;
        let index = u32::try_from(self.len()).expect("a block has fewer than 2^32 strings");
        self.known.insert(text.into(), index);
        put_string(&mut self.strings, text);
        Ok(index)
    }

    pub(super) fn pad(&mut self, count: usize) {
        self.indexes.resize(self.indexes.len() + count, 0);
    }

    pub(super) fn bytes(&self) -> usize {
        let strings = self.strings.capacity() + self.strings.len() + self.last.0.capacity();
        strings + self.known.len() * ENTRY_BYTES + self.indexes.capacity() * size_of::<u32>()
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
        // In pieces: a second copy of all indexes would count.
        for piece in self.indexes.chunks(4_096) {
            output.raw().extend(piece.iter().flat_map(narrow));
            output.cut_full();
        }
    }
}
