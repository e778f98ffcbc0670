//! Results that stay when Kafka's answers change, with a real directory.

use super::*;
use crate::{
    ground::account::RowAccount,
    volume::{
        ready_block::BlockWithFrames,
        spool::Written,
        test_volume::{TAKEABLE, TestTable, Volume, left_behind, sealed},
    },
};
use sluice_gateway_config::{InitialOffset, Insert};
use sluice_kafka::{Beginning, UNNAMED_CLUSTER};
use sluice_ranges::{
    Generation, Log, Now, OffsetRange, Parted, PartitionId, Plan, Ranges, RefusedParts, Rule, Settings,
    Version,
};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_mins(1);

/// The partition of all blocks of these tests.
fn id() -> PartitionId {
    PartitionId { topic: "spans".into(), partition: 3 }
}

/// The rule by which the blocks of these tests were made.
const RULE: Rule = Rule { version: Version::Before, bytes: 1, messages: 1 };

/// The settings of a process that makes ranges by it.
const SETTINGS: Settings =
    Settings { rule: RULE, routing_epoch: 0, destination: None, topic_id: None, cluster: None };

/// The partition is about to start. Whether the volume has recorded what that means.
fn begins(spool: &Spool, beginning: &Beginning) -> bool {
    spool.judge_beginning(&id(), beginning, (&SETTINGS, InitialOffset::Earliest, 9))
}

/// Kafka's answers about a log in which retention has left the offsets from 40.
fn logs(committed: i64) -> Logs {
    Logs::of_one(id(), OffsetRange { first: 40, next: 90 }, committed)
}

/// The partition is about to start, also at 40.
fn beginning(committed: i64, metadata: String) -> Beginning {
    let log = Log { start: 40, end: 90 };
    Beginning { commit: Some((committed, metadata)), log, cluster: "c".into(), topic_id: None, is_new: false }
}

/// The plan of an owner without ranges in flight.
fn plan(offset: i64) -> Plan {
    Plan {
        offset,
        rule: Rule::of(&Insert::default()),
        routing_epoch: 0,
        destination: None,
        horizon: offset,
        topic_id: None,
        cluster: None,
        t0: 0,
        cuts: Vec::new(),
        parted: Vec::new(),
        gaps: Vec::new(),
        doubtful_up_to: 0,
    }
}

/// The results for all blocks, by offsets: settled ones, those in Kafka, only copies.
async fn firsts(spool: &Spool, committed: i64) -> [Vec<i64>; 3] {
    let Judged { settled, in_kafka, only_copies } =
        judge(spool.left().take_all(), &logs(committed), spool).await;
    let only_copies: Vec<i64> = only_copies.iter().map(|block| block.block().range().first).collect();
    let [settled, in_kafka] =
        [settled, in_kafka].map(|blocks| blocks.iter().map(|block| block.range().first).collect::<Vec<_>>());
    [settled, in_kafka, only_copies]
}

/// An owner has read a part of a range, without the messages in the gap; where ranges are doubtful, it may have sent others.
#[tokio::test(flavor = "current_thread")]
async fn rows_that_an_owner_may_have_sent_in_another_range_may_be_elsewhere() {
    let volume = Volume::new("another_range");
    let spool = left_behind(&volume, &[20, 30]).await;
    let blocks = spool.left().orphans(true);
    let elsewhere = |plan: &Plan| -> Vec<bool> {
        let begins = beginning(20, plan.encode());
        let logs = Logs::of_beginning(InitialOffset::Earliest, &id(), &begins);
        let finding = |block: &LeftBlock| match logs.row_location(block) {
            RowLocation::OnlyCopy(only) => Finding::of(block, only, None, &logs).rows_elsewhere,
            other => panic!("{other:?}"),
        };
        blocks.iter().map(|block| finding(block) == block.rows()).collect()
    };
    assert_eq!(elsewhere(&plan(20)), [false, false]);
    let gap = |first, next| Plan { gaps: vec![OffsetRange { first, next }], ..plan(20) };
    assert_eq!(elsewhere(&gap(10, 30)), [false, false], "nobody has read any of it");
    assert_eq!(elsewhere(&gap(35, 40)), [false, true]);
    assert_eq!(elsewhere(&Plan { doubtful_up_to: 25, ..gap(0, 20) }), [true, false]);
}

