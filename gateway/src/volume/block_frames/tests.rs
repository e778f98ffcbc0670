//! Blocks that are moved to a real directory and read back.

use super::*;
use crate::{
    blocks::{
        buffers::{CHUNK_BYTES, Chunks, Pool, Purpose},
        message_rows::MessageRows,
        spool_metadata::SpoolMetadata,
    },
    ground::account::RowAccount,
    volume::{
        only_copy::{Logs, judge},
        ready_block::BlockWithFrames,
        spool::Leftovers,
    },
};
use sluice_clickhouse::row_frames::FrameStore as _;
use sluice_ranges::{Content, Generation, OffsetRange, PartitionId, Rule, SpooledRange, Token, Version};
use sluice_spool::Options;
use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

pub(crate) const BLOCK_BYTES: usize = 5 * CHUNK_BYTES / 2;

fn bytes(first: i64) -> Vec<u8> {
    (0..BLOCK_BYTES)
        .map(|at| u8::try_from((at * 31 + usize::try_from(first).unwrap()) % 251).unwrap())
        .collect()
}

fn frames(pool: &Pool, first: i64) -> Arc<BlockFrames> {
    cargo_as(pool, first, false)
}

/// A block of `delivery.commit: AfterEnqueue`.
fn enqueued(pool: &Pool, first: i64) -> Arc<BlockFrames> {
    cargo_as(pool, first, true)
}

fn cargo_as(pool: &Pool, first: i64, is_enqueued: bool) -> Arc<BlockFrames> {
    let BlockWithFrames { block, frames } = sealed(pool, first, is_enqueued);
    block.account.settled();
    frames
}

/// A sealed block of ten offsets; of `delivery.commit: AfterEnqueue` if `is_enqueued`.
pub(crate) fn sealed(pool: &Pool, first: i64, is_enqueued: bool) -> BlockWithFrames {
    sealed_in(Chunks::default(), pool, first, is_enqueued)
}

/// The same, with these chunks.
pub(crate) fn sealed_in(mut chunks: Chunks, pool: &Pool, first: i64, is_enqueued: bool) -> BlockWithFrames {
    chunks.store(pool, Purpose::Fill).append(&bytes(first)).unwrap();
    let id = PartitionId { topic: "spans".into(), partition: 3 };
    let range = OffsetRange { first, next: first + 10 };
    let account = RowAccount::default().open().seal(7);
    let rule = Rule { version: Version::Before, bytes: 1, messages: 1 };
    let kept = SpooledRange { range, is_derivable: true, decided: first + 10, rule };
    let mut block = Block {
        token: Token::of("c", &id, range, Content::default()),
        id,
        generation: Generation(1),
        range,
        rows: 7,
        account,
        messages: MessageRows::kept(vec![1, 2, 3]),
        raw_bytes: 1,
        bytes: chunks.len(),
        frames: chunks.into_bytes(),
        span_end_nanos_max: 0,
        spool_metadata: SpoolMetadata { cluster: "c".into(), kept: Some(kept), is_enqueued },
    };
    let frames = BlockFrames::of(&mut block, 9);
    BlockWithFrames { block, frames }
}

/// Number of the volumes of this process, so that tests have different directories even with equal names.
static MADE: AtomicU32 = AtomicU32::new(0);

/// A directory of one test, removed when it ends.
pub(crate) struct Volume(PathBuf);

impl Volume {
    pub(crate) fn new(name: &str) -> Self {
        let (process, number) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("sluice-frames-{name}-{process}-{number}"));
        drop(std::fs::remove_dir_all(&path));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn open(&self, bytes_max: u64) -> Spool {
        self.open_as(bytes_max, false)
    }

    /// With `delivery.commit: AfterEnqueue` if `enqueues`.
    pub(crate) fn open_as(&self, bytes_max: u64, enqueues: bool) -> Spool {
        self.open_with(Options::new(1, bytes_max, enqueues), |fatal| panic!("{fatal}"))
    }

