//! Tells how far an audit is, not more often than [`INTERVAL`].

use std::time::{Duration, Instant};

/// How often it is told.
const INTERVAL: Duration = Duration::from_secs(5);

/// How far an audit is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// What it is doing.
    pub action: &'static str,
    /// The partition that it is at.
    pub partition: String,
    /// Offsets that are done.
    pub offsets_done: u64,
    /// Offsets of all partitions.
    pub offsets: u64,
}

/// Tells.
pub struct Bell<F> {
    tell: F,
    last: Instant,
    progress: Progress,
    /// Offsets of the partitions that are done.
    before: u64,
}

impl<F: FnMut(&Progress)> Bell<F> {
    /// For so many offsets.
    pub fn new(offsets: u64, tell: F) -> Self {
        let progress = Progress { action: "", partition: String::new(), offsets_done: 0, offsets };
        Self { tell, last: Instant::now(), progress, before: 0 }
    }

    /// Another reading begins.
    pub fn begin(&mut self, action: &'static str) {
        self.before = 0;
        self.progress.action = action;
    }

    /// So many offsets of a partition are done.
    pub fn at(&mut self, topic: &str, partition: i32, done: u64) {
        if self.last.elapsed() >= INTERVAL {
            self.last = Instant::now();
            self.progress.partition = format!("{topic}/{partition}");
            self.progress.offsets_done = self.before + done;
            (self.tell)(&self.progress);
        }
    }

    /// A partition of so many offsets is done.
    pub fn done(&mut self, offsets: u64) {
        self.before += offsets;
    }
}