/// A block of a cluster that has lost its id, or has got one, looks like one of another cluster. The owner of its partition may read its messages
/// again.
#[tokio::test(flavor = "current_thread")]
async fn rows_of_a_cluster_without_an_id_may_be_elsewhere() {
    let volume = Volume::new("renamed");
    let spool = left_behind(&volume, &[20, 50]).await;
    let blocks = spool.left().orphans(true);
    for (cluster, expected) in [("d", false), (UNNAMED_CLUSTER, true)] {
        let begins = Beginning { cluster: cluster.into(), ..beginning(20, plan(20).encode()) };
        let logs = Logs::of_beginning(InitialOffset::Earliest, &id(), &begins);
        for block in &blocks {
            let RowLocation::OnlyCopy(only) = logs.row_location(block) else {
                panic!("it is another cluster")
            };
            let elsewhere = Finding::of(block, only, None, &logs).rows_elsewhere;
            assert_eq!(elsewhere, if expected { block.rows() } else { 0 }, "{cluster}");
        }
    }
}

/// What a killed process leaves of a volume.
fn killed(volume: &Volume) -> Volume {
    let left = Volume::new("killed");
    for file in volume.files() {
        std::fs::copy(&file, left.path().join(file.file_name().unwrap())).unwrap();
    }
    left
}

#[tokio::test(flavor = "current_thread")]
async fn an_only_copy_stays_one_for_the_next_run_whoever_commits_behind_it() {
    let volume = Volume::new("stays");
    let spool = left_behind(&volume, &[10, 20, 30, 40]).await;
    assert_eq!(firsts(&spool, 20).await, [vec![10], vec![40], vec![20, 30]]);
    let left = killed(&volume);
    let spool = left.open(64 << 20);
    assert_eq!(firsts(&spool, 60).await, [vec![10, 40], vec![], vec![20, 30]]);
}

/// Another gateway has taken over the partition while this one was away, and has committed beyond the gap.
#[tokio::test(flavor = "current_thread")]
async fn what_another_owner_has_committed_behind_is_found_in_its_plan() {
    let volume = Volume::new("behind");
    let spool = left_behind(&volume, &[10, 20, 30, 40]).await;
    let plan = Plan { gaps: vec![OffsetRange { first: 20, next: 40 }], ..plan(60) };
    let commit = (60, plan.encode());
    let logs = Logs::of_beginning(InitialOffset::Earliest, &id(), &beginning(commit.0, commit.1));
    let Judged { settled, in_kafka, only_copies } = judge(spool.left().take_all(), &logs, &spool).await;
    let firsts = |blocks: &[LeftBlock]| blocks.iter().map(|block| block.range().first).collect::<Vec<_>>();
    assert_eq!((firsts(&settled), firsts(&in_kafka)), (vec![10, 40], vec![]));
    let only_copies: Vec<i64> = only_copies.iter().map(|block| block.block().range().first).collect();
    assert_eq!(only_copies, [20, 30]);
    let left = killed(&volume);
    let blocks = left.open(64 << 20).left().take_all();
    let written = blocks.iter().filter_map(|block| Some((block.rows(), block.in_writing()?.rows_elsewhere)));
    let written: Vec<_> = written.collect();
    assert_eq!(written.len(), 2);
    assert!(written.iter().all(|(rows, elsewhere)| rows == elsewhere), "another volume may have had them");
}

