//! Blocks that wait until they may be sent, and then for their turn.
//!
//! Place in the flow: delivery puts every block and every order of the poll thread in here, and takes out what is to be sent.
//! Owner: the delivery task. Limits: every block holds chunks of the pool or a record on the queue volume, which bound them;
//! releases that came before their block are bounded by the ranges in flight.
//!
//! Blocks come out in the order in which they were released, of each partition at most [`Held::new`]'s number at a time: a block that
//! is refused, and waits for someone to act, holds up blocks of its own partition at the most.

use crate::{
    blocks::block::Block,
    volume::{
        block_frames::BlockFrames,
        enqueue::{Enqueued, Enqueuing},
        spool::{Ended, Spool},
    },
};
use sluice_clickhouse::column::TableColumns;
use sluice_kafka::{Generation, Order, PartitionId, ranges::Release};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;

/// Whether the generation of a block is still ours: shared by everything that is being sent of it.
#[derive(Debug, Default)]
pub struct GenerationStatus {
    is_over: AtomicBool,
    /// Whether that is because this process leaves.
    is_leaving: AtomicBool,
    /// When the partition was last known to be ours, in ms by [`sluice_kafka::clock`].
    proved_ms: AtomicU64,
    /// Blocks of it that wait for someone to act.
    halted: AtomicUsize,
    told: Notify,
}

/// Stands for a block that waits for someone to act; dropped when it has ended.
#[derive(Debug)]
pub struct Halting(Arc<GenerationStatus>);

impl Halting {
    /// One more of this generation.
    pub fn of(generation: &Arc<GenerationStatus>) -> Self {
        generation.halted.fetch_add(1, Ordering::Relaxed);
        Self(generation.clone())
    }
}

impl Drop for Halting {
    fn drop(&mut self) {
        self.0.halted.fetch_sub(1, Ordering::Relaxed);
    }
}

impl GenerationStatus {
    /// Whether another owner has the partition.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Waits until another owner has it.
    pub async fn over(&self) {
        let told = self.told.notified();
        if !self.is_over() {
            told.await;
        }
    }

    /// When the partition was last known to be ours, by [`sluice_kafka::clock`]; zero when nobody has said since it was assigned.
    pub fn proved(&self) -> Duration {
        Duration::from_millis(self.proved_ms.load(Ordering::Relaxed))
    }

    fn prove(&self, at: Duration) {
        self.proved_ms.fetch_max(u64::try_from(at.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Whether it is over because this process leaves: what is on the queue volume is for its next run.
    pub fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Acquire)
    }

    fn end(&self, is_leaving: bool) {
        self.is_leaving.store(is_leaving, Ordering::Release);
        self.is_over.store(true, Ordering::Release);
        self.told.notify_waiters();
    }
}

/// A block and where its bytes are.
#[derive(Debug)]
pub struct Stowed {
    /// The block, without its frames.
    pub block: Block,
    /// Those.
    pub frames: Arc<BlockFrames>,
}

impl Stowed {
    /// Gives it up: its messages are another owner's, if Kafka still has them. Its record, if it has one, stays until that was asked,
    /// with `is_leaving` by the next run.
    pub fn abandon(self, spool: Option<&Spool>, is_leaving: bool) {
        if !is_leaving {
            self.frames.end(spool, Ended::Orphaned);
        }
        self.block.account.abandon();
    }
}

/// One partition's blocks, by the first offset of their range.
#[derive(Debug, Default)]
struct OfPartition {
    /// The latest generation that is over.
    forgotten: Option<Generation>,
    blocks: BTreeMap<i64, Stowed>,
    released: BTreeMap<i64, Release>,
    generations: BTreeMap<Generation, Arc<GenerationStatus>>,
    /// Blocks that may be sent, with their place among all of them.
    ready: VecDeque<(u64, Ready)>,
    /// Blocks that were taken out to be sent, and are not done.
    sending: usize,
    /// Where their bytes are, and of some that are done.
    sent: Vec<Weak<BlockFrames>>,
}

/// What waits of a partition, for its sink and not for someone to act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// Blocks have no turn to be sent.
    pub for_turn: bool,
    /// Blocks are on the queue volume.
    pub on_volume: bool,
}

/// All blocks that wait.
#[derive(Debug)]
pub struct Held {
    partitions: BTreeMap<PartitionId, OfPartition>,
    /// Blocks of one partition that are being sent at a time.
    sending_max: usize,
    /// Blocks that were released so far.
    releases: u64,
}

