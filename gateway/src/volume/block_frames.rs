//! The bytes of one block, for its shipment.
//!
//! Place in the flow: the [table](crate::volume::block_table) of the delivery task makes one for each block; the block's shipment
//! [loads](BlockFrames::load) it before each try. Owner: the shipment's task. It asks the delivery task where the bytes are until they are
//! on the volume, where they stay.
//!
//! Limits: one question at a time.

use crate::{
    blocks::{message_rows::MessageRows, spool_metadata::SpoolMetadata},
    volume::{
        block_table::{Event, Events, Number, OnVolume},
        spool::{Ended, Spool, Unreadable, answered},
    },
};
use bytes::Bytes;
use sluice_clickhouse::body::InsertBody;
use sluice_ranges::OffsetRange;
use sluice_spool::BlockId;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use tokio::sync::oneshot;

/// The bytes of a block, in memory or on the volume.
#[derive(Debug)]
pub struct BlockFrames {
    /// Its number in the table; 0 for an only copy of an earlier run, which is in no table.
    number: Number,
    /// Tells the delivery task; `None` for a block that is in no table.
    events: Option<Events>,
    /// Its record, once it is known.
    record: Option<OnVolume>,
    /// Whether its checksum was right at the last read.
    is_verified: bool,
    /// Set by the delivery task.
    is_only_copy: Arc<AtomicBool>,
}

/// What a try sends.
pub struct Loaded {
    pub body: InsertBody,
    /// The metadata of a block in memory.
    metadata: Option<Bytes>,
    /// Counts the try while the block is in memory.
    _in_memory: Option<Arc<()>>,
}

impl Loaded {
    /// A part of a block, in memory.
    pub fn part(body: InsertBody) -> Self {
        Self { body, metadata: None, _in_memory: None }
    }

    pub(super) fn in_memory(body: InsertBody, metadata: Bytes, tries: Arc<()>) -> Self {
        Self { body, metadata: Some(metadata), _in_memory: Some(tries) }
    }
}

impl BlockFrames {
    /// For a block of the table.
    pub(super) fn of(number: Number, events: Events, is_only_copy: Arc<AtomicBool>) -> Self {
        Self { number, events: Some(events), record: None, is_verified: false, is_only_copy }
    }

    /// For a block whose only copy is on the volume.
    pub fn only_copy(id: BlockId, is_marked: bool) -> Self {
        // If it cannot be read, its shipment counts its rows as lost.
        let record = Some(OnVolume { id, is_marked, is_in_kafka: true });
        let is_only_copy = Arc::new(AtomicBool::new(true));
        Self { number: 0, events: None, record, is_verified: false, is_only_copy }
    }

    /// Its number in the table, if it is in one.
    pub fn number(&self) -> Number {
        self.number
    }

    /// Sets its record, if that is known: it may have been moved while it waited.
    pub fn found(&mut self, record: Option<OnVolume>) {
        self.record = record;
    }

    /// Whether the volume has the only copy of its rows, so that it is inserted regardless of who owns its partition. It does not change
    /// any more after [`Self::begin_parts`] or [`Self::end`].
    pub fn is_only_copy(&self) -> bool {
        self.is_only_copy.load(Ordering::Acquire)
    }

    /// The same, for a task that waits.
    pub fn only_copy_flag(&self) -> Arc<AtomicBool> {
        self.is_only_copy.clone()
    }

    /// Tells the delivery task, and waits for the answer. `None` for a block that is in no table.
    async fn tell<T>(&self, event: impl FnOnce(oneshot::Sender<T>) -> Event) -> Option<T> {
        let (answer, answer_in) = oneshot::channel();
        if self.events.as_ref()?.send((self.number, event(answer))).await.is_err() {
            // Delivery has ended, and this shipment with it.
        }
        Some(answered(answer_in).await)
    }

    /// Prepares a block on the volume for a try that comes soon, so that other tries may send while this one waits for the disk.
    pub async fn prepare(&mut self, spool: Option<&Spool>, now_ms: u64) -> Result<(), Unreadable> {
        let Some(spool) = spool.filter(|_| self.record.is_some()) else { return Ok(()) };
        let _turn = spool.prepares().await;
        self.load(Some(spool), now_ms).await.map(drop)
    }

    /// The body for a try that starts now; `now_ms` is in ms since 1970. A record is marked as sent first, and its checksum is verified
    /// once.
    pub async fn load(&mut self, spool: Option<&Spool>, now_ms: u64) -> Result<Loaded, Unreadable> {
        if self.record.is_none() {
            match self.tell(|answer| Event::Load { now_ms, answer }).await {
                Some(Ok(loaded)) => return Ok(loaded),
                Some(Err(record)) => self.record = Some(record),
                None => {}
            }
        }
        let (record, spool) =
            self.record.as_mut().zip(spool).expect("what is not in memory is on the volume");
        let content = spool.open(record.id).await?;
        if !self.is_verified {
            content.verify().await?;
        }
        if !record.is_marked {
            spool.mark_sent(record.id, now_ms).await;
        }
        (record.is_marked, self.is_verified) = (true, true);
        Ok(Loaded::part(content.into_body()))
    }

    /// Makes the next try verify the record again. Call after a try without an answer: damage since the last verification interrupts
    /// every try.
    pub fn recheck_crc(&mut self) {
        self.is_verified = false;
    }

    /// The message of each of its rows.
    pub async fn messages(&mut self, spool: Option<&Spool>, now_ms: u64) -> Result<MessageRows, Unreadable> {
        let metadata = match (self.load(spool, now_ms).await?.metadata, self.record.zip(spool)) {
            (Some(metadata), _) => metadata,
            (None, Some((record, spool))) => spool.open(record.id).await?.metadata().await?,
            (None, None) => unreachable!("what is not in memory is on the volume"),
        };
        let range = OffsetRange { first: 0, next: 0 };
        Ok(SpoolMetadata::decode(&metadata, range).map(|(_, messages)| messages).unwrap_or_default())
    }

    /// Records that it is sent in parts. From now on its range stays in flight until it is stored, unless the range is no longer in flight.
    pub async fn begin_parts(&self) {
        self.tell(|done| Event::BeginParts { done }).await;
    }

    /// Records that the block has ended: its record, if there is one, is not needed any more.
    pub async fn end(&self, spool: Option<&Spool>, ended: Ended) {
        let told = self.tell(|done| Event::End { ended, done }).await;
        if let (None, Some((record, spool))) = (told, self.record.zip(spool)) {
            spool.end(record.id, ended);
        }
    }
}