#[tokio::test(flavor = "current_thread")]
async fn what_a_partition_leaves_out_is_written_down_before_it_begins() {
    let volume = Volume::new("leaves_out");
    let spool = left_behind(&volume, &[10, 20, 30, 40]).await;
    let (before, beginning) = (killed(&volume), beginning(20, String::new()));
    assert!(!beginning.is_gapless() && begins(&spool, &beginning));
    let after = killed(&volume);
    let left = after.open(64 << 20);
    assert_eq!(firsts(&left, 60).await, [vec![10, 40], vec![], vec![20, 30]]);
    let lost = before.open(64 << 20);
    assert_eq!(firsts(&lost, 60).await, [vec![10, 20, 30, 40], vec![], vec![]], "what it is there for");
    // The partition does not take them over here either.
    let orphans = spool.left().orphans(false);
    let in_writing: Vec<_> =
        orphans.iter().map(|block| block.in_writing().map(|found| found.is_new)).collect();
    assert_eq!(in_writing, [Some(true), Some(true)]);
}

/// Kafka has lost a range that is on the volume, and the beginning of the next one. Read from Kafka, the rest of it would be another range,
/// with another token, and its rows would be doubled.
#[tokio::test(flavor = "current_thread")]
async fn what_the_partition_takes_over_stays_its_range_though_kafka_has_lost_some_of_it() {
    let volume = Volume::new("takes_over");
    let spool = left_behind(&volume, &[25, 35]).await;
    let plan = Plan { rule: RULE, horizon: 45, ..plan(25) };
    let beginning = beginning(25, plan.encode());
    assert!(!beginning.is_gapless() && begins(&spool, &beginning));
    assert!(spool.left().orphans(false).is_empty());
    let kept = spool.left().kept((&id(), Generation(4)), TAKEABLE);
    let now = Now { steady: Duration::ZERO, unix_seconds: 1 };
    let committed = beginning.committed(InitialOffset::Earliest);
    let (_, cutter, found, taken) =
        Ranges::assigned_with(Generation(4), &committed, SETTINGS, now, &kept).unwrap();
    assert_eq!((cutter.position(), found.overtaken), (45, None), "nothing of them is read");
    let ranges: Vec<OffsetRange> = taken.iter().map(|kept| kept.range).collect();
    let taken = spool.left().take(&id(), (Generation(4), &ranges), &RowAccount::default(), &spool);
    let in_kafka: Vec<(i64, bool)> =
        taken.iter().map(|(block, record)| (block.range.first, record.is_in_kafka)).collect();
    assert_eq!(in_kafka, [(25, false), (35, false)]);
    for (block, _) in taken {
        block.account.settled();
    }
}

/// A block is missing between the two: the partition goes on with the first one only, and reads from 40 on.
#[tokio::test(flavor = "current_thread")]
async fn what_the_partition_does_not_take_over_is_written_down_before_it_begins() {
    let volume = Volume::new("takes_one_over");
    let spool = left_behind(&volume, &[20, 35]).await;
    let plan = Plan { rule: RULE, horizon: 45, ..plan(20) };
    assert!(begins(&spool, &beginning(20, plan.encode())));
    let kept = spool.left().kept((&id(), Generation(4)), TAKEABLE);
    assert_eq!(kept.iter().map(|kept| kept.range.first).collect::<Vec<_>>(), [20]);
    let orphans = spool.left().orphans(false);
    assert_eq!(orphans.iter().map(|block| block.range().first).collect::<Vec<_>>(), [35]);
    let elsewhere = orphans[0].in_writing().map(|found| found.rows_elsewhere);
    assert_eq!(elsewhere, Some(orphans[0].rows()), "by the messages of its rows, none is before 40");
}

#[tokio::test(flavor = "current_thread")]
async fn a_block_on_its_way_to_the_volume_is_found_out_too() {
    let volume = Volume::new("on_its_way");
    let mut test = TestTable::new(&volume.open(64 << 20));
    let spilled: Vec<i64> = (10..40).step_by(10).collect();
    for first in &spilled {
        let frames = test.add(*first);
        assert!(test.spill(&frames));
    }
    assert!(begins(&test.spool, &beginning(10, String::new())));
    let after = killed(&volume);
    let left = after.open(64 << 20);
    assert_eq!(firsts(&left, 60).await, [vec![], vec![], spilled]);
}