/// A block that may be sent.
#[derive(Debug)]
pub struct Ready {
    /// The block.
    pub stowed: Stowed,
    /// What its release says.
    pub release: Release,
    /// Whether its generation is still ours.
    pub generation: Arc<GenerationStatus>,
    /// The columns that it was encoded for, where those are not the ones that rows are encoded for now.
    pub columns: Option<Arc<TableColumns>>,
    /// Rows of it that are in the table or are read again, or may be: once it is in, they may be doubled.
    pub rows_elsewhere: u64,
}

impl Held {
    /// Nothing waits. Of each partition `sending_max` blocks are sent at a time.
    pub fn new(sending_max: usize) -> Self {
        Self { partitions: BTreeMap::new(), sending_max, releases: 0 }
    }

    /// Takes a block in. Gives back those to be given up: this one when its generation is over.
    #[must_use]
    pub fn block(&mut self, stowed: Stowed) -> Vec<Stowed> {
        let of = self.partitions.entry(stowed.block.id.clone()).or_default();
        if of.forgotten.is_some_and(|forgotten| stowed.block.generation <= forgotten) {
            return vec![stowed];
        }
        let first = stowed.block.range.first;
        of.blocks.insert(first, stowed);
        if let Some(release) = of.released.remove(&first) {
            of.release(release, &mut self.releases);
        }
        Vec::new()
    }

    /// Takes an order. Gives back the blocks to be given up.
    #[must_use]
    pub fn order(&mut self, order: Order) -> Vec<Stowed> {
        match order {
            Order::Send { id, generation, release } => {
                let of = self.partitions.entry(id).or_default();
                if of.forgotten.is_none_or(|forgotten| generation > forgotten) {
                    of.release(release, &mut self.releases);
                }
                Vec::new()
            }
            Order::Proved { id, generation, at, offset: _ } => {
                let of = self.partitions.entry(id).or_default();
                if of.forgotten.is_none_or(|forgotten| generation > forgotten) {
                    of.generations.entry(generation).or_default().prove(at);
                }
                Vec::new()
            }
            // Delivery has the blocks.
            Order::TakeOver { .. } => Vec::new(),
            Order::Forget { id, generation, is_leaving } => self.forget(&id, generation, is_leaving),
        }
    }

    /// The next block to send. [`Self::done`] must be said of it.
    pub fn pop(&mut self) -> Option<Ready> {
        let may_send = |of: &&mut OfPartition| of.sending < self.sending_max && !of.ready.is_empty();
        let oldest = |of: &&mut OfPartition| of.ready.front().map(|(place, _)| *place);
        let of = self.partitions.values_mut().filter(may_send).min_by_key(oldest)?;
        let (_, ready) = of.ready.pop_front()?;
        of.sending += 1;
        of.sent.retain(|frames| frames.strong_count() > 0);
        of.sent.push(Arc::downgrade(&ready.stowed.frames));
        Some(ready)
    }

    /// A block of this partition is not being sent any more.
    pub fn done(&mut self, id: &PartitionId) {
        if let Some(of) = self.partitions.get_mut(id) {
            of.sending = of.sending.saturating_sub(1);
        }
    }

    /// Whether a block may be sent that is not.
    pub fn has_ready(&self) -> bool {
        self.partitions.values().any(|of| !of.ready.is_empty())
    }

    /// What waits for its sink, by partition. What an earlier run has left is not here, nor is a partition whose blocks all wait for
    /// someone to act.
    pub fn waiting(&self) -> impl Iterator<Item = (&PartitionId, Waiting)> {
        let flows = |(_, of): &(&PartitionId, &OfPartition)| !of.is_halted();
        self.partitions
            .iter()
            .filter(flows)
            .map(|(id, of)| (id, Waiting { for_turn: !of.ready.is_empty(), on_volume: of.has_on_volume() }))
    }

    /// Blocks that may be sent and have become only copies on the volume since the last question.
    pub fn become_only_copies(&mut self) -> Vec<Enqueued> {
        let ready = self.partitions.values().flat_map(|of| &of.ready).map(|(_, ready)| ready);
        let new =
            ready.filter_map(|ready| Some((Enqueuing::of(ready), ready.stowed.frames.become_only_copy()?)));
        new.map(|(enqueuing, record)| Enqueued { enqueuing, record }).collect()
    }

