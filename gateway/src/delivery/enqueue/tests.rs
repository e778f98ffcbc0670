//! What a later run finds about blocks whose offsets were committed before they were inserted.

use super::*;
use crate::{
    delivery::block_queue::BlockQueue,
    ground::{account::RowAccount, route::Route},
    volume::{
        ready_block::BlockWithFrames,
        spool::Ended,
        test_volume::{TestTable, Volume, sealed},
    },
};
use crossbeam_channel::bounded;
use sluice_ranges::{OffsetRange, Release};
use std::time::{Duration, Instant};

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

/// Adds a block whose range may be sent, and moves it to the volume.
async fn move_there(test: &mut TestTable, queue: &mut BlockQueue, first: i64) {
    let block = sealed(&test.pool, first, true);
    let added = test.table.add(block, 9, 0, Instant::now());
    let moved = added.frames.number();
    assert!(queue.block(added, &mut test.table).is_empty());
    assert!(queue.order(send(first, first == 0), &mut test.table).is_empty());
    assert!(test.table.spill(moved).is_some());
    test.arrive().await;
}

/// Blocks of 0, 10 and 20 go to a volume; an earlier owner may have sent the first one. Then these orders arrive. Returns which of the
/// blocks the next run considers as possibly sent.
async fn doubted(name: &str, orders: &[Order]) -> Vec<(i64, bool)> {
    let volume = Volume::new(name);
    let spool = volume.open_as(64 << 20, true);
    let mut test = TestTable::new(&spool);
    // For one: the others follow.
    let (reports, settled) = bounded(1);
    let mut enqueue = Enqueue::new(spool.clone(), AsyncSender::new(reports));
    let mut queue = BlockQueue::new(9);
    for first in [0, 10, 20] {
        move_there(&mut test, &mut queue, first).await;
    }
    let _sending = queue.pop().unwrap();
    let mut count = 0;
    for may_settle in [true, true, false] {
        enqueue.look(&mut test.table, may_settle);
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
    let volume = Volume::new("unfit");
    let mut test = TestTable::new(&volume.open_as(64 << 20, true));
    let (reports, settled) = bounded(9);
    let mut enqueue = Enqueue::new(test.spool.clone(), AsyncSender::new(reports));
    let mut queue = BlockQueue::new(9);
    for first in [0, 10] {
        move_there(&mut test, &mut queue, first).await;
    }
    enqueue.look(&mut test.table, false);
    let BlockWithFrames { block, frames } = queue.pop().unwrap().sealed;
    block.account.settled();
    test.table.end(frames.number(), Ended::Settled);
    enqueue.look(&mut test.table, false);
    assert_eq!(settled.len(), 0);
    enqueue.look(&mut test.table, true);
    let reported: Vec<Report> = settled.try_iter().collect();
    let range = OffsetRange { first: 10, next: 20 };
    assert!(matches!(&reported[..], [Report::Settled { range: of, .. }] if *of == range), "the other one");
}
