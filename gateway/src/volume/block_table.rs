//! The state of every block that delivery has: where its bytes are, and whether the volume has the only copy of its rows.
//!
//! Place in the flow: delivery adds each block and removes it when it has ended. [`crate::volume::spill`] moves blocks to the volume. A
//! block's shipment asks for its bytes before each try, through its [`BlockFrames`]. Owner: the delivery task, which alone changes a
//! state. Shipments and the spool thread send it [events](Event).
//!
//! ```text
//!                                  the record is durable, and counts as settled
//!  InMemory --spill--> coming --arrived--> OnVolume ----------------------------> OnlyCopy
//!     ^                  |
//!     `--- no room ------'
//! ```
//!
//! A block that is being sent from memory is not moved, unless the process shuts down: its chunks would stay in use until the try ends. A
//! block that is being moved is not sent before it has arrived: the volume must record whether the block may have been sent.
//!
//! Removing a block deletes no record. A record is kept until the block is [settled](BlockTable::end) or given up, so a process that ends
//! leaves its records behind.
//!
//! Limits: [`EVENTS_MAX`]; about 300 bytes for each block on the volume, which has at most `sluice_spool::format::QUEUE_BLOCKS_MAX`. The
//! pool of chunks bounds the blocks in memory.

use crate::{
    blocks::block::Block,
    volume::{
        block_frames::{BlockFrames, Loaded},
        ready_block::BlockWithFrames,
        spool::{Ended, Leaving, SPILLS_MAX, Spool},
    },
};
use bytes::Bytes;
use sluice_clickhouse::body::InsertBody;
use sluice_ranges::{Destination, Generation, OffsetRange, PartitionId, Release};
use sluice_spool::{BlockHead, BlockId};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};
use tokio::sync::{mpsc, oneshot};

/// Events that wait for the delivery task. Chosen: [`SPILLS_MAX`] blocks on their way, for which room is reserved, and more shipments than
/// a gateway usually has. Each has one question at a time, and its task waits when there is no room.
const EVENTS_MAX: usize = 256;

/// The number of a block: in the order of their arrival, from 1.
pub type Number = u64;

/// Where the bytes of a block are.
enum State {
    /// In memory; also while it is on its way to the volume.
    InMemory(Box<InMemory>),
    /// On the volume, while its range is in flight: Kafka has its messages.
    OnVolume(OnVolume),
    /// On the volume: no process reads its messages again, and it is kept when its partition is revoked.
    OnlyCopy(OnVolume),
}

struct InMemory {
    body: InsertBody,
    head: BlockHead,
    metadata: Bytes,
    /// Each running try that sends it has a copy.
    tries: Arc<()>,
    coming: Option<Coming>,
}

/// A block on its way to the volume.
struct Coming {
    /// How the block has ended meanwhile. The spool thread looks at it when it has written the record.
    ended: Arc<OnceLock<Ended>>,
    /// A try that waits until it has arrived, and its time in ms since 1970.
    asked: Option<(u64, oneshot::Sender<Result<Loaded, OnVolume>>)>,
}

/// A record on the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnVolume {
    pub id: BlockId,
    /// Whether the mark that it may have been sent is durable.
    pub is_marked: bool,
    /// Whether its messages are read again if it cannot be read. `false` if its partition has taken it over from an earlier run although Kafka
    /// did not have all of them.
    pub is_in_kafka: bool,
}

struct Entry {
    id: PartitionId,
    /// The position of its shard in the config.
    shard: usize,
    came: Instant,
    state: State,
    /// Whether it may become an only copy: its record says that its offsets may be committed, and it is not sent in parts. The progress of
    /// parts is in the partition's plan, together with the range.
    may_be_only_copy: bool,
    /// Set once its range may be sent.
    released: Option<Released>,
    /// Tells its shipment that it is an only copy.
    is_only_copy: Arc<AtomicBool>,
}

/// A block whose range may be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Released {
    /// Its partition.
    pub id: PartitionId,
    /// The generation under which it was read.
    pub generation: Generation,
    /// Its offsets.
    pub range: OffsetRange,
    /// Whether an earlier owner may have sent it.
    pub is_inherited: bool,
}

