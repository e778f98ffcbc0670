//! Reads a segment of an earlier run: which blocks are there, which are not, and why.
//!
//! Every record's header and metadata are read, since the caller must know the blocks before it reads from Kafka; their checksums are
//! compared. Bodies are read and compared if [all](crate::Options::reads_all) are to be read. Otherwise only those of unsealed segments
//! are, whose tail may be torn, and those whose metadata has no checksum of its own, as in revision 1. Bodies of sealed segments were
//! synced, and a sender verifies a body first. Reading a volume of tens of GiB would take minutes, in which the group would assign the
//! partitions to others. Cost: a read of some KiB per block, and one segment at the speed of the disk. Memory: the caller's buffer and
//! the headers of one segment.
//!
//! | found | classified as | consequence |
//! | --- | --- | --- |
//! | a bad record in an unsealed segment that nothing proves to have been synced | torn | reported as [`Cut`]. If no intact record follows, it is cut off; else it is settled, and the intact records stay in the queue |
//! | a bad record that was synced, as the seal, a later record, a mark, or a log's committed offset proves (bodies that are not read yet excepted) | damage | the file is set aside (renamed, never removed), its intact blocks stay in the queue; reported as [`SetAside`] until it is settled |
//! | a damaged record of a settled block | nothing | counted |
//! | a damaged mark | doubt | its block is held as one that may have been sent; counted |
//! | a segment of another queue, or with another's name | foreign | set aside, none of it is used |
//!
//! If a read fails, the content is unknown: no decision is made, and the queue is not opened.
//!
//! A flipped bit in the last records before a crash looks like a torn tail. In both cases it is reported, with the offsets if its header
//! can be read. A disk may have written a later record and not an earlier one. An intact record is what was appended, synced or not, and
//! the caller may rely on it.

use crate::{
    body::{Body, BodyError},
    entry::{BlockId, Coordinates, Entry, PartitionName, Sent, State},
    files::{Fatal, FileAt, is_short},
    format::{
        Kind, MARK_BYTES, MARKS_AT, MARKS_BYTES, MARKS_PER_BLOCK, RECORD_HEADER_BYTES, RECORD_MAGIC,
        RECORDS_AT, SEAL_AT, SEGMENT_BLOCKS_MAX, SEGMENT_HEADER_BYTES, is_read, name,
    },
    log::DOUBT_STEP,
    record::{Mark, MarkKind, Place, RecordHeader, SegmentHeader},
    recovered::{Cut, Lost, Recovered, SetAside},
    segment::Segment,
};
use std::{cell::Cell, collections::BTreeSet, sync::Arc};

/// Partition names, each stored once.
#[derive(Debug, Default)]
pub(crate) struct Partitions(BTreeSet<Arc<PartitionName>>);

impl Partitions {
    /// The shared copy of a name.
    pub fn get(&mut self, name: PartitionName) -> Arc<PartitionName> {
        if let Some(known) = self.0.get(&name) {
            return known.clone();
        }
        let name = Arc::new(name);
        self.0.insert(name.clone());
        name
    }

    /// Drops names without blocks.
    pub fn prune(&mut self) {
        self.0.retain(|name| Arc::strong_count(name) > 1);
    }
}

/// State that is passed from segment to segment while a queue is opened.
pub(crate) struct Recovery {
    /// The findings.
    pub report: Recovered,
    /// A buffer for records.
    pub buffer: Vec<u8>,
}

/// A segment to read.
pub(crate) struct FoundSegment<F> {
    pub file: Arc<F>,
    pub sequence: u64,
    pub kind: Kind,
    /// Whether no segment has a higher sequence: only this one can have a torn tail, unless it is marked as damaged.
    pub newest: bool,
    pub identity: u64,
    /// Whether to read bodies that are known to have been durable.
    pub reads_all: bool,
    /// Offsets that are known to have been durable.
    pub durable: Durable,
    /// Why a read failed, for another reason than the end of the file.
    pub failure: Cell<Option<Fatal>>,
}

