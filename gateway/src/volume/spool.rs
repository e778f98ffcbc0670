//! The queue volume's thread: what it is asked for, and how full it is.
//!
//! Place in the flow: [`crate::volume::spill`] hands over blocks for which memory is wanted; shipments have records marked, read and ended.
//! Owner: the thread `spool` owns the [`Queue`]; a second one, `spool-read`, reads bodies, so that a try that is under way does not
//! wait for a sync. [`Spool`] is cheap to clone and does not block, but for what says so, which threads of their own call.
//!
//! ```text
//!  spill ---- Request::Spill ---->  spool thread: append                 spool-read: verify, read ahead
//!  shipment - Request::Mark ----->    mark, sync      <-- Queue             ^
//!           - Request::Open ----->    where it is  --- Record --> shipment -'--> pieces --> socket
//!           - told (lists) ------>    settle, mark
//! ```
//!
//! An append is not synced: Kafka has the messages until they are inserted, and what a crash of the machine takes from the volume is
//! read again. With `delivery.commit: AfterEnqueue` it is, before anybody hears of it ([`crate::delivery::enqueue`]). A mark
//! is always, since it says that a block may be in the table; and so is everything that the queue itself relies on.
//!
//! Limits: [`REQUESTS_MAX`]; the memory of the index and of what the gateway knows of each block is the part `spool` of the budget.
//! A call that fails on the volume ends the process: after it, nothing that is on the volume may be relied on.

mod body;
mod columns;
mod keeper;
mod leftovers;
mod missing;
mod numbers;
mod parts_file;
mod written;

pub use body::{Record, Unreadable};
pub use leftovers::{InWriting, LeftBlock, Leftovers};
pub use missing::Missing;
pub use numbers::{Numbers, Usage};
pub use parts_file::Note;
pub use written::Written;