/// A change of a block, or a question about it, for the delivery task.
pub enum Event {
    /// A try starts at this time, in ms since 1970. The answer is what it sends, or the block's record.
    Load { now_ms: u64, answer: oneshot::Sender<Result<Loaded, OnVolume>> },
    /// It is sent in parts from now on.
    BeginParts { done: oneshot::Sender<()> },
    /// It has ended.
    End { ended: Ended, done: oneshot::Sender<()> },
    /// It has this record, and whether that is durable. `None` without room, or if the spool thread has ended the record because the block
    /// has ended.
    Arrived { record: Option<(BlockId, bool)> },
}

pub type Events = mpsc::Sender<(Number, Event)>;

/// With this, the spool thread reports that a block has arrived.
pub struct Arrival {
    number: Number,
    ended: Arc<OnceLock<Ended>>,
    room: mpsc::OwnedPermit<(Number, Event)>,
}

impl Arrival {
    /// Reports that it has arrived as this record, durably if `is_synced`, or stays in memory. Returns how the block has ended meanwhile,
    /// if it has; the caller must then end its record.
    pub fn arrive(self, record: Option<BlockId>, is_synced: bool) -> Option<Ended> {
        let ended = self.ended.get().copied();
        let record = record.filter(|_| ended.is_none()).map(|record| (record, is_synced));
        self.room.send((self.number, Event::Arrived { record }));
        ended
    }
}

/// The blocks of the delivery task.
pub struct BlockTable {
    entries: BTreeMap<Number, Entry>,
    /// Those that use memory.
    in_memory: BTreeSet<Number>,
    /// Those that may be sent and whose record is durable, until they were considered as only copies.
    durable: BTreeSet<Number>,
    /// Number of blocks on the volume, by partition.
    on_volume: BTreeMap<PartitionId, usize>,
    /// Number of blocks on their way to the volume, and their bytes by shard.
    coming: usize,
    coming_bytes: Vec<u64>,
    next: Number,
    spool: Option<Spool>,
    events: Events,
    /// For [`Self::take`].
    pub events_in: mpsc::Receiver<(Number, Event)>,
}

impl BlockTable {
    /// Without blocks, for this many shards.
    pub fn new(spool: Option<Spool>, shards: usize) -> Self {
        let (events, events_in) = mpsc::channel(EVENTS_MAX);
        Self {
            entries: BTreeMap::new(),
            in_memory: BTreeSet::new(),
            durable: BTreeSet::new(),
            on_volume: BTreeMap::new(),
            coming: 0,
            coming_bytes: vec![0; shards.max(1)],
            next: 1,
            spool,
            events,
            events_in,
        }
    }

    /// Adds a block that was just sealed, of this shard, encoded for the columns with this number. Takes its bytes out.
    pub fn add(&mut self, mut block: Block, columns: u64, shard: usize, now: Instant) -> BlockWithFrames {
        let body = InsertBody::new(std::mem::take(&mut block.frames));
        let messages = std::mem::take(&mut block.messages);
        let metadata = Bytes::from(block.spool_metadata.encode(&messages));
        let head = BlockHead {
            topic: block.id.topic.clone(),
            partition: block.id.partition,
            first: block.range.first,
            next: block.range.next,
            token: block.token.to_string().into_bytes().into(),
            rows: block.rows,
            raw_bytes: block.raw_bytes,
            span_end_nanos_max: block.span_end_nanos_max,
            first_sent_ms: None,
            // Set by the release of its range.
            routing_epoch: None,
            destination: None,
            columns,
            metadata_bytes: u32::try_from(metadata.len()).expect("a spool_metadata has some hundred bytes"),
        };
        self.in_memory.insert(self.next);
        let memory = InMemory { body, head, metadata, tries: Arc::default(), coming: None };
        self.insert(block, State::InMemory(Box::new(memory)), (shard, now))
    }

    /// Adds a block that an earlier run has left on the volume.
    pub fn take_over(&mut self, block: Block, record: OnVolume) -> BlockWithFrames {
        *self.on_volume.entry(block.id.clone()).or_default() += 1;
        self.insert(block, State::OnVolume(record), (0, Instant::now()))
    }

    fn insert(&mut self, block: Block, state: State, (shard, came): (usize, Instant)) -> BlockWithFrames {
        let (id, is_only_copy) = (block.id.clone(), Arc::<AtomicBool>::default());
        let frames = BlockFrames::of(self.next, self.events.clone(), is_only_copy.clone());
        let may_be_only_copy = block.spool_metadata.is_enqueued;
        let entry = Entry { id, shard, came, state, may_be_only_copy, released: None, is_only_copy };
        self.entries.insert(self.next, entry);
        self.next += 1;
        BlockWithFrames { block, frames }
    }