/// Offsets of a log that are known to have been durable, from what is stored beside its segments. Empty for the queue.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Durable {
    /// Where the segments before this one end.
    pub from: i64,
    /// One past the last.
    pub to: i64,
}

impl Durable {
    /// How many records of the newest segment have such offsets. If the last of these offsets are missing, one more record had them.
    fn records(self, records: &[Record]) -> u32 {
        let next = |record: &Record| record.header.as_ref().map(|header| header.head.next);
        let reached = records.iter().filter_map(next).fold(self.from, i64::max);
        let is_durable = |record: &Record| next(record).is_some_and(|next| next <= self.to);
        let last = records.iter().rposition(is_durable);
        // Behind a commit in doubt, offsets were passed over that no record had.
        let is_missing = (1..DOUBT_STEP).contains(&self.to.saturating_sub(reached));
        let count = if is_missing { Some(records.len()) } else { last };
        count.map_or(0, |last| u32::try_from(last).unwrap_or(u32::MAX).saturating_add(1))
    }
}

/// The classification of a segment.
pub(crate) enum Verdict<F> {
    /// It belongs to this queue.
    Ours(Box<Segment<F>>),
    /// It belongs to another queue, or its file was renamed.
    Foreign,
    /// A newer program wrote it.
    Newer(u32),
}

/// A record, present or missing.
struct Record {
    at: u64,
    header: Option<RecordHeader>,
    fault: Option<String>,
    /// Whether it was not completely written although a later one was.
    is_torn: bool,
}

/// What was read of a segment, before decisions.
struct Survey {
    records: Vec<Record>,
    /// The end of the last record with a header.
    end: u64,
    /// Bytes of the file, or of its sealed part.
    limit: u64,
    sealed: Option<Mark>,
    marks: Option<Vec<u8>>,
    /// Blocks that are known to have been synced.
    synced: u32,
    header_fault: Option<String>,
    /// Whether the caller relies on blocks once they are kept, if that is recorded.
    relied_on: Option<bool>,
}

impl<F: FileAt> FoundSegment<F> {
    /// Reads the segment, and adds the findings to the report. The segment's `damaged` says whether it must be set aside; everything
    /// behind its `end` is to be cut off.
    pub fn recover(self, partitions: &mut Partitions, recovery: &mut Recovery) -> Result<Verdict<F>, Fatal> {
        let Recovery { report, buffer } = recovery;
        let file_name = name(self.sequence, self.kind);
        let size = self.file.size().map_err(Fatal::of_read("read the size of", &file_name))?;
        let mut header_bytes = [0; SEGMENT_HEADER_BYTES];
        let is_there = self.read(&mut header_bytes, 0);
        let header = SegmentHeader::decode(&header_bytes).filter(|_| is_there);
        match header {
            Some(header) if !is_read(header.version) => return Ok(Verdict::Newer(header.version)),
            Some(header) if (header.identity, header.sequence) != (self.identity, self.sequence) => {
                return Ok(Verdict::Foreign);
            }
            _ => {}
        }
        let mut survey = self.survey(size, buffer);
        survey.header_fault = match header {
            None => Some("its header is damaged".to_owned()),
            Some(_) if size < RECORDS_AT => Some("it is shorter than its fixed part".to_owned()),
            Some(_) => None,
        };
        survey.relied_on = header.and_then(|header| header.relied_on).or_else(|| self.has_kept(&survey));
        if survey.sealed.is_none() && self.may_be_torn() {
            report.cut.extend(self.cut(&mut survey, (file_name, size), partitions));
        }
        // A failed read is returned before anything is decided.
        self.failure.take().map_or(Ok(()), Err)?;
        Ok(Verdict::Ours(Box::new(self.segment(survey, partitions, report))))
    }

