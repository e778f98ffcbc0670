//! Opening a log: its segments as the queue opens its own, its committed offset, and which offsets are missing.
//!
//! Segments are read one after another, so that memory does not grow with their number. Of most sealed segments only the beginning is read
//! ([`super::sealed`]), and of others headers and tables of messages; a reader compares each message with its checksum.
//!
//! | found | classified as | consequence |
//! | --- | --- | --- |
//! | bad records at the end of the newest segment, which no sync has covered as far as is known, also from the committed offset | torn | cut off, and reported |
//! | other bad records, in segments whose records are read now | damage | the file is set aside, and read as far as it can be; the offsets are reported as lost |
//! | no commit can be read, and there was one | damage | reported; the log begins at its oldest message |
//! | a commit can be read, and a later one may have been stored | doubt | reported; the caller decides what may be doubled. Offsets below the oldest segment are passed over, and new ones begin [`DOUBT_STEP`] above the end |
//! | a damaged file that the disk does not give, whose messages are all committed | nothing | the file stays, and is not read |

use crate::{
    entry::{Entry, State},
    files::{Fatal, FileAt, Files},
    format::{Kind, SEGMENT_BLOCKS_MAX, SEGMENT_BYTES_MIN, VERSION, VERSION_PACKED, name, parse_name},
    log::{
        DOUBT_STEP, LostMessages, RECORD_MESSAGES_MAX,
        offsets::{FoundOffsets, Offsets, OffsetsError, OffsetsFound, Owner},
        sealed::{self, Passed},
        view::{LogView, SegmentPlace},
        writer::{Log, Stored},
    },
    open::{self, Found, OpenError, Taken},
    queue::Options,
    recover::{Durable, FoundSegment, Partitions, Recovery, Verdict},
    recovered::Recovered,
    segment::Segment,
};
use std::{cell::Cell, collections::BTreeMap, sync::Arc};

/// The part of a distance between offsets that was passed over behind commits in doubt: whole steps.
const STEPS: i64 = !(DOUBT_STEP - 1);

const _: () = assert!(
    DOUBT_STEP.cast_unsigned() > SEGMENT_BLOCKS_MAX as u64 * RECORD_MESSAGES_MAX as u64,
    "no segment has so many offsets"
);

/// Parameters of a log.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// Of the pipeline: segments with another identity are not changed.
    pub identity: u64,
    /// Which log of the volume it is.
    pub number: u32,
    /// The name that stands for a topic in its records, 1 to [`crate::format::TOPIC_BYTES_MAX`] bytes.
    pub topic: Arc<str>,
    /// Maximum bytes of a segment, except for a single larger record.
    pub segment_bytes: u64,
    /// Whether it takes packed messages. Programs that do not know these refuse its new segments.
    pub takes_packed: bool,
}

impl LogOptions {
    /// Options for a log that may have this many bytes of the volume, and takes no packed messages.
    pub fn new(identity: u64, number: u32, topic: &str, bytes_max: u64) -> Self {
        let segment_bytes = Options::new(identity, bytes_max, true).segment_bytes.min(SEGMENT_BYTES_MIN);
        Self { identity, number, topic: topic.into(), segment_bytes, takes_packed: false }
    }

    pub(super) fn of_segments(&self) -> Options {
        let (identity, segment_bytes) = (self.identity, self.segment_bytes);
        let version = if self.takes_packed { VERSION_PACKED } else { VERSION };
        // The caller of an append says how many bytes there may be.
        Options { identity, version, bytes_max: u64::MAX, segment_bytes, relied_on: true, reads_all: false }
    }
}

/// What was found when a log was opened.
#[derive(Debug)]
pub struct LogFound {
    /// What was found in its segments.
    pub recovered: Recovered,
    /// Messages at or above the committed offset that cannot be read.
    pub lost: Vec<LostMessages>,
    /// How far its committed offset can be read.
    pub offsets: OffsetsFound,
}

/// Why a log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum LogOpenError {
    /// Its segments.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A newer program wrote its committed offset.
    #[error(
        "the committed offset of log {number} on the queue volume has format version {version}: use a newer image"
    )]
    NewerOffsets { number: u32, version: u32 },
    /// Its committed offset is that of another log.
    #[error("the committed offset of log {number} on the queue volume belongs to another log or pipeline")]
    ForeignOffsets { number: u32 },
    /// There is no room for its first files.
    #[error("the queue volume is too full to create log {number} on it")]
    Full { number: u32 },
}

impl LogOpenError {
    /// Whether the disk did not give a file. Nothing is known of the log then, and other logs of the volume can be used.
    pub fn is_unreadable(&self) -> bool {
        matches!(self, Self::Open(OpenError::Fatal(fatal)) if fatal.is_unreadable())
    }

