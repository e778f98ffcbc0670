//! The owner of a log: appends, syncs, and removes what is committed.
//!
//! A segment that is full is sealed, and its file is closed: a log holds one open file, whatever its size. Of other segments it knows where
//! they begin and end.
//!
//! Errors: [`Full`] is back-pressure, and nothing was written. After a [`Fatal`] the process must end.

use crate::{
    entry::PartitionName,
    failure::Failure,
    files::{Fatal, Files},
    format::{BODY_BYTES_MAX, RECORD_HEADER_BYTES, RECORDS_AT},
    log::{
        LOG_SEGMENTS_MAX, RECORD_MESSAGES_MAX,
        opening::LogOptions,
        table::{self, TableEntry},
        view::{LogView, SegmentPlace},
    },
    queue::Full,
    record::BlockHead,
    segment::{Segment, Stamp, WriteError},
};
use std::{collections::BTreeMap, sync::Arc};

/// The offsets of messages that were appended together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// The offset of the first message.
    pub first: i64,
    /// One past that of the last.
    pub next: i64,
}

/// A message on its way into a log.
#[derive(Debug, Clone, Copy)]
pub struct Payload<'a> {
    /// What is stored.
    pub bytes: &'a [u8],
    /// If these are the message [packed](super::packed), the bytes that it had before.
    pub raw_bytes: Option<u32>,
}

impl Payload<'_> {
    /// Bytes of the message before it was packed.
    pub fn message_bytes(&self) -> u64 {
        self.raw_bytes.map_or(self.bytes.len() as u64, u64::from)
    }
}

impl<'a> From<&'a [u8]> for Payload<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self { bytes, raw_bytes: None }
    }
}

/// Why messages were not appended.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Wait until messages were committed.
    #[error(transparent)]
    Full(#[from] Full),
    /// No log takes them: too many messages at a time, or too large ones.
    #[error("{messages} messages with {bytes} bytes do not fit one record of a log")]
    Unfit { messages: usize, bytes: u64 },
    /// End the process.
    #[error(transparent)]
    Fatal(#[from] Fatal),
}

impl From<WriteError> for LogError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Full => Self::Full(Full::Device),
            WriteError::Fatal(fatal) => Self::Fatal(fatal),
        }
    }
}

/// A segment to which nothing is appended any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stored {
    /// The first offset that it may have.
    pub first: i64,
    /// One past the last.
    pub next: i64,
    pub bytes: u64,
    /// Whether it was damaged when it ended, or when the log was opened. Readers record later damage in the view.
    pub is_damaged: bool,
}

/// An open log.
#[derive(Debug)]
pub struct Log<F: Files> {
    view: LogView<F>,
    options: LogOptions,
    partition: Arc<PartitionName>,
    open: Option<OpenSegment<F::File>>,
    stored: BTreeMap<u64, Stored>,
    /// Bytes of the files of `stored`.
    stored_bytes: u64,
    /// One past the offset of the last message.
    next: i64,
    /// The first message that is appended has no lower offset.
    floor: i64,
    next_sequence: u64,
    /// Bytes of files of damaged segments whose messages are committed, and of files of others.
    kept_bytes: u64,
    /// Bytes of files that were removed since the last sync of the folder.
    removed_bytes: u64,
    directory_dirty: bool,
    /// The fatal error, after one.
    failure: Failure,
}

/// The segment that is appended to.
#[derive(Debug)]
struct OpenSegment<F> {
    segment: Segment<F>,
    first: i64,
}

impl<F: Files> Log<F> {
    pub(super) fn new(view: LogView<F>, options: LogOptions, next: i64, next_sequence: u64) -> Self {
        let number = i32::try_from(options.number).unwrap_or(i32::MAX);
        let partition = Arc::new(PartitionName { topic: options.topic.clone(), partition: number });
        Self {
            view,
            options,
            partition,
            open: None,
            stored: BTreeMap::new(),
            stored_bytes: 0,
            next,
            floor: 0,
            next_sequence,
            kept_bytes: 0,
            removed_bytes: 0,
            directory_dirty: false,
            failure: Failure::default(),
        }
    }

    pub(super) fn restore(&mut self, stored: BTreeMap<u64, Stored>, kept_bytes: u64, floor: i64) {
        self.stored_bytes = stored.values().map(|stored| stored.bytes).sum();
        (self.stored, self.kept_bytes, self.floor) = (stored, kept_bytes, floor);
    }

