//! What an earlier run has left, by generation of its partition.

use super::*;
use crate::{
    blocks::message_rows::MessageRows,
    volume::{
        ready_block::BlockWithFrames,
        test_volume::{TestTable, Volume, bytes, left_behind},
    },
};
use sluice_ranges::{ClusterNumber, Content, Token};

/// The ranges that a generation of the partition gets.
fn kept(left: &Leftovers, generation: u64, cluster: &str, columns: u64) -> Vec<OffsetRange> {
    let id = PartitionId { topic: "spans".into(), partition: 3 };
    let takeable = Takeable { cluster, former: None, columns };
    left.kept((&id, Generation(generation)), takeable).iter().map(|kept| kept.range).collect()
}

/// How many blocks a generation takes over.
fn taken(spool: &Spool, generation: u64, ranges: &[OffsetRange]) -> usize {
    let id = PartitionId { topic: "spans".into(), partition: 3 };
    let taken = spool.left().take(&id, (Generation(generation), ranges), &RowAccount::default(), spool);
    let count = taken.len();
    for (block, _) in taken {
        block.account.settled();
    }
    count
}

#[tokio::test(flavor = "current_thread")]
async fn what_a_generation_was_told_of_is_there_when_its_order_comes() {
    let volume = Volume::new("reserved");
    let spool = left_behind(&volume, &[20, 30]).await;
    let ranges = kept(spool.left(), 4, "c", 9);
    // The pod is drained, and delivery looks before it receives the order.
    assert!(spool.left().orphans(true).is_empty());
    assert_eq!(taken(&spool, 4, &ranges), 2);
    assert!(spool.left().orphans(true).is_empty());
}

#[tokio::test(flavor = "current_thread")]
async fn the_last_generation_that_asks_takes_over() {
    let volume = Volume::new("asked_again");
    let spool = left_behind(&volume, &[20, 30]).await;
    let ranges = kept(spool.left(), 4, "c", 9);
    assert_eq!(kept(spool.left(), 5, "c", 9), ranges);
    assert_eq!((taken(&spool, 4, &ranges), taken(&spool, 5, &ranges)), (0, 2));
}

#[tokio::test(flavor = "current_thread")]
async fn a_generation_takes_nothing_once_a_later_one_has_asked_though_that_was_told_of_nothing() {
    let volume = Volume::new("asked_in_vain");
    let spool = left_behind(&volume, &[20, 30]).await;
    let ranges = kept(spool.left(), 4, "c", 9);
    assert!(kept(spool.left(), 5, "another", 9).is_empty());
    assert_eq!(spool.left().orphans(true).len(), 2, "the pod is asked to drain");
    assert_eq!((taken(&spool, 4, &ranges), taken(&spool, 5, &[])), (0, 0));
}

#[tokio::test(flavor = "current_thread")]
async fn what_a_generation_was_told_of_is_orphaned_when_it_is_over_without_its_order_and_not_before() {
    let volume = Volume::new("never_taken");
    let spool = left_behind(&volume, &[20, 30]).await;
    let id = PartitionId { topic: "spans".into(), partition: 3 };
    let ranges = kept(spool.left(), 4, "c", 9);
    let later = Instant::now() + Duration::from_hours(1);
    assert!(spool.left().orphans_at(false, later).is_empty(), "however late its order is");
    spool.left().give_back(&id, Generation(3));
    assert!(spool.left().orphans_at(false, later).is_empty(), "that one was over before");
    assert_eq!(taken(&spool, 4, &ranges), 2);

    let volume = Volume::new("never_begun");
    let spool = left_behind(&volume, &[20, 30]).await;
    assert_eq!(kept(spool.left(), 4, "c", 9).len(), 2);
    spool.left().give_back(&id, Generation(4));
    let orphans = spool.left().orphans_at(false, later);
    assert_eq!(orphans.iter().map(|left| left.range().first).collect::<Vec<_>>(), [20, 30]);
}

/// The cluster has lost its id since, or has got one.
#[tokio::test(flavor = "current_thread")]
async fn what_was_read_under_the_id_that_the_plan_remembers_is_told_as_that() {
    let volume = Volume::new("renamed_since");
    let spool = left_behind(&volume, &[20]).await;
    let id = PartitionId { topic: "spans".into(), partition: 3 };
    let told = |generation, cluster, former: Option<&str>| -> Vec<bool> {
        let takeable = Takeable { cluster, former: former.map(ClusterNumber::of), columns: 9 };
        let kept = spool.left().kept((&id, Generation(generation)), takeable);
        kept.iter().map(|kept| kept.is_renamed).collect()
    };
    assert_eq!(told(4, "unnamed", None), [false; 0]);
    assert_eq!(told(5, "unnamed", Some("another")), [false; 0]);
    assert_eq!(told(6, "unnamed", Some("c")), [true]);
    assert_eq!(told(7, "c", Some("unnamed")), [false]);
}

#[tokio::test(flavor = "current_thread")]
async fn the_next_run_goes_on_with_what_fits_and_the_rest_is_orphaned() {
    let volume = Volume::new("left");
    let id = PartitionId { topic: "spans".into(), partition: 3 };
    let spool = left_behind(&volume, &[20, 30, 40]).await;
    let mut test = TestTable::new(&spool);
    let left = spool.left();
    assert!(kept(left, 4, "another", 9).is_empty() && kept(left, 4, "c", 8).is_empty());
    let ranges = kept(left, 4, "c", 9);
    assert_eq!(ranges.iter().map(|range| range.first).collect::<Vec<_>>(), [20, 30, 40]);

    let account = RowAccount::default();
    let gone_on_with = left.take(&id, (Generation(4), &ranges[..2]), &account, &spool);
    assert_eq!((gone_on_with.len(), account.in_flight(), account.imbalance()), (2, 14, 0));
    for ((block, record), first) in gone_on_with.into_iter().zip([20, 30]) {
        assert_eq!(block.generation, Generation(4));
        assert_eq!(block.token, Token::of("c", &id, block.range, Content::default()));
        let BlockWithFrames { block, mut frames } = test.table.take_over(block, record);
        assert_eq!(test.content(&mut frames).await, Some(bytes(first)));
        let messages = test.serve(frames.messages(Some(&spool), 5)).await.unwrap();
        assert_eq!(messages, MessageRows::kept(vec![1, 2, 3]));
        block.account.settled();
    }
    assert!(kept(left, 5, "c", 9).is_empty());
    let orphans = left.orphans(false);
    assert_eq!(orphans.iter().map(|left| left.range().first).collect::<Vec<_>>(), [40]);
    assert!(left.orphans(true).is_empty() && orphans[0].cluster() == Some("c") && orphans[0].rows() == 7);
    assert_eq!(spool.numbers().dropped.blocks(), 0, "Kafka is asked before");
}
