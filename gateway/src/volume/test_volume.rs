//! For tests: a volume in a real directory, blocks to move there, and a table that a delivery task would own.

use crate::{
    blocks::{
        block::Block,
        buffers::{CHUNK_BYTES, Pool, Purpose},
        chunks::Chunks,
        message_rows::MessageRows,
        spool_metadata::SpoolMetadata,
    },
    ground::account::RowAccount,
    volume::{
        block_frames::{BlockFrames, Loaded},
        block_table::BlockTable,
        ready_block::BlockWithFrames,
        spool::{Spool, Takeable, Unreadable},
    },
};
use sluice_clickhouse::row_frames::FrameStore as _;
use sluice_ranges::{
    Content, Generation, OffsetRange, PartitionId, Release, Rule, SpooledRange, Token, Version,
};
use sluice_spool::Options;
use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

pub(crate) const BLOCK_BYTES: usize = 5 * CHUNK_BYTES / 2;

/// What the blocks of [`sealed`] fit.
pub(crate) const TAKEABLE: Takeable<'_> = Takeable { cluster: "c", former: None, columns: 9 };

/// Number of the volumes of this process, so that tests have different directories even with equal names.
static MADE: AtomicU32 = AtomicU32::new(0);

/// The bytes of a block.
pub(crate) fn bytes(first: i64) -> Vec<u8> {
    (0..BLOCK_BYTES)
        .map(|at| u8::try_from((at * 31 + usize::try_from(first).unwrap()) % 251).unwrap())
        .collect()
}

/// A sealed block of ten offsets; of `delivery.commit: AfterEnqueue` if `is_enqueued`.
pub(crate) fn sealed(pool: &Pool, first: i64, is_enqueued: bool) -> Block {
    sealed_in(Chunks::default(), pool, first, is_enqueued)
}

/// The same, with these chunks.
pub(crate) fn sealed_in(mut chunks: Chunks, pool: &Pool, first: i64, is_enqueued: bool) -> Block {
    chunks.store(pool, Purpose::Fill).append(&bytes(first)).unwrap();
    let id = PartitionId { topic: "spans".into(), partition: 3 };
    let range = OffsetRange { first, next: first + 10 };
    let account = RowAccount::default().open().seal(7);
    let rule = Rule { version: Version::Before, bytes: 1, messages: 1 };
    let kept = SpooledRange { range, is_derivable: true, decided: first + 10, rule, is_renamed: false };
    Block {
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
        spool_metadata: SpoolMetadata {
            cluster: "c".into(),
            kept: Some(kept),
            is_doubtful: false,
            is_enqueued,
        },
    }
}

/// The release of a block's range.
pub(crate) fn release_of(block: &Block) -> Release {
    let range = block.range;
    Release { range, first_sent: 1, is_inherited: false, parts: None, routing_epoch: 0, destination: None }
}

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

/// A table with its volume and its pool.
pub(crate) struct TestTable {
    pub(crate) table: BlockTable,
    pub(crate) spool: Spool,
    pub(crate) pool: Pool,
}

impl TestTable {
    pub(crate) fn new(spool: &Spool) -> Self {
        let (spool, pool) = (spool.clone(), Pool::new(16 << 20, 1, 1));
        Self { table: BlockTable::new(Some(spool.clone()), 1), spool, pool }
    }

    /// Adds a block. What becomes of its rows is not counted.
    pub(crate) fn add(&mut self, first: i64) -> BlockFrames {
        let BlockWithFrames { block, frames } =
            self.table.add(sealed(&self.pool, first, false), 9, 0, Instant::now());
        block.account.settled();
        frames
    }

    /// Adds a block of `delivery.commit: AfterEnqueue` whose range may be sent.
    pub(crate) fn add_enqueued(&mut self, first: i64) -> BlockFrames {
        let added = self.table.add(sealed(&self.pool, first, true), 9, 0, Instant::now());
        self.table.release(&added, &release_of(&added.block));
        added.block.account.settled();
        added.frames
    }

    /// Hands a block over to the volume; whether that is possible.
    pub(crate) fn spill(&mut self, frames: &BlockFrames) -> bool {
        self.table.spill(frames.number()).is_some()
    }

    /// Serves the table while a shipment works.
    pub(crate) async fn serve<T>(&mut self, work: impl Future<Output = T>) -> T {
        served(&mut self.table, work).await
    }

    /// Serves the table until no block is on its way to the volume.
    pub(crate) async fn arrive(&mut self) {
        while self.table.coming_bytes()[0] > 0 {
            let event = self.table.events_in.recv().await.unwrap();
            self.table.take(event);
        }
    }

    /// What a try would send.
    pub(crate) async fn load(&mut self, frames: &mut BlockFrames) -> Result<Loaded, Unreadable> {
        let spool = self.spool.clone();
        self.serve(frames.load(Some(&spool), 5)).await
    }

    /// The bytes that a try would send.
    pub(crate) async fn content(&mut self, frames: &mut BlockFrames) -> Option<Vec<u8>> {
        Some(self.load(frames).await.ok()?.body.read().await.ok()?.concat())
    }

    /// A block that was moved to the volume, if there is room, and loaded for a try.
    pub(crate) async fn spilled(&mut self, first: i64) -> BlockFrames {
        let mut frames = self.add(first);
        self.spill(&frames);
        drop(self.load(&mut frames).await.unwrap());
        frames
    }
}

/// Serves a table while a shipment works.
pub(crate) async fn served<T>(table: &mut BlockTable, work: impl Future<Output = T>) -> T {
    tokio::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            Some(event) = table.events_in.recv() => table.take(event),
        }
    }
}

/// Opens a volume on which an earlier run has left these blocks. They were sent if `are_sent`.
pub(crate) async fn left_as(volume: &Volume, firsts: &[i64], are_sent: bool) -> Spool {
    let mut test = TestTable::new(&volume.open(64 << 20));
    for first in firsts {
        if are_sent {
            test.spilled(*first).await;
        } else {
            let frames = test.add(*first);
            assert!(test.spill(&frames));
            test.arrive().await;
        }
    }
    assert!(test.spool.close(Duration::from_mins(1)));
    volume.open(64 << 20)
}

/// Opens a volume on which an earlier run has left these blocks, which it had sent.
pub(crate) async fn left_behind(volume: &Volume, firsts: &[i64]) -> Spool {
    left_as(volume, firsts, true).await
}

/// Overwrites some bytes of the last record.
pub(crate) fn damage(file: &Path) {
    damage_at(file, file.metadata().unwrap().len() - 1_000);
}

pub(crate) fn damage_at(file: &Path, at: u64) {
    use std::os::unix::fs::FileExt as _;
    let file = std::fs::OpenOptions::new().read(true).write(true).open(file).unwrap();
    file.write_all_at(b"damage", at).unwrap();
}
