//! What the server reports for the log: one notice of a kind in [`crate::Limits::notice_interval`], with the number of those before it.

use crate::counters::{ConnectionEnd, Outcome};
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// What a notice is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeKind {
    /// Requests that were not accepted.
    Request(Outcome),
    /// Connections that the server ended.
    Connection(ConnectionEnd),
    /// A connection could not be accepted, most likely because no file descriptors are left.
    Accept,
    /// Changed files were taken over.
    FilesReloaded,
    /// Files cannot be read or used; the former ones are used on.
    FilesFailed,
    /// IPv6 is not available: the server listens on IPv4 only.
    Ipv4Only,
}

/// Number of kinds.
const KINDS: usize = Outcome::ALL.len() + ConnectionEnd::ALL.len() + 4;

impl NoticeKind {
    /// As a field of a log line.
    pub fn label(self) -> &'static str {
        match self {
            Self::Request(outcome) => outcome.label(),
            Self::Connection(end) => end.label(),
            Self::Accept => "accept",
            Self::FilesReloaded => "files_reloaded",
            Self::FilesFailed => "files_failed",
            Self::Ipv4Only => "ipv4_only",
        }
    }

    fn place(self) -> usize {
        let others = Outcome::ALL.len() + ConnectionEnd::ALL.len();
        match self {
            Self::Request(outcome) => outcome as usize,
            Self::Connection(end) => Outcome::ALL.len() + end as usize,
            Self::Accept => others,
            Self::FilesReloaded => others + 1,
            Self::FilesFailed => others + 2,
            Self::Ipv4Only => others + 3,
        }
    }
}

/// One notice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// What it is about.
    pub kind: NoticeKind,
    /// What happened and what helps. Of a request: the words of its answer.
    pub words: String,
    /// How many of this kind there were since the last notice, this one included.
    pub count: u64,
}

/// Takes notices, mostly to log them. It is called on I/O threads, so it must not block.
pub type NoticeTaker = Arc<dyn Fn(Notice) + Send + Sync>;

/// When a kind was last reported, and how many there were since.
#[derive(Debug, Clone, Copy, Default)]
struct Kind {
    last: Option<Instant>,
    count: u64,
}

/// Passes on the first of each kind, and one in each interval.
pub(crate) struct Notices {
    taker: NoticeTaker,
    interval: Duration,
    kinds: Mutex<[Kind; KINDS]>,
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notices").field("interval", &self.interval).finish_non_exhaustive()
    }
}

impl Notices {
    pub fn new(taker: NoticeTaker, interval: Duration) -> Self {
        Self { taker, interval, kinds: Mutex::new([Kind::default(); KINDS]) }
    }

    /// Reports, or only counts. The words are made only if they are passed on.
    pub fn tell(&self, kind: NoticeKind, words: impl FnOnce() -> String) {
        if let Some(count) = self.due(kind, Instant::now()) {
            (self.taker)(Notice { kind, words: words(), count });
        }
    }

    /// How many there were, if it is time for a notice.
    fn due(&self, kind: NoticeKind, now: Instant) -> Option<u64> {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut kinds[kind.place()];
        state.count += 1;
        if state.last.is_some_and(|last| now.saturating_duration_since(last) < self.interval) {
            return None;
        }
        let count = state.count;
        *state = Kind { last: Some(now), count: 0 };
        Some(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_a_kind_is_passed_on_in_an_interval_and_counts_the_others() {
        let notices = Notices::new(Arc::new(|_| {}), Duration::from_secs(30));
        let begin = Instant::now();
        let (slow, busy) = (NoticeKind::Request(Outcome::Slow), NoticeKind::Request(Outcome::Busy));
        assert_eq!(notices.due(slow, begin), Some(1));
        assert_eq!(notices.due(slow, begin + Duration::from_secs(1)), None);
        assert_eq!(notices.due(busy, begin + Duration::from_secs(1)), Some(1));
        assert_eq!(notices.due(slow, begin + Duration::from_secs(29)), None);
        assert_eq!(notices.due(slow, begin + Duration::from_secs(30)), Some(3));
    }

    #[test]
    fn each_kind_has_a_place_of_its_own() {
        let others =
            [NoticeKind::Accept, NoticeKind::FilesReloaded, NoticeKind::FilesFailed, NoticeKind::Ipv4Only];
        let requests = Outcome::ALL.map(NoticeKind::Request);
        let connections = ConnectionEnd::ALL.map(NoticeKind::Connection);
        let places: Vec<_> =
            requests.into_iter().chain(connections).chain(others).map(NoticeKind::place).collect();
        assert_eq!(places, (0..KINDS).collect::<Vec<_>>());
    }
}
