//! Blocks that are moved to a real directory and read back.

use super::*;
use crate::volume::{
    only_copy::{Logs, judge},
    spool::LeftBlock,
    test_volume::{
        BLOCK_BYTES, TAKEABLE, TestTable, Volume, bytes, damage, damage_at, left_behind, release_of, sealed,
    },
};
use sluice_ranges::RefusedParts;
use std::{sync::atomic::Ordering, time::Duration};

#[tokio::test(flavor = "current_thread")]
async fn a_block_comes_back_from_the_volume_as_it_was_and_its_memory_is_free_meanwhile() {
    let volume = Volume::new("back");
    let mut test = TestTable::new(&volume.open(64 << 20));
    let mut frames = test.spilled(20).await;
    assert_eq!(test.pool.free_bytes(), test.pool.total_bytes());
    assert!(!test.table.uses_memory());
    for _ in 0..2 {
        assert_eq!(test.load(&mut frames).await.unwrap().body.len(), BLOCK_BYTES as u64);
        assert_eq!(test.content(&mut frames).await, Some(bytes(20)));
    }
    test.table.end(frames.number(), Ended::Settled);
    // Blocks are moved one after another: once the next one is there, this one was handled.
    test.spilled(30).await;
    let numbers = test.spool.numbers();
    assert_eq!((numbers.appended.blocks(), numbers.drained.blocks(), numbers.dropped.blocks()), (2, 1, 0));
    assert_eq!(2 * numbers.drained.bytes(), numbers.appended.bytes());
}

#[tokio::test(flavor = "current_thread")]
async fn a_block_that_is_being_sent_stays_in_memory() {
    let volume = Volume::new("sent");
    let mut test = TestTable::new(&volume.open(64 << 20));
    let mut frames = test.add(20);
    let loaded = test.load(&mut frames).await.unwrap();
    assert!(!test.spill(&frames));
    assert!(test.table.uses_memory() && test.table.coming_bytes()[0] == 0);
    drop(loaded);
    assert!(test.spill(&frames));
    assert_eq!(test.table.coming_bytes()[0], BLOCK_BYTES as u64);
    test.arrive().await;
    assert!(test.spool.close(Duration::from_mins(1)));
    let left = volume.open(64 << 20).left().take_all();
    assert!(left[0].is_marked(), "what was sent before says so on the volume");
}

#[tokio::test(flavor = "current_thread")]
async fn a_block_that_ends_on_its_way_leaves_no_record() {
    let volume = Volume::new("ended");
    let mut test = TestTable::new(&volume.open(64 << 20));
    let first = test.add(20);
    assert!(test.spill(&first));
    test.table.end(first.number(), Ended::Dropped);
    test.arrive().await;
    let last = test.spilled(30).await;
    assert_eq!(test.spool.numbers().dropped.blocks(), 1);
    test.table.end(last.number(), Ended::Settled);
    test.spilled(40).await;
    assert_eq!(test.pool.free_bytes(), test.pool.total_bytes());
}

#[tokio::test(flavor = "current_thread")]
async fn a_block_that_ends_after_its_record_was_written_and_before_that_is_known_leaves_none() {
    let volume = Volume::new("ended_late");
    let mut test = TestTable::new(&volume.open(64 << 20));
    let first = test.add(20);
    assert!(test.spill(&first));
    let arrived = test.table.events_in.recv().await.unwrap();
    test.table.end(first.number(), Ended::Dropped);
    assert!(test.table.uses_memory(), "until that is known");
    test.table.take(arrived);
    assert!(!test.table.uses_memory());
    test.spilled(30).await;
    assert_eq!((test.spool.numbers().appended.blocks(), test.spool.numbers().dropped.blocks()), (2, 1));
}

