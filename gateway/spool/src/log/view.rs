//! What readers of a log share with its owner: how far it is durable, and which segment has an offset.
//!
//! Any thread may have a view; it is cheap to clone. The lock is taken when a segment begins or ends, and when a reader comes to the end of
//! one, never per message.

use crate::{
    files::Files,
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
    pub(crate) fn new(files: Arc<F>, identity: u64, unfinished: Vec<(i64, i64)>) -> Self {
        let (durable, segments) = (AtomicI64::new(0), Mutex::default());
        Self(Arc::new(Shared { files, identity, durable, segments, unfinished }))
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

    /// The segment that has an offset, if one does: the last that begins at or below it.
    pub(super) fn segment_of(&self, offset: i64) -> Option<SegmentPlace> {
        self.segments().values().rfind(|place| place.first <= offset).copied()
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

    pub(super) fn set_end(&self, end: i64) {
        self.0.durable.store(end, Ordering::Release);
    }

    pub(super) fn add(&self, place: SegmentPlace) {
        self.segments().insert(place.sequence, place);
    }

    pub(super) fn remove(&self, sequence: u64) {
        self.segments().remove(&sequence);
    }

    fn segments(&self) -> MutexGuard<'_, BTreeMap<u64, SegmentPlace>> {
        // Plain values are whole even if a thread panicked while it held the lock.
        self.0.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
