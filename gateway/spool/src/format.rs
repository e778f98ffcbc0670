//! The layout of the queue's files, in the versions [`VERSION`] and [`VERSION_PACKED`]. Numbers are little-endian, checksums are CRC32C
//! (Castagnoli).
//!
//! **Limits**
//!
//! | what | limit |
//! | --- | --- |
//! | blocks in a segment | [`SEGMENT_BLOCKS_MAX`]: the fixed room for marks |
//! | segments | [`SEGMENTS_MAX`]: each is an open file |
//! | blocks in the index | [`QUEUE_BLOCKS_MAX`], of [`INDEX_BYTES_PER_BLOCK`] each |
//! | body of a block | [`BODY_BYTES_MAX`], of which [`METADATA_BYTES_MAX`] are not sent |
//! | topic, token | [`TOPIC_BYTES_MAX`], [`TOKEN_BYTES_MAX`] |
//!
//! **Files** in the volume, where `N` is the segment's sequence in 16 hex digits:
//!
//! | name | content |
//! | --- | --- |
//! | `segment-N.new` | a segment that is being created; removed when the queue is opened |
//! | `segment-N.spool` | a segment |
//! | `segment-N.damaged` | a damaged segment; its intact blocks are used, the file is never removed |
//! | `sluice-queue.lock`, `sluice-queue.json` | the lock, and whose volume it is (`volume.rs`) |
//! | `columns-N`, `parts-TOKEN` | the gateway's: columns of blocks, and parts of refused blocks (`gateway/src/volume/spool`) |
//!
//! **Segment**: a fixed part, which is written and synced before the file gets its name, then records.
//!
//! | at | bytes | content |
//! | --- | --- | --- |
//! | 0 | 64 | segment header |
//! | [`SEAL_AT`] | 32 | the mark `seal`; zeros until the segment is sealed |
//! | [`MARKS_AT`] | 1,024 × 64 | per block, by ordinal: the mark `kept`, `sole` or `sent`, the mark `only` or `done`; zeros until they are set |
//! | [`RECORDS_AT`] | to the end | records, without gaps |
//!
//! Marks are written in place: the space for a block's marks is on the disk before the block is, so that a full disk can be drained. (A
//! copy-on-write file system may still need space for them.)
//!
//! **Segment header**
//!
//! | at | bytes | field |
//! | --- | --- | --- |
//! | 0 | 8 | magic `sluiceqs` |
//! | 8 | 4 | version. Magic, version and the checksum's place are the same in every version |
//! | 12 | 4 | revision: additions to the version; 0 in the first programs |
//! | 16 | 8 | identity: of the pipeline whose queue this is |
//! | 24 | 8 | sequence: as in the file's name |
//! | 32 | 4 | whether the caller relies on blocks once they are kept: 1 no, 2 yes; 0 if it is not recorded |
//! | 36 | 24 | zeros |
//! | 60 | 4 | checksum of bytes 0–59 |
//!
//! | version | segments |
//! | --- | --- |
//! | 1 | of queues, of dead letters, and of logs of earlier programs |
//! | 2 | of logs of requests. A record may have packed messages (`log/table.rs`, `log/packed.rs`). All else is as in version 1 |
//!
//! | revision | new |
//! | --- | --- |
//! | 1 | the mark `only`; the header records whether the caller relies on kept blocks |
//! | 2 | each record has the checksum of its metadata, so that opening a volume need not read the rest of the bodies |
//! | 3 | each record has the destination, in place of the last bytes of the token, which no token used |
//!
//! A program reads segments of its version in any revision: ignoring additions of a later revision must not lose a block that it would
//! have held before. Otherwise the version must change.
//!
//! **Mark**
//!
//! | at | bytes | `sent` | `sole` | `kept` | `only` | `done` | `seal` |
//! | --- | --- | --- | --- | --- | --- | --- | --- |
//! | 0 | 4 | magic `sent` | magic `sole` | magic `kept` | magic `only` | magic `done` | magic `seal` |
//! | 4 | 4 | ordinal of the block | ordinal | ordinal | ordinal | ordinal | blocks in the segment |
//! | 8 | 8 | sequence of the segment | sequence | sequence | sequence | sequence | sequence |
//! | 16 | 8 | first send, ms since 1970 | 0 | 0 | rows that are stored elsewhere too | 0 | bytes of the segment |
//! | 24 | 4 | zeros | zeros | zeros | zeros | zeros | zeros |
//! | 28 | 4 | checksum of bytes 0–27 | the same | the same | the same | the same | the same |
//!
//! `kept` says that the block was synced, and no more. `sole` says that the block was not sent, and that no other process has it to send;
//! it overwrites `kept`. `sent` overwrites both. `only` says that the block is the only copy of its rows, except for the given number.
//! This stays true: from then on, any owner of its partition may commit past the block. `done` overwrites it. A damaged `only`, with at
//! most one wrong byte in its magic, counts as one for all rows. If a mark of its block was damaged before, `sent` with time 0 is written
//! and synced first, so that the block stays in doubt. A program that does not know a mark takes it for a damaged one, and so treats the
//! block as possibly sent.
//!
//! **Record**: a header, then the body: the caller's metadata, then the frames of the block, one behind the other.
//!
//! | at | bytes | field |
//! | --- | --- | --- |
//! | 0 | 4 | magic `blok` |
//! | 4 | 4 | ordinal: the block's place in the segment, from 0 |
//! | 8 | 8 | sequence of the segment |
//! | 16 | 8 | identity |
//! | 24 | 4 | how many blocks of the segment were synced when this was written: damage in them is not a torn tail |
//! | 28 | 4 | partition |
//! | 32 | 8 | first offset |
//! | 40 | 8 | next offset: one past the last |
//! | 48 | 8 | rows |
//! | 56 | 8 | raw bytes: before compression |
//! | 64 | 8 | latest end of a span, ns since 1970; 0 without spans |
//! | 72 | 8 | first send, ms since 1970, if it was before the append; else 0 |
//! | 80 | 8 | appended, ms since 1970 |
//! | 88 | 8 | columns: fingerprint of the column list and encoding of the frames |
//! | 96 | 8 | body bytes |
//! | 104 | 4 | checksum of the body |
//! | 108 | 2 | bytes of the topic |
//! | 110 | 2 | bytes of the token |
//! | 112 | 4 | metadata bytes: this many at the beginning of the body are not sent |
//! | 116 | 4 | routing epoch by which the frames are sent, plus one; 0 if it is unknown |
//! | 120 | 4 | checksum of the metadata; 0 if it is unknown or there is no metadata |
//! | 124 | 256 | topic, then zeros |
//! | 380 | 380 | token, then zeros |
//! | 760 | 4 | destination: the number of the servers and the table that the frames are sent to; 0 where that is not known |
//! | 764 | 4 | checksum of bytes 0–763 |
//! | 768 | body bytes | body |