use crate::{
    ground::async_sender::AsyncSender,
    volume::{
        block_frames::{BlockFrames, Leaving},
        only_copy::{Finding, Logs},
    },
};
use body::Reads;
use columns::ColumnFiles;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use keeper::Keeper;
use parts_file::PartsFile;
use sluice_clickhouse::column::TableColumns;
use sluice_gateway_config::InitialOffset;
use sluice_kafka::Beginning;
use sluice_ranges::{OffsetRange, PartitionId, RefusedParts, Token};
use sluice_spool::{
    BlockHead, BlockId, Body, Directory, Fatal, OpenError, Options, Queue, ReadError, Recovered,
};
use std::{
    fs::File,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

/// Requests that wait for the thread. Chosen: above the tries of the largest `insert.concurrency`, [`SPILLS_MAX`] and [`PREPARED_MAX`]
/// together, each of which has one at a time. Tries of several shards may be more, while a sync takes long: then their tasks wait for room.
const REQUESTS_MAX: usize = 256;

/// How long a partition that is about to begin waits for the volume at a time. Chosen: as its leader is waited for; commits of others wait for
/// it.
const BEGIN_WAIT: Duration = Duration::from_secs(3);

/// Blocks that are on their way to the volume at the same time. What they hold is memory until they have arrived; more would not
/// arrive sooner.
pub const SPILLS_MAX: usize = 16;

/// Blocks that are made ready for a try at the same time. Chosen: one thread reads them, one after another, and tries that are under way
/// wait for what is in front of them, 32 MiB at the most; after a restart thousands of blocks may have a task each.
const PREPARED_MAX: usize = 8;

/// Why the queue cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory cannot be opened.
    #[error("cannot open the queue volume {path}: {source}")]
    Directory {
        /// Its path.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// What is in it cannot be used.
    #[error("cannot open the queue: {0}")]
    Open(#[source] OpenError),
    /// A thread cannot be started.
    #[error("cannot start a thread for the queue volume: {0}")]
    Thread(#[source] std::io::Error),
}

/// How a block that is on the volume has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It is in the table, or accounted for otherwise.
    Settled,
    /// Kafka has its messages, and whoever owns the partition reads them.
    Dropped,
    /// It cannot be read. Kafka has its messages, and they are read again.
    Damaged,
    /// Its partition does not go on with it, and nobody has asked whether Kafka still has its messages: the record stays, as one that
    /// an earlier run has left.
    Orphaned,
}

/// What the thread is asked for.
enum Request {
    /// Append a block, and tell its frames where they are.
    Spill { frames: Arc<BlockFrames>, leaving: Leaving },
    /// Say durably that a block may have been sent.
    Mark { id: BlockId, now_ms: u64, done: oneshot::Sender<()> },
    /// Write down which of these blocks were found to be only copies; answer with what was written down of each before.
    OnlyCopies { found: Vec<(BlockId, Option<Finding>)>, answer: oneshot::Sender<Vec<Option<u64>>> },
    /// Write down which blocks of a partition are only copies, by what is known of its log.
    Judge { id: PartitionId, logs: Logs, done: Sender<()> },
    /// Say where a block's body is.
    Open { id: BlockId, answer: oneshot::Sender<Result<(BlockHead, Body<File>), ReadError>> },
    /// Write down how far a block is that is sent in parts.
    Note { note: Note, done: oneshot::Sender<()> },
    /// Say what was written down of a block of this token and range.
    Noted { token: Token, range: OffsetRange, answer: oneshot::Sender<Written<RefusedParts>> },
    /// Write down which columns this number stands for, before a block of theirs is appended.
    Columns { number: u64, columns: Arc<TableColumns> },
    /// Say which columns this number stands for.
    ColumnsOf { number: u64, answer: oneshot::Sender<Written<TableColumns>> },
    /// Look at what was told.
    Look,
    /// A read has failed: the volume is not used any more.
    Failed(Fatal),
    /// Leave everything durable behind, and end.
    Close { done: Sender<()> },
}

/// What the thread is told of blocks, and does not answer: one of each kind for each block on the volume, at the most.
#[derive(Default)]
struct Told {
    /// Nobody else has them to send.
    sole: Vec<BlockId>,
    /// They may have been sent in parts, and have ended.
    unnoted: Vec<Token>,
    /// They have ended.
    ended: Vec<(BlockId, Ended)>,
}

/// What the thread shares with those who ask.
#[derive(Default)]
struct Shared {
    told: Mutex<Told>,
    numbers: Numbers,
    /// Blocks and bytes on their way to the volume.
    spills: AtomicU64,
    spilling_bytes: AtomicU64,
    /// The volume had no room for the last block.
    is_full: AtomicBool,
    /// Everything is to be moved to the volume: the process leaves.
    everything: AtomicBool,
    /// A block counts as on the volume once its record is durable.
    syncs: bool,
    /// How often that was asked for, and the last time as of which nothing needed memory any more.
    asked: AtomicU64,
    kept_as_of: AtomicU64,
}

/// The thread, as others see it.
#[derive(Clone)]
pub struct Spool {
    /// See [`PREPARED_MAX`].
    preparing: Arc<Semaphore>,
    /// For the I/O thread.
    requests: AsyncSender<Request>,
    /// The same for threads that may wait.
    patient: Sender<Request>,
    reads: Reads,
    shared: Arc<Shared>,
    left: Leftovers,
}

impl Spool {
    /// Opens the queue on a volume that was claimed, and starts its threads. `failed` is told when the volume fails: the process must
    /// end then.
    pub fn start(
        path: &Path,
        options: Options,
        failed: impl FnOnce(Fatal) + Send + 'static,
    ) -> Result<(Self, Recovered), Error> {
        let unopened = |source| Error::Directory { path: path.display().to_string(), source };
        let directory = Directory::open(path).map_err(unopened)?;
        let (queue, recovered) = Queue::open(directory, options).map_err(Error::Open)?;
        let (requests, requests_in) = bounded(REQUESTS_MAX);
        let shared = Arc::new(Shared { syncs: options.relied_on, ..Shared::default() });
        let of_reads = requests.clone();
        let read_failed = move |fatal| {
            #[expect(
                clippy::disallowed_methods,
                reason = "on the thread that reads, which has nothing else to do then"
            )]
            let sent = of_reads.send(Request::Failed(fatal));
            if sent.is_err() {
                // It has failed already, and the process ends.
            }
        };
        let reads = Reads::start(read_failed).map_err(Error::Thread)?;
        let left = Leftovers::of(&queue, &recovered).map_err(|fatal| Error::Open(fatal.into()))?;
        let damaged = recovered.set_aside.iter().map(|aside| aside.lost.len() as u64).sum();
        shared.numbers.set_aside.store(damaged, Ordering::Relaxed);
        shared.numbers.bytes_max.store(options.bytes_max, Ordering::Relaxed);
        let notes = PartsFile::open(path).map_err(unopened)?;
        let columns = ColumnFiles::open(path, &left.columns()).map_err(unopened)?;
        // By now how full the volume is has been told: nobody may think that nothing is on it.
        let keeper = Keeper::new(queue, shared.clone(), (left.clone(), notes, columns));
        let preparing = Arc::new(Semaphore::new(PREPARED_MAX));
        let (patient, requests) = (requests.clone(), AsyncSender::new(requests));
        let spool = Self { preparing, requests, patient, reads, shared, left };
        named("spool", move || {
            if let Err(fatal) = keeper.run(&requests_in) {
                failed(fatal);
            }
        })?;
        Ok((spool, recovered))
    }

    /// What an earlier run has left on the volume.
    pub fn left(&self) -> &Leftovers {
        &self.left
    }

    /// What it counts, and how full the volume is.
    pub fn numbers(&self) -> &Numbers {
        &self.shared.numbers
    }

    /// How full the volume is, as of a moment ago.
    pub fn usage(&self) -> Usage {
        self.shared.numbers.usage()
    }

    /// From now on everything is moved to the volume that has room there, be it sent meanwhile or not: the process leaves. Asked
    /// again, [`Self::is_everything_kept`] is as of then.
    pub fn spill_everything(&self) {
        self.shared.asked.fetch_add(1, Ordering::AcqRel);
        self.shared.everything.store(true, Ordering::Release);
    }

    /// Whether since everything was asked for nothing was found that is not on the volume.
    pub fn is_everything_kept(&self) -> bool {
        let asked = self.shared.asked.load(Ordering::Acquire);
        asked > 0 && self.shared.kept_as_of.load(Ordering::Acquire) == asked
    }

    /// How often everything was asked for.
    pub fn times_asked(&self) -> u64 {
        self.shared.asked.load(Ordering::Acquire)
    }

    /// Says that nothing needs memory any more, as of when everything had been asked for so often.
    pub fn everything_is_kept(&self, times_asked: u64) {
        self.shared.kept_as_of.store(times_asked, Ordering::Release);
    }

    /// Whether everything is to be moved.
    pub fn spills_everything(&self) -> bool {
        self.shared.everything.load(Ordering::Acquire)
    }

    /// Whether another block may be handed over now.
    pub fn takes_blocks(&self) -> bool {
        !self.shared.is_full.load(Ordering::Relaxed)
            && self.shared.spills.load(Ordering::Relaxed) < SPILLS_MAX as u64
    }

    /// Bytes on their way to the volume, which are memory soon.
    pub fn spilling_bytes(&self) -> u64 {
        self.shared.spilling_bytes.load(Ordering::Relaxed)
    }

    /// Moves a block to the volume; its frames are told. Nothing happens to one that is not in memory, or may not be moved now, or while too
    /// many others ask. How many bytes are on their way for it.
    pub fn spill(&self, frames: &Arc<BlockFrames>) -> u64 {
        let Some(leaving) = frames.begin_spill(self.spills_everything()) else { return 0 };
        let bytes = leaving.body.len();
        self.shared.spills.fetch_add(1, Ordering::Relaxed);
        self.shared.spilling_bytes.fetch_add(bytes, Ordering::Relaxed);
        match self.requests.try_send(Request::Spill { frames: frames.clone(), leaving }) {
            // A volume that has failed ends the process, whatever is on its way there.
            Ok(()) | Err(TrySendError::Disconnected(_)) => bytes,
            Err(TrySendError::Full(_)) => {
                self.shared.spilling_bytes.fetch_sub(bytes, Ordering::Relaxed);
                self.shared.spills.fetch_sub(1, Ordering::Relaxed);
                if frames.end_spill(None, false).is_some() {
                    // It has ended meanwhile, without a record.
                }
                0
            }
        }
    }

    /// Says of a block, durably, that it may be in the table from now on.
    pub async fn mark_sent(&self, id: BlockId, now_ms: u64) {
        let (done, marked) = oneshot::channel();
        self.ask(Request::Mark { id, now_ms, done }).await;
        answered(marked).await;
    }

    /// Says of blocks that nobody else has them to send. It is durable with what is synced next: a crash of the machine that comes
    /// before makes them doubtful.
    pub fn mark_sole(&self, ids: Vec<BlockId>) {
        if !ids.is_empty() {
            self.tell(|told| told.sole.extend(ids));
        }
    }

    /// Writes down, durably, which of these blocks were found to be the only copies of their rows, unless that was written down before:
    /// gives of how many rows of each it says that they are elsewhere too.
    pub async fn write_only_copies(&self, found: Vec<(BlockId, Option<Finding>)>) -> Vec<Option<u64>> {
        let (answer, written) = oneshot::channel();
        self.ask(Request::OnlyCopies { found, answer }).await;
        answered(written).await
    }

    /// A partition is about to begin: what is nowhere else once it has is [found and written down](Self::judge). `false` when that was not
    /// done in time. Blocks.
    pub fn judge_beginning(&self, initial: InitialOffset, id: &PartitionId, beginning: &Beginning) -> bool {
        let logs = Logs::of_beginning(initial, id, beginning);
        let is_judged = beginning.is_gapless() || self.judge(id, &logs, BEGIN_WAIT);
        self.left.begins(id, &logs);
        is_judged
    }

    /// Finds out which blocks of a partition are the only copies of their rows, among all that the volume has or that are on their way
    /// there, and writes it down durably. `false` when that takes longer than `patience`, or the volume has failed. Blocks.
    pub fn judge(&self, id: &PartitionId, logs: &Logs, patience: Duration) -> bool {
        if self.usage().blocks == 0 && self.shared.spills.load(Ordering::Acquire) == 0 {
            return true;
        }
        let (done, judged) = bounded(1);
        self.ask_patiently(Request::Judge { id: id.clone(), logs: logs.clone(), done }, &judged, patience)
    }

    /// A turn to make a block ready before its try. It ends when it is dropped.
    pub async fn prepares(&self) -> SemaphorePermit<'_> {
        self.preparing.acquire().await.expect("it is never closed")
    }

    /// A block, to be read.
    pub async fn open(&self, id: BlockId) -> Result<Record, Unreadable> {
        let (answer, opened) = oneshot::channel();
        self.ask(Request::Open { id, answer }).await;
        let (head, body) = answered(opened).await.map_err(|error| Unreadable(error.to_string()))?;
        Ok(self.reads.record(&head, body))
    }

    /// Writes down, durably, how far a block is that is sent in parts and of which the volume has the only copy. Waits while the volume
    /// has no room for it.
    pub async fn note(&self, note: Note) {
        let (done, noted) = oneshot::channel();
        self.ask(Request::Note { note, done }).await;
        answered(noted).await;
    }

    /// From now on blocks are encoded for these columns, which this number stands for: none goes to the volume before they are
    /// written down there.
    pub async fn encodes_for(&self, number: u64, columns: &TableColumns) {
        self.ask(Request::Columns { number, columns: Arc::new(columns.clone()) }).await;
    }

    /// The columns that this number stands for, as they were written down.
    pub async fn columns(&self, number: u64) -> Written<TableColumns> {
        let (answer, read) = oneshot::channel();
        self.ask(Request::ColumnsOf { number, answer }).await;
        answered(read).await
    }

    /// What an earlier run has written down of a block of this token and range.
    pub async fn noted(&self, token: Token, range: OffsetRange) -> Written<RefusedParts> {
        let (answer, read) = oneshot::channel();
        self.ask(Request::Noted { token, range, answer }).await;
        answered(read).await
    }

    /// A block of which something may have been written down has ended.
    pub fn unnote(&self, token: Token) {
        self.tell(|told| told.unnoted.push(token));
    }

    /// A block has ended: its record is not needed any more.
    pub fn end(&self, id: BlockId, ended: Ended) {
        self.tell(|told| told.ended.push((id, ended)));
    }

    fn tell(&self, tell: impl FnOnce(&mut Told)) {
        tell(&mut self.shared.told.lock().unwrap_or_else(PoisonError::into_inner));
        if self.requests.try_send(Request::Look).is_err() {
            // A full channel means that the thread looks soon; a closed one that the process ends.
        }
    }

    /// Ends the thread and leaves everything durable behind; what is asked for later is never answered. `false` when that takes longer
    /// than `patience`, or the volume has failed. Blocks.
    pub fn close(&self, patience: Duration) -> bool {
        let (done, closed) = bounded(1);
        self.ask_patiently(Request::Close { done }, &closed, patience)
    }

    async fn ask(&self, request: Request) {
        if self.requests.send(request).await.is_err() {
            // The thread has failed, and the process ends: whoever waits for an answer waits for that.
        }
    }

    /// Whether it was done in time. Blocks.
    fn ask_patiently(&self, request: Request, done: &Receiver<()>, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        self.patient.send_deadline(request, deadline).is_ok() && done.recv_deadline(deadline).is_ok()
    }
}