    fn of_offsets(error: OffsetsError, number: u32) -> Self {
        match error {
            OffsetsError::Fatal(fatal) => fatal.into(),
            OffsetsError::Newer(version) => Self::NewerOffsets { number, version },
            OffsetsError::Foreign => Self::ForeignOffsets { number },
            OffsetsError::Full => Self::Full { number },
        }
    }
}

impl From<Fatal> for LogOpenError {
    fn from(fatal: Fatal) -> Self {
        Self::Open(OpenError::Fatal(fatal))
    }
}

/// State while segments are opened, in order.
#[derive(Default)]
struct Walk {
    /// The next offset.
    next: i64,
    /// New messages have no offset below it.
    floor: i64,
    lost: Vec<LostMessages>,
    /// See [`LogView`].
    absent: Vec<(i64, i64)>,
    segments: BTreeMap<u64, Stored>,
    kept_bytes: u64,
    /// Set if the last records of the segment before cannot be read, so that `next` is an estimate: its sequence, and up to where it is known.
    estimated: Option<(u64, i64)>,
}

impl<F: Files> Log<F> {
    /// Opens the log in a folder that belongs to this process alone. The caller gets the committed offset; the thread that commits
    /// owns it.
    pub fn open(files: F, options: LogOptions) -> Result<(Self, Offsets<F::File>, LogFound), LogOpenError> {
        let number = options.number;
        let owner = Owner { identity: options.identity, number };
        let offsets = Offsets::open(&files, owner);
        let offsets = offsets.map_err(|error| LogOpenError::of_offsets(error, number))?;
        let FoundOffsets { offsets, found: of_offsets, is_new } = offsets;
        let (start, end) = offsets.committed().map_or((0, 0), |committed| (committed.offset, committed.end));
        let found = open::remove_drafts(&files)?;
        // The file is made before the first segment.
        let of_offsets = if is_new && !found.is_empty() { OffsetsFound::Damaged } else { of_offsets };
        let last = found.last_key_value().map_or(0, |(sequence, _)| *sequence);
        let mut recovery = open::recovery();
        // Nothing below is missed.
        let mut walk = Walk { next: start, ..Walk::default() };
        walk.read(&files, &options.of_segments(), &found, (end, &mut recovery))?;
        walk.conclude(start, end, of_offsets == OffsetsFound::Doubtful);
        // An earlier run's removals and renames may not be durable yet.
        files.sync_directory().map_err(Fatal::of("sync", "the directory"))?;
        let Walk { next, floor, lost, absent, segments, kept_bytes, .. } = walk;
        let view = LogView::new(Arc::new(files), options.identity, true, absent);
        for (sequence, stored) in &segments {
            view.add(stored.place(*sequence));
        }
        view.set_end(next);
        view.set_floor(floor);
        let next_sequence = last.saturating_add(1);
        let mut log = Self::new(view, options, next, next_sequence);
        log.restore(segments, kept_bytes, floor);
        log.remove_below(start)?;
        Ok((log, offsets, LogFound { recovered: recovery.report, lost, offsets: of_offsets }))
    }
}

/// Whether a log that no process has open has messages that are not committed, also in segments that are set aside. Changes nothing.
///
/// # Errors
/// [`LogOpenError`] if a file cannot be read.
pub fn has_uncommitted<F: Files>(files: F, identity: u64, number: u32) -> Result<bool, LogOpenError> {
    let committed = Offsets::look(&files, Owner { identity, number });
    let committed = committed.map_err(|error| LogOpenError::of_offsets(error, number))?;
    let view = LogView::read_only(files, identity)?;
    Ok(view.end() > committed.map_or(0, |committed| committed.offset))
}

impl<F: Files> LogView<F> {
    /// A view of a log that another process may have open. It changes nothing, and ends where the log ends now.
    ///
    /// # Errors
    /// [`OpenError`] if a file cannot be read.
    pub fn read_only(files: F, identity: u64) -> Result<Self, OpenError> {
        let names = files.names().map_err(Fatal::of_read("list", "the directory"))?;
        let mut found: Vec<(u64, Kind)> = names.iter().filter_map(|name| parse_name(name)).collect();
        found.retain(|(_, kind)| *kind != Kind::New);
        found.sort_unstable();
        let last = found.last().map_or(0, |(sequence, _)| *sequence);
        let view = Self::new(Arc::new(files), identity, false, Vec::new());
        let (mut recovery, mut next) = (open::recovery(), 0);
        for (sequence, kind) in found {
            let file_name = name(sequence, kind);
            let file = view.files().open(&file_name).map_err(Fatal::of_read("open", &file_name))?;
            let (newest, reads_all, failure) = (sequence == last, false, Cell::default());
            let (file, durable) = (Arc::new(file), Durable::default());
            let segment =
                FoundSegment { file, sequence, kind, newest, identity, reads_all, durable, failure };
            let segment = match segment.recover(&mut Partitions::default(), &mut recovery)? {
                Verdict::Newer(version) => return Err(OpenError::Newer { file: file_name, version }),
                Verdict::Foreign => continue,
                Verdict::Ours(segment) => segment,
            };
            let mut offsets = segment.entries.iter().filter_map(offsets_of);
            if let Some((first, end)) = offsets.next() {
                let is_damaged = kind == Kind::Damaged;
                view.add(SegmentPlace { first, sequence, is_damaged });
                next = offsets.fold(end, |next: i64, (_, end)| next.max(end)).max(next);
            }
        }
        view.set_end(next);
        Ok(view)
    }
}

