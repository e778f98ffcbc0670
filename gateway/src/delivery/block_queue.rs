//! Blocks that wait for permission to be sent, and then for their turn.
//!
//! Place in the flow: delivery adds every block and every order of the poll thread, and takes out the blocks to send. Owner: the delivery
//! task. Limits: every block holds chunks of the pool or a record on the queue volume, which bound their number. Releases that arrive
//! before their block are bounded by the ranges in flight.
//!
//! Blocks come out in the order of their releases, at most [`BlockQueue::new`]'s number of each partition at a time. A refused block that
//! waits for someone to act can thus delay only blocks of its own partition.

use crate::{
    delivery::enqueue::{Enqueued, Enqueuing},
    volume::{
        block_frames::BlockFrames,
        ready_block::{BlockWithFrames, GenerationStatus, Ready},
    },
};
use sluice_kafka::Order;
use sluice_ranges::{Generation, PartitionId, Release};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Weak},
};

/// One partition's blocks, by the first offset of their range.
#[derive(Debug, Default)]
struct OfPartition {
    /// The latest generation that is over.
    forgotten: Option<Generation>,
    blocks: BTreeMap<i64, BlockWithFrames>,
    released: BTreeMap<i64, Release>,
    generations: BTreeMap<Generation, Arc<GenerationStatus>>,
    /// Blocks that may be sent, with their position among all of them.
    ready: VecDeque<(u64, Ready)>,
    /// Blocks that were taken out to be sent and have not ended.
    sending: usize,
    /// The frames of blocks taken out, including some that have ended.
    sent: Vec<Weak<BlockFrames>>,
}

/// What of a partition waits for ClickHouse, as opposed to waiting for someone to act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// Blocks have no turn to be sent.
    pub for_turn: bool,
    /// Blocks are on the queue volume.
    pub on_volume: bool,
}

/// All waiting blocks.
#[derive(Debug)]
pub struct BlockQueue {
    partitions: BTreeMap<PartitionId, OfPartition>,
    /// Blocks of one partition that are being sent at a time.
    sending_max: usize,
    /// The number of releases so far.
    releases: u64,
}

impl BlockQueue {
    /// An empty queue that sends `sending_max` blocks of each partition at a time.
    pub fn new(sending_max: usize) -> Self {
        Self { partitions: BTreeMap::new(), sending_max, releases: 0 }
    }

    /// Adds a block. Returns the blocks to drop: this one if its generation is over.
    #[must_use]
    pub fn block(&mut self, sealed: BlockWithFrames) -> Vec<BlockWithFrames> {
        let of = self.partitions.entry(sealed.block.id.clone()).or_default();
        if of.forgotten.is_some_and(|forgotten| sealed.block.generation <= forgotten) {
            return vec![sealed];
        }
        let first = sealed.block.range.first;
        of.blocks.insert(first, sealed);
        if let Some(release) = of.released.remove(&first) {
            of.release(release, &mut self.releases);
        }
        Vec::new()
    }