    /// Blocks that wait.
    pub fn len(&self) -> usize {
        self.partitions.values().map(|of| of.blocks.len() + of.ready.len()).sum()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn forget(&mut self, id: &PartitionId, generation: Generation, is_leaving: bool) -> Vec<Stowed> {
        let Some(of) = self.partitions.get_mut(id) else { return Vec::new() };
        of.forgotten = of.forgotten.max(Some(generation));
        let is_over = |stowed: &Stowed| stowed.block.generation <= generation;
        let mut dropped: Vec<Stowed> =
            of.blocks.extract_if(.., |_, stowed| is_over(stowed)).map(|(_, stowed)| stowed).collect();
        // A generation's releases are given before the next one begins.
        of.released.clear();
        while let Some(entry) = of.generations.first_entry().filter(|entry| *entry.key() <= generation) {
            entry.remove().end(is_leaving);
        }
        let (over, ready): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut of.ready).into_iter().partition(|(_, ready)| {
                // The volume has the only copy of some: they are sent, whoever owns the partition.
                is_over(&ready.stowed) && !ready.stowed.frames.is_only_copy()
            });
        of.ready = ready;
        dropped.extend(over.into_iter().map(|(_, ready)| ready.stowed));
        dropped
    }
}

impl OfPartition {
    /// Whether everything that is being sent of it waits for someone to act.
    fn is_halted(&self) -> bool {
        let halted: usize =
            self.generations.values().map(|generation| generation.halted.load(Ordering::Relaxed)).sum();
        halted > 0 && halted >= self.sending
    }

    fn has_on_volume(&self) -> bool {
        let ready = self.ready.iter().map(|(_, ready)| &ready.stowed);
        self.blocks.values().chain(ready).any(|stowed| stowed.frames.is_on_volume())
            || self.sent.iter().filter_map(Weak::upgrade).any(|frames| frames.is_on_volume())
    }

