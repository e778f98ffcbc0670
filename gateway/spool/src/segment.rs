//! One segment: an open file and its blocks.
//!
//! Every write goes to a position that the queue knows. Data of a failed write is overwritten or cut off, and never read. Limits:
//! `SEGMENT_BLOCKS_MAX` blocks.

use crate::{
    entry::{BlockId, Entry, PartitionName, Sent, State},
    files::{Fatal, FileAt, Files, is_full},
    format::{
        Kind, MARKS_AT, MARKS_BYTES, RECORD_HEADER_BYTES, RECORDS_AT, SEAL_AT, SEGMENT_BLOCKS_MAX, mark_at,
        name,
    },
    queue::Options,
    record::{BlockHead, Mark, MarkKind, RecordHeader, SegmentHeader},
};
use std::sync::Arc;

/// Why nothing was written.
pub(crate) enum WriteError {
    /// The device is full; nothing has changed.
    Full,
    /// The process must end.
    Fatal(Fatal),
}

impl From<Fatal> for WriteError {
    fn from(fatal: Fatal) -> Self {
        Self::Fatal(fatal)
    }
}

/// What an append needs besides the block.
pub(crate) struct Stamp {
    /// The queue's identity.
    pub identity: u64,
    /// Now, in ms since 1970.
    pub now_ms: u64,
    /// The block's partition.
    pub partition: Arc<PartitionName>,
}

#[derive(Debug)]
pub(crate) struct Segment<F> {
    pub name: String,
    pub sequence: u64,
    pub file: Arc<F>,
    /// The blocks, by ordinal.
    pub entries: Vec<Entry>,
    /// How many of them are durable.
    pub synced: u32,
    /// How many of them an earlier run has proved to be: by a later header, a mark, or the seal.
    pub proven: u32,
    /// How many of them are not settled.
    pub live: u32,
    /// The position of the next record.
    pub end: u64,
    /// Whether something was written since the last sync.
    pub dirty: bool,
    /// Whether no more blocks are appended.
    pub sealed: bool,
    /// Whether it is damaged: then the file is never removed.
    pub damaged: bool,
    /// Whether the caller relies on blocks of it that are kept; `None` if that is unknown.
    pub relied_on: Option<bool>,
    /// Blocks of an earlier run that were not completely written, before one that was. They are to be settled.
    pub torn: Vec<u32>,
}

impl<F: FileAt> Segment<F> {
    /// Creates a segment. Its fixed part is durable before the file gets its name. The caller syncs the directory.
    pub fn create(
        files: &impl Files<File = F>,
        options: &Options,
        sequence: u64,
    ) -> Result<Self, WriteError> {
        let (draft, place) = (name(sequence, Kind::New), name(sequence, Kind::Spool));
        let file = match files.create(&draft) {
            Ok(file) => file,
            Err(error) if is_full(&error) => return Err(WriteError::Full),
            Err(error) => return Err(Fatal::of("create", &draft)(error).into()),
        };
        let header = SegmentHeader::new(options.version, options.identity, sequence, options.relied_on);
        if let Err(error) = write_fixed_part(&file, header) {
            if !is_full(&error) {
                return Err(Fatal::of("write", &draft)(error).into());
            }
            files.remove(&draft).map_err(Fatal::of("remove", &draft))?;
            return Err(WriteError::Full);
        }
        file.sync().map_err(Fatal::of("sync", &draft))?;
        files.rename(&draft, &place).map_err(Fatal::of("rename", &draft))?;
        Ok(Self {
            name: place,
            sequence,
            file: Arc::new(file),
            entries: Vec::new(),
            synced: 0,
            proven: 0,
            live: 0,
            end: RECORDS_AT,
            dirty: false,
            sealed: false,
            damaged: false,
            relied_on: Some(options.relied_on),
            torn: Vec::new(),
        })
    }

    /// Whether a record of this many bytes may follow. A segment without records accepts any size.
    pub fn takes(&self, record_bytes: u64, segment_bytes: u64) -> bool {
        let fits = self.end.saturating_add(record_bytes) <= segment_bytes || self.entries.is_empty();
        !self.sealed && fits && self.blocks() < SEGMENT_BLOCKS_MAX
    }

    /// Number of blocks, settled or not.
    pub fn blocks(&self) -> u32 {
        u32::try_from(self.entries.len()).expect("a segment has at most SEGMENT_BLOCKS_MAX blocks")
    }