#[tokio::test(flavor = "current_thread")]
async fn a_block_that_is_given_up_during_the_shutdown_is_found_by_the_next_run() {
    let volume = Volume::new("left_on_its_way");
    let mut test = TestTable::new(&volume.open(64 << 20));
    let (coming, there) = (test.add(20), test.spilled(30).await);
    assert!(test.spill(&coming));
    test.table.end(coming.number(), Ended::given_up(true));
    test.table.end(there.number(), Ended::given_up(true));
    test.arrive().await;
    assert!(!test.table.uses_memory() && test.spool.close(Duration::from_mins(1)));
    assert_eq!(test.spool.usage().blocks, 2);
    let left = volume.open(64 << 20).left().take_all();
    assert_eq!(left.iter().map(|left| left.range().first).collect::<Vec<_>>(), [30, 20]);
}

/// The blocks of revoked partitions, once there are this many.
async fn orphaned(spool: &Spool, count: usize) -> Vec<LeftBlock> {
    let mut orphans = Vec::new();
    while orphans.len() < count {
        orphans.extend(spool.left().orphans(false));
        tokio::task::yield_now().await;
    }
    orphans
}

#[tokio::test(flavor = "current_thread")]
async fn the_blocks_of_a_partition_that_has_gone_stay_on_the_volume_until_kafka_was_asked() {
    let volume = Volume::new("gone");
    let mut test = TestTable::new(&volume.open(64 << 20));
    // One was sent, and one is still on its way when its partition is revoked.
    let sent = test.spilled(20).await;
    test.table.end(sent.number(), Ended::given_up(false));
    let coming = test.add(30);
    assert!(test.spill(&coming));
    test.table.end(coming.number(), Ended::given_up(false));
    let spool = test.spool.clone();
    let orphans = test.serve(orphaned(&spool, 2)).await;
    let found = orphans.iter().map(|left| (left.range().first, left.is_marked(), left.cluster()));
    assert_eq!(found.collect::<Vec<_>>(), [(20, true, Some("c")), (30, false, Some("c"))]);
    while spool.usage().blocks < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(spool.numbers().dropped.blocks(), 0);
    assert!(spool.left().take_missing().is_empty());
    // They are still there for the next run.
    assert!(spool.close(Duration::from_mins(1)));
    let id = PartitionId { topic: "spans".into(), partition: 3 };
    assert_eq!(volume.open(64 << 20).left().kept((&id, Generation(4)), TAKEABLE).len(), 2);
}

#[tokio::test(flavor = "current_thread")]
async fn an_only_copy_that_is_given_back_is_found_as_what_it_is_by_now() {
    let volume = Volume::new("given_back");
    let spool = left_behind(&volume, &[20]).await;
    let left = spool.left().take_all().remove(0);
    let logs = Logs::of_one(left.partition(), OffsetRange { first: 40, next: 90 }, 20);
    judge(vec![left], &logs, &spool).await;
    let id = BlockId { segment: 1, ordinal: 0 };
    spool.mark_sent(id, 77).await;
    BlockFrames::only_copy(id, true).end(Some(&spool), Ended::Orphaned).await;
    let orphans = orphaned(&spool, 1).await;
    let [left] = &orphans[..] else { panic!("{} orphans", orphans.len()) };
    assert_eq!((left.in_writing().map(|found| found.is_new), left.is_marked()), (Some(false), true));
    assert_eq!(spool.usage().blocks, 1);
}