    /// Whether its last records may be incomplete. A reader of a log renames a segment in which it finds damage; what it has read was synced.
    fn may_be_torn(&self) -> bool {
        self.newest && self.kind != Kind::Damaged
    }

    /// Whether the bytes at a position exist and were read into the buffer.
    pub fn read(&self, buffer: &mut [u8], at: u64) -> bool {
        match self.file.read_exact_at(buffer, at) {
            Ok(()) => true,
            Err(error) => {
                if !is_short(&error) {
                    self.failure.set(Some(Fatal::of_read("read", &name(self.sequence, self.kind))(error)));
                }
                false
            }
        }
    }

    /// Removes from the survey what was not completely written: the tail, and torn records before an intact one.
    fn cut(
        &self,
        survey: &mut Survey,
        (file, size): (String, u64),
        partitions: &mut Partitions,
    ) -> Option<Cut> {
        let synced = usize::try_from(survey.synced).unwrap_or(usize::MAX);
        let whole = survey.records.iter().rposition(|record| record.fault.is_none());
        let tail = whole.map_or(0, |whole| whole.saturating_add(1)).max(synced).min(survey.records.len());
        let torn_at = survey.records.get(tail).map_or(survey.end, |record| record.at);
        let records: Vec<Record> = survey.records.drain(tail..).collect();
        // Synced blocks that are missing explain the bytes behind the last record.
        let is_missing =
            records.is_empty() && survey.records.last().is_some_and(|record| record.header.is_none());
        let bytes = if is_missing { 0 } else { size.saturating_sub(torn_at) };
        let mut torn = Vec::new();
        for record in survey.records.iter_mut().skip(synced).filter(|record| record.fault.is_some()) {
            record.is_torn = true;
            torn.push(record.header.clone());
        }
        if bytes == 0 && torn.is_empty() {
            return None;
        }
        // One more record may follow the last header.
        let is_headless = bytes > 0 && self.is_written(survey.end, size);
        torn.extend(records.into_iter().map(|record| record.header));
        let headless = torn.iter().filter(|header| header.is_none()).count();
        let blocks = torn.iter().flatten().map(|header| coordinates(header, partitions)).collect();
        let headless = headless.saturating_add(usize::from(is_headless));
        Some(Cut { file, bytes, blocks, headless, is_reliance_known: survey.relied_on.is_some() })
    }

    /// Whether there are non-zero bytes where a record's header would be.
    fn is_written(&self, at: u64, size: u64) -> bool {
        let mut bytes = [0; RECORD_HEADER_BYTES];
        let len = usize::try_from(size.saturating_sub(at)).unwrap_or(usize::MAX).min(bytes.len());
        let Some(bytes) = bytes.get_mut(..len) else { return false };
        !self.read(bytes, at) || bytes.iter().any(|byte| *byte != 0)
    }

    fn survey(&self, size: u64, buffer: &mut [u8]) -> Survey {
        let mut seal = [0; MARK_BYTES];
        let is_there = self.read(&mut seal, SEAL_AT);
        let sealed = match Mark::decode(&seal, MarkKind::Seal, self.sequence) {
            Place::Set(mark) if is_there && mark.number <= SEGMENT_BLOCKS_MAX => Some(mark),
            _ => None,
        };
        let mut marks = vec![0; MARKS_BYTES];
        let marks = self.read(&mut marks, MARKS_AT).then_some(marks);
        let limit = sealed.map_or(size, |mark| mark.value.min(size));
        let (mut records, end) = self.walk(limit, sealed.is_some(), buffer);
        let marked = (0..SEGMENT_BLOCKS_MAX).rev().find(|ordinal| self.is_marked(marks.as_ref(), *ordinal));
        let synced = records.iter().filter_map(|record| Some(record.header.as_ref()?.synced)).max();
        let synced = synced
            .unwrap_or(0)
            .max(marked.map_or(0, |ordinal| ordinal.saturating_add(1)))
            .max(sealed.map_or(0, |mark| mark.number))
            .max(if sealed.is_none() && self.may_be_torn() { self.durable.records(&records) } else { 0 })
            .min(SEGMENT_BLOCKS_MAX);
        miss(&mut records, synced, end, "it is shorter than it was");
        if sealed.is_none() && !self.may_be_torn() && end < limit {
            let next = u32::try_from(records.len()).unwrap_or(u32::MAX).saturating_add(1);
            miss(&mut records, next, end, "its last record is damaged");
        }
        Survey { records, end, limit, sealed, marks, synced, header_fault: None, relied_on: None }
    }