#[tokio::test(flavor = "current_thread")]
async fn what_the_partition_reads_again_is_dropped_before_it_can_be_taken_for_committed() {
    let volume = Volume::new("reads_again");
    let spool = left_behind(&volume, &[30, 40, 50]).await;
    assert!(begins(&spool, &beginning(40, String::new())));
    let taken = spool.left().take(&id(), (Generation(4), &[]), &RowAccount::default(), &spool);
    assert!(taken.is_empty());
    let orphans: Vec<i64> = spool.left().orphans(false).iter().map(|block| block.range().first).collect();
    assert_eq!(orphans, [30], "what lies below is asked about");
    while spool.usage().blocks > 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(spool.numbers().dropped.blocks(), 2);
}

#[tokio::test(flavor = "current_thread")]
async fn where_reading_goes_on_without_a_gap_nothing_is_asked() {
    let volume = Volume::new("gapless");
    let spool = left_behind(&volume, &[20]).await;
    assert!(spool.close(PATIENCE), "whoever is asked now never answers");
    let gapless = beginning(40, String::new());
    assert!(gapless.is_gapless() && begins(&spool, &gapless));
    assert!(!begins(&spool, &beginning(20, String::new())), "it must not begin");
}

#[tokio::test(flavor = "current_thread")]
async fn rows_that_are_elsewhere_too_and_parts_that_were_sent_are_written_down_with_it() {
    let volume = Volume::new("parts");
    let spool = left_behind(&volume, &[20, 35]).await;
    let (token, rows) = {
        let blocks = spool.left().orphans(true);
        let tokens: Vec<_> = blocks.iter().map(|block| block.token().unwrap()).collect();
        (tokens[0], blocks[0].rows())
    };
    let range = OffsetRange { first: 20, next: 30 };
    let parts = RefusedParts { check: token.check(), rows, height: 1, code: 117, refused: vec![0] };
    let parted = vec![Parted { range, parts: parts.clone() }];
    let plan = Plan { horizon: 45, parted, ..plan(20) };
    assert!(begins(&spool, &beginning(20, plan.encode())));
    assert!(spool.close(PATIENCE));
    let spool = volume.open(64 << 20);
    let blocks = spool.left().orphans(false);
    let written: Vec<u64> =
        blocks.iter().filter_map(|block| Some(block.in_writing()?.rows_elsewhere)).collect();
    // According to the metadata of these blocks, none of their rows are only in them.
    assert_eq!(written, [0, rows], "the owner reads from 40 on");
    assert_eq!(spool.noted(token, range).await, Written::Whole(parts));
}

#[tokio::test(flavor = "current_thread")]
async fn all_rows_of_a_doubtful_range_may_be_elsewhere() {
    let volume = Volume::new("doubtful");
    let mut test = TestTable::new(&volume.open(64 << 20));
    for (first, is_doubtful) in [(20, false), (30, true)] {
        let mut block = sealed(&test.pool, first, false);
        block.spool_metadata.is_doubtful = is_doubtful;
        let BlockWithFrames { block, mut frames } = test.table.add(block, 9, 0, Instant::now());
        block.account.settled();
        assert!(test.spill(&frames));
        // It is sent under its own token, which says nothing about another one.
        drop(test.load(&mut frames).await.unwrap());
    }
    assert!(test.spool.close(PATIENCE));
    let spool = volume.open(64 << 20);
    assert!(begins(&spool, &beginning(20, String::new())));
    assert!(spool.close(PATIENCE));
    let blocks = volume.open(64 << 20).left().orphans(false);
    let written: Vec<_> =
        blocks.iter().filter_map(|block| Some((block.rows(), block.in_writing()?.rows_elsewhere))).collect();
    assert!(
        matches!(written[..], [(_, 0), (rows, elsewhere)] if rows == elsewhere && rows > 0),
        "{written:?}"
    );
}
