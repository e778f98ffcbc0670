//! The topic: messages come, and retention deletes them.

use super::{Message, World};

/// Messages of one schedule.
const MESSAGES_MAX: usize = 90;

impl World {
    pub(super) fn append(&mut self) {
        if self.history.len() >= MESSAGES_MAX {
            return;
        }
        for _ in 0..=self.random.below(4) {
            if self.random.one_in(6) {
                // A control record, or a message that was compacted away.
                self.log_end += 1;
            }
            let len = self.random.below(5) + if self.random.one_in(12) { 15 } else { 0 };
            let value = (0..len).map(|_| self.random.next().to_le_bytes()[0]).collect();
            self.log.push(Message { offset: self.log_end, value });
            self.history.push(self.log_end);
            self.log_end += 1;
        }
        if self.random.one_in(4) {
            self.log_end += 1;
        }
        self.note(|world| format!("the log ends at {}", world.log_end));
    }

    pub(super) fn retain(&mut self) {
        if self.is_harsh || self.random.one_in(3) {
            let some = i64::try_from(self.random.below(8)).unwrap();
            // What is committed is not missed. Right above it, the first range in flight loses its beginning.
            let committed =
                self.committed.as_ref().filter(|_| self.is_harsh).map_or(0, |(offset, _)| *offset);
            self.log_start = (self.log_start.max(committed) + some).min(self.log_end);
            self.log.retain(|message| message.offset >= self.log_start);
            self.note(|world| format!("the log begins at {}", world.log_start));
        }
    }
}
