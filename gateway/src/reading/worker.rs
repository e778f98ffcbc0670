//! One worker thread: polls its partitions, walks and encodes messages, and seals one block per range.
//!
//! The worker owns everything it uses except the pool, which all workers share. It allocates nothing per span and reads the clock only per
//! message and per turn.
//!
//! ```text
//!  take_ownership -> turn: for each partition up to MESSAGES_PER_TURN messages -> seal what is due -> wait
//! ```
//!
//! When the pool has no free chunk, the worker removes the current message's rows from its block and seals every block that it can. It
//! reads nothing until there is room for a whole block again. The partitions are not paused in librdkafka, which stops fetching when a
//! partition's queue is full.
//!
//! A message that cannot be read goes to the dead-letter topic and delays only its own partition: [`lettering`].
//!
//! The partition's [`Cutter`] decides where a range ends. While it replays the cuts of an earlier owner, a block cannot be sealed early to
//! make room. If such blocks would fill the pool, they are dropped and their partitions restart ([`Renew::Memory`]).
//!
//! Limits: as many open blocks as it has row buffers; further partitions take turns.

mod keep;
mod lettering;
mod memory;
mod partition;
mod refetches;
mod room;
mod seal;
mod stop;
mod tail;
mod wait;

use crate::{
    blocks::{
        batch::BlockAge,
        block::{Block, OpenBlock, Place},
        buffers::{Pool, Waiting},
    },
    ground::{
        account::RowAccount,
        metrics::{Metrics, RuleCounters, WorkerSeconds},
        route::Route,
    },
    reading::{
        encode::{Encoded, Payload, encode},
        reader::Reader,
        reject::Reason,
    },
    rows::{
        carry::{Carry, Carrying},
        services::ServiceTally,
        span_row::Scratch,
    },
    table::row_expiry::RowExpiry,
};
use crossbeam_channel::{Receiver, Sender, TryRecvError};
use keep::Keep;
use lettering::Letters;
use memory::Told;
use partition::{Owned, Reading, State};
use refetches::Refetches;
use sluice_clickhouse::{column::TableColumns, row_frames::RowFrames};
use sluice_gateway_config::{OnMissing, Sizing};
use sluice_kafka::{
    KafkaError, Message, OwnedMessage, Ownership, Polled, Renew, Report, Shortage, dead_letter::DeadLetters,
};
use sluice_ranges::{Generation, Offer, PartitionId};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::mpsc;

/// Messages that are read of one partition before the next one. A message has about a thousand spans, so a turn takes a few ms.
const MESSAGES_PER_TURN: usize = 8;

/// Everything a worker is created from.
pub struct WorkerDeps {
    /// Assigned and revoked partitions.
    pub ownership: Receiver<Ownership>,
    /// A token when a queue has messages.
    pub wake: Receiver<()>,
    /// The flag with which it reports that it waits for memory, or for delivery to take a block.
    pub shortage: Shortage,
    /// Sealed blocks.
    pub blocks: mpsc::Sender<Block>,
    /// Ranges without rows, and partitions that were released.
    pub reports: Sender<Report>,
    /// Sends dead letters.
    pub dead_letters: DeadLetters,
    /// Wakes this worker.
    pub waker: Sender<()>,
    /// Memory for blocks.
    pub pool: Arc<Pool>,
    /// The maximum age of an open block.
    pub age_max: BlockAge,
    /// Workers that share the pool.
    pub workers: usize,
    /// The shard of a partition's blocks. Each shard has its share of the pool.
    pub route: Route,
    /// Reads messages.
    pub reader: Reader,
    /// The values that the memory budget depends on, for the advice about a batch that is too large.
    pub sizing: Sizing,
    /// What to do when Kafka refuses a dead letter.
    pub on_missing: OnMissing,
    /// The layout of attributes in the table.
    pub columns: TableColumns,
    /// What the config does with attributes, if anything.
    pub carrying: Option<Arc<Carrying>>,
    /// The age at which the table deletes rows.
    pub expiry: Arc<RowExpiry>,
    /// Maximum number of row buffers, and so of open blocks.
    pub row_buffers_max: usize,
    /// Counts where every row is.
    pub account: RowAccount,
    /// The process's metrics.
    pub metrics: Arc<Metrics>,
    /// The metrics of this worker.
    pub seconds: WorkerSeconds,
}

