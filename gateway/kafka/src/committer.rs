//! Commits, one at a time, on a thread of their own.
//!
//! Why a thread: librdkafka tells the outcome of an asynchronous commit only to a callback that its event interface, which
//! the Rust client uses, never calls. A synchronous commit tells it, but blocks for as long as the coordinator is away,
//! and the poll thread must not.
//!
//! One request is in flight at the most, so that no commit can overtake another and take the group back.

use crate::{partition::PartitionId, rebalancing::Rebalancing};
use crossbeam_channel::{Receiver, Sender, bounded};
use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{BaseConsumer, CommitMode, Consumer as _},
    error::KafkaResult,
};
use std::{
    sync::Weak,
    thread,
    time::{Duration, Instant},
};

/// Offsets to commit: the next one to read, by partition.
pub type Offsets = Vec<(PartitionId, i64)>;

/// What became of a commit.
#[derive(Debug)]
pub struct Outcome {
    /// What was to be committed.
    pub offsets: Offsets,
    /// What the coordinator said.
    pub result: KafkaResult<()>,
}

/// The poll thread's end of the commit thread.
#[derive(Debug)]
pub struct Committer {
    requests: Sender<Offsets>,
    outcomes: Receiver<Outcome>,
    in_flight: bool,
}

impl Committer {
    /// Starts the thread. It ends when this end is dropped, or with the consumer.
    pub fn start(consumer: Weak<BaseConsumer<Rebalancing>>) -> std::io::Result<Self> {
        let (requests, requests_in) = bounded::<Offsets>(1);
        let (outcomes_out, outcomes) = bounded(1);
        let work = move || {
            for offsets in requests_in {
                let Some(consumer) = consumer.upgrade() else { return };
                let result = consumer.commit(&list(&offsets), CommitMode::Sync);
                drop(consumer);
                if outcomes_out.send(Outcome { offsets, result }).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("commit".to_owned()).spawn(work)?;
        Ok(Self { requests, outcomes, in_flight: false })
    }

    /// Begins a commit, unless one is in flight.
    pub fn begin(&mut self, offsets: Offsets) {
        if !self.in_flight && !offsets.is_empty() {
            // The thread has gone only when the consumer has.
            self.in_flight = self.requests.send(offsets).is_ok();
        }
    }

    /// The outcome of the commit in flight; waits for it until `deadline`. `None` when there is none, or none by then.
    pub fn outcome_by(&mut self, deadline: Instant) -> Option<Outcome> {
        if !self.in_flight {
            return None;
        }
        // A deadline that has passed still takes what is there.
        let outcome =
            self.outcomes.recv_deadline(deadline.max(Instant::now() + Duration::from_micros(1))).ok()?;
        self.in_flight = false;
        Some(outcome)
    }
}

fn list(offsets: &Offsets) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(offsets.len());
    for (id, offset) in offsets {
        list.add_partition_offset(&id.topic, id.partition, Offset::Offset(*offset))
            .expect("a position is one past the offset of a message, which is valid in a list");
    }
    list
}