    pub(crate) fn open_with(
        &self,
        options: Options,
        failed: impl FnOnce(sluice_spool::Fatal) + Send + 'static,
    ) -> Spool {
        Spool::start(&self.0, options, failed).unwrap().0
    }

    pub(crate) fn files(&self) -> Vec<PathBuf> {
        std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// A block that was moved to the volume.
async fn spilled(pool: &Pool, spool: &Spool, first: i64) -> Arc<BlockFrames> {
    let frames = frames(pool, first);
    spool.spill(&frames);
    // Waits until it has arrived.
    drop(frames.load(Some(spool), 5).await.unwrap());
    frames
}

#[tokio::test(flavor = "current_thread")]
async fn a_block_comes_back_from_the_volume_as_it_was_and_its_memory_is_free_meanwhile() {
    let (volume, pool) = (Volume::new("back"), Pool::new(4 << 20, 1, 1));
    let spool = volume.open(64 << 20);
    let frames = spilled(&pool, &spool, 20).await;
    assert_eq!(pool.free_bytes(), pool.total_bytes());
    assert!(!frames.is_in_memory());
    for _ in 0..2 {
        let loaded = frames.load(Some(&spool), 5).await.unwrap();
        assert_eq!(loaded.body.len(), BLOCK_BYTES as u64);
        assert_eq!(loaded.body.read().await.unwrap().concat(), bytes(20));
    }
    frames.end(Some(&spool), Ended::Settled);
    // Blocks are moved one after another: once the next one is there, this one was handled.
    spilled(&pool, &spool, 30).await;
    let numbers = spool.numbers();
    assert_eq!((numbers.appended.blocks(), numbers.drained.blocks(), numbers.dropped.blocks()), (2, 1, 0));
    assert_eq!(2 * numbers.drained.bytes(), numbers.appended.bytes());
}

#[tokio::test(flavor = "current_thread")]
async fn a_block_that_is_being_sent_stays_in_memory() {
    let (volume, pool) = (Volume::new("sent"), Pool::new(4 << 20, 1, 1));
    let spool = volume.open(64 << 20);
    let frames = frames(&pool, 20);
    let loaded = frames.load(Some(&spool), 5).await.unwrap();
    assert_eq!(frames.spillable_bytes(), None);
    spool.spill(&frames);
    assert!(frames.is_in_memory() && spool.spilling_bytes() == 0);
    drop(loaded);
    assert_eq!(frames.spillable_bytes(), Some(BLOCK_BYTES as u64));
    let leaving = frames.begin_spill(false).unwrap();
    assert_eq!(leaving.head.first_sent_ms, Some(5), "what was sent before says so on the volume");
}

#[tokio::test(flavor = "current_thread")]
async fn a_block_that_ends_on_its_way_leaves_no_record() {
    let (volume, pool) = (Volume::new("ended"), Pool::new(4 << 20, 1, 1));
    let spool = volume.open(64 << 20);
    let first = frames(&pool, 20);
    spool.spill(&first);
    first.end(Some(&spool), Ended::Dropped);
    let last = spilled(&pool, &spool, 30).await;
    assert_eq!(spool.numbers().dropped.blocks(), 1);
    last.end(Some(&spool), Ended::Settled);
    spilled(&pool, &spool, 40).await;
    assert_eq!(pool.free_bytes(), pool.total_bytes());
}

/// The blocks of revoked partitions, once there are this many.
async fn orphaned(spool: &Spool, count: usize) -> Vec<crate::volume::spool::LeftBlock> {
    let mut orphans = Vec::new();
    while orphans.len() < count {
        orphans.extend(spool.left().orphans(false));
        tokio::task::yield_now().await;
    }
    orphans
}

#[tokio::test(flavor = "current_thread")]
async fn the_blocks_of_a_partition_that_has_gone_stay_on_the_volume_until_kafka_was_asked() {
    let (volume, pool) = (Volume::new("gone"), Pool::new(4 << 20, 1, 1));
    let spool = volume.open(64 << 20);
    for first in [20, 30] {
        let sealed = sealed(&pool, first, false);
        let frames = sealed.frames.clone();
        spool.spill(&frames);
        // One was sent, and one is still on its way when its partition is revoked.
        if first == 20 {
            drop(frames.load(Some(&spool), 5).await.unwrap());
        }
        sealed.abandon(Some(&spool), false);
    }
    let orphans = orphaned(&spool, 2).await;
    let found = orphans.iter().map(|left| (left.range().first, left.is_marked(), left.cluster()));
    assert_eq!(found.collect::<Vec<_>>(), [(20, true, Some("c")), (30, false, Some("c"))]);
    while spool.usage().blocks < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(spool.numbers().dropped.blocks(), 0);
    assert!(spool.left().take_missing().is_empty());
    // They are still there for the next run.
    assert!(spool.close(std::time::Duration::from_mins(1)));
    assert_eq!(kept(volume.open(64 << 20).left(), 4, "c", 9).len(), 2);
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
    BlockFrames::only_copy(id, true).end(Some(&spool), Ended::Orphaned);
    let orphans = orphaned(&spool, 1).await;
    let [left] = &orphans[..] else { panic!("{} orphans", orphans.len()) };
    assert_eq!((left.in_writing().map(|found| found.is_new), left.is_marked()), (Some(false), true));
    assert_eq!(spool.usage().blocks, 1);
}

#[tokio::test(flavor = "current_thread")]
async fn a_block_of_a_partition_that_has_gone_and_that_cannot_be_read_is_missed() {
    let (volume, pool) = (Volume::new("gone_damaged"), Pool::new(4 << 20, 1, 1));
    let spool = volume.open(64 << 20);
    let sealed = sealed(&pool, 20, false);
    spool.spill(&sealed.frames);
    while sealed.frames.is_in_memory() {
        tokio::task::yield_now().await;
    }
    let file = &volume.files()[0];
    let body = file.metadata().unwrap().len() - BLOCK_BYTES as u64;
    // The header is in front of the metadata.
    damage_at(file, body - 200);
    sealed.abandon(Some(&spool), false);
    let missing = loop {
        if let [missing] = &spool.left().take_missing()[..] {
            break missing.clone();
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(missing.covers.map(|covers| (covers.first, covers.next, covers.rows)), Some((20, 30, 7)));
    assert!(spool.left().orphans(true).is_empty());
}

#[tokio::test(flavor = "current_thread")]
async fn a_torn_record_may_be_an_only_copy_only_if_somebody_was_told_that_it_was_there() {
    for syncs in [true, false] {
        let (volume, pool) = (Volume::new("torn"), Pool::new(4 << 20, 1, 1));
        let spool = volume.open_as(64 << 20, syncs);
        let frames = enqueued(&pool, 20);
        frames.release(0, None);
        spool.spill(&frames);
        while !frames.is_on_volume() {
            tokio::task::yield_now().await;
        }
        assert_eq!(frames.become_only_copy().is_some(), syncs);
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
    let (volume, pool) = (Volume::new("full"), Pool::new(4 << 20, 1, 1));
    let spool = volume.open(300_000);
    let first = spilled(&pool, &spool, 20).await;
    let second = spilled(&pool, &spool, 30).await;
    assert!(!first.is_in_memory() && second.is_in_memory());
    assert_eq!(spool.numbers().refused.load(Ordering::Relaxed), 1);
    assert!(!spool.takes_blocks());
    assert_eq!(second.load(Some(&spool), 5).await.unwrap().body.read().await.unwrap().concat(), bytes(30));
}

#[tokio::test(flavor = "current_thread")]
async fn a_record_that_is_damaged_after_a_try_is_found_by_the_next_one() {
    let (volume, pool) = (Volume::new("later"), Pool::new(4 << 20, 1, 1));
    let spool = volume.open(64 << 20);
    let frames = spilled(&pool, &spool, 20).await;
    assert!(frames.load(Some(&spool), 5).await.unwrap().body.read().await.is_ok());
    damage(&volume.files()[0]);
    assert!(frames.load(Some(&spool), 5).await.unwrap().body.read().await.is_err(), "it breaks the try off");
    frames.recheck_crc();
    assert!(frames.load(Some(&spool), 5).await.is_err());
}

/// Overwrites some bytes of the last record.
pub(crate) fn damage(file: &Path) {
    damage_at(file, file.metadata().unwrap().len() - 1_000);
}

fn damage_at(file: &Path, at: u64) {
    use std::os::unix::fs::FileExt as _;
    let file = std::fs::OpenOptions::new().read(true).write(true).open(file).unwrap();
    file.write_all_at(b"damage", at).unwrap();
}

#[tokio::test(flavor = "current_thread")]
async fn a_damaged_record_is_never_sent_and_its_file_is_kept() {
    let (volume, pool) = (Volume::new("damaged"), Pool::new(4 << 20, 1, 1));
    let spool = volume.open(64 << 20);
    let frames = frames(&pool, 20);
    spool.spill(&frames);
    while frames.is_in_memory() {
        tokio::task::yield_now().await;
    }
    damage(&volume.files()[0]);
    assert!(frames.load(Some(&spool), 5).await.is_err());
    frames.end(Some(&spool), Ended::Damaged);
    spilled(&pool, &spool, 30).await;
    assert_eq!(spool.numbers().set_aside.load(Ordering::Relaxed), 1);
    assert!(volume.files().iter().any(|file| file.extension().is_some_and(|name| name == "damaged")));
}

/// The ranges that a generation of the partition is told of.
fn kept(left: &Leftovers, generation: u64, cluster: &str, columns: u64) -> Vec<OffsetRange> {
    let id = PartitionId { topic: "spans".into(), partition: 3 };
    left.kept((&id, Generation(generation)), cluster, columns).iter().map(|kept| kept.range).collect()
}

/// Opens a volume on which an earlier run has left these blocks.
pub(crate) async fn left_behind(volume: &Volume, firsts: &[i64]) -> Spool {
    let pool = Pool::new(4 << 20, 1, 1);
    let spool = volume.open(64 << 20);
    for first in firsts {
        spilled(&pool, &spool, *first).await;
    }
    assert!(spool.close(std::time::Duration::from_mins(1)));
    volume.open(64 << 20)
}

/// How many blocks a generation takes over.
fn taken(spool: &Spool, generation: u64, ranges: &[OffsetRange]) -> usize {
    let id = PartitionId { topic: "spans".into(), partition: 3 };
    let taken = spool.left().take(&id, (Generation(generation), ranges), &RowAccount::default(), spool);
    let count = taken.len();
    for sealed in taken {
        sealed.block.account.settled();
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
    let later = std::time::Instant::now() + std::time::Duration::from_hours(1);
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

#[tokio::test(flavor = "current_thread")]
async fn the_next_run_goes_on_with_what_fits_and_the_rest_is_orphaned() {
    let (volume, pool) = (Volume::new("left"), Pool::new(4 << 20, 1, 1));
    let id = PartitionId { topic: "spans".into(), partition: 3 };
    let spool = volume.open(64 << 20);
    for first in [20, 30, 40] {
        spilled(&pool, &spool, first).await;
    }
    assert!(spool.close(std::time::Duration::from_mins(1)));
    let spool = volume.open(64 << 20);
    let left = spool.left();
    assert!(kept(left, 4, "another", 9).is_empty() && kept(left, 4, "c", 8).is_empty());
    let ranges = kept(left, 4, "c", 9);
    assert_eq!(ranges.iter().map(|range| range.first).collect::<Vec<_>>(), [20, 30, 40]);

    let account = RowAccount::default();
    let gone_on_with = left.take(&id, (Generation(4), &ranges[..2]), &account, &spool);
    assert_eq!((gone_on_with.len(), account.in_flight(), account.imbalance()), (2, 14, 0));
    for (sealed, first) in gone_on_with.into_iter().zip([20, 30]) {
        assert_eq!(sealed.block.generation, Generation(4));
        let token = Token::of("c", &id, sealed.block.range, Content::default());
        assert_eq!(sealed.block.token, token);
        let loaded = sealed.frames.load(Some(&spool), 5).await.unwrap();
        assert_eq!(loaded.body.read().await.unwrap().concat(), bytes(first));
        let messages = sealed.frames.messages(Some(&spool), 5).await.unwrap();
        assert_eq!(messages, MessageRows::kept(vec![1, 2, 3]));
        sealed.block.account.settled();
    }
    assert!(kept(left, 5, "c", 9).is_empty());
    let orphans = left.orphans(false);
    assert_eq!(orphans.iter().map(|left| left.range().first).collect::<Vec<_>>(), [40]);
    assert!(left.orphans(true).is_empty() && orphans[0].cluster() == Some("c") && orphans[0].rows() == 7);
    assert_eq!(spool.numbers().dropped.blocks(), 0, "Kafka is asked before");
}

#[tokio::test]
async fn a_block_that_may_be_committed_goes_to_the_volume_once_its_range_may_be_sent() {
    let (volume, pool) = (Volume::new("enqueued"), Pool::new(4 << 20, 1, 1));
    let spool = volume.open_as(64 << 20, true);
    let frames = enqueued(&pool, 10);
    assert!(frames.begin_spill(false).is_none(), "another owner may cut otherwise");
    frames.release(0, None);
    assert!(frames.become_only_copy().is_none(), "it is in memory");
    spool.spill(&frames);
    let loaded = frames.load(Some(&spool), 5).await.unwrap();
    assert_eq!(loaded.body.read().await.unwrap().concat(), bytes(10));
    assert!(frames.become_only_copy().is_some() && frames.become_only_copy().is_none(), "that is new once");
    assert!(frames.is_only_copy());
    frames.end(Some(&spool), Ended::Settled);
    assert!(frames.become_only_copy().is_none());

    let frames = enqueued(&pool, 20);
    frames.release(0, None);
    frames.begin_parts();
    spool.spill(&frames);
    frames.load(Some(&spool), 5).await.unwrap();
    assert!(frames.become_only_copy().is_none(), "how far its parts are is in the plan of its range");
}

#[tokio::test]
async fn a_record_that_is_not_durable_is_no_only_copy() {
    let (volume, pool) = (Volume::new("not_durable"), Pool::new(4 << 20, 1, 1));
    let spool = volume.open(64 << 20);
    let frames = enqueued(&pool, 10);
    frames.release(0, None);
    spool.spill(&frames);
    drop(frames.load(Some(&spool), 5).await.unwrap());
    assert!(frames.become_only_copy().is_none());
}

#[tokio::test]
async fn a_record_that_does_not_say_that_it_may_be_committed_is_no_only_copy() {
    let (volume, pool) = (Volume::new("switched"), Pool::new(4 << 20, 1, 1));
    let id = PartitionId { topic: "spans".into(), partition: 3 };
    let spool = volume.open(64 << 20);
    spilled(&pool, &spool, 20).await;
    let may_be_committed = enqueued(&pool, 30);
    may_be_committed.release(0, None);
    spool.spill(&may_be_committed);
    drop(may_be_committed.load(Some(&spool), 5).await.unwrap());
    assert!(spool.close(std::time::Duration::from_mins(1)));
    // The next run commits after the enqueue, and finds both.
    let spool = volume.open_as(64 << 20, true);
    let ranges = kept(spool.left(), 4, "c", 9);
    let taken = spool.left().take(&id, (Generation(4), &ranges), &RowAccount::default(), &spool);
    let becomes: Vec<bool> = taken.iter().map(|sealed| sealed.frames.become_only_copy().is_some()).collect();
    assert_eq!(becomes, [false, true], "the run after that would drop the first below the committed offset");
    for sealed in taken {
        sealed.block.account.settled();
    }
}
