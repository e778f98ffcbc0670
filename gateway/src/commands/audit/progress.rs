//! Reports the progress of an audit, at most every [`INTERVAL`].

use std::time::{Duration, Instant};

/// How often it is reported.
const INTERVAL: Duration = Duration::from_secs(5);

/// The progress of an audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The current action.
    pub action: &'static str,
    /// The current partition.
    pub partition: String,
    pub offsets_done: u64,
    /// Offsets of all partitions.
    pub offsets: u64,
}

/// Reports progress.
pub struct Bell<F> {
    tell: F,
    last: Instant,
    progress: Progress,
    /// Offsets of the completed partitions.
    before: u64,
}

impl<F: FnMut(&Progress)> Bell<F> {
    /// For this many offsets.
    pub fn new(offsets: u64, tell: F) -> Self {
        let progress = Progress { action: "", partition: String::new(), offsets_done: 0, offsets };
        Self { tell, last: Instant::now(), progress, before: 0 }
    }

    /// Starts another reading.
    pub fn begin(&mut self, action: &'static str) {
        self.before = 0;
        self.progress.action = action;
    }

    /// Records this many completed offsets of a partition.
    pub fn at(&mut self, topic: &str, partition: i32, done: u64) {
        if self.last.elapsed() >= INTERVAL {
            self.last = Instant::now();
            self.progress.partition = format!("{topic}/{partition}");
            self.progress.offsets_done = self.before + done;
            (self.tell)(&self.progress);
        }
    }

    /// Records a completed partition of this many offsets.
    pub fn done(&mut self, offsets: u64) {
        self.before += offsets;
    }
}