    /// The block of a range may be sent now; it may be still on its way here.
    fn release(&mut self, release: Release, releases: &mut u64) {
        let Some(stowed) = self.blocks.remove(&release.range.first) else {
            self.released.insert(release.range.first, release);
            return;
        };
        let generation = self.generations.entry(stowed.block.generation).or_default().clone();
        *releases += 1;
        stowed.frames.release(release.routing_epoch, release.destination);
        self.ready
            .push_back((*releases, Ready { stowed, release, generation, columns: None, rows_elsewhere: 0 }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{blocks::message_rows::MessageRows, signals::account::RowAccount};
    use sluice_kafka::{
        OffsetRange,
        ranges::{Content, Token},
    };

    fn id(partition: i32) -> PartitionId {
        PartitionId { topic: "spans".into(), partition }
    }

    fn of(partition: i32, generation: u64, first: i64) -> Stowed {
        let range = OffsetRange { first, next: first + 10 };
        let id = id(partition);
        let mut block = Block {
            token: Token::of("c", &id, range, Content::default()),
            id,
            generation: Generation(generation),
            range,
            rows: 1,
            account: RowAccount::default().open().seal(1),
            messages: MessageRows::default(),
            raw_bytes: 1,
            frames: Vec::new(),
            bytes: 0,
            span_end_nanos_max: 0,
            passport: crate::volume::passport::Passport::default(),
        };
        let frames = BlockFrames::of(&mut block, 0);
        Stowed { block, frames }
    }

    fn block(generation: u64, first: i64) -> Stowed {
        of(3, generation, first)
    }

    fn send_of(partition: i32, generation: u64, first: i64) -> Order {
        let release = Release {
            range: OffsetRange { first, next: first + 10 },
            first_sent: 1,
            is_inherited: false,
            parts: None,
            routing_epoch: 0,
            destination: None,
        };
        Order::Send { id: id(partition), generation: Generation(generation), release }
    }

    fn send(generation: u64, first: i64) -> Order {
        send_of(3, generation, first)
    }

    fn forget(generation: u64) -> Order {
        Order::Forget { id: id(3), generation: Generation(generation), is_leaving: false }
    }

    fn next(held: &mut Held) -> Option<i64> {
        held.pop().map(|ready| ready.stowed.block.range.first)
    }

    #[test]
    fn a_block_waits_for_its_release_and_a_release_for_its_block() {
        let mut held = Held::new(9);
        assert!(held.block(block(1, 0)).is_empty());
        assert_eq!(next(&mut held), None);
        assert!(held.order(send(1, 10)).is_empty());
        assert!(held.order(send(1, 0)).is_empty());
        assert_eq!(next(&mut held), Some(0));
        assert!(held.block(block(1, 10)).is_empty());
        assert_eq!(next(&mut held), Some(10));
        assert_eq!(next(&mut held), None);
        assert!(held.is_empty());
    }

    #[test]
    fn a_generation_that_is_over_sends_nothing_more() {
        let mut held = Held::new(9);
        assert!(held.block(block(1, 0)).is_empty());
        assert!(held.order(send(1, 0)).is_empty());
        let generation = held.pop().unwrap().generation;
        assert!(held.block(block(1, 10)).is_empty());
        assert!(held.block(block(1, 20)).is_empty());
        assert!(held.order(send(1, 20)).is_empty());
        assert_eq!(held.order(forget(1)).len(), 2);
        assert!(generation.is_over());
        assert_eq!(next(&mut held), None);
        assert_eq!(held.block(block(1, 30)).len(), 1, "a late one is dropped too");
        assert!(held.order(send(1, 30)).is_empty());
        assert!(held.block(block(2, 10)).is_empty());
        assert!(held.order(send(2, 10)).is_empty());
        let begun = held.pop().unwrap();
        assert_eq!((begun.stowed.block.range.first, begun.generation.is_over()), (10, false));
    }

    #[test]
    fn an_only_copy_is_sent_after_its_generation_is_over() {
        let mut held = Held::new(9);
        let id_of = |first| sluice_spool::BlockId { segment: 1, ordinal: first };
        for first in [0, 10] {
            let stowed = block(1, first);
            let frames = BlockFrames::left(id_of(u32::try_from(first).unwrap()), false, true);
            assert!(held.block(Stowed { frames, ..stowed }).is_empty());
        }
        assert!(held.become_only_copies().is_empty(), "their ranges may not be sent yet");
        assert!(held.order(send(1, 0)).is_empty());
        let range = OffsetRange { first: 0, next: 10 };
        let enqueuing = Enqueuing { id: id(3), generation: Generation(1), range, is_inherited: false };
        assert_eq!(held.become_only_copies(), [Enqueued { enqueuing, record: id_of(0) }]);
        assert!(held.become_only_copies().is_empty());
        assert!(held.order(send(1, 10)).is_empty());
        assert_eq!(held.order(forget(1)).len(), 1, "the other one is read again");
        let ready = held.pop().unwrap();
        assert_eq!((ready.stowed.block.range, ready.generation.is_over()), (range, true));
        assert!(held.is_empty());
    }

    #[test]
    fn what_waits_for_someone_to_act_does_not_wait_for_its_sink() {
        let mut held = Held::new(2);
        let on_volume = |first: i64| {
            let id = sluice_spool::BlockId { segment: 1, ordinal: u32::try_from(first).unwrap() };
            Stowed { frames: BlockFrames::left(id, false, false), ..block(1, first) }
        };
        for first in [0, 10, 20] {
            assert!(held.block(on_volume(first)).is_empty());
            assert!(held.order(send(1, first)).is_empty());
        }
        let waits = |held: &Held| held.waiting().map(|(_, waiting)| waiting).collect::<Vec<_>>();
        assert_eq!(waits(&held), [Waiting { for_turn: true, on_volume: true }]);
        let sending = [held.pop().unwrap(), held.pop().unwrap()];
        let _one = Halting::of(&sending[0].generation);
        assert_eq!(waits(&held), [Waiting { for_turn: true, on_volume: true }], "the other one goes on");
        let other = Halting::of(&sending[1].generation);
        assert_eq!(waits(&held), []);
        assert!(held.block(of(2, 1, 500)).is_empty());
        assert_eq!(waits(&held), [Waiting { for_turn: false, on_volume: false }], "of the other partition");
        drop((other, sending));
        assert_eq!(waits(&held).len(), 2);
    }

    #[test]
    fn the_oldest_go_first_and_no_partition_takes_all_places() {
        let mut held = Held::new(2);
        for first in [0, 10, 20] {
            assert!(held.block(of(1, 1, first)).is_empty());
            assert!(held.order(send_of(1, 1, first)).is_empty());
        }
        assert!(held.block(of(2, 1, 500)).is_empty());
        assert!(held.order(send_of(2, 1, 500)).is_empty());
        assert_eq!([next(&mut held), next(&mut held), next(&mut held)], [Some(0), Some(10), Some(500)]);
        assert_eq!((next(&mut held), held.len()), (None, 1), "the third of the first partition waits");
        held.done(&id(1));
        assert_eq!(next(&mut held), Some(20));
    }
}