#[tokio::test(flavor = "current_thread")]
async fn a_block_of_a_partition_that_has_gone_and_that_cannot_be_read_is_missed() {
    let volume = Volume::new("gone_damaged");
    let mut test = TestTable::new(&volume.open(64 << 20));
    let frames = test.add(20);
    assert!(test.spill(&frames));
    test.arrive().await;
    let file = &volume.files()[0];
    let body = file.metadata().unwrap().len() - BLOCK_BYTES as u64;
    // The header is in front of the metadata.
    damage_at(file, body - 200);
    test.table.end(frames.number(), Ended::given_up(false));
    let missing = loop {
        if let [missing] = &test.spool.left().take_missing()[..] {
            break missing.clone();
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(missing.covers.map(|covers| (covers.first, covers.next, covers.rows)), Some((20, 30, 7)));
    assert!(test.spool.left().orphans(true).is_empty());
}

#[tokio::test(flavor = "current_thread")]
async fn a_torn_record_may_be_an_only_copy_only_if_somebody_was_told_that_it_was_there() {
    for syncs in [true, false] {
        let volume = Volume::new("torn");
        let mut test = TestTable::new(&volume.open_as(64 << 20, syncs));
        let frames = test.add_enqueued(20);
        assert!(test.spill(&frames));
        test.arrive().await;
        assert_eq!(test.table.next_only_copy().is_some(), syncs);
        // What a killed process leaves, without its last byte.
        let file = &volume.files()[0];
        let (content, left) = (std::fs::read(file).unwrap(), Volume::new("torn_left"));
        std::fs::write(left.path().join(file.file_name().unwrap()), &content[..content.len() - 1]).unwrap();
        let missing = left.open(64 << 20).left().take_missing();
        let [missing] = &missing[..] else { panic!("{missing:?}") };
        assert_eq!(missing.covers.as_ref().map(|covers| (covers.first, covers.rows)), Some((20, 7)));
        let is_enqueued = [true, false].map(|enqueues| missing.is_enqueued(enqueues));
        assert_eq!(is_enqueued, [syncs; 2], "whatever the next run does");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_full_volume_leaves_blocks_in_memory() {
    let volume = Volume::new("full");
    let mut test = TestTable::new(&volume.open(300_000));
    let first = test.spilled(20).await;
    assert!(!test.table.uses_memory());
    let mut second = test.spilled(30).await;
    let in_memory: Vec<Number> = test.table.in_memory().map(|(number, ..)| number).collect();
    assert_eq!((in_memory, test.table.coming_bytes()[0]), (vec![second.number()], 0));
    assert!(test.table.is_on_volume(&PartitionId { topic: "spans".into(), partition: 3 }));
    assert_eq!(test.spool.numbers().refused.load(Ordering::Relaxed), 1);
    assert!(!test.table.takes_blocks());
    assert_eq!(test.content(&mut second).await, Some(bytes(30)));
    drop(first);
}

#[tokio::test(flavor = "current_thread")]
async fn a_record_that_is_damaged_after_a_try_is_found_by_the_next_one() {
    let volume = Volume::new("later");
    let mut test = TestTable::new(&volume.open(64 << 20));
    let mut frames = test.spilled(20).await;
    assert!(test.content(&mut frames).await.is_some());
    damage(&volume.files()[0]);
    assert!(test.load(&mut frames).await.unwrap().body.read().await.is_err(), "it breaks the try off");
    frames.recheck_crc();
    assert!(test.load(&mut frames).await.is_err());
}

#[tokio::test(flavor = "current_thread")]
async fn a_damaged_record_is_never_sent_and_its_file_is_kept() {
    let volume = Volume::new("damaged");
    let mut test = TestTable::new(&volume.open(64 << 20));
    let mut frames = test.add(20);
    assert!(test.spill(&frames));
    test.arrive().await;
    damage(&volume.files()[0]);
    assert!(test.load(&mut frames).await.is_err());
    test.table.end(frames.number(), Ended::Damaged);
    test.spilled(30).await;
    assert_eq!(test.spool.numbers().set_aside.load(Ordering::Relaxed), 1);
    assert!(volume.files().iter().any(|file| file.extension().is_some_and(|name| name == "damaged")));
}

#[tokio::test]
async fn a_block_that_may_be_committed_goes_to_the_volume_once_its_range_may_be_sent() {
    let volume = Volume::new("enqueued");
    let mut test = TestTable::new(&volume.open_as(64 << 20, true));
    let added = test.table.add(sealed(&test.pool, 10, true), 9, 0, Instant::now());
    assert!(!test.spill(&added.frames), "another owner may cut otherwise");
    test.table.release(&added, &release_of(&added.block));
    assert!(test.table.next_only_copy().is_none(), "it is in memory");
    assert!(test.spill(&added.frames));
    let BlockWithFrames { block, mut frames } = added;
    block.account.settled();
    assert_eq!(test.content(&mut frames).await, Some(bytes(10)));
    assert!(!frames.is_only_copy());
    let (released, record) = test.table.next_only_copy().unwrap();
    assert_eq!((released.range, record), (block.range, BlockId { segment: 1, ordinal: 0 }));
    assert!(test.table.next_only_copy().is_none(), "that is new once");
    assert!(frames.is_only_copy());

    let frames = test.add_enqueued(20);
    assert!(test.spill(&frames));
    test.arrive().await;
    test.table.end(frames.number(), Ended::Settled);
    assert!(test.table.next_only_copy().is_none(), "it has ended");

    let frames = test.add_enqueued(30);
    test.serve(frames.begin_parts()).await;
    assert!(test.spill(&frames));
    test.arrive().await;
    assert!(test.table.next_only_copy().is_none(), "how far its parts are is in the plan of its range");

    // An earlier owner has sent it in parts.
    let added = test.table.add(sealed(&test.pool, 40, true), 9, 0, Instant::now());
    let parts = RefusedParts { check: 7, rows: 10, height: 1, code: 53, refused: vec![0] };
    test.table.release(&added, &Release { parts: Some(parts), ..release_of(&added.block) });
    assert!(test.spill(&added.frames));
    test.arrive().await;
    assert!(test.table.next_only_copy().is_none(), "its shipment has not begun to send parts yet");
    added.block.account.settled();
}

/// Its partition has taken it over although Kafka had lost some of its messages. So Kafka is asked, and what is lost is counted.
#[tokio::test(flavor = "current_thread")]
async fn a_damaged_record_whose_messages_kafka_has_lost_stays_until_its_rows_are_counted() {
    let volume = Volume::new("damaged_alone");
    let spool = left_behind(&volume, &[20]).await;
    let id = spool.left().take_all()[0].record();
    let mut test = TestTable::new(&spool);
    let mut block = sealed(&test.pool, 20, false);
    block.frames = Vec::new();
    let taken = test.table.take_over(block, OnVolume { id, is_marked: true, is_in_kafka: false });
    taken.block.account.settled();
    test.table.end(taken.frames.number(), Ended::Damaged);
    let orphans = orphaned(&spool, 1).await;
    assert_eq!(orphans.iter().map(|block| block.range().first).collect::<Vec<_>>(), [20]);
}

#[tokio::test]
async fn a_record_that_is_not_durable_is_no_only_copy() {
    let volume = Volume::new("not_durable");
    let mut test = TestTable::new(&volume.open(64 << 20));
    let mut frames = test.add_enqueued(10);
    assert!(test.spill(&frames));
    drop(test.load(&mut frames).await.unwrap());
    assert!(test.table.next_only_copy().is_none());
}

#[tokio::test]
async fn a_record_that_does_not_say_that_it_may_be_committed_is_no_only_copy() {
    let volume = Volume::new("switched");
    let id = PartitionId { topic: "spans".into(), partition: 3 };
    let mut test = TestTable::new(&volume.open(64 << 20));
    test.spilled(20).await;
    let may_be_committed = test.add_enqueued(30);
    assert!(test.spill(&may_be_committed));
    test.arrive().await;
    assert!(test.spool.close(Duration::from_mins(1)));
    // The next run commits after the enqueue, and finds both.
    let mut test = TestTable::new(&volume.open_as(64 << 20, true));
    let left = test.spool.left();
    let ranges: Vec<_> = left.kept((&id, Generation(4)), TAKEABLE).iter().map(|kept| kept.range).collect();
    let account = crate::ground::account::RowAccount::default();
    for (block, record) in left.take(&id, (Generation(4), &ranges), &account, &test.spool) {
        let taken = test.table.take_over(block, record);
        assert!(test.table.next_only_copy().is_none(), "its range may not be sent yet");
        test.table.release(&taken, &release_of(&taken.block));
        let becomes = test.table.next_only_copy().map(|(released, _)| released.range.first);
        let expected = (taken.block.range.first == 30).then_some(30);
        assert_eq!(becomes, expected, "the run after that would drop the first below the committed offset");
        taken.block.account.settled();
    }
}
