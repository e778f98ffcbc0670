//! Logs that cannot be read: the volume answers with an input/output error.
//!
//! Such a log gets no requests, nothing of it is removed, and it is committed only up to what was read of it. Other logs go on. Threads: the main
//! thread records logs that it could not open; a worker records one that it could not read, and removes it once it can; others look.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

/// What a person does about such a log, for the log of the process.
pub const ADVICE: &str = "check the volume and its disk. The gateway tries again, and other logs go on. If the log stays unreadable, end the gateway, and \
                          restore the log's folder or move it away; the requests in it that are not inserted are lost then";

/// Why such a log stands still, as a word for metrics and `/state`.
pub const UNREADABLE: &str = "unreadable";

/// Their numbers. The log of the process has the reasons.
#[derive(Debug, Default)]
pub struct Unreadable {
    /// Their number: most calls find that there are none.
    count: AtomicUsize,
    logs: Mutex<BTreeSet<i32>>,
}

impl Unreadable {
    /// Records that a log cannot be read. Returns whether this is new.
    pub fn add(&self, log: i32) -> bool {
        let mut logs = self.logs();
        let is_new = logs.insert(log);
        self.count.store(logs.len(), Ordering::Release);
        is_new
    }

    /// Records that it can be read. Returns whether it could not.
    pub fn remove(&self, log: i32) -> bool {
        if !self.any() {
            return false;
        }
        let mut logs = self.logs();
        let was_there = logs.remove(&log);
        self.count.store(logs.len(), Ordering::Release);
        was_there
    }

    /// Whether a log cannot be read.
    pub fn has(&self, log: i32) -> bool {
        self.any() && self.logs().contains(&log)
    }

    /// Whether there are any.
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Their numbers.
    pub fn numbers(&self) -> Vec<i32> {
        self.logs().iter().copied().collect()
    }

    fn logs(&self) -> MutexGuard<'_, BTreeSet<i32>> {
        // Plain values are whole even if a thread panicked while it held the lock.
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
