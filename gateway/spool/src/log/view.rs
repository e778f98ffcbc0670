//! What readers of a log share with its owner: how far it is durable, and which segment has an offset.
//!
//! Any thread may have a view; it is cheap to clone. The lock is taken when a segment begins or ends, and when a reader comes to the end of
//! one, never per message. Nothing is synced under it.

use crate::{
    files::{Fatal, Files},
    format::{Kind, name},
    log::cursor::Cursor,
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};

/// A segment's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentPlace {
    /// The first offset that it may have.
    pub first: i64,
    pub sequence: u64,
    pub is_damaged: bool,
}

impl SegmentPlace {
    pub fn kind(self) -> Kind {
        if self.is_damaged { Kind::Damaged } else { Kind::Spool }
    }

    pub fn file_name(self) -> String {
        name(self.sequence, self.kind())
    }
}

#[derive(Debug)]
struct Shared<F> {
    files: Arc<F>,
    identity: u64,
    /// One past the last offset that a sync has covered.
    durable: AtomicI64,
    /// No message is appended below it.
    floor: AtomicI64,
    /// The first offset of the oldest segment; `i64::MAX` without segments.
    first: AtomicI64,
    /// The newest segment that a reader has set aside; 0 if there is none.
    newest_aside: AtomicU64,
    /// How many segments readers have set aside, and how many of these names are durable.
    renamed: AtomicU64,
    renames_synced: AtomicU64,
    /// Every segment, by sequence.
    segments: Mutex<BTreeMap<u64, SegmentPlace>>,
    /// Whether this process owns the files: then a reader sets a segment aside in which it finds damage.
    is_owner: bool,
    /// Offsets that no message has that was answered: from the first up to the second. At most one for each crash that lost a record before one that
    /// stayed, and those that were passed over after a commit in doubt.
    absent: Vec<(i64, i64)>,
}

/// A reader's view of a log.
#[derive(Debug)]
pub struct LogView<F>(Arc<Shared<F>>);

impl<F> Clone for LogView<F> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<F: Files> LogView<F> {
    /// A view of a log that this process owns, or only reads.
    pub(crate) fn new(files: Arc<F>, identity: u64, is_owner: bool, absent: Vec<(i64, i64)>) -> Self {
        Self(Arc::new(Shared {
            files,
            identity,
            durable: AtomicI64::new(0),
            floor: AtomicI64::new(0),
            first: AtomicI64::new(i64::MAX),
            newest_aside: AtomicU64::new(0),
            renamed: AtomicU64::new(0),
            renames_synced: AtomicU64::new(0),
            segments: Mutex::default(),
            is_owner,
            absent,
        }))
    }

    /// One past the last offset that can be read.
    pub fn end(&self) -> i64 {
        self.0.durable.load(Ordering::Acquire)
    }

    /// No message that is appended later has an offset below this one: what a commit stores as the end of the log.
    pub fn floor(&self) -> i64 {
        self.end().max(self.0.floor.load(Ordering::Acquire))
    }

    /// The first offset of the log; its end if it is empty.
    pub fn start(&self) -> i64 {
        self.0.first.load(Ordering::Acquire).min(self.end())
    }

    /// How many offsets from one up to another no message has, as far as was found when the log was opened.
    pub fn absent_between(&self, from: i64, to: i64) -> u64 {
        let within = |(first, next): &(i64, i64)| (*next).min(to).saturating_sub((*first).max(from)).max(0);
        self.0.absent.iter().map(within).fold(0_u64, |sum, count| sum.saturating_add(count.cast_unsigned()))
    }

    /// Reads from an offset on.
    pub fn read_from(&self, offset: i64) -> Cursor<F> {
        Cursor::new(self.clone(), offset)
    }

    pub(super) fn files(&self) -> &F {
        &self.0.files
    }

    pub(super) fn identity(&self) -> u64 {
        self.0.identity
    }

