//! Blocks that wait for permission to be sent, and then for their turn.
//!
//! Place in the flow: delivery adds every block and every order of the poll thread, and takes out the blocks to send. Owner: the delivery
//! task. Limits: every block holds chunks of the pool or a record on the queue volume, which bound their number. Releases that arrive
//! before their block are bounded by the ranges in flight.
//!
//! Blocks come out in the order of their releases, at most [`BlockQueue::new`]'s number of each partition at a time. A refused block that
//! waits for someone to act can thus delay only blocks of its own partition.

use crate::volume::{
    block_table::BlockTable,
    ready_block::{BlockWithFrames, GenerationStatus, Ready},
};
use sluice_kafka::Order;
use sluice_ranges::{Generation, PartitionId, Release};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
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

    /// Adds a block. Returns the blocks to drop: this one if its generation is over, or one of an earlier generation in its place.
    #[must_use]
    pub fn block(&mut self, sealed: BlockWithFrames, table: &mut BlockTable) -> Vec<BlockWithFrames> {
        let of = self.partitions.entry(sealed.block.id.clone()).or_default();
        if of.forgotten.is_some_and(|forgotten| sealed.block.generation <= forgotten) {
            return vec![sealed];
        }
        let first = sealed.block.range.first;
        let replaced = of.blocks.insert(first, sealed);
        if let Some(release) = of.released.remove(&first) {
            of.release(release, &mut self.releases, table);
        }
        replaced.into_iter().collect()
    }

    /// Applies an order. Returns the blocks to drop.
    #[must_use]
    pub fn order(&mut self, order: Order, table: &mut BlockTable) -> Vec<BlockWithFrames> {
        match order {
            Order::Send { id, generation, release } => {
                let of = self.partitions.entry(id).or_default();
                if of.forgotten.is_none_or(|forgotten| generation > forgotten) {
                    of.release(release, &mut self.releases, table);
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
    pub fn waiting(&self, table: &BlockTable) -> impl Iterator<Item = (&PartitionId, Waiting)> {
        let flows = |(_, of): &(&PartitionId, &OfPartition)| !of.is_halted();
        self.partitions.iter().filter(flows).map(|(id, of)| {
            (id, Waiting { for_turn: !of.ready.is_empty(), on_volume: table.is_on_volume(id) })
        })
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

    /// Records that the block of a range may be sent. The block may not have arrived yet.
    fn release(&mut self, release: Release, releases: &mut u64, table: &mut BlockTable) {
        let Some(sealed) = self.blocks.remove(&release.range.first) else {
            self.released.insert(release.range.first, release);
            return;
        };
        let generation = self.generations.entry(sealed.block.generation).or_default().clone();
        *releases += 1;
        table.release(&sealed, &release);
        self.ready
            .push_back((*releases, Ready { sealed, release, generation, columns: None, rows_elsewhere: 0 }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        blocks::{block::Block, message_rows::MessageRows, spool_metadata::SpoolMetadata},
        ground::account::RowAccount,
        volume::{block_table::OnVolume, ready_block::Halting},
    };
    use sluice_ranges::{Content, OffsetRange, Token};
    use sluice_spool::BlockId;
    use std::time::Instant;

    /// A queue with its table.
    struct Test {
        queue: BlockQueue,
        table: BlockTable,
    }

    impl Test {
        fn new(sending_max: usize) -> Self {
            Self { queue: BlockQueue::new(sending_max), table: BlockTable::new(None, 1) }
        }

        /// Adds a block; the number of blocks to drop.
        fn block(&mut self, block: Block) -> usize {
            let sealed = self.table.add(block, 0, 0, Instant::now());
            self.queue.block(sealed, &mut self.table).len()
        }

        /// Adds a block that an earlier run has left on the volume.
        fn left(&mut self, block: Block) {
            let ordinal = u32::try_from(block.range.first).unwrap();
            let id = BlockId { segment: 1, ordinal };
            let record = OnVolume { id, is_marked: false, is_in_kafka: true };
            let sealed = self.table.take_over(block, record);
            assert!(self.queue.block(sealed, &mut self.table).is_empty());
        }

        /// Applies an order; the number of blocks to drop.
        fn order(&mut self, order: Order) -> usize {
            self.queue.order(order, &mut self.table).len()
        }

        fn next(&mut self) -> Option<i64> {
            self.queue.pop().map(|ready| ready.sealed.block.range.first)
        }

        /// The number of waiting blocks.
        fn len(&self) -> usize {
            self.queue.partitions.values().map(|of| of.blocks.len() + of.ready.len()).sum()
        }

        fn waits(&self) -> Vec<Waiting> {
            self.queue.waiting(&self.table).map(|(_, waiting)| waiting).collect()
        }
    }

    fn id(partition: i32) -> PartitionId {
        PartitionId { topic: "spans".into(), partition }
    }

    fn of(partition: i32, generation: u64, first: i64) -> Block {
        let range = OffsetRange { first, next: first + 10 };
        let id = id(partition);
        Block {
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
            spool_metadata: SpoolMetadata::default(),
        }
    }

    fn block(generation: u64, first: i64) -> Block {
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

    #[test]
    fn a_block_waits_for_its_release_and_a_release_for_its_block() {
        let mut test = Test::new(9);
        assert_eq!(test.block(block(1, 0)), 0);
        assert_eq!(test.next(), None);
        assert_eq!(test.order(send(1, 10)), 0);
        assert_eq!(test.order(send(1, 0)), 0);
        assert_eq!(test.next(), Some(0));
        assert_eq!(test.block(block(1, 10)), 0);
        assert_eq!(test.next(), Some(10));
        assert_eq!(test.next(), None);
        assert_eq!(test.len(), 0);
    }

    /// The order to forget a generation may come after the first blocks of the next one.
    #[test]
    fn a_block_in_the_place_of_another_one_gives_that_up() {
        let mut test = Test::new(9);
        assert_eq!(test.block(block(1, 0)), 0);
        assert_eq!(test.block(block(2, 0)), 1);
        assert_eq!(test.order(forget(1)), 0);
        assert_eq!(test.order(send(2, 0)), 0);
        assert_eq!(test.next(), Some(0));
    }

    #[test]
    fn a_generation_that_is_over_sends_nothing_more() {
        let mut test = Test::new(9);
        assert_eq!(test.block(block(1, 0)), 0);
        assert_eq!(test.order(send(1, 0)), 0);
        let generation = test.queue.pop().unwrap().generation;
        assert_eq!(test.block(block(1, 10)), 0);
        assert_eq!(test.block(block(1, 20)), 0);
        assert_eq!(test.order(send(1, 20)), 0);
        assert_eq!(test.order(forget(1)), 2);
        assert!(generation.is_over());
        assert_eq!(test.next(), None);
        assert_eq!(test.block(block(1, 30)), 1, "a late one is dropped too");
        assert_eq!(test.order(send(1, 30)), 0);
        assert_eq!(test.block(block(2, 10)), 0);
        assert_eq!(test.order(send(2, 10)), 0);
        let begun = test.queue.pop().unwrap();
        assert_eq!((begun.sealed.block.range.first, begun.generation.is_over()), (10, false));
    }

    #[test]
    fn an_only_copy_is_sent_after_its_generation_is_over() {
        let mut test = Test::new(9);
        for first in [0, 10] {
            let spool_metadata = SpoolMetadata { is_enqueued: true, ..SpoolMetadata::default() };
            test.left(Block { spool_metadata, ..block(1, first) });
        }
        assert!(test.table.next_only_copy().is_none(), "their ranges may not be sent yet");
        assert_eq!(test.order(send(1, 0)), 0);
        let range = OffsetRange { first: 0, next: 10 };
        let (released, record) = test.table.next_only_copy().unwrap();
        assert_eq!((released.id, released.generation, released.range), (id(3), Generation(1), range));
        assert_eq!((released.is_inherited, record), (false, BlockId { segment: 1, ordinal: 0 }));
        assert!(test.table.next_only_copy().is_none());
        assert_eq!(test.order(send(1, 10)), 0);
        assert_eq!(test.order(forget(1)), 1, "the other one is read again");
        let ready = test.queue.pop().unwrap();
        assert_eq!((ready.sealed.block.range, ready.generation.is_over()), (range, true));
        assert_eq!(test.len(), 0);
    }

    #[test]
    fn what_waits_for_someone_to_act_does_not_wait_for_its_sink() {
        let mut test = Test::new(2);
        for first in [0, 10, 20] {
            test.left(block(1, first));
            assert_eq!(test.order(send(1, first)), 0);
        }
        assert_eq!(test.waits(), [Waiting { for_turn: true, on_volume: true }]);
        let sending = [test.queue.pop().unwrap(), test.queue.pop().unwrap()];
        let _one = Halting::of(&sending[0].generation);
        assert_eq!(test.waits(), [Waiting { for_turn: true, on_volume: true }], "the other one goes on");
        let other = Halting::of(&sending[1].generation);
        assert_eq!(test.waits(), []);
        assert_eq!(test.block(of(2, 1, 500)), 0);
        assert_eq!(test.waits(), [Waiting { for_turn: false, on_volume: false }], "of the other partition");
        drop((other, sending));
        assert_eq!(test.waits().len(), 2);
    }

    #[test]
    fn the_oldest_go_first_and_no_partition_takes_all_places() {
        let mut test = Test::new(2);
        for first in [0, 10, 20] {
            assert_eq!(test.block(of(1, 1, first)), 0);
            assert_eq!(test.order(send_of(1, 1, first)), 0);
        }
        assert_eq!(test.block(of(2, 1, 500)), 0);
        assert_eq!(test.order(send_of(2, 1, 500)), 0);
        assert_eq!([test.next(), test.next(), test.next()], [Some(0), Some(10), Some(500)]);
        assert_eq!((test.next(), test.len()), (None, 1), "the third of the first partition waits");
        test.queue.done(&id(1));
        assert_eq!(test.next(), Some(20));
    }
}
