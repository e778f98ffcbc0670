//! Blocks that wait until they may be sent.
//!
//! Place in the flow: delivery puts every block and every order of the poll thread in here, and takes out what is to be sent.
//! Owner: the delivery task. Limits: every block holds a chunk of the pool, which bounds them; releases that came before their
//! block are bounded by the ranges in flight.

use crate::block::Block;
use sluice_kafka::{Generation, Order, PartitionId, ranges::Release};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::Notify;

/// Whether the generation of a block is still ours: shared by everything that is being sent of it.
#[derive(Debug, Default)]
pub struct Tenure {
    is_over: AtomicBool,
    told: Notify,
}

impl Tenure {
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

    fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.told.notify_waiters();
    }
}

/// One partition's blocks, by the first offset of their range.
#[derive(Debug, Default)]
struct OfPartition {
    /// The latest generation that is over.
    forgotten: Option<Generation>,
    blocks: BTreeMap<i64, Block>,
    released: BTreeMap<i64, Release>,
    tenures: BTreeMap<Generation, Arc<Tenure>>,
}

/// All blocks that wait.
#[derive(Debug, Default)]
pub struct Held {
    partitions: BTreeMap<PartitionId, OfPartition>,
    /// Blocks that may be sent, in the order in which they were released.
    ready: VecDeque<Ready>,
}

/// A block that may be sent.
#[derive(Debug)]
pub struct Ready {
    /// The block.
    pub block: Block,
    /// What its release says.
    pub release: Release,
    /// Whether its generation is still ours.
    pub tenure: Arc<Tenure>,
}

impl Held {
    /// Takes a block in. Gives back those to be given up: this one when its generation is over.
    #[must_use]
    pub fn block(&mut self, block: Block) -> Vec<Block> {
        let of = self.partitions.entry(block.id.clone()).or_default();
        if of.forgotten.is_some_and(|forgotten| block.generation <= forgotten) {
            return vec![block];
        }
        let first = block.range.first;
        of.blocks.insert(first, block);
        if let Some(release) = of.released.remove(&first) {
            self.ready.extend(of.release(release));
        }
        Vec::new()
    }

    /// Takes an order. Gives back the blocks to be given up.
    #[must_use]
    pub fn order(&mut self, order: Order) -> Vec<Block> {
        match order {
            Order::Send { id, generation, release } => {
                let of = self.partitions.entry(id).or_default();
                if of.forgotten.is_none_or(|forgotten| generation > forgotten) {
                    self.ready.extend(of.release(release));
                }
                Vec::new()
            }
            Order::Forget { id, generation } => self.forget(&id, generation),
        }
    }

    /// The next block to send.
    pub fn pop(&mut self) -> Option<Ready> {
        self.ready.pop_front()
    }

    fn forget(&mut self, id: &PartitionId, generation: Generation) -> Vec<Block> {
        let Some(of) = self.partitions.get_mut(id) else { return Vec::new() };
        of.forgotten = of.forgotten.max(Some(generation));
        let is_over = |block: &Block| block.id == *id && block.generation <= generation;
        let mut dropped: Vec<Block> =
            of.blocks.extract_if(.., |_, block| is_over(block)).map(|(_, block)| block).collect();
        // A generation's releases are given before the next one begins.
        of.released.clear();
        while let Some(entry) = of.tenures.first_entry().filter(|entry| *entry.key() <= generation) {
            entry.remove().end();
        }
        let (over, ready) =
            std::mem::take(&mut self.ready).into_iter().partition(|ready| is_over(&ready.block));
        self.ready = ready;
        let over: VecDeque<Ready> = over;
        dropped.extend(over.into_iter().map(|ready| ready.block));
        dropped
    }
}

impl OfPartition {
    /// The block of a range that may be sent now; none while it is still on its way here.
    fn release(&mut self, release: Release) -> Option<Ready> {
        let Some(block) = self.blocks.remove(&release.range.first) else {
            self.released.insert(release.range.first, release);
            return None;
        };
        let tenure = self.tenures.entry(block.generation).or_default().clone();
        Some(Ready { block, release, tenure })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{account::RowAccount, message_rows::MessageRows};
    use sluice_kafka::{
        OffsetRange,
        ranges::{Content, Token},
    };

    fn id() -> PartitionId {
        PartitionId { topic: "spans".into(), partition: 3 }
    }

    fn block(generation: u64, first: i64) -> Block {
        let range = OffsetRange { first, next: first + 10 };
        Block {
            id: id(),
            generation: Generation(generation),
            range,
            token: Token::of("c", &id(), range, Content::default()),
            rows: 1,
            account: RowAccount::default().open().seal(1),
            messages: MessageRows::default(),
            raw_bytes: 1,
            frames: Vec::new(),
            bytes: 0,
            span_end_nanos_max: 0,
        }
    }

    fn send(generation: u64, first: i64) -> Order {
        let range = OffsetRange { first, next: first + 10 };
        let release = Release { range, first_sent: 1, is_inherited: false, parts: None, routing_epoch: 0 };
        Order::Send { id: id(), generation: Generation(generation), release }
    }

    fn forget(generation: u64) -> Order {
        Order::Forget { id: id(), generation: Generation(generation) }
    }

    fn next(held: &mut Held) -> Option<i64> {
        held.pop().map(|ready| ready.block.range.first)
    }

    #[test]
    fn a_block_waits_for_its_release_and_a_release_for_its_block() {
        let mut held = Held::default();
        assert!(held.block(block(1, 0)).is_empty());
        assert_eq!(next(&mut held), None);
        assert!(held.order(send(1, 10)).is_empty());
        assert!(held.order(send(1, 0)).is_empty());
        assert_eq!(next(&mut held), Some(0));
        assert!(held.block(block(1, 10)).is_empty());
        assert_eq!(next(&mut held), Some(10));
        assert_eq!(next(&mut held), None);
    }

    #[test]
    fn a_generation_that_is_over_sends_nothing_more() {
        let mut held = Held::default();
        assert!(held.block(block(1, 0)).is_empty());
        assert!(held.order(send(1, 0)).is_empty());
        let tenure = held.pop().unwrap().tenure;
        assert!(held.block(block(1, 10)).is_empty());
        assert!(held.block(block(1, 20)).is_empty());
        assert!(held.order(send(1, 20)).is_empty());
        assert_eq!(held.order(forget(1)).len(), 2);
        assert!(tenure.is_over());
        assert_eq!(next(&mut held), None);
        assert_eq!(held.block(block(1, 30)).len(), 1, "a late one is dropped too");
        assert!(held.order(send(1, 30)).is_empty());
        assert!(held.block(block(2, 10)).is_empty());
        assert!(held.order(send(2, 10)).is_empty());
        let begun = held.pop().unwrap();
        assert_eq!((begun.block.range.first, begun.tenure.is_over()), (10, false));
    }
}
