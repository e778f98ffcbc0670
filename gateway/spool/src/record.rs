//! The bytes on the volume: segment header, marks and record headers. Converts values to bytes and back; no files here.
//!
//! Reading is total: malformed bytes yield `None`, never a panic.

#[cfg(doc)]
use crate::format::METADATA_BYTES_MAX;
use crate::format::{
    Fill, MARK_BYTES, RECORD_HEADER_BYTES, RECORD_MAGIC, REVISION, SEGMENT_HEADER_BYTES, SEGMENT_MAGIC,
    TOKEN_BYTES_MAX, TOPIC_BYTES_MAX, Take,
};
use std::sync::Arc;

/// What the queue knows of a block besides its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockHead {
    /// The topic that it was read from, 1 to [`TOPIC_BYTES_MAX`] bytes.
    pub topic: Arc<str>,
    pub partition: i32,
    /// The first offset that it covers.
    pub first: i64,
    /// One past the last offset.
    pub next: i64,
    /// The deduplication token, at most [`TOKEN_BYTES_MAX`] bytes.
    pub token: Box<[u8]>,
    pub rows: u64,
    /// Bytes before compression.
    pub raw_bytes: u64,
    /// The latest end of a span, in ns since 1970; 0 without spans.
    pub span_end_nanos_max: u64,
    /// When it was first sent, in ms since 1970, if that was before the append.
    pub first_sent_ms: Option<u64>,
    /// The number of the routing of partitions to shards by which the block is sent. `None` if it is unknown, as for every block of an
    /// older program. Below [`u32::MAX`].
    pub routing_epoch: Option<u32>,
    /// The number of the servers and the table that it is sent to, above 0. `None` if it is unknown, as for every block that an earlier
    /// version has written.
    pub destination: Option<u32>,
    /// Fingerprint of the column list and encoding of the frames: they fit no other.
    pub columns: u64,
    /// Bytes at the beginning of the body that are not sent, at most [`METADATA_BYTES_MAX`]: the caller's metadata of the block.
    pub metadata_bytes: u32,
}

/// What the queue adds to the block's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordHeader {
    /// The block.
    pub head: BlockHead,
    /// Its place in the segment.
    pub ordinal: u32,
    /// The segment's sequence.
    pub sequence: u64,
    /// The queue's identity.
    pub identity: u64,
    /// Blocks of the segment that were synced when this header was written.
    pub synced: u32,
    /// When it was appended, in ms since 1970.
    pub appended_ms: u64,
    pub body_bytes: u64,
    /// Checksum of the body.
    pub body_crc: u32,
    /// Checksum of the metadata at the beginning of the body; 0 if it is unknown or there is no metadata.
    pub metadata_crc: u32,
}

impl RecordHeader {
    /// The bytes.
    ///
    /// # Panics
    /// If topic or token is too long.
    pub fn encode(&self) -> [u8; RECORD_HEADER_BYTES] {
        let head = &self.head;
        let len = |bytes: &[u8]| u16::try_from(bytes.len()).expect("topic and token fit").to_le_bytes();
        Fill::new()
            .put(&RECORD_MAGIC, 4)
            .put(&self.ordinal.to_le_bytes(), 4)
            .put(&self.sequence.to_le_bytes(), 8)
            .put(&self.identity.to_le_bytes(), 8)
            .put(&self.synced.to_le_bytes(), 4)
            .put(&head.partition.to_le_bytes(), 4)
            .put(&head.first.to_le_bytes(), 8)
            .put(&head.next.to_le_bytes(), 8)
            .put(&head.rows.to_le_bytes(), 8)
            .put(&head.raw_bytes.to_le_bytes(), 8)
            .put(&head.span_end_nanos_max.to_le_bytes(), 8)
            .put(&head.first_sent_ms.unwrap_or(0).to_le_bytes(), 8)
            .put(&self.appended_ms.to_le_bytes(), 8)
            .put(&head.columns.to_le_bytes(), 8)
            .put(&self.body_bytes.to_le_bytes(), 8)
            .put(&self.body_crc.to_le_bytes(), 4)
            .put(&len(head.topic.as_bytes()), 2)
            .put(&len(&head.token), 2)
            .put(&head.metadata_bytes.to_le_bytes(), 4)
            .put(&head.routing_epoch.map_or(0, |epoch| epoch.saturating_add(1)).to_le_bytes(), 4)
            .put(&self.metadata_crc.to_le_bytes(), 4)
            .put(head.topic.as_bytes(), TOPIC_BYTES_MAX)
            .put(&head.token, TOKEN_BYTES_MAX)
            .put(&head.destination.unwrap_or(0).to_le_bytes(), 4)
            .sealed()
    }

