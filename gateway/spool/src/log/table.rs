//! The table of messages at the beginning of a record's body. Reading is total.
//!
//! | bytes | field |
//! | --- | --- |
//! | 4 | bytes of the first message as it is stored, little-endian |
//! | 4 | their checksum, CRC32C |
//! | 4 | bytes of the message before it was packed; 0 if it is not packed. Only in records that have a packed message |
//! | … | the same of each other message |
//!
//! The messages follow in this order, without gaps. The record's header says how many bytes the table has, has its checksum, and says with its
//! columns which entries it has. Only segments of version 2 have packed messages.

use crate::{
    log::{LOG_COLUMNS, LOG_COLUMNS_PACKED, RECORD_MESSAGES_MAX, writer::Payload},
    record::RecordHeader,
};

/// Bytes of a message in the table of a record without packed messages.
pub const ENTRY_BYTES: usize = 8;

/// The same of a record with packed messages.
pub const ENTRY_BYTES_PACKED: usize = 12;

/// A message in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableEntry {
    /// Its bytes on the disk.
    pub bytes: u32,
    /// Their checksum.
    pub crc: u32,
    /// Its bytes before it was packed; `None` if it is not packed.
    pub raw_bytes: Option<u32>,
}

impl TableEntry {
    /// The entry of a message; `None` if it is too large for one.
    pub fn of(message: &Payload<'_>) -> Option<Self> {
        let Payload { bytes, raw_bytes } = *message;
        Some(Self { bytes: u32::try_from(bytes.len()).ok()?, crc: crc32c::crc32c(bytes), raw_bytes })
    }
}

/// The table's bytes, and what stands for columns in the record's header.
pub fn encode(entries: &[TableEntry]) -> (Vec<u8>, u64) {
    let has_packed = entries.iter().any(|entry| entry.raw_bytes.is_some());
    let (columns, entry_bytes) =
        if has_packed { (LOG_COLUMNS_PACKED, ENTRY_BYTES_PACKED) } else { (LOG_COLUMNS, ENTRY_BYTES) };
    let mut table = Vec::with_capacity(entries.len().saturating_mul(entry_bytes));
    for entry in entries {
        table.extend(entry.bytes.to_le_bytes());
        table.extend(entry.crc.to_le_bytes());
        if has_packed {
            table.extend(entry.raw_bytes.unwrap_or(0).to_le_bytes());
        }
    }
    (table, columns)
}

/// Bytes of an entry in a record with these columns; `None` if it is no record of a log.
fn entry_bytes(columns: u64) -> Option<usize> {
    match columns {
        LOG_COLUMNS => Some(ENTRY_BYTES),
        LOG_COLUMNS_PACKED => Some(ENTRY_BYTES_PACKED),
        _ => None,
    }
}

/// Reads a table of `count` messages that have `message_bytes` together, in a record with these columns; `None` if it is another one.
pub fn decode(table: &[u8], columns: u64, count: usize, message_bytes: u64) -> Option<Vec<TableEntry>> {
    let entries = table.chunks_exact(entry_bytes(columns)?);
    if !entries.remainder().is_empty() || entries.len() != count || count > RECORD_MESSAGES_MAX {
        return None;
    }
    let entries: Vec<TableEntry> = entries
        .map(|entry| {
            let mut fields = entry.as_chunks::<4>().0.iter().map(|field| u32::from_le_bytes(*field));
            let mut next = || fields.next().unwrap_or(0);
            let (bytes, crc, raw_bytes) = (next(), next(), next());
            TableEntry { bytes, crc, raw_bytes: Some(raw_bytes).filter(|raw_bytes| *raw_bytes > 0) }
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
    let fits = count.checked_mul(entry_bytes(header.head.columns)?) == Some(bytes)
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
        let entry = |message: &&[u8]| TableEntry::of(&Payload::from(*message)).unwrap();
        let mut entries: Vec<_> = messages.iter().map(entry).collect();
        let (bytes, columns) = encode(&entries);
        assert_eq!((bytes.len(), columns), (24, LOG_COLUMNS));
        assert_eq!(decode(&bytes, columns, 3, 8), Some(entries.clone()));
        assert_eq!(decode(&bytes, columns, 2, 8), None);
        assert_eq!(decode(&bytes, columns, 3, 9), None);
        assert_eq!(decode(bytes.get(..23).unwrap(), columns, 3, 8), None);
        assert_eq!(decode(&[], columns, 0, 0), Some(Vec::new()));
        assert_eq!(decode(&bytes, 0, 3, 8), None, "a block of a queue");
        entries.get_mut(2).unwrap().raw_bytes = Some(300);
        let (bytes, columns) = encode(&entries);
        assert_eq!((bytes.len(), columns), (36, LOG_COLUMNS_PACKED));
        assert_eq!(decode(&bytes, columns, 3, 8), Some(entries));
        assert_eq!(decode(&bytes, LOG_COLUMNS, 3, 8), None);
    }
}