    /// Appends a block. If there is no error, the next sync makes it durable.
    pub fn append<B: AsRef<[u8]>>(
        &mut self,
        head: &BlockHead,
        body: &[B],
        stamp: Stamp,
    ) -> Result<BlockId, WriteError> {
        let ordinal = self.blocks();
        let header = RecordHeader {
            head: head.clone(),
            ordinal,
            sequence: self.sequence,
            identity: stamp.identity,
            synced: self.synced,
            appended_ms: stamp.now_ms,
            body_bytes: body_bytes(body),
            body_crc: body.iter().fold(0, |sum, piece| crc32c::crc32c_append(sum, piece.as_ref())),
            metadata_crc: metadata_crc(head, body),
        };
        self.dirty = true;
        if let Err(error) = self.write_record(&header, body) {
            if !is_full(&error) {
                return Err(Fatal::of("append to", &self.name)(error).into());
            }
            // A later write would overwrite the partial record anyway; cutting it off frees its space.
            self.file.truncate(self.end).map_err(Fatal::of("cut off", &self.name))?;
            return Err(WriteError::Full);
        }
        let entry = Entry::held(&header, self.end, stamp.partition);
        self.end = entry.end();
        self.entries.push(entry);
        self.live = self.live.saturating_add(1);
        Ok(BlockId { segment: self.sequence, ordinal })
    }

    fn write_record<B: AsRef<[u8]>>(&self, header: &RecordHeader, body: &[B]) -> std::io::Result<()> {
        self.file.write_all_at(&header.encode(), self.end)?;
        let mut at = self.end.saturating_add(RECORD_HEADER_BYTES as u64);
        for piece in body.iter().map(AsRef::as_ref) {
            self.file.write_all_at(piece, at)?;
            at = at.saturating_add(piece.len() as u64);
        }
        Ok(())
    }

    /// Marks a block as sent, unless it is marked already.
    pub fn mark_sent(&mut self, ordinal: u32, now_ms: u64) -> Result<(), Fatal> {
        if self.entry(ordinal).is_some_and(|entry| !entry.sent.is_marked()) {
            self.write_mark(MarkKind::Sent, ordinal, now_ms)?;
            self.entry_mut(ordinal).sent = Sent::At(now_ms);
        }
        Ok(())
    }

    /// Marks a block that only this queue can send, unless it may have been sent.
    pub fn mark_sole(&mut self, ordinal: u32) -> Result<(), Fatal> {
        let is_held = |entry: &Entry| entry.sent == Sent::Never && entry.state == State::Held;
        if self.entry(ordinal).is_some_and(is_held) {
            self.write_mark(MarkKind::Sole, ordinal, 0)?;
            self.entry_mut(ordinal).sent = Sent::Sole;
        }
        Ok(())
    }

    /// Marks a block as durable, unless a mark says so already.
    pub fn mark_kept(&mut self, ordinal: u32) -> Result<(), Fatal> {
        match self.entry(ordinal).filter(|entry| entry.state == State::Held).map(|entry| entry.sent) {
            Some(Sent::Never) => self.write_mark(MarkKind::Kept, ordinal, 0),
            // Possibly only its header says so.
            Some(Sent::At(ms)) => self.write_mark(MarkKind::Sent, ordinal, ms),
            Some(Sent::Sole | Sent::Doubtful) | None => Ok(()),
        }
    }

    /// Marks a block as the only copy of its rows, except for `rows_elsewhere`. An existing mark stays.
    pub fn mark_only_copy(&mut self, ordinal: u32, rows_elsewhere: u64) -> Result<(), Fatal> {
        let is_new = |entry: &Entry| entry.only_copy.is_none() && entry.state == State::Held;
        if self.entry(ordinal).is_some_and(is_new) {
            if self.entry(ordinal).is_some_and(|entry| entry.sent == Sent::Doubtful) {
                // This overwrites the mark that may be damaged.
                self.write_mark(MarkKind::Sent, ordinal, 0)?;
                self.sync()?;
            }
            self.write_mark(MarkKind::Only, ordinal, rows_elsewhere)?;
            self.entry_mut(ordinal).only_copy = Some(rows_elsewhere);
        }
        Ok(())
    }

    /// Settles a block. Returns whether it was not settled before.
    pub fn settle(&mut self, ordinal: u32) -> Result<bool, Fatal> {
        if self.entry(ordinal).is_none_or(|entry| entry.state == State::Settled) {
            return Ok(false);
        }
        self.write_mark(MarkKind::Done, ordinal, 0)?;
        self.entry_mut(ordinal).state = State::Settled;
        self.live = self.live.saturating_sub(1);
        Ok(true)
    }

