//! The location of a sealed block's bytes: in memory, on the queue volume, or on the way there.
//!
//! Place in the flow: delivery creates one per sealed block. The block's shipment [loads](BlockFrames::load) it before each try. When
//! memory runs short, [`crate::volume::spill`] lets the spool thread move it. Owner: shared by these three, behind a lock that is never
//! held while waiting.
//!
//! ```text
//!  Memory ----begin_spill----> Spilling ----end_spill(id)----> Spooled
//!    ^                            |
//!    `-------end_spill(None)------'   (the volume is full)
//! ```
//!
//! A block that is being sent from memory is not moved, unless the process shuts down: its chunks would stay in use until the try ends. A
//! block that is being moved is not sent before it has arrived: the volume must record whether the block may have been sent.
//!
//! Dropping this value deletes no record. A record is kept until the block is [settled](BlockFrames::end) or given up, so a process that
//! ends leaves its records behind.
//!
//! Limits: about 200 bytes for a block on the volume; `sluice_spool::format::QUEUE_BLOCKS_MAX` blocks.

use crate::{
    blocks::{block::Block, message_rows::MessageRows, spool_metadata::SpoolMetadata},
    volume::spool::{Ended, Spool, Unreadable},
};
use bytes::Bytes;
use sluice_clickhouse::body::InsertBody;
use sluice_ranges::{Destination, OffsetRange};
use sluice_spool::{BlockHead, BlockId};
use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
};
use tokio::sync::Notify;

/// The bytes of a block, in memory or on the volume.
pub struct BlockFrames {
    state: Mutex<State>,
    /// Where its rows are safe; one of the constants below.
    keeping: AtomicU8,
    /// Whether its record says that its offsets may be committed, so that it may be the only copy.
    is_enqueued: bool,
    /// Whether it must stay in memory until its range may be sent.
    waits_for_release: AtomicBool,
    /// Whether its record is durable.
    is_synced: AtomicBool,
    /// Notified when it is no longer on its way.
    arrived: Notify,
}

/// Its range is in flight: Kafka has its messages.
const RANGED: u8 = 0;
/// The same, but it is sent in parts: its progress is in the partition's plan, together with the range.
const IN_PARTS: u8 = 1;
/// On the volume: no process reads its messages again, and it is kept when its partition is revoked.
const ONLY_COPY: u8 = 2;

enum State {
    Memory(InMemory),
    Spilling {
        from: InMemory,
        /// How the block ended meanwhile.
        ended: Option<Ended>,
    },
    Spooled(OnVolume),
    /// The block has ended.
    Gone,
}

struct InMemory {
    body: InsertBody,
    head: BlockHead,
    metadata: Bytes,
    /// Running tries that send it.
    tries: u32,
}

#[derive(Clone, Copy)]
struct OnVolume {
    id: BlockId,
    /// Whether the mark that it may have been sent is durable.
    is_marked: bool,
    /// Whether its checksum was right at the last read.
    is_verified: bool,
}

/// What a try sends.
pub struct Loaded {
    pub body: InsertBody,
    _in_memory: Option<Trying>,
}

impl Loaded {
    /// A part of a block, in memory.
    pub fn part(body: InsertBody) -> Self {
        Self { body, _in_memory: None }
    }
}

/// What is appended to the volume.
pub struct Leaving {
    /// Its header for the queue.
    pub head: BlockHead,
    pub metadata: Bytes,
    /// Its frames.
    pub body: InsertBody,
}

/// A try that sends a block from memory.
struct Trying(Arc<BlockFrames>);

impl Drop for Trying {
    fn drop(&mut self) {
        if let State::Memory(memory) | State::Spilling { from: memory, .. } = &mut *self.0.state() {
            memory.tries -= 1;
        }
    }
}

impl fmt::Debug for BlockFrames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match &*self.state() {
            State::Memory(_) => "Memory",
            State::Spilling { .. } => "Spilling",
            State::Spooled(_) => "Spooled",
            State::Gone => "Gone",
        };
        f.write_str(name)
    }
}

impl BlockFrames {
    /// Takes the bytes out of a block that was just sealed. `columns` is the number of the columns that they were encoded for.
    pub fn of(block: &mut Block, columns: u64) -> Arc<Self> {
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
        let is_enqueued = block.spool_metadata.is_enqueued;
        let frames = Self::at(State::Memory(InMemory { body, head, metadata, tries: 0 }), is_enqueued);
        // Without the release, a later run that finds its record could not know whether another owner has cut other ranges.
        frames.waits_for_release.store(is_enqueued, Ordering::Release);
        frames
    }