    /// Records that the range of a block may be sent: every later owner makes the same range.
    pub fn release(&mut self, sealed: &BlockWithFrames, release: &Release) {
        let (block, number) = (&sealed.block, sealed.frames.number());
        let Some(entry) = self.entries.get_mut(&number) else { return };
        match &mut entry.state {
            State::InMemory(memory) => {
                memory.head.routing_epoch = Some(release.routing_epoch);
                memory.head.destination = release.destination.map(Destination::number);
            }
            // Left by an earlier run: those were synced when the queue was opened. Others that may be committed are released in memory.
            State::OnVolume(_) | State::OnlyCopy(_) => drop(self.durable.insert(number)),
        }
        // An earlier owner has sent it in parts: the plan that says so must hold until the block has ended.
        entry.may_be_only_copy &= release.parts.is_none();
        let (id, is_inherited) = (block.id.clone(), release.is_inherited);
        entry.released =
            Some(Released { id, generation: block.generation, range: block.range, is_inherited });
    }

    /// Applies an event.
    pub fn take(&mut self, (number, event): (Number, Event)) {
        match event {
            Event::Load { now_ms, answer } => self.load(number, now_ms, answer),
            Event::BeginParts { done } => {
                if let Some(entry) = self.entries.get_mut(&number) {
                    entry.may_be_only_copy = false;
                }
                reply(done, ());
            }
            Event::End { ended, done } => {
                self.end(number, ended);
                reply(done, ());
            }
            Event::Arrived { record } => self.arrived(number, record),
        }
    }

    fn load(&mut self, number: Number, now_ms: u64, answer: oneshot::Sender<Result<Loaded, OnVolume>>) {
        let entry = self.entries.get_mut(&number).expect("a block that has ended is not sent");
        let loaded = match &mut entry.state {
            State::InMemory(memory) => {
                if let Some(coming) = &mut memory.coming {
                    coming.asked = Some((now_ms, answer));
                    return;
                }
                memory.head.first_sent_ms.get_or_insert(now_ms);
                Ok(Loaded::in_memory(memory.body.clone(), memory.metadata.clone(), memory.tries.clone()))
            }
            State::OnVolume(record) | State::OnlyCopy(record) => Err(*record),
        };
        reply(answer, loaded);
    }

    /// The record of a block, if it is on the volume.
    pub fn record(&self, number: Number) -> Option<OnVolume> {
        match self.entries.get(&number)?.state {
            State::InMemory(_) => None,
            State::OnVolume(record) | State::OnlyCopy(record) => Some(record),
        }
    }

    /// Hands a block over to the spool thread. `None` if it is not in memory, must not be moved now, or the thread has no room.
    pub fn spill(&mut self, number: Number) -> Option<()> {
        let (spool, entry) = (self.spool.as_ref()?, self.entries.get_mut(&number)?);
        let State::InMemory(memory) = &mut entry.state else { return None };
        // Without the release, a later run that finds its record could not know whether another owner has cut other ranges.
        let waits_for_release = entry.may_be_only_copy && entry.released.is_none();
        // During the shutdown, a block that is being sent is copied, and its record says that it may have been sent.
        let is_sent = Arc::strong_count(&memory.tries) > 1 && !spool.spills_everything();
        if memory.coming.is_some() || waits_for_release || is_sent {
            return None;
        }
        let InMemory { body, head, metadata, .. } = &**memory;
        let leaving = Leaving { head: head.clone(), metadata: metadata.clone(), body: body.clone() };
        let (ended, room) = (Arc::default(), self.events.clone().try_reserve_owned().ok()?);
        let arrival = Arrival { number, ended: Arc::clone(&ended), room };
        spool.spill(leaving, arrival).then(|| {
            self.coming += 1;
            self.coming_bytes[entry.shard] += memory.body.len();
            memory.coming = Some(Coming { ended, asked: None });
        })
    }

