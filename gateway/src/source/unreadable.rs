//! Logs that cannot be read: the volume answers with an input/output error.
//!
//! Such a log gets no requests, nothing of it is removed, and it is committed only up to what was read of it. Other logs go on. Threads: the main
//! thread records logs that it could not open; a worker, and the thread that reads messages again for dead letters, record one that they could not
//! read, and remove what they have recorded once they can; others look.

use sluice_ranges::PartitionId;
use sluice_spool::Fatal;
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

/// Who cannot read a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reader {
    /// It was not opened when the process started.
    Start,
    /// A worker.
    Worker,
    /// Messages of refused rows, for their dead letters.
    Letters,
}

/// Their numbers, each with a reader that fails. The log of the process has the reasons.
#[derive(Debug, Default)]
pub struct Unreadable {
    /// How many entries there are: most calls find that there are none.
    count: AtomicUsize,
    logs: Mutex<BTreeSet<(i32, Reader)>>,
}

impl Unreadable {
    /// Records that a message of a log cannot be read, and logs it if every reader could read the log before.
    pub fn fail(&self, log: &PartitionId, reader: Reader, (offset, fatal): (i64, &Fatal)) {
        if self.add(log.partition, reader) {
            tracing::error!(%log, offset, error = %fatal, "a log on the queue volume cannot be read: {ADVICE}");
        }
    }

    /// Records that a log was read, and logs it if no reader has failed any more.
    pub fn succeed(&self, log: &PartitionId, reader: Reader) {
        if self.remove(log.partition, reader) {
            tracing::info!(%log, "the log on the queue volume can be read again");
        }
    }

    /// Records that a log cannot be read. Returns whether this is new.
    pub fn add(&self, log: i32, reader: Reader) -> bool {
        let mut logs = self.logs();
        let is_new = logs.iter().all(|(other, _)| *other != log);
        logs.insert((log, reader));
        self.count.store(logs.len(), Ordering::Release);
        is_new
    }

    /// Records that a reader can read a log. Returns whether it could not, and no other fails.
    fn remove(&self, log: i32, reader: Reader) -> bool {
        if !self.any() {
            return false;
        }
        let mut logs = self.logs();
        let was_there = logs.remove(&(log, reader));
        self.count.store(logs.len(), Ordering::Release);
        was_there && logs.iter().all(|(other, _)| *other != log)
    }

    /// Whether a log cannot be read.
    pub fn has(&self, log: i32) -> bool {
        self.any() && self.logs().iter().any(|(other, _)| *other == log)
    }

    /// Whether there are any.
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Their numbers.
    pub fn numbers(&self) -> Vec<i32> {
        let mut numbers: Vec<i32> = self.logs().iter().map(|(log, _)| *log).collect();
        numbers.dedup();
        numbers
    }

    fn logs(&self) -> MutexGuard<'_, BTreeSet<(i32, Reader)>> {
        // Plain values are whole even if a thread panicked while it held the lock.
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_can_be_read_again_once_each_reader_that_failed_can() {
        let unreadable = Unreadable::default();
        assert!(unreadable.add(3, Reader::Worker) && !unreadable.add(3, Reader::Letters));
        assert!(!unreadable.remove(3, Reader::Worker) && !unreadable.remove(3, Reader::Worker));
        assert_eq!((unreadable.has(3), unreadable.numbers()), (true, vec![3]));
        assert!(unreadable.remove(3, Reader::Letters) && !unreadable.any());
    }
}
