//! A reader of a log: one message after another, from an offset on.
//!
//! Owner: one thread, with a view of the log. It reads up to the end of the last sync. Every message is compared with its checksum before it is
//! returned. What cannot be read is reported with its offsets once its file is durably marked as damaged, and reading goes on behind it. Offsets of
//! appends that an earlier run did not finish are passed over, also if the disk has some of their records, and so are those that no message has.
//!
//! Limits: one message in memory, a piece of it while it is unpacked, the table of one record (48 KiB), and a buffer while it searches behind
//! damage.

use crate::{
    body::{Body, BodyError},
    files::{Fatal, FileAt, Files, is_short},
    format::{Kind, RECORD_HEADER_BYTES, RECORDS_AT},
    log::{
        LostMessages, packed,
        table::{self, TableEntry},
        view::{LogView, SegmentPlace},
    },
    record::RecordHeader,
    recover::{Durable, FoundSegment},
};
use std::{cell::Cell, sync::Arc};

/// The buffer with which the next header is searched behind damage. Chosen: a disk reads it at its full speed.
const SEARCH_BYTES: usize = 64 << 10;

/// A message of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub offset: i64,
    /// When it was appended, in ms since 1970.
    pub appended_ms: u64,
    pub payload: Vec<u8>,
}

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    Message(Message),
    /// These cannot be read. Reading goes on behind them.
    Lost(LostMessages),
    /// Nothing yet.
    End,
}

/// A segment that is being read.
#[derive(Debug)]
struct OpenSegment<F> {
    place: SegmentPlace,
    file: Arc<F>,
    /// Where the next record begins, and its ordinal.
    at: u64,
    ordinal: u32,
}

/// A record that is being read.
#[derive(Debug)]
struct OpenRecord {
    appended_ms: u64,
    next: i64,
    table: Vec<TableEntry>,
    /// The message that comes next, and where it begins.
    index: usize,
    at: u64,
}

/// A reader.
#[derive(Debug)]
pub struct Cursor<F: Files> {
    view: LogView<F>,
    position: i64,
    segment: Option<OpenSegment<F::File>>,
    record: Option<OpenRecord>,
}

impl<F: Files> Cursor<F> {
    pub(super) fn new(view: LogView<F>, position: i64) -> Self {
        Self { view, position, segment: None, record: None }
    }

    /// The offset of the next message.
    pub fn position(&self) -> i64 {
        self.position
    }

    /// Reads on. After an error the message may be intact, and the next call tries to read it again.
    pub fn read(&mut self) -> Result<Read, Fatal> {
        let position = self.position;
        let read = self.read_on();
        if read.is_err() {
            // The position stays, also if damage was found and could not be marked. Everything else is found again from there.
            (self.position, self.segment, self.record) = (position, None, None);
        }
        read
    }

    fn read_on(&mut self) -> Result<Read, Fatal> {
        loop {
            if self.position >= self.view.end() {
                return Ok(Read::End);
            }
            if let Some(behind) = self.view.absent_to(self.position) {
                // A torn record may have its header and its table, and not its messages.
                (self.position, self.record) = (behind, None);
                continue;
            }
            let sequence = self.segment.as_ref().map(|segment| segment.place.sequence);
            let read = match self.record {
                Some(_) => self.next_message()?,
                None => self.next_record()?.map(Read::Lost),
            };
            if let (Some(Read::Lost(_)), Some(sequence)) = (&read, sequence) {
                self.view.set_aside(sequence)?;
            }
            if let Some(read) = read {
                return Ok(read);
            }
        }
    }

    /// The next message of the open record; `None` if it has no more.
    fn next_message(&mut self) -> Result<Option<Read>, Fatal> {
        let (Some(segment), Some(record)) = (&self.segment, &mut self.record) else { return Ok(None) };
        let Some(entry) = record.table.get(record.index).copied() else {
            self.position = self.position.max(record.next);
            self.record = None;
            return Ok(None);
        };
        let (offset, appended_ms) = (self.position, record.appended_ms);
        let read = payload(&*segment.file, record.at, &entry);
        record.index = record.index.saturating_add(1);
        record.at = record.at.saturating_add(u64::from(entry.bytes));
        match read {
            Err(error) if !is_short(&error) => Err(Fatal::of_read("read", &segment.place.file_name())(error)),
            read => {
                self.position = self.position.saturating_add(1);
                Ok(Some(match read.ok().flatten() {
                    Some(payload) => Read::Message(Message { offset, appended_ms, payload }),
                    None => Read::Lost(LostMessages { first: offset, next: self.position, is_exact: true }),
                }))
            }
        }
    }