/// The version of a queue's segments.
pub const VERSION: u32 = 1;
/// The version of segments that may have packed messages, and the newest that this program reads. A program that does not know them would take
/// their records for damaged ones: it refuses the volume instead.
pub const VERSION_PACKED: u32 = 2;
/// The revision that it writes.
pub const REVISION: u32 = 3;

/// The first bytes of a segment.
pub const SEGMENT_MAGIC: [u8; 8] = *b"sluiceqs";
/// The first bytes of a record.
pub const RECORD_MAGIC: [u8; 4] = *b"blok";

pub const SEGMENT_HEADER_BYTES: usize = 64;
/// Bytes of a mark. A power of two: no mark lies across two sectors of a disk.
pub const MARK_BYTES: usize = 32;
/// Bytes of a record's header. Fixed, so that one call reads it; below 0.1 % of a block of 1 MiB.
pub const RECORD_HEADER_BYTES: usize = 768;

/// Position of the seal, in a disk sector of its own.
pub const SEAL_AT: u64 = 512;
/// Position of the blocks' marks.
pub const MARKS_AT: u64 = 4_096;
/// Marks per block: `sent` and `done`, or the marks that share their places.
pub const MARKS_PER_BLOCK: usize = 2;
/// Bytes of all blocks' marks.
pub const MARKS_BYTES: usize = SEGMENT_BLOCKS_MAX as usize * MARKS_PER_BLOCK * MARK_BYTES;
/// Position of the first record.
pub const RECORDS_AT: u64 = MARKS_AT + MARKS_BYTES as u64;

/// Blocks in a segment. Chosen: full segments of [`SEGMENT_BYTES_MIN`] at 64 KiB a block, and marks of 64 KiB.
pub const SEGMENT_BLOCKS_MAX: u32 = 1_024;
/// Segments of a queue, each an open file. Chosen: half of the usual 1,024 open files of a process.
pub const SEGMENTS_MAX: usize = 512;
/// Maximum number of blocks in the index, including settled blocks of segments that are not removed yet. Chosen: 10 GiB of blocks of 1.25
/// MiB; with the gateway's own data about each block, about 5 MiB of memory.
pub const QUEUE_BLOCKS_MAX: usize = 8_192;
/// Maximum memory per block in the index. Checked at compile time.
pub const INDEX_BYTES_PER_BLOCK: usize = 96;
/// Maximum bytes of a block's body. Chosen: four times the largest message that Kafka is used with (64 MiB).
pub const BODY_BYTES_MAX: u64 = 256 << 20;
/// Maximum bytes of metadata, which are not sent. Chosen: enough for some bytes per message of the largest block, which has a million.
pub const METADATA_BYTES_MAX: u64 = 8 << 20;
/// Bytes of a topic's name. Specified: Kafka allows 249.
pub const TOPIC_BYTES_MAX: usize = 256;
/// Bytes of a token. Chosen: a topic's name, three numbers and 128 bits in hex fit (336).
pub const TOKEN_BYTES_MAX: usize = 380;