    /// A mark proves that its block was durable: damage to the block is then not mistaken for a torn tail.
    fn write_mark(&mut self, kind: MarkKind, ordinal: u32, value: u64) -> Result<(), Fatal> {
        if ordinal >= self.synced {
            self.sync()?;
        }
        let mark = Mark { kind, number: ordinal, sequence: self.sequence, value };
        self.dirty = true;
        self.file
            .write_all_at(&mark.encode(), mark_at(ordinal, kind))
            .map_err(Fatal::of("mark in", &self.name))
    }

    /// Makes everything in the segment durable. After an error the process must end: the state of everything since the last sync is
    /// unknown.
    pub fn sync(&mut self) -> Result<(), Fatal> {
        if self.dirty {
            self.file.sync().map_err(Fatal::of("sync", &self.name))?;
            self.dirty = false;
            self.synced = self.blocks();
        }
        Ok(())
    }

    /// Seals the segment: cuts off everything behind the last record, and writes and syncs the number of blocks. From then on it cannot
    /// have a torn tail, only damage.
    pub fn seal(&mut self) -> Result<(), Fatal> {
        if self.sealed {
            return Ok(());
        }
        // The blocks first: a seal says that all of them were durable.
        self.sync()?;
        self.cut_tail()?;
        let mark =
            Mark { kind: MarkKind::Seal, number: self.blocks(), sequence: self.sequence, value: self.end };
        self.dirty = true;
        self.file.write_all_at(&mark.encode(), SEAL_AT).map_err(Fatal::of("seal", &self.name))?;
        self.sealed = true;
        self.sync()
    }

    /// Writes once more what is not proved to be durable: the fixed part, and all records behind the proven ones. If a sync of an earlier run
    /// has failed, these bytes are in the system's memory only, and another sync does not write them. Synced before any mark: marks prove.
    pub fn write_again(&mut self, buffer: &mut [u8]) -> Result<(), Fatal> {
        let proven = self.entries.iter().take(usize::try_from(self.proven).unwrap_or(usize::MAX));
        let from = proven.map(Entry::end).max().unwrap_or(0).clamp(RECORDS_AT, self.end.max(RECORDS_AT));
        let size = self.file.size().map_err(Fatal::of_read("read the size of", &self.name))?;
        self.dirty = true;
        for (mut at, end) in [(0, RECORDS_AT.min(size)), (from, self.end.min(size))] {
            while at < end {
                let len = usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX).min(buffer.len());
                let piece = buffer.get_mut(..len).unwrap_or_default();
                self.file.read_exact_at(piece, at).map_err(Fatal::of_read("read", &self.name))?;
                self.file.write_all_at(piece, at).map_err(Fatal::of("write", &self.name))?;
                at = at.saturating_add(len as u64);
            }
        }
        self.sync()
    }

    /// Cuts off everything behind the last record. A damaged file is left unchanged.
    fn cut_tail(&mut self) -> Result<(), Fatal> {
        let size = self.file.size().map_err(Fatal::of_read("read the size of", &self.name))?;
        if size > self.end && !self.damaged {
            self.dirty = true;
            self.file.truncate(self.end).map_err(Fatal::of("cut off", &self.name))?;
        }
        Ok(())
    }

    /// A block's entry.
    pub fn entry(&self, ordinal: u32) -> Option<&Entry> {
        self.entries.get(usize::try_from(ordinal).ok()?)
    }

    /// The entry of a block that is known to be there.
    pub fn entry_mut(&mut self, ordinal: u32) -> &mut Entry {
        let entry = usize::try_from(ordinal).ok().and_then(|at| self.entries.get_mut(at));
        entry.expect("the caller has seen this entry")
    }
}

/// Total bytes of the pieces of a body.
pub(crate) fn body_bytes<B: AsRef<[u8]>>(body: &[B]) -> u64 {
    body.iter().fold(0, |sum: u64, piece| sum.saturating_add(piece.as_ref().len() as u64))
}

/// Checksum of the metadata at the beginning of the body, which is not sent.
fn metadata_crc<B: AsRef<[u8]>>(head: &BlockHead, body: &[B]) -> u32 {
    let mut left = usize::try_from(head.metadata_bytes).unwrap_or(usize::MAX);
    body.iter().map(AsRef::as_ref).fold(0, |sum, piece| {
        let of_it = piece.get(..left.min(piece.len())).unwrap_or_default();
        left = left.saturating_sub(of_it.len());
        crc32c::crc32c_append(sum, of_it)
    })
}

fn write_fixed_part(file: &impl FileAt, header: SegmentHeader) -> std::io::Result<()> {
    file.write_all_at(&header.encode(), 0)?;
    file.write_all_at(&vec![0; MARKS_BYTES], MARKS_AT)
}
