//! The table of messages at the beginning of a record's body. Reading is total.
//!
//! | bytes | field |
//! | --- | --- |
//! | 4 | bytes of the first message, little-endian |
//! | 4 | its checksum, CRC32C |
//! | … | the same of each other message |
//!
//! The messages follow in this order, without gaps. The record's header says how many bytes the table has, and has its checksum.

use crate::{log::RECORD_MESSAGES_MAX, record::RecordHeader};

/// Bytes of a message in the table.
pub const ENTRY_BYTES: usize = 8;

/// A message in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableEntry {
    /// Its bytes.
    pub bytes: u32,
    /// Its checksum.
    pub crc: u32,
}

impl TableEntry {
    /// The entry of a message; `None` if it is too large for one.
    pub fn of(message: &[u8]) -> Option<Self> {
        Some(Self { bytes: u32::try_from(message.len()).ok()?, crc: crc32c::crc32c(message) })
    }
}

/// The table's bytes.
pub fn encode(entries: &[TableEntry]) -> Vec<u8> {
    entries.iter().flat_map(|entry| [entry.bytes.to_le_bytes(), entry.crc.to_le_bytes()]).flatten().collect()
}

/// Reads a table of `count` messages that have `message_bytes` together; `None` if it is another one.
pub fn decode(table: &[u8], count: usize, message_bytes: u64) -> Option<Vec<TableEntry>> {
    let (entries, rest) = table.as_chunks::<ENTRY_BYTES>();
    if !rest.is_empty() || entries.len() != count || count > RECORD_MESSAGES_MAX {
        return None;
    }
    let entries: Vec<TableEntry> = entries
        .iter()
        .map(|entry| {
            // Both in one number, the first one in its lower half.
            let both = u64::from_le_bytes(*entry);
            let half = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(u32::MAX);
            TableEntry { bytes: half(both), crc: half(both >> 32) }
        })
        .collect();
    let sum = entries.iter().fold(0_u64, |sum, entry| sum.saturating_add(u64::from(entry.bytes)));
    (sum == message_bytes).then_some(entries)
}

/// Bytes of a record's table, and the number of its messages, as the header says; `None` if they do not fit each other.
pub(crate) fn shape(header: &RecordHeader) -> Option<(usize, usize)> {
    let count = usize::try_from(header.head.rows).ok().filter(|count| *count <= RECORD_MESSAGES_MAX)?;
    let bytes = usize::try_from(header.head.metadata_bytes).ok()?;
    let offsets = header.head.next.checked_sub(header.head.first)?;
    let fits = count.checked_mul(ENTRY_BYTES) == Some(bytes)
        && usize::try_from(offsets).ok() == Some(count)
        && u64::from(header.head.metadata_bytes) <= header.body_bytes;
    fits.then_some((bytes, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_as_it_is_written_and_no_other_is_taken_for_one() {
        let messages: [&[u8]; 3] = [b"one", b"", b"three"];
        let entries: Vec<_> = messages.iter().map(|message| TableEntry::of(message).unwrap()).collect();
        let bytes = encode(&entries);
        assert_eq!(decode(&bytes, 3, 8), Some(entries));
        assert_eq!(decode(&bytes, 2, 8), None);
        assert_eq!(decode(&bytes, 3, 9), None);
        assert_eq!(decode(bytes.get(..23).unwrap(), 3, 8), None);
        assert_eq!(decode(&[], 0, 0), Some(Vec::new()));
    }
}
