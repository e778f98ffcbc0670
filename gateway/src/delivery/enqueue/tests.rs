//! What a later run finds about blocks whose offsets were committed before they were inserted.

use super::*;
use crate::{
    blocks::buffers::Pool,
    ground::{account::RowAccount, route::Route},
    volume::{
        block_frames::tests::{Volume, sealed},
        ready_block::BlockWithFrames,
    },
};
use crossbeam_channel::bounded;
use sluice_ranges::Release;
use std::time::Duration;

const GENERATION: Generation = Generation(1);

fn id() -> PartitionId {
    PartitionId { topic: "spans".into(), partition: 3 }
}

fn send(first: i64, is_inherited: bool) -> Order {
    let range = OffsetRange { first, next: first + 10 };
    let release =
        Release { range, first_sent: 1, is_inherited, parts: None, routing_epoch: 0, destination: None };
    Order::Send { id: id(), generation: GENERATION, release }
}

fn proved(offset: i64) -> Order {
    Order::Proved { id: id(), generation: GENERATION, at: Duration::ZERO, offset }
}

fn forget() -> Order {
    Order::Forget { id: id(), generation: GENERATION, is_leaving: true }
}

/// Blocks of 0, 10 and 20 go to a volume; an earlier owner may have sent the first one. Then these orders arrive. Returns which of the
/// blocks the next run considers as possibly sent.
async fn doubted(name: &str, orders: &[Order]) -> Vec<(i64, bool)> {
    let (volume, pool) = (Volume::new(name), Pool::new(4 << 20, 1, 1));
    let spool = volume.open_as(64 << 20, true);
    // For one: the others follow.
    let (reports, settled) = bounded(1);
    let mut enqueue = Enqueue::new(spool.clone(), AsyncSender::new(reports));
    let mut queue = BlockQueue::new(9);
    for first in [0, 10, 20] {
        let sealed = sealed(&pool, first, true);
        let frames = sealed.frames.clone();
        assert!(queue.block(sealed).is_empty());
        assert!(queue.order(send(first, first == 0)).is_empty());
        spool.spill(&frames);
        while frames.is_in_memory() {
            tokio::task::yield_now().await;
        }
    }
    let sending = queue.pop().unwrap();
    enqueue.add(&sending);
    let mut count = 0;
    for may_settle in [true, true, false] {
        enqueue.look(&mut queue, may_settle);
        count += settled.try_iter().count();
    }
    assert_eq!(count, 3, "the one that is being sent too");
    for order in orders {
        enqueue.order(order);
    }
    assert!(spool.close(Duration::from_mins(1)));

    let spool = volume.open(64 << 20);
    let account = RowAccount::default();
    let left = spool.left().take_all();
    let ready =
        left.iter().map(|left| left.only_copy((left.token().unwrap(), None), Route::new(1), &account));
    ready
        .map(|ready| {
            let first = ready.sealed.block.range.first;
            ready.sealed.block.account.settled();
            (first, ready.release.is_inherited)
        })
        .collect()
}

#[tokio::test]
async fn what_nobody_else_can_have_sent_is_known_by_the_next_run() {
    let all = [(0, true), (10, true), (20, true)];
    assert_eq!(doubted("uncommitted", &[]).await, all);
    assert_eq!(doubted("committed", &[proved(20)]).await, [(0, true), (10, false), (20, true)]);
    let twice = [proved(15), proved(30), proved(40)];
    assert_eq!(doubted("committed_twice", &twice).await, [(0, true), (10, false), (20, false)]);
    assert_eq!(
        doubted("forgotten", &[proved(20), forget(), proved(30)]).await,
        [(0, true), (10, false), (20, true)]
    );
}

#[tokio::test]
async fn while_nothing_may_be_settled_what_has_ended_is_forgotten_all_the_same() {
    let (volume, pool) = (Volume::new("unfit"), Pool::new(4 << 20, 1, 1));
    let (reports, _settled) = bounded(9);
    let mut enqueue = Enqueue::new(volume.open(64 << 20), AsyncSender::new(reports));
    let mut queue = BlockQueue::new(9);
    assert!(queue.block(sealed(&pool, 0, true)).is_empty());
    assert!(queue.order(send(0, false)).is_empty());
    let sending = queue.pop().unwrap();
    enqueue.add(&sending);
    enqueue.look(&mut queue, false);
    assert_eq!(enqueue.sending.len(), 1);
    let BlockWithFrames { block, frames } = sending.sealed;
    block.account.settled();
    drop(frames);
    enqueue.look(&mut queue, false);
    assert_eq!(enqueue.sending.len(), 0);
}