/// The answer of the thread. There is none once the volume has failed; the process is ending then.
async fn answered<T>(answer: oneshot::Receiver<T>) -> T {
    match answer.await {
        Ok(answer) => answer,
        Err(_) => std::future::pending().await,
    }
}

fn named(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map(drop).map_err(Error::Thread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        blocks::buffers::Pool,
        volume::{
            block_frames::tests::{Volume, sealed},
            ready_block::BlockWithFrames,
        },
    };

    #[test]
    fn a_thread_that_stands_still_holds_up_nobody_who_runs_on_the_io_thread() {
        let (volume, pool) = (Volume::new("stands_still"), Pool::new(4 << 20, 1, 1));
        let (patient, taken_by_nobody) = bounded(1);
        let requests = AsyncSender::new(patient.clone());
        let spool = Spool { requests, patient, ..volume.open(64 << 20) };
        let BlockWithFrames { block, frames } = sealed(&pool, 20, false);
        for ordinal in 0..3 {
            let id = BlockId { segment: 1, ordinal };
            spool.mark_sole(vec![id]);
            spool.unnote(block.token);
            spool.end(id, Ended::Settled);
        }
        assert_eq!(spool.spill(&frames), 0, "there is no room for it");
        assert!(frames.is_in_memory() && spool.spilling_bytes() == 0 && spool.takes_blocks());
        let told = spool.shared.told.lock().unwrap();
        assert_eq!((told.sole.len(), told.unnoted.len(), told.ended.len()), (3, 3, 3));
        assert_eq!(taken_by_nobody.len(), 1);
        block.account.settled();
    }
}