impl Walk {
    /// Reads the segments in their order. `end` is where the log ended at its last commit.
    fn read<F: Files>(
        &mut self,
        files: &F,
        options: &Options,
        found: &BTreeMap<u64, Kind>,
        (end, recovery): (i64, &mut Recovery),
    ) -> Result<(), OpenError> {
        let (start, last) = (self.next, found.last_key_value().map(|(sequence, _)| *sequence));
        let passed = sealed::passed(files, options.identity, found)?;
        // Of the first damaged file that the disk does not give, if it is not known yet whether all of its messages are committed.
        let mut unread: Option<Fatal> = None;
        for (&sequence, &kind) in found {
            let first = if let Some(passed) = passed.get(&sequence) {
                self.pass(sequence, *passed);
                Some(passed.first)
            } else {
                let durable = Durable { from: self.next, to: end };
                let place = Found { sequence, kind, newest: last == Some(sequence), durable };
                match self.read_one(files, options, place, recovery) {
                    Err(OpenError::Fatal(fatal)) if kind == Kind::Damaged && fatal.is_unreadable() => {
                        let file = files.open(&name(sequence, kind));
                        let bytes = file.and_then(|file| file.size()).unwrap_or(0);
                        self.kept_bytes = self.kept_bytes.saturating_add(bytes);
                        unread.get_or_insert(fatal);
                        None
                    }
                    read => read?,
                }
            };
            match (first, unread.take()) {
                // What comes before is committed: nothing of it is needed.
                (Some(first), _) if first <= start => {}
                (Some(_), Some(fatal)) => return Err(fatal.into()),
                (_, still) => unread = still,
            }
        }
        unread.map_or(Ok(()), |fatal| Err(fatal.into()))
    }

    /// Reads a segment record by record. Returns its first offset, if a record can be read.
    fn read_one<F: Files>(
        &mut self,
        files: &F,
        options: &Options,
        place: Found,
        recovery: &mut Recovery,
    ) -> Result<Option<i64>, OpenError> {
        // Names of partitions are the same in all records.
        let mut partitions = Partitions::default();
        match open::take_over(files, options, place, (&mut partitions, &mut *recovery))? {
            Taken::Foreign { bytes } => {
                self.kept_bytes = self.kept_bytes.saturating_add(bytes);
                Ok(None)
            }
            Taken::Ours(mut segment) => {
                if place.newest {
                    segment.write_again(&mut recovery.buffer)?;
                }
                self.take(files, &mut segment)?;
                Ok(segment.entries.iter().find_map(offsets_of).map(|(first, _)| first))
            }
        }
    }

    /// Comes to the end of the segments: where the log ended at its last commit, and what that says.
    fn conclude(&mut self, start: i64, end: i64, is_doubtful: bool) {
        if is_doubtful {
            // A commit that cannot be read may have removed what was below the oldest segment.
            let oldest = self.segments.values().find(|stored| stored.next > start).map(|stored| stored.first);
            let from = oldest.unwrap_or(end);
            self.absent.retain(|(_, next)| *next > from);
            self.be_absent(start, from);
            if oldest.is_none() {
                self.next = self.next.max(end);
            }
        }
        let passed_over = self.pass_over(self.next, end);
        if self.next < passed_over {
            self.lose(self.next, passed_over, false);
        }
        if passed_over < end {
            // An earlier run has stored a commit behind one in doubt, and no message.
            self.floor = end;
        }
        if is_doubtful {
            let from = self.next.max(self.floor);
            self.floor = from.saturating_add(DOUBT_STEP);
            self.be_absent(from, self.floor);
        }
        self.lost.retain(|lost| lost.next > start);
        self.absent.retain(|(_, next)| *next > start);
    }

    fn be_absent(&mut self, first: i64, next: i64) {
        if first < next {
            self.absent.push((first, next));
        }
    }