    /// All records in order, and the end of the last one with a header.
    fn walk(&self, limit: u64, is_sealed: bool, buffer: &mut [u8]) -> (Vec<Record>, u64) {
        let mut records = Vec::new();
        let mut at = RECORDS_AT;
        while at < limit {
            let expected = u32::try_from(records.len()).unwrap_or(u32::MAX);
            let (found, header) = match self.header(at, limit, expected) {
                Some(header) => (at, header),
                None => match self.find(at.saturating_add(1), limit, expected, buffer) {
                    Some(found) => found,
                    None => break,
                },
            };
            // A header with a later ordinal than expected follows records that left no trace.
            miss(&mut records, header.ordinal, at, "a record's header is damaged");
            let body_at = found.saturating_add(RECORD_HEADER_BYTES as u64);
            let end = body_at.saturating_add(header.body_bytes);
            let fault = if end > limit {
                Some("a record is longer than the file".to_owned())
            } else {
                let is_known = is_sealed && !self.reads_all && header.metadata_crc != 0;
                let (bytes, sum) = if is_known {
                    (u64::from(header.head.metadata_bytes).min(header.body_bytes), header.metadata_crc)
                } else {
                    (header.body_bytes, header.body_crc)
                };
                self.fault((body_at, bytes), sum, buffer)
            };
            records.push(Record { at: found, header: Some(header), fault, is_torn: false });
            at = end;
        }
        (records, at.min(limit))
    }

    /// The fault of a body, or of its beginning.
    fn fault(&self, place: (u64, u64), expected: u32, buffer: &mut [u8]) -> Option<String> {
        let file = (self.file.clone(), name(self.sequence, self.kind).into());
        match Body::new(file, place, expected).verify(buffer) {
            Ok(()) => None,
            Err(BodyError::Damaged(damage)) => Some(damage.to_string()),
            Err(BodyError::Failed(failure)) => {
                let said = failure.to_string();
                self.failure.set(Some(failure));
                Some(said)
            }
        }
    }

    /// The header at a position, if it belongs to this segment and is not earlier than expected.
    pub fn header(&self, at: u64, limit: u64, expected: u32) -> Option<RecordHeader> {
        if at.saturating_add(RECORD_HEADER_BYTES as u64) > limit {
            return None;
        }
        let mut bytes = [0; RECORD_HEADER_BYTES];
        self.read(&mut bytes, at).then_some(())?;
        let header = RecordHeader::decode(&bytes)?;
        let ours = header.sequence == self.sequence && header.identity == self.identity;
        (ours && (expected..SEGMENT_BLOCKS_MAX).contains(&header.ordinal)).then_some(header)
    }

    /// The first header from a position on. Bytes of a body are not mistaken for one: checksum, sequence, identity and ordinal would have
    /// to match.
    pub fn find(
        &self,
        from: u64,
        limit: u64,
        expected: u32,
        buffer: &mut [u8],
    ) -> Option<(u64, RecordHeader)> {
        let mut at = from;
        while at.saturating_add(RECORD_HEADER_BYTES as u64) <= limit {
            let left = usize::try_from(limit.saturating_sub(at)).unwrap_or(usize::MAX);
            let len = left.min(buffer.len());
            let window = buffer.get_mut(..len)?;
            self.read(window, at).then_some(())?;
            for (offset, bytes) in window.windows(RECORD_MAGIC.len()).enumerate() {
                if bytes == RECORD_MAGIC {
                    let candidate = at.saturating_add(offset as u64);
                    if let Some(header) = self.header(candidate, limit, expected) {
                        return Some((candidate, header));
                    }
                }
            }
            // The last bytes may be the beginning of a magic number.
            at = at.saturating_add(len.saturating_sub(RECORD_MAGIC.len().saturating_sub(1)).max(1) as u64);
        }
        None
    }