    /// Applies an order. Returns the blocks to drop.
    #[must_use]
    pub fn order(&mut self, order: Order) -> Vec<BlockWithFrames> {
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
            // The delivery task handles this order.
            Order::TakeOver { .. } => Vec::new(),
            Order::Forget { id, generation, is_leaving } => self.forget(&id, generation, is_leaving),
        }
    }

    /// The next block to send. Call [`Self::done`] when it has ended.
    pub fn pop(&mut self) -> Option<Ready> {
        let may_send = |of: &&mut OfPartition| of.sending < self.sending_max && !of.ready.is_empty();
        let oldest = |of: &&mut OfPartition| of.ready.front().map(|(place, _)| *place);
        let of = self.partitions.values_mut().filter(may_send).min_by_key(oldest)?;
        let (_, ready) = of.ready.pop_front()?;
        of.sending += 1;
        of.sent.retain(|frames| frames.strong_count() > 0);
        of.sent.push(Arc::downgrade(&ready.sealed.frames));
        Some(ready)
    }

    /// Records that a block of this partition has ended.
    pub fn done(&mut self, id: &PartitionId) {
        if let Some(of) = self.partitions.get_mut(id) {
            of.sending = of.sending.saturating_sub(1);
        }
    }

    /// Whether a block may be sent that is not being sent.
    pub fn has_ready(&self) -> bool {
        self.partitions.values().any(|of| !of.ready.is_empty())
    }

    /// What waits for ClickHouse, by partition. Excludes blocks of an earlier run, and partitions whose blocks all wait for someone to act.
    pub fn waiting(&self) -> impl Iterator<Item = (&PartitionId, Waiting)> {
        let flows = |(_, of): &(&PartitionId, &OfPartition)| !of.is_halted();
        self.partitions
            .iter()
            .filter(flows)
            .map(|(id, of)| (id, Waiting { for_turn: !of.ready.is_empty(), on_volume: of.has_on_volume() }))
    }

    /// Blocks that may be sent and have become only copies on the volume since the last call.
    pub fn become_only_copies(&mut self) -> Vec<Enqueued> {
        let ready = self.partitions.values().flat_map(|of| &of.ready).map(|(_, ready)| ready);
        let new =
            ready.filter_map(|ready| Some((Enqueuing::of(ready), ready.sealed.frames.become_only_copy()?)));
        new.map(|(enqueuing, record)| Enqueued { enqueuing, record }).collect()
    }

    /// The number of waiting blocks.
    pub fn len(&self) -> usize {
        self.partitions.values().map(|of| of.blocks.len() + of.ready.len()).sum()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn forget(&mut self, id: &PartitionId, generation: Generation, is_leaving: bool) -> Vec<BlockWithFrames> {
        let Some(of) = self.partitions.get_mut(id) else { return Vec::new() };
        of.forgotten = of.forgotten.max(Some(generation));
        let is_over = |sealed: &BlockWithFrames| sealed.block.generation <= generation;
        let mut dropped: Vec<BlockWithFrames> =
            of.blocks.extract_if(.., |_, sealed| is_over(sealed)).map(|(_, sealed)| sealed).collect();
        // All releases of a generation arrive before the next generation starts.
        of.released.clear();
        while let Some(entry) = of.generations.first_entry().filter(|entry| *entry.key() <= generation) {
            entry.remove().end(is_leaving);
        }
        let (over, ready): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut of.ready).into_iter().partition(|(_, ready)| {
                // Only copies on the volume are sent regardless of who owns the partition.
                is_over(&ready.sealed) && !ready.sealed.frames.is_only_copy()
            });
        of.ready = ready;
        dropped.extend(over.into_iter().map(|(_, ready)| ready.sealed));
        dropped
    }
}

impl OfPartition {
    /// Whether all blocks of the partition that are being sent wait for someone to act.
    fn is_halted(&self) -> bool {
        let halted: usize = self.generations.values().map(|generation| generation.halted()).sum();
        halted > 0 && halted >= self.sending
    }

    fn has_on_volume(&self) -> bool {
        let ready = self.ready.iter().map(|(_, ready)| &ready.sealed);
        self.blocks.values().chain(ready).any(|sealed| sealed.frames.is_on_volume())
            || self.sent.iter().filter_map(Weak::upgrade).any(|frames| frames.is_on_volume())
    }