    /// For a block that an earlier run has left on the volume; `is_enqueued`: its record says that its offsets may be committed.
    pub fn left(id: BlockId, is_marked: bool, is_enqueued: bool) -> Arc<Self> {
        Self::at(State::Spooled(OnVolume { id, is_marked, is_verified: false }), is_enqueued)
    }

    /// For a block of which the volume has the only copy.
    pub fn only_copy(id: BlockId, is_marked: bool) -> Arc<Self> {
        let frames = Self::left(id, is_marked, true);
        frames.keeping.store(ONLY_COPY, Ordering::Release);
        frames
    }

    /// Records that its range may be sent, on the route of this epoch to this destination: every later owner makes the same range.
    pub fn release(&self, routing_epoch: u32, destination: Option<Destination>) {
        if let State::Memory(memory) = &mut *self.state() {
            memory.head.routing_epoch = Some(routing_epoch);
            memory.head.destination = destination.map(Destination::number);
        }
        self.waits_for_release.store(false, Ordering::Release);
    }

    /// Records that it is sent in parts. From now on its range stays in flight until it is stored, unless the range is no longer in flight.
    pub fn begin_parts(&self) {
        if self.keeping.compare_exchange(RANGED, IN_PARTS, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // It is an only copy, or was already in parts.
        }
    }

    /// Makes it an only copy if its durable record says that this may happen, and it has not ended. Returns its record if that is new:
    /// then its range counts as settled. A record of `delivery.commit: AfterInsert` never becomes one: a process that finds it below the
    /// committed offset would drop it. Such a block is inserted first, whatever the config says now.
    pub fn become_only_copy(&self) -> Option<BlockId> {
        let state = self.state();
        let State::Spooled(OnVolume { id, .. }) = &*state else { return None };
        let may = self.is_enqueued && self.is_synced.load(Ordering::Acquire);
        let becomes =
            || self.keeping.compare_exchange(RANGED, ONLY_COPY, Ordering::AcqRel, Ordering::Acquire).is_ok();
        (may && becomes()).then_some(*id)
    }

    /// Whether the volume has the only copy of its rows, so that it is inserted regardless of who owns its partition.
    pub fn is_only_copy(&self) -> bool {
        self.keeping.load(Ordering::Acquire) == ONLY_COPY
    }

