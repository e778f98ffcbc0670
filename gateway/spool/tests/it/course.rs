//! A fixed sequence of everything that a queue does, several segments long. It ends at the first fatal error.

use crate::{
    model_disk::ModelDisk,
    naive::{Naive, options},
};
use sluice_spool::{Fatal, OpenError, Queue};

/// Segments that fit while the course is run.
pub const SEGMENTS: u64 = 6;

pub fn run(disk: &ModelDisk, naive: &mut Naive) -> Result<(), Fatal> {
    let mut queue = match Queue::open(disk.clone(), options(SEGMENTS)) {
        Ok((queue, _)) => queue,
        Err(OpenError::Fatal(fatal)) => return Err(fatal),
        Err(error) => panic!("{error}"),
    };
    steps(&mut queue, naive)?;
    naive.assert_same(&queue);
    queue.close()?;
    naive.synced();
    Ok(())
}

pub fn steps(queue: &mut Queue<ModelDisk>, naive: &mut Naive) -> Result<(), Fatal> {
    // Spilling: blocks of three partitions, some of them larger than a page, some without rows.
    for (partition, bytes) in [(0, 100), (1, 5_000), (2, 4_096), (1, 0), (0, 9_000), (2, 1)] {
        append(queue, naive, partition, bytes)?;
    }
    naive.sync(queue)?;
    // One block is tried and stays; the next ones arrive while the sink is away.
    naive.mark_sent(queue, 0)?;
    naive.mark_sole(queue, 1)?;
    naive.mark_sent(queue, 2)?;
    naive.sync(queue)?;
    naive.mark_sole(queue, 2)?;
    naive.mark_sole(queue, 3)?;
    for (partition, bytes) in [(1, 7_000), (2, 300), (1, 3_000)] {
        append(queue, naive, partition, bytes)?;
        naive.sync(queue)?;
    }
    // The caller relies on a block that is marked, and on one that is not.
    naive.keep(queue, 3)?;
    append(queue, naive, 2, 700)?;
    naive.keep(queue, naive.blocks.len() - 1)?;
    // Three blocks are marked as only copies: one that is settled soon, one that stays, and one that was just appended.
    naive.mark_only_copy(queue, 1)?;
    naive.mark_only_copy(queue, 4)?;
    append(queue, naive, 0, 900)?;
    naive.mark_only_copy(queue, naive.blocks.len() - 1)?;
    // Draining: marked, sent, settled, two at a time, out of order.
    for pair in [[1, 0], [2, 3]] {
        pair.iter().try_for_each(|at| naive.mark_sent(queue, *at))?;
        naive.sync(queue)?;
        pair.iter().try_for_each(|at| naive.settle(queue, *at))?;
    }
    naive.sync(queue)?;
    naive.settle_partition(queue, 2)?;
    append(queue, naive, 1, 2_000)?;
    // A block that is settled before any sync.
    append(queue, naive, 1, 50)?;
    let last = naive.blocks.len() - 1;
    naive.settle(queue, last)?;
    naive.sync(queue)?;
    append(queue, naive, 0, 6_000)
}

/// Appends; a block that finds no space is tried once more.
fn append(
    queue: &mut Queue<ModelDisk>,
    naive: &mut Naive,
    partition: i32,
    bytes: usize,
) -> Result<(), Fatal> {
    if !naive.append(queue, partition, bytes)? {
        naive.assert_same(queue);
        assert!(naive.append(queue, partition, bytes)?, "there is room again");
    }
    Ok(())
}
