//! The state of a worker's reading of one partition.

use super::lettering::PendingLetter;
use crate::blocks::block::{OpenBlock, Place};
use sluice_kafka::{OwnedMessage, Partition, PartitionQueue, Renew};
use sluice_ranges::{Closed, Cutter, Generation, PartitionId};

/// A partition and the queue of its messages.
pub(super) struct Owned {
    pub queue: PartitionQueue,
    pub reading: Reading,
}

/// The reading state of a partition.
pub(super) struct Reading {
    pub place: Place,
    pub cutter: Cutter,
    /// The range that has ended and whose block is not sealed yet.
    pub closing: Option<Closed>,
    pub block: Option<OpenBlock>,
    pub state: State,
    /// The end of the log when the partition started; later, the position behind trailing entries that are not messages.
    pub log_end: i64,
    /// Whether everything up to `log_end` was read: the cutter has every message in front of it.
    pub caught_up: bool,
    /// The broker had no more messages, and librdkafka was not asked yet whether entries that are not messages follow the last one.
    pub tail_unasked: bool,
    /// The reason of the last acknowledged letter.
    pub lettered: Option<&'static str>,
    /// The number of bad messages in a row, up to now.
    pub rejected_in_a_row: usize,
}

pub(super) enum State {
    /// Messages are polled.
    Polling,
    /// This message was polled, and there is no room for it.
    Pending(OwnedMessage),
    /// The next message cannot be read, and its letter is not acknowledged.
    PendingLetter(Box<PendingLetter>),
    /// The next batch cannot be read, and must not be skipped.
    Stopped,
    /// It restarts once its ended range is sealed.
    Leaving(Renew),
}

impl Owned {
    pub fn new(partition: Partition) -> Self {
        let Partition { id, generation, queue, cutter, log_end, cluster } = partition;
        let reading = Reading {
            place: Place { id, generation, cluster },
            cutter,
            closing: None,
            block: None,
            state: State::Polling,
            log_end,
            caught_up: false,
            tail_unasked: false,
            lettered: None,
            rejected_in_a_row: 0,
        };
        Self { queue, reading }
    }

    pub fn is_pending(&self) -> bool {
        matches!(self.reading.state, State::Pending(_))
    }
}

impl Reading {
    /// Ends the open range in any case, and restarts the partition.
    pub fn leave(&mut self, renew: Renew) {
        if self.closing.is_none() {
            self.closing = self.cutter.flush().or_else(|| self.cutter.split());
        }
        self.state = State::Leaving(renew);
    }

    /// Restarts the partition. The open range is ended if that is allowed; otherwise its rows are dropped.
    pub fn begin_anew(&mut self, renew: Renew) {
        // Dropped rows are in no block any more, so their range must not be ended.
        if self.closing.is_none() && self.block.is_some() {
            self.closing = self.cutter.flush();
        }
        self.state = State::Leaving(renew);
    }

    /// Records that a broker has no more messages. Everything was read if the position reaches the log's end at the partition's start. A
    /// replica that lags, or that became the leader without the last messages, ends before that.
    pub fn came_to_an_end(&mut self, polled_up_to: impl FnOnce() -> Option<i64>) {
        let reaches = |position: i64| position >= self.log_end;
        self.caught_up =
            self.caught_up || reaches(self.cutter.position()) || polled_up_to().is_some_and(reaches);
        self.tail_unasked = true;
    }

    /// Whether entries that are not messages, such as the end of a transaction, may follow the last message. A range can cover them.
    pub fn may_end_later(&self) -> bool {
        self.tail_unasked && self.closing.is_none() && matches!(self.state, State::Polling)
    }

    /// Records the position up to which the log was polled; the cutter has every message in front of it. `None` when nothing was polled.
    pub fn polled_up_to(&mut self, up_to: Option<i64>) {
        self.tail_unasked = false;
        // Below `log_end` the replica lags, and more messages will come.
        if let Some(end) = up_to.filter(|end| *end >= self.log_end) {
            (self.log_end, self.caught_up) = (end, true);
        }
    }

    pub fn is(&self, id: &PartitionId, generation: Generation) -> bool {
        self.place.generation == generation && self.place.id == *id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_ranges::{Committed, Log, Now, Ranges, Rule, Settings, Version};
    use std::time::Duration;

    /// A partition whose log ends at 10, read from 4 on.
    fn reading() -> Reading {
        let rule = Rule { version: Version::Before, bytes: 1_000, messages: 100 };
        let settings = Settings { rule, routing_epoch: 0, destination: None, topic_id: None, cluster: None };
        let committed = Committed { commit: None, begin: 4, log: Log { start: 0, end: 10 } };
        let now = Now { steady: Duration::ZERO, unix_seconds: 0 };
        let generation = Generation(1);
        let (_, cutter, _) = Ranges::assigned(generation, &committed, settings, now).unwrap();
        let id = PartitionId { topic: "spans".into(), partition: 0 };
        let place = Place { id, generation, cluster: "cluster".into() };
        let state = State::Polling;
        Reading {
            place,
            cutter,
            closing: None,
            block: None,
            state,
            lettered: None,
            rejected_in_a_row: 0,
            log_end: 10,
            caught_up: false,
            tail_unasked: false,
        }
    }

    #[test]
    fn the_end_of_a_replica_that_lags_behind_is_not_the_end() {
        let mut reading = reading();
        reading.came_to_an_end(|| None);
        reading.came_to_an_end(|| Some(9));
        assert!(!reading.caught_up, "messages up to 10 are still to come");
        reading.came_to_an_end(|| Some(10));
        assert!(reading.caught_up, "what is in front of the end is no message");
    }

    #[test]
    fn who_has_taken_the_last_message_has_read_everything() {
        let mut reading = reading();
        assert_eq!(reading.cutter.take(9, None), None);
        reading.came_to_an_end(|| unreachable!("it is known without asking"));
        assert!(reading.caught_up);
        reading.came_to_an_end(|| unreachable!("it stays so"));
    }

    #[test]
    fn what_lies_behind_the_last_message_is_looked_for_once_and_ends_with_it() {
        let mut reading = reading();
        assert!(!reading.may_end_later(), "more may come");
        assert_eq!(reading.cutter.take(9, None), None);
        reading.came_to_an_end(|| None);
        assert!(reading.may_end_later());
        reading.polled_up_to(Some(11));
        assert!(!reading.may_end_later(), "it is known");
        assert_eq!((reading.log_end, reading.caught_up), (11, true));
        assert_eq!(reading.cutter.caught_up(reading.log_end), None);
        reading.closing = reading.cutter.flush();
        assert_eq!(reading.closing.unwrap().range.next, 11);
        reading.came_to_an_end(|| unreachable!("all of it was read"));
        assert!(!reading.may_end_later(), "its block is not sealed");
        reading.closing = None;
        assert!(reading.may_end_later());
        reading.state = State::Stopped;
        assert!(!reading.may_end_later(), "what is polled now is not read");
    }

    #[test]
    fn the_end_of_a_replica_that_lags_behind_is_not_passed() {
        let mut reading = reading();
        reading.came_to_an_end(|| None);
        for polled in [None, Some(9)] {
            reading.polled_up_to(polled);
            assert_eq!((reading.log_end, reading.caught_up), (10, false));
        }
    }
}
