//! One worker thread: polls its partitions, walks and encodes messages, seals blocks.
//!
//! Owner of everything it names but the pool, which it shares. Nothing is allocated per span, and the only clock reads
//! are per message and per turn.
//!
//! ```text
//!  take_ownership -> turn: for each partition up to MESSAGES_PER_TURN messages -> seal what is due -> wait
//! ```
//!
//! When the pool of chunks is empty, the message in hand is taken back whole, everything that can be sealed is sealed, and
//! the worker reads nothing until a block's worth of chunks is free again. The partitions are not paused in
//! librdkafka: it stops fetching by itself once the partition's queue is full.
//!
//! Limits: as many open blocks as it has row buffers; partitions beyond that take turns.

use crate::{
    batch::BatchRule,
    block::{Block, OpenBlock, Place},
    buffers::{Pool, StoreError},
    encode::{Encoded, Payload, encode},
    metrics::{Metrics, WorkerSeconds},
    read::Reader,
    reject::{self, BadBatch, Reason},
    span_row::Scratch,
};
use crossbeam_channel::{Receiver, Sender, TryRecvError};
use sluice_clickhouse::{column::TableColumns, row_frames::RowFrames};
use sluice_gateway_config::{OnMissing, Sizing};
use sluice_kafka::{
    BorrowedMessage, Generation, KafkaError, OwnedMessage, Ownership, Partition, PartitionId, PartitionQueue,
    QueueProblem, Report,
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::mpsc;

/// Messages that one partition gets before the next one has its turn. A message is about a thousand spans, so that a
/// turn is a few milliseconds.
const MESSAGES_PER_TURN: usize = 8;

/// The longest wait. A token wakes the worker when a queue has messages; this only bounds what a lost token costs.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// How often a worker without memory looks whether there is some.
const ROOM_WAIT: Duration = Duration::from_millis(10);

/// What a worker is made of.
pub struct Parts {
    /// Gained and lost partitions.
    pub ownership: Receiver<Ownership>,
    /// A token when a queue has messages.
    pub wake: Receiver<()>,
    /// Sealed blocks.
    pub blocks: mpsc::Sender<Block>,
    /// Ranges without rows, and partitions that were let go.
    pub reports: Sender<Report>,
    /// Memory for blocks.
    pub pool: Arc<Pool>,
    /// When a block closes.
    pub rule: BatchRule,
    /// How messages are read.
    pub reader: Reader,
    /// What the memory budget depends on: it says which limit would do for a batch that is too large.
    pub sizing: Sizing,
    /// What becomes of messages that cannot be read.
    pub on_missing: OnMissing,
    /// How attributes lie in the table.
    pub columns: TableColumns,
    /// Row buffers, and so open blocks, at the most.
    pub row_buffers_max: usize,
    /// The process' metrics.
    pub metrics: Arc<Metrics>,
    /// This worker's share of them.
    pub seconds: WorkerSeconds,
}

/// A worker; [`Worker::run`] is its thread.
pub struct Worker {
    parts: Parts,
    scratch: Scratch,
    /// Row buffers that no block is using.
    row_buffers: Vec<RowFrames>,
    row_buffers_made: usize,
    partitions: Vec<Owned>,
    /// The partition that has the first turn next.
    first: usize,
    /// There is no room for a message that was read; see [`State::Pending`].
    out_of_room: bool,
    /// Time of this turn that went into handing blocks over.
    handing: Duration,
}

/// A partition and its messages.
struct Owned {
    queue: PartitionQueue,
    reading: Reading,
}

/// How far a partition is.
struct Reading {
    id: PartitionId,
    generation: Generation,
    /// Ranges made so far.
    ranges: u64,
    block: Option<OpenBlock>,
    state: State,
    /// The offset behind the last message that was read; `None` before the first.
    next: Option<i64>,
}

enum State {
    /// Messages are polled.
    Polling,
    /// This message was polled, and there was no room for it.
    Pending(OwnedMessage),
    /// A message that cannot be read is next, and nothing may pass over it.
    Stopped,
}

/// What became of a message.
enum Taken {
    /// It is in the block, or passed over.
    Yes,
    /// There is no room for it now.
    NoRoom,
}

impl Worker {
    /// A worker without partitions.
    pub fn new(parts: Parts) -> Self {
        Self {
            scratch: Scratch::new(parts.columns.clone()),
            parts,
            row_buffers: Vec::new(),
            row_buffers_made: 0,
            partitions: Vec::new(),
            first: 0,
            out_of_room: false,
            handing: Duration::ZERO,
        }
    }

    /// Works until nobody can give it partitions any more.
    pub fn run(mut self) {
        let mut last = Instant::now();
        while self.take_ownership() {
            let progressed = if self.out_of_room { self.redo() } else { self.turn() };
            let now = Instant::now();
            self.seal_due(now);
            let worked = Instant::now();
            // Handing over a block may have had to wait, which is counted as that.
            let handing = std::mem::take(&mut self.handing);
            self.parts.seconds.busy.inc_by((worked - last).saturating_sub(handing).as_secs_f64());
            if !progressed {
                self.wait(worked);
            }
            last = Instant::now();
        }
    }

    /// Takes what the poll thread has to say. `false` once it has gone.
    fn take_ownership(&mut self) -> bool {
        loop {
            match self.parts.ownership.try_recv() {
                Ok(Ownership::Gained(partition)) => self.partitions.push(Owned::new(partition)),
                Ok(Ownership::Lost(id, generation)) => self.release(&id, generation),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Lets a partition go. What cannot be sealed for want of memory is read again by the next owner.
    fn release(&mut self, id: &PartitionId, generation: Generation) {
        let is_it = |owned: &Owned| owned.reading.id == *id && owned.reading.generation == generation;
        let Some(index) = self.partitions.iter().position(is_it) else { return };
        let mut owned = self.partitions.swap_remove(index);
        if self.seal(&mut owned.reading).is_err() {
            tracing::debug!(partition = %id, "an open block is given up; its messages are read again");
        }
        match owned.reading.state {
            State::Stopped => self.parts.metrics.partitions_stopped.dec(),
            State::Pending(_) => self.out_of_room = self.partitions.iter().any(Owned::is_pending),
            State::Polling => {}
        }
        if owned.reading.block.is_some() {
            self.row_buffers_made -= 1;
        }
        let Reading { id, generation, ranges, .. } = owned.reading;
        self.report(Report::Released { id, generation, ranges });
    }

    /// Gives every partition its turn. `false` when none had a message.
    fn turn(&mut self) -> bool {
        let mut partitions = std::mem::take(&mut self.partitions);
        let count = partitions.len();
        let mut progressed = false;
        for step in 0..count {
            let owned = &mut partitions[(self.first + step) % count];
            progressed |= self.read(owned);
            if self.out_of_room {
                break;
            }
        }
        self.first = (self.first + 1) % count.max(1);
        self.partitions = partitions;
        if self.out_of_room {
            self.seal_all();
        }
        progressed
    }

    fn read(&mut self, owned: &mut Owned) -> bool {
        let Owned { queue, reading } = owned;
        let mut progressed = false;
        for _ in 0..MESSAGES_PER_TURN {
            match reading.state {
                // What was fetched behind the place where it stopped would keep its memory, which the budget gives to those
                // that are read.
                State::Stopped if queue.poll(Duration::ZERO).is_some() => continue,
                State::Polling if self.may_open(reading) => {}
                State::Polling | State::Pending(_) | State::Stopped => break,
            }
            match queue.poll(Duration::ZERO) {
                None => break,
                Some(Err(error)) => self.heed(reading, &error),
                Some(Ok(message)) => {
                    progressed = true;
                    if let Taken::NoRoom = self.take(reading, &message) {
                        self.keep(reading, &message);
                    }
                }
            }
        }
        progressed
    }

    /// Stops a partition whose next batch cannot be read; other errors pass.
    fn heed(&self, reading: &mut Reading, error: &KafkaError) {
        let batch = match QueueProblem::of(error, self.parts.sizing.record_batch_bytes_max.get()) {
            QueueProblem::ReadAgain => return,
            QueueProblem::Passing => {
                tracing::warn!(partition = %reading.id, %error, "the partition reports a problem");
                return;
            }
            QueueProblem::Undecompressed { bytes: Some(bytes) } => BadBatch::TooLarge { bytes },
            QueueProblem::Undecompressed { bytes: None } => BadBatch::Broken,
            QueueProblem::Unreadable => BadBatch::Foreign,
        };
        self.parts.metrics.rejected.with_label_values(&[batch.label()]).inc();
        batch.log(&reading.id, reading.next, &self.parts.sizing);
        self.stop(reading);
    }

    /// Reads nothing more of a partition; it is paused, and others have its turn.
    fn stop(&self, reading: &mut Reading) {
        reading.state = State::Stopped;
        self.parts.metrics.partitions_stopped.inc();
        self.report(Report::Stopped { id: reading.id.clone(), generation: reading.generation });
    }

    /// Keeps a message for which there is no room.
    fn keep(&mut self, reading: &mut Reading, message: &BorrowedMessage<'_>) {
        self.out_of_room = true;
        reading.state = State::Pending(message.detach());
    }

    /// Whether a message of the partition would find a block. None is opened before there is a message: partitions that wait for
    /// their turn would hold the row buffers of those that have it.
    fn may_open(&self, reading: &Reading) -> bool {
        reading.block.is_some()
            || !self.row_buffers.is_empty()
            || self.row_buffers_made < self.parts.row_buffers_max
    }

    /// Sees to it that there is an open block. `false` when every row buffer is in use.
    fn opens(&mut self, reading: &mut Reading) -> bool {
        if reading.block.is_some() {
            return true;
        }
        let rows = self.row_buffers.pop().or_else(|| {
            (self.row_buffers_made < self.parts.row_buffers_max).then(|| {
                self.row_buffers_made += 1;
                RowFrames::new()
            })
        });
        reading.block = rows.map(|rows| OpenBlock::new(rows, Instant::now()));
        reading.block.is_some()
    }

    /// Puts the rows of a message into the partition's block.
    fn take(&mut self, reading: &mut Reading, message: &impl sluice_kafka::Message) -> Taken {
        let bytes = message.payload().unwrap_or_default();
        let millis = message.timestamp().to_millis().unwrap_or(0);
        let payload = Payload { bytes, timestamp_nanos: millis.saturating_mul(1_000_000) };
        loop {
            if !self.opens(reading) {
                return Taken::NoRoom;
            }
            let block = reading.block.as_mut().expect("a block was opened just now");
            match encode(&self.parts.pool, &mut self.parts.reader, &mut self.scratch, block, payload) {
                Encoded::Whole { spans, end_nanos_max } => {
                    block.add_message(message.offset(), bytes.len(), end_nanos_max, Instant::now());
                    reading.next = Some(message.offset() + 1);
                    self.count(spans, bytes.len());
                    self.seal_if_full(reading);
                    return Taken::Yes;
                }
                Encoded::NoRoom => return Taken::NoRoom,
                Encoded::BlockFull if block.is_empty() => {
                    self.reject(reading, message.offset(), &Reason::MessageTooLarge);
                    return Taken::Yes;
                }
                Encoded::BlockFull => {
                    if self.seal(reading).is_err() {
                        return Taken::NoRoom;
                    }
                }
                Encoded::Rejected(reason) => {
                    self.reject(reading, message.offset(), &reason);
                    return Taken::Yes;
                }
            }
        }
    }

    fn count(&self, spans: u64, message_bytes: usize) {
        self.parts.metrics.spans.inc_by(spans);
        self.parts.metrics.messages.inc();
        self.parts.metrics.message_bytes.inc_by(message_bytes as u64);
    }

    fn reject(&mut self, reading: &mut Reading, offset: i64, reason: &Reason) {
        self.parts.metrics.rejected.with_label_values(&[reason.label()]).inc();
        reject::log(&reading.id, offset, reason, self.parts.on_missing);
        match self.parts.on_missing {
            OnMissing::Stop => self.stop(reading),
            OnMissing::Skip => {
                reading.next = Some(offset + 1);
                let block = reading.block.as_mut().expect("a message is read into an open block");
                block.add_message(offset, 0, 0, Instant::now());
            }
        }
    }

    fn seal_if_full(&mut self, reading: &mut Reading) {
        let Some(block) = &reading.block else { return };
        if self.parts.rule.is_full(block.rows.totals().rows, block.message_bytes())
            && self.seal(reading).is_err()
        {
            // It stays open and is tried again before the next message.
            self.out_of_room = true;
        }
    }

    fn seal_due(&mut self, now: Instant) {
        let mut partitions = std::mem::take(&mut self.partitions);
        for Owned { reading, .. } in &mut partitions {
            let due = |block: &OpenBlock| self.parts.rule.time_left(now - block.opened()).is_zero();
            if reading.block.as_ref().is_some_and(due) && self.seal(reading).is_err() {
                tracing::debug!(partition = %reading.id, "no memory to seal a block; it is tried again");
            }
        }
        self.partitions = partitions;
    }

    fn seal_all(&mut self) {
        self.seal_due(Instant::now() + Duration::from_hours(1));
    }

    /// Seals the open block, if there is one, and gives its row buffer back.
    fn seal(&mut self, reading: &mut Reading) -> Result<(), StoreError> {
        let Some(mut open) = reading.block.take() else { return Ok(()) };
        if !open.is_empty() {
            let place =
                Place { id: reading.id.clone(), generation: reading.generation, ordinal: reading.ranges };
            match open.seal(&self.parts.pool, place) {
                Ok(block) => {
                    reading.ranges += 1;
                    self.send(block);
                }
                Err(error) => {
                    reading.block = Some(open);
                    return Err(error);
                }
            }
        }
        self.row_buffers.push(open.rows);
        Ok(())
    }

    fn send(&mut self, block: Block) {
        if block.rows == 0 {
            let Block { id, generation, ordinal, range, .. } = block;
            self.report(Report::Settled { id, generation, ordinal, range });
            return;
        }
        let before = Instant::now();
        self.parts.metrics.blocks_in_flight.inc();
        if self.parts.blocks.blocking_send(block).is_err() {
            // Delivery has ended, and with it the process: the messages are read again.
            self.parts.metrics.blocks_in_flight.dec();
        }
        let handing = before.elapsed();
        self.handing += handing;
        self.parts.seconds.sink.inc_by(handing.as_secs_f64());
    }

    fn report(&self, report: Report) {
        if self.parts.reports.send(report).is_err() {
            // The poll thread has ended, and with it the process: nothing is committed any more.
        }
    }

    /// Takes the messages for which there was no room, once there is. `false` while there is none.
    fn redo(&mut self) -> bool {
        self.seal_all();
        if !self.parts.pool.claim_redo() {
            return false;
        }
        self.out_of_room = false;
        let mut partitions = std::mem::take(&mut self.partitions);
        for Owned { reading, .. } in &mut partitions {
            if let State::Pending(message) = std::mem::replace(&mut reading.state, State::Polling)
                && let Taken::NoRoom = self.take(reading, &message)
            {
                reading.state = State::Pending(message);
                self.out_of_room = true;
            }
        }
        self.partitions = partitions;
        self.parts.pool.release_redo();
        true
    }

    fn wait(&self, now: Instant) {
        let (wait, waited_for) = if self.out_of_room {
            (ROOM_WAIT, &self.parts.seconds.buffers)
        } else {
            let open = self.partitions.iter().filter_map(|owned| owned.reading.block.as_ref());
            let due =
                open.filter(|block| !block.is_empty()).map(|b| self.parts.rule.time_left(now - b.opened()));
            (due.min().unwrap_or(WAIT_MAX).min(WAIT_MAX), &self.parts.seconds.source)
        };
        if self.parts.wake.recv_timeout(wait).is_err() {
            // Time is up, or the poll thread has gone, which the next turn sees.
        }
        waited_for.inc_by(now.elapsed().as_secs_f64());
    }
}

impl Owned {
    fn new(partition: Partition) -> Self {
        let Partition { id, generation, queue } = partition;
        Self {
            queue,
            reading: Reading { id, generation, ranges: 0, block: None, state: State::Polling, next: None },
        }
    }

    fn is_pending(&self) -> bool {
        matches!(self.reading.state, State::Pending(_))
    }
}
