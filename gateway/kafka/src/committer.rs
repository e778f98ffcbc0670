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

/// How long a broker may take to say what is committed, or where a partition ends.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);

/// What the thread is asked for.
#[derive(Debug)]
enum Request {
    /// Commit these.
    Commit(Offsets),
    /// Commit the end of those that have no committed offset yet.
    Pin(Vec<PartitionId>),
}

/// What became of a commit.
#[derive(Debug)]
pub struct Outcome {
    /// What was to be committed.
    pub offsets: Offsets,
    /// What was to be pinned.
    pub pins: Vec<PartitionId>,
    /// What the coordinator said.
    pub result: KafkaResult<()>,
}

/// The poll thread's end of the commit thread.
#[derive(Debug)]
pub struct Committer {
    requests: Sender<Request>,
    outcomes: Receiver<Outcome>,
    in_flight: bool,
}

impl Committer {
    /// Starts the thread. It ends when this end is dropped, or with the consumer.
    pub fn start(consumer: Weak<BaseConsumer<Rebalancing>>) -> std::io::Result<Self> {
        let (requests, requests_in) = bounded::<Request>(1);
        let (outcomes_out, outcomes) = bounded(1);
        let work = move || {
            for request in requests_in {
                let Some(consumer) = consumer.upgrade() else { return };
                let outcome = carry_out(&consumer, request);
                drop(consumer);
                if outcomes_out.send(outcome).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("commit".to_owned()).spawn(work)?;
        Ok(Self { requests, outcomes, in_flight: false })
    }

    /// Whether a request is in flight.
    pub fn is_busy(&self) -> bool {
        self.in_flight
    }

    /// Begins a commit, unless a request is in flight.
    pub fn begin(&mut self, offsets: Offsets) {
        if !offsets.is_empty() {
            self.request(Request::Commit(offsets));
        }
    }

    /// Begins to commit where partitions that nobody has committed an offset for end now, unless a request is in flight.
    pub fn begin_pins(&mut self, pins: Vec<PartitionId>) {
        self.request(Request::Pin(pins));
    }

    fn request(&mut self, request: Request) {
        if !self.in_flight {
            // The thread has gone only when the consumer has.
            self.in_flight = self.requests.send(request).is_ok();
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

fn carry_out(consumer: &BaseConsumer<Rebalancing>, request: Request) -> Outcome {
    match request {
        Request::Commit(offsets) => {
            let result = consumer.commit(&list(&offsets), CommitMode::Sync);
            Outcome { offsets, pins: Vec::new(), result }
        }
        Request::Pin(pins) => match ends(consumer, &pins) {
            Ok(offsets) if offsets.is_empty() => Outcome { offsets, pins, result: Ok(()) },
            Ok(offsets) => {
                let result = consumer.commit(&list(&offsets), CommitMode::Sync);
                Outcome { offsets, pins, result }
            }
            Err(error) => Outcome { offsets: Vec::new(), pins, result: Err(error) },
        },
    }
}

/// Where those partitions end that have no committed offset.
fn ends(consumer: &BaseConsumer<Rebalancing>, ids: &[PartitionId]) -> KafkaResult<Offsets> {
    let mut asked = TopicPartitionList::with_capacity(ids.len());
    for id in ids {
        asked.add_partition(&id.topic, id.partition);
    }
    let committed = consumer.committed_offsets(asked, ASK_TIMEOUT)?;
    let mut ends = Vec::new();
    for element in committed.elements().iter().filter(|element| element.offset() == Offset::Invalid) {
        let (_, end) = consumer.fetch_watermarks(element.topic(), element.partition(), ASK_TIMEOUT)?;
        ends.push((PartitionId { topic: element.topic().into(), partition: element.partition() }, end));
    }
    Ok(ends)
}

fn list(offsets: &Offsets) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(offsets.len());
    for (id, offset) in offsets {
        list.add_partition_offset(&id.topic, id.partition, Offset::Offset(*offset))
            .expect("a position is one past the offset of a message, which is valid in a list");
    }
    list
}