/// A worker; [`Worker::run`] is the body of its thread.
pub struct Worker {
    parts: WorkerDeps,
    scratch: Scratch,
    /// Count what is done with attributes, if anything.
    rule_counters: Option<RuleCounters>,
    /// Row buffers that no block uses.
    row_buffers: Vec<RowFrames>,
    row_buffers_made: usize,
    partitions: Vec<Owned>,
    /// Index of the partition with which the next turn starts.
    first: usize,
    /// There is no room for a message that was polled; see [`State::Pending`].
    out_of_room: bool,
    /// Its registration in the pool while it waits for room.
    waiting: Option<Waiting>,
    /// A block that was due could not be sealed because there was no memory.
    unsealed: bool,
    /// State shared by all its letters.
    letters: Letters,
    /// The partition with the right to fill the pool with a block that must not be ended early.
    replays: Option<(PartitionId, Generation)>,
    /// Batches that could not be read.
    refetches: Refetches,
    /// When it last asked librdkafka for the positions behind last messages.
    looked_behind: Option<Instant>,
    /// Time of this turn spent waiting for delivery to take blocks.
    handing: Duration,
    /// The memory that it reported last.
    told: Told,
}

/// The result of taking a message.
enum Taken {
    /// It is in the block, or skipped.
    Yes,
    /// There is no room for it now.
    NoRoom,
    /// There is no room for its letter now.
    NoRoomForLetter,
}

impl Worker {
    /// A worker without partitions.
    pub fn new(parts: WorkerDeps) -> Self {
        Self {
            scratch: Scratch::new(parts.columns.clone())
                .carrying(parts.carrying.clone().map(Carry::new))
                .tallying(ServiceTally::new(parts.metrics.services.clone())),
            rule_counters: parts.carrying.as_ref().map(|rules| parts.metrics.attributes.rules(rules)),
            parts,
            row_buffers: Vec::new(),
            row_buffers_made: 0,
            partitions: Vec::new(),
            first: 0,
            out_of_room: false,
            waiting: None,
            unsealed: false,
            letters: Letters::default(),
            replays: None,
            refetches: Refetches::default(),
            looked_behind: None,
            handing: Duration::ZERO,
            told: Told::default(),
        }
    }

    /// Works until the poll thread has ended.
    pub fn run(mut self) {
        let mut last = Instant::now();
        while self.take_ownership() {
            let tended = self.tend_letters();
            let progressed = tended | if self.out_of_room { self.redo() } else { self.turn() };
            if self.out_of_room {
                self.let_go_of_kept();
            }
            self.share_room();
            let now = Instant::now();
            self.look_behind(now);
            self.advance(now);
            self.tell_memory();
            self.parts.shortage.say(self.out_of_room || self.unsealed);
            self.parts
                .shortage
                .say_blocks(u64::try_from(self.parts.metrics.blocks_in_flight.get()).unwrap_or(0));
            let worked = Instant::now();
            // Waiting for delivery to take a block is counted separately.
            let handing = std::mem::take(&mut self.handing);
            self.parts.seconds.busy.inc_by((worked - last).saturating_sub(handing).as_secs_f64());
            if !progressed {
                self.wait(worked);
            }
            last = Instant::now();
        }
    }