    /// A view for readers.
    pub fn view(&self) -> LogView<F> {
        self.view.clone()
    }

    /// One past the offset of the last message. The next one has this offset; behind a commit in doubt, the first one has a higher one.
    pub fn next(&self) -> i64 {
        self.next
    }

    /// The offset of its oldest message, or its end.
    pub fn start(&self) -> i64 {
        self.view.start()
    }

    /// Whether it may have one more segment. Otherwise it takes records only as long as the open one does.
    pub fn may_begin_segment(&self) -> bool {
        self.stored.len() < LOG_SEGMENTS_MAX
    }

    /// Bytes of all its files, including removed ones that may return.
    pub fn file_bytes(&self) -> u64 {
        let open = self.open.as_ref().map_or(0, |open| open.segment.end);
        self.stored_bytes
            .saturating_add(open)
            .saturating_add(self.kept_bytes)
            .saturating_add(self.removed_bytes)
    }

    /// Appends messages as one record. They are durable, and can be read, after the next [`Log::sync`]. `room` is how many bytes the log's
    /// files may grow.
    pub fn append(&mut self, messages: &[&[u8]], now_ms: u64, room: u64) -> Result<Appended, LogError> {
        let payloads: Vec<Payload<'_>> = messages.iter().map(|message| Payload::from(*message)).collect();
        self.append_payloads(&payloads, now_ms, room)
    }

