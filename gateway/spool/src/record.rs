//! What is written: the segment header, marks, and a block's header. Bytes from values and back; no file here.
//!
//! Reading is total: bytes that are not what they should be are `None`, never a panic.

#[cfg(doc)]
use crate::format::METADATA_BYTES_MAX;
use crate::format::{
    Fill, MARK_BYTES, RECORD_HEADER_BYTES, RECORD_MAGIC, REVISION, SEGMENT_HEADER_BYTES, SEGMENT_MAGIC,
    TOKEN_BYTES_MAX, TOPIC_BYTES_MAX, Take, VERSION,
};
use std::sync::Arc;

/// What the queue knows of a block beside its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockHead {
    /// The topic that it was read from, 1 to [`TOPIC_BYTES_MAX`] bytes.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
    /// The first offset that it covers.
    pub first: i64,
    /// One past the last offset.
    pub next: i64,
    /// The deduplication token, at most [`TOKEN_BYTES_MAX`] bytes.
    pub token: Box<[u8]>,
    /// Rows.
    pub rows: u64,
    /// Bytes before compression.
    pub raw_bytes: u64,
    /// The latest end of a span, in ns since 1970; 0 without spans.
    pub span_end_nanos_max: u64,
    /// When it was first sent, in ms since 1970, if that was before it is appended.
    pub first_sent_ms: Option<u64>,
    /// The number that says how blocks are spread over servers: this one goes where that says. `None` where it is not known, as of
    /// every block that a program before has written. Below [`u32::MAX`].
    pub routing_epoch: Option<u32>,
    /// The number of the servers and the table that it is sent to, above 0. `None` where it is not known, as of every block that a
    /// program before has written.
    pub destination: Option<u32>,
    /// Fingerprint of the column list and encoding that the frames were made for: they fit no other.
    pub columns: u64,
    /// Bytes at the beginning of the body that are not sent, at most [`METADATA_BYTES_MAX`]: what the block's owner keeps with it.
    pub metadata_bytes: u32,
}

/// What the queue adds to it.
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
    /// Blocks of the segment that were synced when this was written.
    pub synced: u32,
    /// When it was appended, in ms since 1970.
    pub appended_ms: u64,
    /// Bytes of the body.
    pub body_bytes: u64,
    /// Checksum of the body.
    pub body_crc: u32,
    /// Checksum of the metadata, which the body begins with; 0 where that is not known, and where there is none.
    pub metadata_crc: u32,
}

impl RecordHeader {
    /// The bytes.
    ///
    /// # Panics
    /// When topic or token is too long.
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

/// What a mark says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkKind {
    /// The block may have been sent.
    Sent,
    /// It was not, and nobody else sends it. Stands in the place of `Sent`, which is written over it.
    Sole,
    /// It is durable, and somebody may rely on that. Stands in the place of `Sent`, until that or `Sole` is written over it.
    Kept,
    /// It is the only copy of its rows, or of some. Stands in the place of `Done`, which is written over it.
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

/// A mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// What it says.
    pub kind: MarkKind,
    /// The block's ordinal, or the number of blocks.
    pub number: u32,
    /// The segment's sequence.
    pub sequence: u64,
    /// Time of the first send in ms since 1970, or rows that are elsewhere too, or bytes of the segment.
    pub value: u64,
}

/// What stands in the place of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Zeros.
    Empty,
    /// The mark that belongs there, with its number and value.
    Set(Mark),
    /// Something else: a mark was written, and its bytes are not whole.
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

    /// Reads what stands in the place of a mark of this kind, in the segment of this sequence.
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

    /// Whether bytes begin as a mark of this kind does, but for one byte: it was one, most likely, before a bit of it flipped.
    pub fn is_like(bytes: &[u8], kind: MarkKind) -> bool {
        let magic = kind.magic();
        let same = bytes.iter().zip(magic).filter(|(byte, expected)| **byte == *expected).count();
        same.saturating_add(1) >= magic.len()
    }
}

/// Whose segment it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The layout's version.
    pub version: u32,
    /// Its revision.
    pub revision: u32,
    /// The queue's identity.
    pub identity: u64,
    /// The segment's sequence.
    pub sequence: u64,
    /// Whether somebody may rely on its blocks once they are kept; `None` where that is not written down.
    pub relied_on: Option<bool>,
}

impl SegmentHeader {
    /// The header of a segment that this program makes.
    pub fn new(identity: u64, sequence: u64, relied_on: bool) -> Self {
        Self { version: VERSION, revision: REVISION, identity, sequence, relied_on: Some(relied_on) }
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

    /// Reads one. The fields of another version than [`VERSION`] may mean something else.
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

    /// The crate for CRC32C computes what RFC 3720, B.4 lists.
    #[test]
    fn the_checksum_is_castagnolis() {
        assert_eq!(crc32c::crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
    }
}