    fn arrived(&mut self, number: Number, record: Option<(BlockId, bool)>) {
        let entry = self.entries.get_mut(&number).expect("it stays until it has arrived");
        let State::InMemory(memory) = &mut entry.state else { return };
        let Some(Coming { ended, asked }) = memory.coming.take() else { return };
        self.coming -= 1;
        self.coming_bytes[entry.shard] -= memory.body.len();
        if let Some((id, is_synced)) = record {
            let is_marked = memory.head.first_sent_ms.is_some();
            entry.state = State::OnVolume(OnVolume { id, is_marked, is_in_kafka: true });
            self.in_memory.remove(&number);
            *self.on_volume.entry(entry.id.clone()).or_default() += 1;
            if is_synced && entry.released.is_some() {
                self.durable.insert(number);
            }
        }
        if let Some(ended) = ended.get() {
            self.end(number, *ended);
        } else if let Some((now_ms, answer)) = asked {
            self.load(number, now_ms, answer);
        }
    }

    /// Makes a block an only copy, and returns its record; `None` when there is no further one. Its durable record must say that this may
    /// happen, its range may be sent, and it has not ended. Its range then counts as settled. A record of `delivery.commit: AfterInsert`
    /// never becomes one: a process that finds it below the committed offset would drop it. Such a block is inserted first, whatever the
    /// config says now.
    pub fn next_only_copy(&mut self) -> Option<(Released, BlockId)> {
        while let Some(number) = self.durable.pop_first() {
            let Some(Entry { state, may_be_only_copy: true, released: Some(released), is_only_copy, .. }) =
                self.entries.get_mut(&number)
            else {
                continue;
            };
            if let State::OnVolume(record) = *state {
                *state = State::OnlyCopy(record);
                is_only_copy.store(true, Ordering::Release);
                return Some((released.clone(), record.id));
            }
        }
        None
    }

    /// Removes a block that has ended: its record, if there is one, is not needed any more.
    pub fn end(&mut self, number: Number, ended: Ended) {
        self.durable.remove(&number);
        let Some(entry) = self.entries.get(&number) else { return };
        match &entry.state {
            State::InMemory(memory) => {
                if let Some(coming) = &memory.coming {
                    // It is removed when it has arrived. A block ends once.
                    coming.ended.get_or_init(|| ended);
                    return;
                }
                self.in_memory.remove(&number);
            }
            State::OnVolume(record) | State::OnlyCopy(record) => {
                self.on_volume.entry(entry.id.clone()).and_modify(|count| *count -= 1);
                let is_its_range = matches!(entry.state, State::OnVolume(_));
                // Found to be an only copy, it is counted as lost. Of a block that is one already, its shipment has counted the rows.
                let is_lost = ended == Ended::Damaged && is_its_range && !record.is_in_kafka;
                let ended = if is_lost { Ended::Orphaned } else { ended };
                if let Some(spool) = &self.spool {
                    spool.end(record.id, ended);
                }
            }
        }
        self.entries.remove(&number);
    }

    /// Whether a block uses memory, now or until it has arrived on the volume.
    pub fn uses_memory(&self) -> bool {
        !self.in_memory.is_empty()
    }

    /// The blocks that use memory, in the order of their arrival, with their shards.
    pub fn in_memory(&self) -> impl Iterator<Item = (Number, usize, Instant)> {
        let entry =
            |number| self.entries.get(number).map(|Entry { shard, came, .. }| (*number, *shard, *came));
        self.in_memory.iter().filter_map(entry)
    }

    /// Whether a partition has blocks on the volume.
    pub fn is_on_volume(&self, id: &PartitionId) -> bool {
        self.on_volume.get(id).is_some_and(|count| *count > 0)
    }

    /// Whether the volume takes another block now.
    pub fn takes_blocks(&self) -> bool {
        self.coming < SPILLS_MAX && self.spool.as_ref().is_some_and(Spool::has_room)
    }

    /// Bytes on their way to the volume, whose memory is free soon, by shard.
    pub fn coming_bytes(&self) -> &[u64] {
        &self.coming_bytes
    }
}

fn reply<T>(to: oneshot::Sender<T>, reply: T) {
    if to.send(reply).is_err() {
        // The shipment has been dropped: the process ends.
    }
}

#[cfg(test)]
impl BlockTable {
    /// Whether a block is on the volume, or on its way there.
    pub(crate) fn was_moved(&self, number: Number) -> bool {
        !matches!(&self.entries[&number].state, State::InMemory(memory) if memory.coming.is_none())
    }
}

#[cfg(test)]
mod tests;