    /// The same of messages that may be packed.
    ///
    /// # Panics
    /// If one is packed, and the log takes none.
    pub fn append_payloads(
        &mut self,
        messages: &[Payload<'_>],
        now_ms: u64,
        room: u64,
    ) -> Result<Appended, LogError> {
        let has_packed = messages.iter().any(|message| message.raw_bytes.is_some());
        assert!(self.options.takes_packed || !has_packed, "packed messages are for logs that take them");
        self.failure.check("the log")?;
        let outcome = self.append_unguarded(messages, now_ms, room);
        if let Err(LogError::Fatal(fatal)) = &outcome {
            self.failure.note(fatal);
        }
        outcome
    }

    fn append_unguarded(
        &mut self,
        messages: &[Payload<'_>],
        now_ms: u64,
        room: u64,
    ) -> Result<Appended, LogError> {
        let pieces = messages.iter().map(|message| message.bytes);
        let bytes = pieces.clone().fold(0_u64, |sum, piece| sum.saturating_add(piece.len() as u64));
        let unfit = || LogError::Unfit { messages: messages.len(), bytes };
        let entries: Option<Vec<TableEntry>> = messages.iter().map(TableEntry::of).collect();
        let (table, columns) = table::encode(&entries.ok_or_else(unfit)?);
        let body_bytes = bytes.saturating_add(table.len() as u64);
        let count = i64::try_from(messages.len()).map_err(|_| unfit())?;
        if messages.is_empty() || messages.len() > RECORD_MESSAGES_MAX || body_bytes > BODY_BYTES_MAX {
            return Err(unfit());
        }
        let record_bytes = body_bytes.saturating_add(RECORD_HEADER_BYTES as u64);
        self.make_room(record_bytes, room)?;
        let (first, next) = (self.next, self.next.saturating_add(count));
        let head = BlockHead {
            topic: self.partition.topic.clone(),
            partition: self.partition.partition,
            first,
            next,
            token: Box::default(),
            rows: messages.len() as u64,
            raw_bytes: messages
                .iter()
                .fold(0_u64, |sum, message| sum.saturating_add(message.message_bytes())),
            span_end_nanos_max: 0,
            first_sent_ms: None,
            routing_epoch: None,
            destination: None,
            columns,
            metadata_bytes: u32::try_from(table.len()).map_err(|_| unfit())?,
        };
        let stamp = Stamp { identity: self.options.identity, now_ms, partition: self.partition.clone() };
        let mut body = Vec::with_capacity(messages.len().saturating_add(1));
        body.push(table.as_slice());
        body.extend(pieces);
        let open = self.open.as_mut().expect("there is a segment with room");
        open.segment.append(&head, &body, stamp)?;
        self.next = next;
        Ok(Appended { first, next })
    }

    /// Sees to it that the open segment takes a record of this size.
    fn make_room(&mut self, record_bytes: u64, room: u64) -> Result<(), LogError> {
        let segment_bytes = self.options.segment_bytes;
        let takes = |open: &OpenSegment<F::File>| {
            // What is damaged already is the only copy of what is in it: nothing more comes to that.
            !self.view.is_aside(open.segment.sequence) && open.segment.takes(record_bytes, segment_bytes)
        };
        let is_open = self.open.as_ref().is_some_and(takes);
        let fixed = if is_open { 0 } else { RECORDS_AT };
        if record_bytes.saturating_add(fixed) > room {
            return Err(Full::Bytes.into());
        }
        if is_open {
            return Ok(());
        }
        if !self.may_begin_segment() {
            return Err(Full::Segments.into());
        }
        self.end_segment()?;
        // Its name before that of the next: after a loss of power, only the newest segment may have lost what was not synced.
        self.sync_directory()?;
        let sequence = self.next_sequence;
        // Also if creating it fails: a draft that was removed could return under the next segment's name.
        self.next_sequence = self.next_sequence.saturating_add(1);
        self.directory_dirty = true;
        let segment = Segment::create(self.view.files(), &self.options.of_segments(), sequence)?;
        self.next = self.next.max(self.floor);
        let first = self.next;
        self.view.add(SegmentPlace { first, sequence, is_damaged: false });
        self.open = Some(OpenSegment { segment, first });
        Ok(())
    }

    /// Seals the open segment.
    fn end_segment(&mut self) -> Result<(), Fatal> {
        let Some(open) = &mut self.open else { return Ok(()) };
        open.segment.seal()?;
        let stored =
            Stored { first: open.first, next: self.next, bytes: open.segment.end, is_damaged: false };
        self.stored.insert(open.segment.sequence, stored);
        self.stored_bytes = self.stored_bytes.saturating_add(stored.bytes);
        self.open = None;
        Ok(())
    }

    /// Makes all earlier appends durable, and lets readers read them. After an error the process must end.
    pub fn sync(&mut self) -> Result<(), Fatal> {
        self.guarded(|log| {
            if let Some(open) = &mut log.open {
                open.segment.sync()?;
            }
            log.sync_directory()?;
            log.view.set_end(log.next);
            Ok(())
        })
    }

    /// Removes segments whose messages are all below a committed offset, which must have been stored. The space is free after the next
    /// [`Log::sync`].
    pub fn remove_below(&mut self, committed: i64) -> Result<(), Fatal> {
        self.guarded(|log| {
            while let Some(entry) = log.stored.first_entry() {
                let (sequence, stored) = (*entry.key(), *entry.get());
                if stored.next > committed {
                    return Ok(());
                }
                entry.remove();
                log.stored_bytes = log.stored_bytes.saturating_sub(stored.bytes);
                log.remove_file(sequence, stored)?;
            }
            Ok(())
        })
    }

    /// Removes everything that is below a committed offset, also the open segment: it would keep its space until it is full.
    pub fn compact(&mut self, committed: i64) -> Result<(), Fatal> {
        let is_done =
            self.next <= committed && self.open.as_ref().is_some_and(|open| open.segment.blocks() > 0);
        if is_done {
            self.guarded(Self::end_segment)?;
        }
        self.remove_below(committed)
    }

    /// Removes a segment's file. That of a damaged one stays; a reader may have found the damage meanwhile.
    fn remove_file(&mut self, sequence: u64, stored: Stored) -> Result<(), Fatal> {
        let place = self.view.remove(sequence).unwrap_or_else(|| stored.place(sequence));
        if place.is_damaged {
            self.kept_bytes = self.kept_bytes.saturating_add(stored.bytes);
            return Ok(());
        }
        let file = place.file_name();
        self.view.files().remove(&file).map_err(Fatal::of("remove", &file))?;
        self.removed_bytes = self.removed_bytes.saturating_add(stored.bytes);
        self.directory_dirty = true;
        Ok(())
    }

    /// Closes the log: what was appended is durable. `committed` is what was stored: an emptied log leaves no segment.
    pub fn close(mut self, committed: i64) -> Result<(), Fatal> {
        self.sync()?;
        self.guarded(Self::end_segment)?;
        self.remove_below(committed)?;
        self.guarded(Self::sync_directory)
    }

    fn sync_directory(&mut self) -> Result<(), Fatal> {
        if self.directory_dirty {
            self.view.files().sync_directory().map_err(Fatal::of("sync", "the directory"))?;
            (self.directory_dirty, self.removed_bytes) = (false, 0);
        }
        Ok(())
    }

    fn guarded<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T, Fatal>) -> Result<T, Fatal> {
        self.failure.check("the log")?;
        let outcome = act(self);
        self.failure.keep(outcome)
    }
}