    /// Opens the record with the next offset. Returns offsets that no record has.
    fn next_record(&mut self) -> Result<Option<LostMessages>, Fatal> {
        let Some(segment) = &mut self.segment else {
            return self.open_segment();
        };
        let found = found(segment, self.view.identity());
        let limit =
            segment.file.size().map_err(Fatal::of_read("read the size of", &segment.place.file_name()))?;
        let mut header = found.header(segment.at, limit, segment.ordinal).map(|header| (segment.at, header));
        let has_more =
            self.view.segment_after(segment.place.sequence).is_none_or(|next| next.first > self.position);
        if header.is_none() && has_more {
            let mut buffer = vec![0; SEARCH_BYTES];
            header = found.find(segment.at.saturating_add(1), limit, segment.ordinal, &mut buffer);
        }
        found.failure.take().map_or(Ok(()), Err)?;
        let Some((at, header)) = header else {
            return Ok(self.leave_segment());
        };
        segment.at = at.saturating_add(RECORD_HEADER_BYTES as u64).saturating_add(header.body_bytes);
        segment.ordinal = header.ordinal.saturating_add(1);
        self.open_record(at, &header)
    }

    fn open_record(&mut self, at: u64, header: &RecordHeader) -> Result<Option<LostMessages>, Fatal> {
        let (first, next) = (header.head.first, header.head.next);
        if next <= self.position {
            return Ok(None);
        }
        let table = self.table(at, header)?;
        let position = self.position;
        let Some(table) = table else {
            self.position = next;
            return Ok(Some(LostMessages { first: position, next, is_exact: first <= position }));
        };
        let skipped = usize::try_from(position.saturating_sub(first)).unwrap_or(0);
        let before = table.iter().take(skipped).map(|entry| u64::from(entry.bytes));
        let bodies = at
            .saturating_add(RECORD_HEADER_BYTES as u64)
            .saturating_add(u64::from(header.head.metadata_bytes));
        let at = before.fold(bodies, u64::saturating_add);
        self.position = position.max(first);
        self.record = Some(OpenRecord { appended_ms: header.appended_ms, next, table, index: skipped, at });
        Ok((first > position).then_some(LostMessages { first: position, next: first, is_exact: false }))
    }

    /// The table of a record; `None` if it is damaged.
    fn table(&self, at: u64, header: &RecordHeader) -> Result<Option<Vec<TableEntry>>, Fatal> {
        let (Some(segment), Some((bytes, count))) = (&self.segment, table::shape(header)) else {
            return Ok(None);
        };
        let file = (segment.file.clone(), segment.place.file_name().into());
        let place = (at.saturating_add(RECORD_HEADER_BYTES as u64), u64::from(header.head.metadata_bytes));
        let mut table = vec![0; bytes];
        match Body::new(file, place, header.metadata_crc).read(&mut table) {
            Ok(_) => {}
            Err(BodyError::Damaged(_)) => return Ok(None),
            Err(BodyError::Failed(fatal)) => return Err(fatal),
        }
        let messages = header.body_bytes.saturating_sub(u64::from(header.head.metadata_bytes));
        Ok(table::decode(&table, header.head.columns, count, messages))
    }

    /// Opens the segment with the next offset. Returns offsets that no segment has.
    fn open_segment(&mut self) -> Result<Option<LostMessages>, Fatal> {
        let Some((place, file)) = self.view.open_segment_of(self.position)? else {
            // The log begins behind it.
            let (first, next) = (self.position, self.view.start().max(self.position.saturating_add(1)));
            self.position = next;
            return Ok(Some(LostMessages { first, next, is_exact: false }));
        };
        self.segment = Some(OpenSegment { place, file: Arc::new(file), at: RECORDS_AT, ordinal: 0 });
        Ok(None)
    }

    /// Goes on with the next segment. Returns the offsets before it that this one should have had.
    fn leave_segment(&mut self) -> Option<LostMessages> {
        let left = self.segment.take()?;
        let next = self.view.segment_after(left.place.sequence).map(|place| place.first);
        let (first, next) = (self.position, next.unwrap_or_else(|| self.view.end()));
        let next = self.view.next_absent(first).map_or(next, |absent| absent.min(next));
        if next <= first {
            return None;
        }
        self.position = next;
        Some(LostMessages { first, next, is_exact: false })
    }
}

/// The message of an entry; `None` if it is not what was written.
fn payload<F: FileAt>(file: &F, at: u64, entry: &TableEntry) -> std::io::Result<Option<Vec<u8>>> {
    if let Some(raw_bytes) = entry.raw_bytes {
        return packed::read(file, at, entry, raw_bytes);
    }
    let mut payload = vec![0; usize::try_from(entry.bytes).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut payload, at)?;
    Ok((crc32c::crc32c(&payload) == entry.crc).then_some(payload))
}

/// A segment as recovery reads it.
fn found<F: FileAt>(segment: &OpenSegment<F>, identity: u64) -> FoundSegment<F> {
    let SegmentPlace { sequence, is_damaged, .. } = segment.place;
    let kind = if is_damaged { Kind::Damaged } else { Kind::Spool };
    let (newest, reads_all, failure) = (false, false, Cell::default());
    let (file, durable) = (segment.file.clone(), Durable::default());
    FoundSegment { file, sequence, kind, newest, identity, reads_all, durable, failure }
}