    /// Opens the segment that has an offset, if one does: the last that begins at or below it. The lock is held meanwhile, so that its
    /// owner neither renames nor removes the file.
    pub(super) fn open_segment_of(&self, offset: i64) -> Result<Option<(SegmentPlace, F::File)>, Fatal> {
        let segments = self.segments();
        let Some(place) = segments.values().rfind(|place| place.first <= offset).copied() else {
            return Ok(None);
        };
        let name = place.file_name();
        let file = self.files().open(&name).map_err(Fatal::of_read("open", &name))?;
        drop(segments);
        Ok(Some((place, file)))
    }

    /// The segment after one.
    pub(super) fn segment_after(&self, sequence: u64) -> Option<SegmentPlace> {
        let behind = (std::ops::Bound::Excluded(sequence), std::ops::Bound::Unbounded);
        self.segments().range(behind).next().map(|(_, place)| *place)
    }

    /// One past the offsets around this one that no message has; `None` if there are none.
    pub(super) fn absent_to(&self, offset: i64) -> Option<i64> {
        let around = self.0.absent.iter().find(|(from, to)| (*from..*to).contains(&offset));
        around.map(|(_, to)| *to)
    }

    /// The first offset above this one that no message has; `None` if there is none.
    pub(super) fn next_absent(&self, offset: i64) -> Option<i64> {
        self.0.absent.iter().map(|(from, _)| *from).filter(|from| *from > offset).min()
    }

    /// Renames the file of a segment in which a reader has found damage. This is durable before anything behind the damage can be committed: a user
    /// may want to look at the file, also after its messages are committed. Handles that are open stay valid.
    pub(super) fn set_aside(&self, sequence: u64) -> Result<(), Fatal> {
        self.rename_damaged(sequence)?;
        // Not under the lock: a sync that hangs must stop neither the owner nor who asks where the log begins. Another reader may have renamed
        // the file, and sync it still.
        let renamed = self.0.renamed.load(Ordering::Acquire);
        if self.0.renames_synced.load(Ordering::Acquire) < renamed {
            self.files().sync_directory().map_err(Fatal::of("sync", "the directory"))?;
            self.0.renames_synced.fetch_max(renamed, Ordering::AcqRel);
        }
        Ok(())
    }

    fn rename_damaged(&self, sequence: u64) -> Result<(), Fatal> {
        let mut segments = self.segments();
        let Some(place) = segments.get_mut(&sequence).filter(|place| self.0.is_owner && !place.is_damaged)
        else {
            return Ok(());
        };
        let (from, to) = (place.file_name(), name(sequence, Kind::Damaged));
        self.files().rename(&from, &to).map_err(Fatal::of("rename", &from))?;
        place.is_damaged = true;
        self.0.newest_aside.fetch_max(sequence, Ordering::AcqRel);
        self.0.renamed.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Whether a reader has set the newest segment aside: its owner appends nothing more to it.
    pub(super) fn is_aside(&self, newest: u64) -> bool {
        self.0.newest_aside.load(Ordering::Acquire) == newest
    }

    pub(super) fn set_end(&self, end: i64) {
        self.0.durable.store(end, Ordering::Release);
    }

    pub(super) fn set_floor(&self, floor: i64) {
        self.0.floor.store(floor, Ordering::Release);
    }

    pub(super) fn add(&self, place: SegmentPlace) {
        let mut segments = self.segments();
        segments.insert(place.sequence, place);
        self.set_first(&segments);
    }

    /// Removes a segment. Returns where it was, by the name that its file has from now on.
    pub(super) fn remove(&self, sequence: u64) -> Option<SegmentPlace> {
        let mut segments = self.segments();
        let removed = segments.remove(&sequence);
        self.set_first(&segments);
        removed
    }

    fn set_first(&self, segments: &BTreeMap<u64, SegmentPlace>) {
        let first = segments.first_key_value().map_or(i64::MAX, |(_, place)| place.first);
        self.0.first.store(first, Ordering::Release);
    }

    fn segments(&self) -> MutexGuard<'_, BTreeMap<u64, SegmentPlace>> {
        // Plain values are whole even if a thread panicked while it held the lock.
        self.0.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