/// Bytes of a segment, unless the queue is very large or very small. Chosen: one sync and one new file per that many bytes.
pub const SEGMENT_BYTES_MIN: u64 = 64 << 20;

/// Whether this program reads segments of a version.
pub(crate) fn is_read(version: u32) -> bool {
    (VERSION..=VERSION_PACKED).contains(&version)
}

/// The kind of a file, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// It is being made.
    New,
    /// It is a segment.
    Spool,
    /// It is a segment in which damage was found.
    Damaged,
}

const KINDS: [(Kind, &str); 3] = [(Kind::New, "new"), (Kind::Spool, "spool"), (Kind::Damaged, "damaged")];

/// The name of a segment's file.
pub(crate) fn name(sequence: u64, kind: Kind) -> String {
    let extension = match kind {
        Kind::New => "new",
        Kind::Spool => "spool",
        Kind::Damaged => "damaged",
    };
    format!("segment-{sequence:016x}.{extension}")
}

/// Parses a file name; `None` for a file of other origin.
pub(crate) fn parse_name(text: &str) -> Option<(u64, Kind)> {
    let (digits, extension) = text.strip_prefix("segment-")?.split_once('.')?;
    let sequence = u64::from_str_radix(digits, 16).ok()?;
    let (kind, _) = KINDS.into_iter().find(|(_, known)| *known == extension)?;
    // Only the canonical spelling of the number is valid.
    (name(sequence, kind) == text).then_some((sequence, kind))
}

/// The position of a block's mark.
pub(crate) fn mark_at(ordinal: u32, kind: crate::record::MarkKind) -> u64 {
    let index = u64::from(ordinal).saturating_mul(MARKS_PER_BLOCK as u64).saturating_add(kind.slot());
    MARKS_AT.saturating_add(index.saturating_mul(MARK_BYTES as u64))
}

/// The bytes of a fixed layout, filled from the front.
pub(crate) struct Fill<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Fill<N> {
    /// All zeros.
    pub fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }

    /// Appends a field, padded with zeros to `width` bytes.
    ///
    /// # Panics
    /// If a field is larger than its place in the layout.
    #[must_use]
    pub fn put(mut self, field: &[u8], width: usize) -> Self {
        assert!(field.len() <= width, "a field fits into its place");
        let end = self.len.saturating_add(field.len());
        self.bytes.get_mut(self.len..end).expect("the layout has room for its fields").copy_from_slice(field);
        self.len = self.len.saturating_add(width);
        self
    }

    /// The bytes; the last four are the checksum of the others.
    pub fn sealed(self) -> [u8; N] {
        assert_eq!(self.len.checked_add(4), Some(N), "a layout's fields are its length");
        let sum =
            self.bytes.get(..self.len).map(crc32c::crc32c).expect("the layout is longer than its fields");
        self.put_last(sum)
    }

    fn put_last(self, sum: u32) -> [u8; N] {
        self.put(&sum.to_le_bytes(), 4).bytes
    }
}

/// Reads the fields of a fixed layout from the front. Past the end there are zeros.
pub(crate) struct Take<'a>(&'a [u8]);

impl<'a> Take<'a> {
    /// The fields before the checksum; `None` if the checksum is wrong.
    pub fn checked(bytes: &'a [u8]) -> Option<Self> {
        let (fields, sum) = bytes.split_last_chunk::<4>()?;
        (crc32c::crc32c(fields) == u32::from_le_bytes(*sum)).then_some(Self(fields))
    }

    /// The next bytes.
    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at_checked(len).unwrap_or((self.0, &[]));
        self.0 = rest;
        bytes
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        self.bytes(N).first_chunk().copied().unwrap_or([0; N])
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::MarkKind;

    #[test]
    fn a_name_is_read_as_it_is_written_and_no_other_is_ours() {
        for kind in [Kind::New, Kind::Spool, Kind::Damaged] {
            assert_eq!(parse_name(&name(0xabc, kind)), Some((0xabc, kind)));
        }
        assert_eq!(name(10, Kind::Spool), "segment-000000000000000a.spool");
        for other in
            ["segment-a.spool", "segment-000000000000000A.spool", "segment-000000000000000a.tmp", "x"]
        {
            assert_eq!(parse_name(other), None, "{other}");
        }
    }

    #[test]
    fn the_layout_is_the_one_that_is_drawn() {
        assert_eq!(RECORDS_AT, 4_096 + 65_536);
        assert_eq!(mark_at(0, MarkKind::Sent), 4_096);
        assert_eq!(mark_at(0, MarkKind::Done), 4_128);
        assert_eq!(mark_at(0, MarkKind::Only), 4_128);
        assert_eq!(mark_at(SEGMENT_BLOCKS_MAX - 1, MarkKind::Done), RECORDS_AT - 32);
    }
}