    /// Reads one.
    pub fn decode(bytes: &[u8; RECORD_HEADER_BYTES]) -> Option<Self> {
        if !bytes.starts_with(&RECORD_MAGIC) {
            return None;
        }
        let mut take = Take::checked(bytes)?;
        let _magic = take.u32();
        let (ordinal, sequence, identity, synced) = (take.u32(), take.u64(), take.u64(), take.u32());
        let partition = take.u32().cast_signed();
        let (first, next) = (take.u64().cast_signed(), take.u64().cast_signed());
        let (rows, raw_bytes, span_end_nanos_max) = (take.u64(), take.u64(), take.u64());
        let (first_sent_ms, appended_ms, columns) = (take.u64(), take.u64(), take.u64());
        let (body_bytes, body_crc) = (take.u64(), take.u32());
        let (topic_bytes, token_bytes) = (take.u16(), take.u16());
        let (metadata_bytes, routing, metadata_crc) = (take.u32(), take.u32(), take.u32());
        let topic = take.bytes(TOPIC_BYTES_MAX).get(..usize::from(topic_bytes))?;
        let token = take.bytes(TOKEN_BYTES_MAX).get(..usize::from(token_bytes))?;
        let destination = Some(take.u32()).filter(|number| *number > 0);
        let head = BlockHead {
            topic: std::str::from_utf8(topic).ok()?.into(),
            partition,
            first,
            next,
            token: token.into(),
            rows,
            raw_bytes,
            span_end_nanos_max,
            first_sent_ms: Some(first_sent_ms).filter(|ms| *ms > 0),
            routing_epoch: routing.checked_sub(1),
            destination,
            columns,
            metadata_bytes,
        };
        Some(Self {
            head,
            ordinal,
            sequence,
            identity,
            synced,
            appended_ms,
            body_bytes,
            body_crc,
            metadata_crc,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkKind {
    /// The block may have been sent.
    Sent,
    /// It was not sent, and no other process sends it. In the place of `Sent`, which overwrites it.
    Sole,
    /// It is durable, and the caller may rely on that. In the place of `Sent`; `Sent` or `Sole` overwrites it.
    Kept,
    /// It is the only copy of all or some of its rows. In the place of `Done`, which overwrites it.
    Only,
    /// The block is settled.
    Done,
    /// The segment is complete and synced.
    Seal,
}

impl MarkKind {
    /// Its place among the marks of a block.
    pub fn slot(self) -> u64 {
        match self {
            Self::Sent | Self::Sole | Self::Kept | Self::Seal => 0,
            Self::Only | Self::Done => 1,
        }
    }

    fn magic(self) -> [u8; 4] {
        match self {
            Self::Sent => *b"sent",
            Self::Sole => *b"sole",
            Self::Kept => *b"kept",
            Self::Only => *b"only",
            Self::Done => *b"done",
            Self::Seal => *b"seal",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// What it says.
    pub kind: MarkKind,
    /// The block's ordinal, or the number of blocks.
    pub number: u32,
    /// The segment's sequence.
    pub sequence: u64,
    /// Time of the first send in ms since 1970, or rows that are stored elsewhere too, or bytes of the segment.
    pub value: u64,
}

/// The content of a mark's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Zeros.
    Empty,
    /// A valid mark, with its number and value.
    Set(Mark),
    /// Something else: a mark was written, and is damaged.
    Damaged,
}

impl Mark {
    /// The bytes.
    pub fn encode(self) -> [u8; MARK_BYTES] {
        Fill::new()
            .put(&self.kind.magic(), 4)
            .put(&self.number.to_le_bytes(), 4)
            .put(&self.sequence.to_le_bytes(), 8)
            .put(&self.value.to_le_bytes(), 8)
            .put(&[], 4)
            .sealed()
    }

    /// Reads the place of a mark of this kind, in the segment with this sequence.
    pub fn decode(bytes: &[u8], kind: MarkKind, sequence: u64) -> Place {
        if bytes.iter().all(|byte| *byte == 0) {
            return Place::Empty;
        }
        let Some(mut take) = Take::checked(bytes).filter(|_| bytes.len() == MARK_BYTES) else {
            return Place::Damaged;
        };
        let ours = take.bytes(4) == kind.magic();
        let mark = Self { kind, number: take.u32(), sequence: take.u64(), value: take.u64() };
        if ours && mark.sequence == sequence { Place::Set(mark) } else { Place::Damaged }
    }

    /// Whether bytes begin like a mark of this kind, except for at most one byte: most likely a mark with a flipped bit.
    pub fn is_like(bytes: &[u8], kind: MarkKind) -> bool {
        let magic = kind.magic();
        let same = bytes.iter().zip(magic).filter(|(byte, expected)| **byte == *expected).count();
        same.saturating_add(1) >= magic.len()
    }
}

/// The owner and number of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The layout's version.
    pub version: u32,
    pub revision: u32,
    /// The queue's identity.
    pub identity: u64,
    /// The segment's sequence.
    pub sequence: u64,
    /// Whether the caller relies on blocks once they are kept; `None` if it is not recorded.
    pub relied_on: Option<bool>,
}

impl SegmentHeader {
    /// The header of a new segment.
    pub fn new(version: u32, identity: u64, sequence: u64, relied_on: bool) -> Self {
        Self { version, revision: REVISION, identity, sequence, relied_on: Some(relied_on) }
    }

    /// The bytes.
    pub fn encode(self) -> [u8; SEGMENT_HEADER_BYTES] {
        Fill::new()
            .put(&SEGMENT_MAGIC, 8)
            .put(&self.version.to_le_bytes(), 4)
            .put(&self.revision.to_le_bytes(), 4)
            .put(&self.identity.to_le_bytes(), 8)
            .put(&self.sequence.to_le_bytes(), 8)
            .put(
                &self.relied_on.map_or(0, |relied_on| u32::from(relied_on).saturating_add(1)).to_le_bytes(),
                28,
            )
            .sealed()
    }

    /// Reads a header. In a version that this program does not read, fields may mean something else.
    pub fn decode(bytes: &[u8; SEGMENT_HEADER_BYTES]) -> Option<Self> {
        let mut take = Take::checked(bytes)?;
        if take.bytes(8) != SEGMENT_MAGIC {
            return None;
        }
        let (version, revision) = (take.u32(), take.u32());
        let (identity, sequence) = (take.u64(), take.u64());
        let relied_on = match take.u32() {
            1 => Some(false),
            2 => Some(true),
            _ => None,
        };
        Some(Self { version, revision, identity, sequence, relied_on })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> RecordHeader {
        let head = BlockHead {
            topic: "spans".into(),
            partition: -1,
            first: 0x0102,
            next: 0x0304,
            token: b"oesl5fcqiwqjz2yhnohzp4tv6m".as_slice().into(),
            rows: 5,
            raw_bytes: 6,
            span_end_nanos_max: 7,
            first_sent_ms: Some(8),
            routing_epoch: Some(4),
            destination: Some(0x0003_0201),
            columns: 9,
            metadata_bytes: 13,
        };
        let (appended_ms, body_bytes, body_crc) = (10, 11, 12);
        RecordHeader {
            head,
            ordinal: 1,
            sequence: 2,
            identity: 3,
            synced: 4,
            appended_ms,
            body_bytes,
            body_crc,
            metadata_crc: 14,
        }
    }

    #[test]
    fn a_record_header_has_its_fields_where_the_table_says() {
        let bytes = header().encode();
        let at =
            |at: usize, field: &[u8]| assert_eq!(bytes.get(at..at + field.len()), Some(field), "at {at}");
        at(0, b"blok");
        at(4, &[1, 0, 0, 0]);
        at(8, &[2, 0, 0, 0, 0, 0, 0, 0, 3]);
        at(24, &[4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
        at(32, &[2, 1, 0, 0, 0, 0, 0, 0, 4, 3, 0]);
        at(48, &[5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 8]);
        at(80, &[10, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 11]);
        at(104, &[12, 0, 0, 0, 5, 0, 26, 0, 13, 0, 0, 0, 5, 0, 0, 0, 14, 0, 0, 0]);
        at(124, b"spans\0");
        at(380, b"oesl5fcqiwqjz2yhnohzp4tv6m\0");
        at(760, &[1, 2, 3, 0]);
        let sum = crc32c::crc32c(bytes.get(..764).unwrap());
        at(764, &sum.to_le_bytes());
        assert_eq!(RecordHeader::decode(&bytes), Some(header()));
    }

    #[test]
    fn a_flipped_bit_of_a_header_or_mark_is_seen() {
        let bytes = header().encode();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes;
            *flipped.get_mut(bit / 8).unwrap() ^= 1 << (bit % 8);
            assert_eq!(RecordHeader::decode(&flipped), None, "bit {bit}");
        }
        let mark = Mark { kind: MarkKind::Sent, number: 1, sequence: 2, value: 3 };
        assert_eq!(Mark::decode(&mark.encode(), MarkKind::Sent, 2), Place::Set(mark));
        assert_eq!(Mark::decode(&mark.encode(), MarkKind::Done, 2), Place::Damaged);
        assert_eq!(Mark::decode(&mark.encode(), MarkKind::Sent, 3), Place::Damaged);
        assert_eq!(Mark::decode(&[0; MARK_BYTES], MarkKind::Sent, 2), Place::Empty);
        for bit in 0..MARK_BYTES * 8 {
            let mut flipped = mark.encode();
            *flipped.get_mut(bit / 8).unwrap() ^= 1 << (bit % 8);
            assert_eq!(Mark::decode(&flipped, MarkKind::Sent, 2), Place::Damaged, "bit {bit}");
            assert!(Mark::is_like(&flipped, MarkKind::Sent) && !Mark::is_like(&flipped, MarkKind::Only));
        }
    }

    /// The CRC32C crate computes the values of RFC 3720, B.4.
    #[test]
    fn the_checksum_is_castagnolis() {
        assert_eq!(crc32c::crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
    }
}