    fn at(state: State, is_enqueued: bool) -> Arc<Self> {
        Arc::new(Self {
            // Blocks of an earlier run were synced when the queue was opened.
            is_synced: AtomicBool::new(matches!(state, State::Spooled(_))),
            state: Mutex::new(state),
            keeping: AtomicU8::new(RANGED),
            is_enqueued,
            waits_for_release: AtomicBool::new(false),
            arrived: Notify::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Poisoning is harmless: each change is one assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its bytes if it could be moved to the volume now.
    pub fn spillable_bytes(&self) -> Option<u64> {
        match &*self.state() {
            State::Memory(memory) if memory.tries == 0 => Some(memory.body.len()),
            _ => None,
        }
    }

    /// The bytes that are on their way to the volume.
    pub fn spilling_bytes(&self) -> Option<u64> {
        match &*self.state() {
            State::Spilling { from, .. } => Some(from.body.len()),
            _ => None,
        }
    }

    /// Whether it uses memory, now or until it has arrived on the volume.
    pub fn is_in_memory(&self) -> bool {
        matches!(&*self.state(), State::Memory(_) | State::Spilling { .. })
    }

    /// Whether its record is on the volume.
    pub fn is_on_volume(&self) -> bool {
        matches!(&*self.state(), State::Spooled(_))
    }

    /// Starts moving it. `None` if it is not in memory, must not go to the volume yet, or is being sent. With `anyhow`, a block that is
    /// being sent is copied, and its record says that it may have been sent.
    pub fn begin_spill(&self, anyhow: bool) -> Option<Leaving> {
        if self.waits_for_release.load(Ordering::Acquire) {
            return None;
        }
        let mut state = self.state();
        match std::mem::replace(&mut *state, State::Gone) {
            State::Memory(from) if anyhow || from.tries == 0 => {
                let InMemory { head, metadata, body, .. } = &from;
                let copy = Leaving { head: head.clone(), metadata: metadata.clone(), body: body.clone() };
                *state = State::Spilling { from, ended: None };
                Some(copy)
            }
            other => {
                *state = other;
                None
            }
        }
    }

    /// Records that it has arrived as this record, durably if `is_synced`, or stays in memory. Returns how the block has ended meanwhile,
    /// if it has; the caller must then end its record.
    pub fn end_spill(&self, id: Option<BlockId>, is_synced: bool) -> Option<Ended> {
        let mut state = self.state();
        self.is_synced.store(is_synced, Ordering::Release);
        let before = std::mem::replace(&mut *state, State::Gone);
        let mut gone = None;
        let mut chunks = None;
        *state = match (before, id) {
            (State::Spilling { ended: Some(ended), .. }, _) => {
                gone = Some(ended);
                State::Gone
            }
            (State::Spilling { from, ended: None }, Some(id)) => {
                let is_marked = from.head.first_sent_ms.is_some();
                chunks = Some(from);
                State::Spooled(OnVolume { id, is_marked, is_verified: false })
            }
            (State::Spilling { from, ended: None }, None) => State::Memory(from),
            (other, _) => other,
        };
        drop(state);
        drop(chunks);
        self.arrived.notify_waiters();
        gone
    }

    /// Prepares a block on the volume for a try that comes soon, so that other tries may send while this one waits for the disk.
    pub async fn prepare(self: &Arc<Self>, spool: Option<&Spool>, now_ms: u64) -> Result<(), Unreadable> {
        let Some(spool) = spool.filter(|_| !self.is_in_memory()) else { return Ok(()) };
        let _turn = spool.prepares().await;
        self.load(Some(spool), now_ms).await.map(drop)
    }

    /// The body for a try that starts now; `now_ms` is in ms since 1970. A record is marked as sent first, and its checksum is verified
    /// once.
    pub async fn load(self: &Arc<Self>, spool: Option<&Spool>, now_ms: u64) -> Result<Loaded, Unreadable> {
        loop {
            let arrived = self.arrived.notified();
            let on_volume = match &mut *self.state() {
                State::Memory(memory) => {
                    memory.tries += 1;
                    memory.head.first_sent_ms.get_or_insert(now_ms);
                    let body = memory.body.clone();
                    return Ok(Loaded { body, _in_memory: Some(Trying(self.clone())) });
                }
                State::Spooled(on_volume) => Some(*on_volume),
                State::Spilling { .. } => None,
                State::Gone => unreachable!("a block that has ended is not sent"),
            };
            match on_volume.zip(spool) {
                Some((on_volume, spool)) => return self.load_record(on_volume, spool, now_ms).await,
                None => arrived.await,
            }
        }
    }

    async fn load_record(&self, on: OnVolume, spool: &Spool, now_ms: u64) -> Result<Loaded, Unreadable> {
        let record = spool.open(on.id).await?;
        if !on.is_verified {
            record.verify().await?;
        }
        if !on.is_marked {
            spool.mark_sent(on.id, now_ms).await;
        }
        *self.state() = State::Spooled(OnVolume { is_marked: true, is_verified: true, ..on });
        Ok(Loaded { body: record.into_body(), _in_memory: None })
    }

    /// Makes the next try verify the record again. Call after a try without an answer: damage since the last verification interrupts
    /// every try.
    pub fn recheck_crc(&self) {
        if let State::Spooled(on) = &mut *self.state() {
            on.is_verified = false;
        }
    }

    /// The message of each of its rows.
    pub async fn messages(
        self: &Arc<Self>,
        spool: Option<&Spool>,
        now_ms: u64,
    ) -> Result<MessageRows, Unreadable> {
        // A loaded block is not moved.
        let _stays = self.load(spool, now_ms).await?;
        let place = match &*self.state() {
            State::Memory(memory) | State::Spilling { from: memory, .. } => Ok(memory.metadata.clone()),
            State::Spooled(on) => Err(on.id),
            State::Gone => {
                unreachable!("a block that is being tried stays where it is")
            }
        };
        let metadata = match (place, spool) {
            (Ok(metadata), _) => metadata,
            (Err(id), Some(spool)) => spool.open(id).await?.metadata().await?,
            (Err(_), None) => unreachable!("a block on the volume has one"),
        };
        let range = OffsetRange { first: 0, next: 0 };
        Ok(SpoolMetadata::decode(&metadata, range).map(|(_, messages)| messages).unwrap_or_default())
    }

    /// Records that the block has ended: its record, if there is one, is not needed any more.
    pub fn end(&self, spool: Option<&Spool>, ended: Ended) {
        let mut state = self.state();
        let before = std::mem::replace(&mut *state, State::Gone);
        match before {
            State::Spilling { from, .. } => *state = State::Spilling { from, ended: Some(ended) },
            State::Spooled(OnVolume { id, .. }) => {
                drop(state);
                if let Some(spool) = spool {
                    spool.end(id, ended);
                }
            }
            State::Memory(_) | State::Gone => {}
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
