//! How far a worker is with one partition.

use super::lettering::Lettering;
use crate::block::{OpenBlock, Place};
use sluice_kafka::{
    Generation, OwnedMessage, Partition, PartitionId, PartitionQueue, Renew,
    ranges::{Closed, Cutter},
};

/// A partition and its messages.
pub(super) struct Owned {
    pub queue: PartitionQueue,
    pub reading: Reading,
}

/// How far a partition is.
pub(super) struct Reading {
    pub place: Place,
    pub cutter: Cutter,
    /// The range that has ended, and whose block is not sealed yet.
    pub closing: Option<Closed>,
    pub block: Option<OpenBlock>,
    pub state: State,
    /// Where the log ended when the partition began.
    pub log_end: i64,
    /// Whether all of it was read.
    pub caught_up: bool,
    /// Why the last letter was sent that was delivered.
    pub lettered: Option<&'static str>,
}

pub(super) enum State {
    /// Messages are polled.
    Polling,
    /// This message was polled, and there was no room for it.
    Pending(OwnedMessage),
    /// A message that cannot be read is next, and its letter is not delivered.
    Lettering(Box<Lettering>),
    /// A batch that cannot be read is next, and nothing may pass over it.
    Stopped,
    /// It is to begin anew once what has ended is sealed.
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
            lettered: None,
        };
        Self { queue, reading }
    }

    pub fn is_pending(&self) -> bool {
        matches!(self.reading.state, State::Pending(_))
    }
}

impl Reading {
    /// Ends what is open, come what may, and has the partition begin anew.
    pub fn leave(&mut self, renew: Renew) {
        if self.closing.is_none() {
            self.closing = self.cutter.flush().or_else(|| self.cutter.split());
        }
        self.state = State::Leaving(renew);
    }

    /// Has the partition begin anew. What is open is ended where it may be, else given back.
    pub fn begin_anew(&mut self, renew: Renew) {
        // Rows that were given back are in no block any more.
        if self.closing.is_none() && self.block.is_some() {
            self.closing = self.cutter.flush();
        }
        self.state = State::Leaving(renew);
    }

    pub fn is(&self, id: &PartitionId, generation: Generation) -> bool {
        self.place.generation == generation && self.place.id == *id
    }
}