    fn take<F: Files>(&mut self, files: &F, segment: &mut Segment<F::File>) -> Result<(), Fatal> {
        let is_whole = segment.entries.first().is_some_and(|entry| offsets_of(entry).is_some());
        let readable = segment.entries.iter().find_map(offsets_of).map(|(first, _)| first);
        let first_of_segment = self.begin(is_whole, readable);
        let torn = segment.torn.clone();
        let (mut missing, mut has_torn) = (0_usize, false);
        for (ordinal, entry) in (0..).zip(&segment.entries) {
            let offsets = offsets_of(entry);
            match offsets {
                Some((first, next)) if entry.state == State::Held => {
                    self.reach(first, missing, has_torn);
                    (self.next, missing, has_torn) = (self.next.max(next), 0, false);
                }
                // Its append was not answered.
                _ if torn.contains(&ordinal) || entry.state == State::Settled => has_torn = true,
                Some((first, next)) => {
                    self.reach(first, missing, has_torn);
                    (missing, has_torn) = (0, false);
                    self.lose(first, next, true);
                }
                None => missing = missing.saturating_add(1),
            }
        }
        if missing > 0 {
            self.estimated = Some((segment.sequence, self.next));
            // How many messages these records had is not known: no offset that may have been given is given again.
            let most = i64::try_from(missing.saturating_mul(RECORD_MESSAGES_MAX)).unwrap_or(i64::MAX);
            self.lose(self.next, self.next.saturating_add(most), false);
        }
        open::close_off(segment)?;
        self.put(files, segment, first_of_segment)
    }

    /// Passes a segment whose records are not read now.
    fn pass(&mut self, sequence: u64, Passed { first, next, bytes }: Passed) {
        let first = self.begin(true, Some(first));
        self.pass_over(first, next);
        self.next = self.next.max(next);
        self.segments.insert(sequence, Stored { first, next, bytes, is_damaged: false });
    }

    /// Comes to a segment with this first offset, and returns the first one that it may have. It also says how far the segment before goes, if that is
    /// not known. `is_whole` says that the offset is that of its first record, and `None` that no record can be read.
    fn begin(&mut self, is_whole: bool, readable: Option<i64>) -> i64 {
        if let (Some((sequence, known)), Some(first)) = (self.estimated.take(), readable) {
            let next = first.max(known).min(self.next);
            self.next = next;
            if let Some(lost) = self.lost.last_mut() {
                lost.next = next;
            }
            if let Some(stored) = self.segments.get_mut(&sequence) {
                stored.next = next;
            }
        }
        if let Some(first) = readable {
            self.pass_over(self.next, first);
        }
        readable.map_or(self.next, |first| if is_whole { first } else { first.min(self.next) })
    }

    /// Comes to an offset. If it is so far above what came before, it was the first one behind a commit in doubt. Returns where the offsets begin
    /// that were passed over; the same offset if none were.
    fn pass_over(&mut self, before: i64, next: i64) -> i64 {
        let passed_over = next.saturating_sub(next.saturating_sub(before).max(0) & STEPS);
        self.be_absent(passed_over, next);
        passed_over
    }

    /// Comes to a record that begins here. Offsets before it are lost if records between are damaged; else their appends were not answered.
    fn reach(&mut self, first: i64, missing: usize, has_torn: bool) {
        if missing > 0 && first > self.next {
            self.lose(self.next, first, true);
        } else if first > self.next && has_torn {
            self.absent.push((self.next, first));
        }
        self.next = self.next.max(first);
    }

    fn lose(&mut self, first: i64, next: i64, is_exact: bool) {
        self.lost.push(LostMessages { first: first.max(self.next), next, is_exact });
        self.next = self.next.max(next);
    }

    /// Renames a damaged segment, and removes one without records.
    fn put<F: Files>(&mut self, files: &F, segment: &mut Segment<F::File>, first: i64) -> Result<(), Fatal> {
        let (sequence, is_damaged) = (segment.sequence, segment.damaged);
        if is_damaged {
            let place = name(sequence, Kind::Damaged);
            if segment.name != place {
                files.rename(&segment.name, &place).map_err(Fatal::of("rename", &segment.name))?;
            }
        } else if segment.live == 0 {
            return files.remove(&segment.name).map_err(Fatal::of("remove", &segment.name));
        }
        let bytes = segment.file.size().map_err(Fatal::of_read("read the size of", &segment.name))?;
        self.segments.insert(sequence, Stored { first, next: self.next, bytes, is_damaged });
        Ok(())
    }
}

/// The offsets of a record whose header can be read.
fn offsets_of(entry: &Entry) -> Option<(i64, i64)> {
    let coordinates = entry.coordinates.as_ref()?;
    let count = i64::try_from(coordinates.rows).ok()?;
    let fits = coordinates.first >= 0 && coordinates.next.checked_sub(coordinates.first) == Some(count);
    fits.then_some((coordinates.first, coordinates.next))
}

impl Stored {
    pub(super) fn place(&self, sequence: u64) -> SegmentPlace {
        SegmentPlace { first: self.first, sequence, is_damaged: self.is_damaged }
    }
}