    /// Records that the block of a range may be sent. The block may not have arrived yet.
    fn release(&mut self, release: Release, releases: &mut u64) {
        let Some(sealed) = self.blocks.remove(&release.range.first) else {
            self.released.insert(release.range.first, release);
            return;
        };
        let generation = self.generations.entry(sealed.block.generation).or_default().clone();
        *releases += 1;
        sealed.frames.release(release.routing_epoch, release.destination);
        self.ready
            .push_back((*releases, Ready { sealed, release, generation, columns: None, rows_elsewhere: 0 }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        blocks::{block::Block, message_rows::MessageRows},
        ground::account::RowAccount,
        volume::ready_block::Halting,
    };
    use sluice_ranges::{Content, OffsetRange, Token};

    fn id(partition: i32) -> PartitionId {
        PartitionId { topic: "spans".into(), partition }
    }

    fn of(partition: i32, generation: u64, first: i64) -> BlockWithFrames {
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
            spool_metadata: crate::blocks::spool_metadata::SpoolMetadata::default(),
        };
        let frames = BlockFrames::of(&mut block, 0);
        BlockWithFrames { block, frames }
    }

    fn block(generation: u64, first: i64) -> BlockWithFrames {
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

    fn next(queue: &mut BlockQueue) -> Option<i64> {
        queue.pop().map(|ready| ready.sealed.block.range.first)
    }

    #[test]
    fn a_block_waits_for_its_release_and_a_release_for_its_block() {
        let mut queue = BlockQueue::new(9);
        assert!(queue.block(block(1, 0)).is_empty());
        assert_eq!(next(&mut queue), None);
        assert!(queue.order(send(1, 10)).is_empty());
        assert!(queue.order(send(1, 0)).is_empty());
        assert_eq!(next(&mut queue), Some(0));
        assert!(queue.block(block(1, 10)).is_empty());
        assert_eq!(next(&mut queue), Some(10));
        assert_eq!(next(&mut queue), None);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_generation_that_is_over_sends_nothing_more() {
        let mut queue = BlockQueue::new(9);
        assert!(queue.block(block(1, 0)).is_empty());
        assert!(queue.order(send(1, 0)).is_empty());
        let generation = queue.pop().unwrap().generation;
        assert!(queue.block(block(1, 10)).is_empty());
        assert!(queue.block(block(1, 20)).is_empty());
        assert!(queue.order(send(1, 20)).is_empty());
        assert_eq!(queue.order(forget(1)).len(), 2);
        assert!(generation.is_over());
        assert_eq!(next(&mut queue), None);
        assert_eq!(queue.block(block(1, 30)).len(), 1, "a late one is dropped too");
        assert!(queue.order(send(1, 30)).is_empty());
        assert!(queue.block(block(2, 10)).is_empty());
        assert!(queue.order(send(2, 10)).is_empty());
        let begun = queue.pop().unwrap();
        assert_eq!((begun.sealed.block.range.first, begun.generation.is_over()), (10, false));
    }

    #[test]
    fn an_only_copy_is_sent_after_its_generation_is_over() {
        let mut queue = BlockQueue::new(9);
        let id_of = |first| sluice_spool::BlockId { segment: 1, ordinal: first };
        for first in [0, 10] {
            let sealed = block(1, first);
            let frames = BlockFrames::left(id_of(u32::try_from(first).unwrap()), false, true);
            assert!(queue.block(BlockWithFrames { frames, ..sealed }).is_empty());
        }
        assert!(queue.become_only_copies().is_empty(), "their ranges may not be sent yet");
        assert!(queue.order(send(1, 0)).is_empty());
        let range = OffsetRange { first: 0, next: 10 };
        let enqueuing = Enqueuing { id: id(3), generation: Generation(1), range, is_inherited: false };
        assert_eq!(queue.become_only_copies(), [Enqueued { enqueuing, record: id_of(0) }]);
        assert!(queue.become_only_copies().is_empty());
        assert!(queue.order(send(1, 10)).is_empty());
        assert_eq!(queue.order(forget(1)).len(), 1, "the other one is read again");
        let ready = queue.pop().unwrap();
        assert_eq!((ready.sealed.block.range, ready.generation.is_over()), (range, true));
        assert!(queue.is_empty());
    }

    #[test]
    fn what_waits_for_someone_to_act_does_not_wait_for_its_sink() {
        let mut queue = BlockQueue::new(2);
        let on_volume = |first: i64| {
            let id = sluice_spool::BlockId { segment: 1, ordinal: u32::try_from(first).unwrap() };
            BlockWithFrames { frames: BlockFrames::left(id, false, false), ..block(1, first) }
        };
        for first in [0, 10, 20] {
            assert!(queue.block(on_volume(first)).is_empty());
            assert!(queue.order(send(1, first)).is_empty());
        }
        let waits = |queue: &BlockQueue| queue.waiting().map(|(_, waiting)| waiting).collect::<Vec<_>>();
        assert_eq!(waits(&queue), [Waiting { for_turn: true, on_volume: true }]);
        let sending = [queue.pop().unwrap(), queue.pop().unwrap()];
        let _one = Halting::of(&sending[0].generation);
        assert_eq!(waits(&queue), [Waiting { for_turn: true, on_volume: true }], "the other one goes on");
        let other = Halting::of(&sending[1].generation);
        assert_eq!(waits(&queue), []);
        assert!(queue.block(of(2, 1, 500)).is_empty());
        assert_eq!(waits(&queue), [Waiting { for_turn: false, on_volume: false }], "of the other partition");
        drop((other, sending));
        assert_eq!(waits(&queue).len(), 2);
    }

    #[test]
    fn the_oldest_go_first_and_no_partition_takes_all_places() {
        let mut queue = BlockQueue::new(2);
        for first in [0, 10, 20] {
            assert!(queue.block(of(1, 1, first)).is_empty());
            assert!(queue.order(send_of(1, 1, first)).is_empty());
        }
        assert!(queue.block(of(2, 1, 500)).is_empty());
        assert!(queue.order(send_of(2, 1, 500)).is_empty());
        assert_eq!([next(&mut queue), next(&mut queue), next(&mut queue)], [Some(0), Some(10), Some(500)]);
        assert_eq!((next(&mut queue), queue.len()), (None, 1), "the third of the first partition waits");
        queue.done(&id(1));
        assert_eq!(next(&mut queue), Some(20));
    }
}