    fn mark(&self, marks: Option<&Vec<u8>>, ordinal: u32, kind: MarkKind) -> Place {
        match mark_bytes(marks, ordinal, kind).map(|bytes| Mark::decode(bytes, kind, self.sequence)) {
            Some(Place::Empty) => Place::Empty,
            Some(Place::Set(mark)) if mark.number == ordinal => Place::Set(mark),
            _ => Place::Damaged,
        }
    }

    /// The mark in the place of `sent`: that, `sole` or `kept`.
    fn mark_of_sending(&self, marks: Option<&Vec<u8>>, ordinal: u32) -> Place {
        self.mark_of(&[MarkKind::Sent, MarkKind::Sole, MarkKind::Kept], marks, ordinal)
    }

    /// The mark in the place of these kinds.
    fn mark_of(&self, kinds: &[MarkKind], marks: Option<&Vec<u8>>, ordinal: u32) -> Place {
        let places = kinds.iter().map(|kind| self.mark(marks, ordinal, *kind));
        places.into_iter().find(|place| *place != Place::Damaged).unwrap_or(Place::Damaged)
    }

    fn is_marked(&self, marks: Option<&Vec<u8>>, ordinal: u32) -> bool {
        let kinds = [MarkKind::Sent, MarkKind::Sole, MarkKind::Kept, MarkKind::Only, MarkKind::Done];
        kinds.into_iter().any(|kind| matches!(self.mark(marks, ordinal, kind), Place::Set(_)))
    }

    /// A mark `kept` is only written if the caller relies on kept blocks.
    fn has_kept(&self, survey: &Survey) -> Option<bool> {
        let is_kept = |ordinal| self.mark(survey.marks.as_ref(), ordinal, MarkKind::Kept);
        (0..SEGMENT_BLOCKS_MAX).any(|ordinal| matches!(is_kept(ordinal), Place::Set(_))).then_some(true)
    }

    /// The segment, as the queue uses it from now on.
    fn segment(self, survey: Survey, partitions: &mut Partitions, report: &mut Recovered) -> Segment<F> {
        let (mut entries, mut lost, mut torn) = (Vec::new(), Vec::new(), Vec::new());
        let mut reason = survey.header_fault;
        for (ordinal, record) in (0..).zip(survey.records) {
            let mut entry = match &record.header {
                Some(header) => Entry::held(header, record.at, name_of(header, partitions)),
                None => Entry::unreadable(),
            };
            report.doubtful_marks = report.doubtful_marks.saturating_add(self.apply_marks(
                survey.marks.as_ref(),
                ordinal,
                &mut entry,
            ));
            if let Some(fault) = record.fault {
                if record.is_torn {
                    entry.state = State::Lost;
                    torn.push(ordinal);
                } else if entry.state == State::Settled {
                    report.damaged_when_settled = report.damaged_when_settled.saturating_add(1);
                } else {
                    entry.state = State::Lost;
                    reason.get_or_insert(fault);
                    let id = BlockId { segment: self.sequence, ordinal };
                    lost.push(Lost::of(id, &entry, survey.relied_on));
                }
            }
            if entry.state == State::Held {
                report.blocks = report.blocks.saturating_add(1);
                report.rows =
                    report.rows.saturating_add(entry.coordinates.as_ref().map_or(0, |covers| covers.rows));
                report.sent = report.sent.saturating_add(u64::from(entry.sent.is_marked()));
            }
            entries.push(entry);
        }
        let damaged = reason.is_some() || self.kind == Kind::Damaged;
        if let Some(reason) = reason {
            let (file, before) = (name(self.sequence, Kind::Damaged), self.kind == Kind::Damaged);
            if !before || !lost.is_empty() {
                report.set_aside.push(SetAside { file, reason, before, lost });
            }
        }
        let live = entries.iter().filter(|entry| entry.state != State::Settled).count();
        let proven = survey.synced;
        let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        let end =
            entries.iter().map(Entry::end).max().unwrap_or(0).clamp(RECORDS_AT, survey.limit.max(RECORDS_AT));
        Segment {
            name: name(self.sequence, self.kind),
            sequence: self.sequence,
            file: self.file,
            entries,
            synced: count,
            proven,
            live: u32::try_from(live).unwrap_or(u32::MAX),
            end,
            // The data may have been in the system's memory only.
            dirty: true,
            sealed: survey.sealed.is_some(),
            damaged,
            relied_on: survey.relied_on,
            torn,
        }
    }