    /// Receives assigned and revoked partitions from the poll thread. `false` once that has ended.
    fn take_ownership(&mut self) -> bool {
        loop {
            match self.parts.ownership.try_recv() {
                Ok(Ownership::Gained(partition)) => self.partitions.push(Owned::new(*partition)),
                Ok(Ownership::Lost { id, generation, seal }) => self.lose(&id, generation, seal),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Releases a partition that was revoked.
    fn lose(&mut self, id: &PartitionId, generation: Generation, seal: bool) {
        let is_it = |owned: &Owned| owned.reading.is(id, generation);
        let Some(index) = self.partitions.iter().position(is_it) else { return };
        let Owned { queue, mut reading } = self.partitions.swap_remove(index);
        // Dropped before the release is reported: for librdkafka, the next generation has the same queue.
        drop(queue);
        if seal && self.flush(&mut reading).is_err() {
            tracing::debug!(partition = %id, "an open block is dropped; its messages are read again");
        }
        self.release(reading, None);
    }

    /// Releases a partition. Its open block is dropped; the next owner reads the messages again.
    fn release(&mut self, reading: Reading, renew: Option<Renew>) {
        match reading.state {
            State::Stopped => self.parts.metrics.partitions_stopped.dec(),
            State::Pending(_) => self.out_of_room = self.partitions.iter().any(Owned::is_pending),
            State::PendingLetter(mut letter) => {
                if letter.is_stopped() {
                    self.parts.metrics.partitions_stopped.dec();
                }
                self.letters.holds_message &= !letter.let_go();
            }
            State::Polling | State::Leaving(_) => {}
        }
        if let Some(open) = reading.block {
            self.row_buffers_made -= 1;
            open.abandon();
        }
        let Place { id, generation, .. } = reading.place;
        if self.replays.take_if(|replays| *replays == (id.clone(), generation)).is_some() {
            self.parts.pool.release_replay();
        }
        self.report(Report::Released { id, generation, renew });
    }

    /// Reads from each partition in turn. `false` when none had a message.
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
        let may_fill = self.may_fill(reading);
        if !self.may_open(reading) && matches!(reading.state, State::Polling) {
            self.parts.age_max.crowd(Instant::now());
        }
        for _ in 0..MESSAGES_PER_TURN {
            match reading.state {
                // Messages fetched behind the bad batch would keep memory that the budget gives to the other partitions.
                State::Stopped if queue.poll(Duration::ZERO).is_some() => continue,
                State::Polling if may_fill && self.may_open(reading) => {}
                State::PendingLetter(_) if self.reads_ahead(reading) => {}
                _ => break,
            }
            match queue.poll(Duration::ZERO) {
                None => break,
                Some(Err(KafkaError::PartitionEOF(_))) => reading.ends(|| queue.position()),
                Some(Err(error)) => {
                    if let Err(error) = reading.keep_problem(error) {
                        self.heed(reading, &error);
                    }
                }
                Some(Ok(polled)) => {
                    (progressed, reading.tail_unasked) = (true, false);
                    match polled {
                        Polled::Kafka(message) => self.take_polled(reading, message),
                        Polled::Log(message) => self.take_polled(reading, message),
                    }
                }
            }
        }
        progressed
    }

    /// Takes a message that was polled, or keeps it.
    fn take_polled(&mut self, reading: &mut Reading, message: impl Keep) {
        if matches!(reading.state, State::PendingLetter(_)) {
            return self.take_ahead(reading, message);
        }
        match self.take(reading, &message) {
            Taken::Yes => {}
            Taken::NoRoom => {
                self.out_of_room = true;
                reading.state = State::Pending(message.kept());
            }
            Taken::NoRoomForLetter => self.keep_for_letter(reading, || message.kept()),
        }
    }

    /// Keeps a message that waits for room for its letter, if the worker keeps no other one; otherwise it is read again.
    fn keep_for_letter(&mut self, reading: &mut Reading, message: impl FnOnce() -> OwnedMessage) {
        if let State::PendingLetter(letter) = &mut reading.state
            && !self.letters.holds_message
        {
            letter.keep(message());
            self.letters.holds_message = true;
        }
    }

    /// Whether the partition's shard has used no more than its share of the pool. A shard that is away fills its share, and the others
    /// continue. A block that must not be ended early is filled in any case.
    fn may_fill(&self, reading: &Reading) -> bool {
        reading.cutter.is_replaying()
            || self.parts.pool.has_share(self.parts.route.shard_of(&reading.place.id))
    }

    /// Whether a block is open or can be opened for a message of the partition. Blocks are opened only for a message: otherwise
    /// partitions that wait for their turn would hold row buffers.
    fn may_open(&self, reading: &Reading) -> bool {
        reading.block.is_some()
            || !self.row_buffers.is_empty()
            || self.row_buffers_made < self.parts.row_buffers_max
    }

    /// Opens a block unless one is open. `false` when every row buffer is in use.
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
        let shard = self.parts.route.shard_of(&reading.place.id);
        reading.block = rows.map(|rows| {
            OpenBlock::new(rows, self.parts.account.open(), Instant::now())
                .of_shard(shard)
                .counted_by(&self.parts.age_max)
        });
        reading.block.is_some()
    }

    /// Puts the rows of a message into the partition's block.
    fn take(&mut self, reading: &mut Reading, message: &impl Message) -> Taken {
        let payload = Payload::of(message, &self.parts.expiry);
        loop {
            if self.seal_closing(reading).is_err() {
                return Taken::NoRoom;
            }
            match reading.cutter.offer(message.offset(), payload.bytes.len() as u64) {
                Offer::Take => {}
                Offer::Seen => return Taken::Yes,
                Offer::Hold => {
                    reading.leave(Renew::Rule);
                    return Taken::Yes;
                }
                Offer::Close(closed) => {
                    reading.closing = Some(closed);
                    continue;
                }
            }
            if !self.opens(reading) {
                return Taken::NoRoom;
            }
            let block = reading.block.as_mut().expect("a block was opened just now");
            match encode(&self.parts.pool, &mut self.parts.reader, &mut self.scratch, block, payload) {
                Encoded::Whole { spans, end_nanos_max, times, headers_cut } => {
                    self.scratch.commit_services(block.rows.totals());
                    block.add_message(message.offset(), spans, end_nanos_max);
                    self.parts.metrics.messages.count(spans, message.payload());
                    self.parts.metrics.times.count(&times);
                    self.parts.metrics.messages.count_cut_headers(headers_cut);
                    if let Some((counters, carry)) = self.rule_counters.as_ref().zip(self.scratch.carry()) {
                        counters.count(carry);
                    }
                    self.took(reading, message);
                    return Taken::Yes;
                }
                Encoded::NoRoom => return Taken::NoRoom,
                Encoded::BlockFull => {
                    reading.closing = reading.cutter.split();
                    if reading.closing.is_none() {
                        return self.reject(reading, message, &Reason::MessageTooLarge);
                    }
                }
                Encoded::Rejected(reason) => return self.reject(reading, message, &reason),
            }
        }
    }

    /// Adds a message to the open range, which may end with it.
    fn took(&mut self, reading: &mut Reading, message: &impl Message) {
        reading.rejected_in_a_row = 0;
        reading.closing = reading.cutter.take(message.offset(), message.payload());
        self.seal_taken(reading);
    }

    /// Seals the range that ended with the last message.
    fn seal_taken(&mut self, reading: &mut Reading) {
        if self.seal_closing(reading).is_err() {
            // The worker tries again before the next message.
            self.out_of_room = true;
        }
    }

    fn report(&self, report: Report) {
        #[expect(
            clippy::disallowed_methods,
            reason = "a worker waits while the poll thread takes no reports"
        )]
        let sent = self.parts.reports.send(report);
        if sent.is_err() {
            // The poll thread has ended, so the process is ending: nothing is committed any more.
        }
    }
}

#[cfg(test)]
mod tests;
