//! What readers of a log share with its owner: how far it is durable, and which segment has an offset.
//!
//! Any thread may have a view; it is cheap to clone. The lock is taken when a segment begins or ends, and when a reader comes to the end of
//! one, never per message.

use crate::{
    files::{Fatal, Files},
    format::{Kind, name},
    log::cursor::Cursor,
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
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
    /// Every segment, by sequence.
    segments: Mutex<BTreeMap<u64, SegmentPlace>>,
    /// Whether this process owns the files: then a reader sets a segment aside in which it finds damage.
    is_owner: bool,
    /// Offsets whose append an earlier run did not finish: from the first up to the second. At most one for each crash that lost a record before
    /// one that stayed.
    unfinished: Vec<(i64, i64)>,
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
    pub(crate) fn new(files: Arc<F>, identity: u64, is_owner: bool, unfinished: Vec<(i64, i64)>) -> Self {
        let (durable, segments) = (AtomicI64::new(0), Mutex::default());
        Self(Arc::new(Shared { files, identity, durable, segments, is_owner, unfinished }))
    }

    /// One past the last offset that can be read.
    pub fn end(&self) -> i64 {
        self.0.durable.load(Ordering::Acquire)
    }

    /// The first offset of the log; its end if it is empty.
    pub fn start(&self) -> i64 {
        let first = self.segments().first_key_value().map(|(_, place)| place.first);
        first.map_or_else(|| self.end(), |first| first.min(self.end()))
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

    /// One past the offsets around this one whose append was never answered; `None` if there are none.
    pub(super) fn unfinished_to(&self, offset: i64) -> Option<i64> {
        let around = self.0.unfinished.iter().find(|(from, to)| (*from..*to).contains(&offset));
        around.map(|(_, to)| *to)
    }

    /// Renames the file of a segment in which a reader has found damage. This is durable before anything behind the damage can be committed: a user
    /// may want to look at the file, also after its messages are committed. Handles that are open stay valid.
    pub(super) fn set_aside(&self, sequence: u64) -> Result<(), Fatal> {
        let mut segments = self.segments();
        let Some(place) = segments.get_mut(&sequence).filter(|place| self.0.is_owner && !place.is_damaged)
        else {
            return Ok(());
        };
        let (from, to) = (place.file_name(), name(sequence, Kind::Damaged));
        self.files().rename(&from, &to).map_err(Fatal::of("rename", &from))?;
        place.is_damaged = true;
        self.files().sync_directory().map_err(Fatal::of("sync", "the directory"))
    }

    pub(super) fn set_end(&self, end: i64) {
        self.0.durable.store(end, Ordering::Release);
    }

    pub(super) fn add(&self, place: SegmentPlace) {
        self.segments().insert(place.sequence, place);
    }

    /// Removes a segment. Returns where it was, by the name that its file has from now on.
    pub(super) fn remove(&self, sequence: u64) -> Option<SegmentPlace> {
        self.segments().remove(&sequence)
    }

    fn segments(&self) -> MutexGuard<'_, BTreeMap<u64, SegmentPlace>> {
        // Plain values are whole even if a thread panicked while it held the lock.
        self.0.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