    /// Applies the marks to a block's entry. Returns how many of them are damaged.
    fn apply_marks(&self, marks: Option<&Vec<u8>>, ordinal: u32, entry: &mut Entry) -> u64 {
        let sent = self.mark_of_sending(marks, ordinal);
        let done = self.mark_of(&[MarkKind::Done, MarkKind::Only], marks, ordinal);
        match sent {
            Place::Set(mark) if entry.sent == Sent::Never => {
                entry.sent = match mark.kind {
                    MarkKind::Kept => Sent::Never,
                    MarkKind::Sole => Sent::Sole,
                    _ => Sent::At(mark.value),
                };
            }
            Place::Damaged => entry.sent = Sent::Doubtful,
            Place::Set(_) | Place::Empty => {}
        }
        match done {
            Place::Set(mark) if mark.kind == MarkKind::Only => entry.only_copy = Some(mark.value),
            Place::Set(_) => entry.state = State::Settled,
            Place::Damaged => {
                entry.sent = Sent::Doubtful;
                // Without this, the block would be dropped once its partition is committed past it.
                let was_only = mark_bytes(marks, ordinal, MarkKind::Only)
                    .is_some_and(|bytes| Mark::is_like(bytes, MarkKind::Only));
                let rows = entry.coordinates.as_ref().map_or(0, |covers| covers.rows);
                entry.only_copy = was_only.then_some(rows);
            }
            Place::Empty => {}
        }
        u64::from(sent == Place::Damaged).saturating_add(u64::from(done == Place::Damaged))
    }
}

/// The bytes of a mark's place.
fn mark_bytes(marks: Option<&Vec<u8>>, ordinal: u32, kind: MarkKind) -> Option<&[u8]> {
    let index = usize::try_from(ordinal).ok()?.saturating_mul(MARKS_PER_BLOCK);
    let at = index.saturating_add(usize::try_from(kind.slot()).ok()?).saturating_mul(MARK_BYTES);
    marks?.get(at..at.saturating_add(MARK_BYTES))
}

/// Adds missing records up to an ordinal.
fn miss(records: &mut Vec<Record>, up_to: u32, at: u64, fault: &str) {
    let missing = usize::try_from(up_to).unwrap_or(usize::MAX).saturating_sub(records.len());
    let record = |_| Record { at, header: None, fault: Some(fault.to_owned()), is_torn: false };
    records.extend((0..missing).map(record));
}

fn name_of(header: &RecordHeader, partitions: &mut Partitions) -> Arc<PartitionName> {
    let head = &header.head;
    partitions.get(PartitionName { topic: head.topic.clone(), partition: head.partition })
}

fn coordinates(header: &RecordHeader, partitions: &mut Partitions) -> Coordinates {
    let head = &header.head;
    let partition = name_of(header, partitions);
    Coordinates { partition, first: head.first, next: head.next, rows: head.rows }
}
