//! The queue volume's thread: its requests, and the state of the volume.
//!
//! Place in the flow: [`crate::volume::spill`] hands over blocks when memory is short; shipments let records be marked, read and ended.
//! Owner: the thread `spool` owns the [`Queue`]. A second thread, `spool-read`, reads bodies, so that a running try does not wait for a
//! sync. [`Spool`] is cheap to clone and does not block, except where a method says so; other threads call those.
//!
//! ```text
//!  spill ---- Request::Spill ---->  spool thread: append                 spool-read: verify, read ahead
//!  shipment - Request::Mark ----->    mark, sync      <-- Queue             ^
//!           - Request::Open ----->    where it is  --- Record --> shipment -'--> pieces --> socket
//!           - told (lists) ------>    settle, mark
//! ```
//!
//! An append is not synced: Kafka has the messages until they are inserted, so what a crash of the machine removes from the volume is read
//! again. With `delivery.commit: AfterEnqueue` it is synced before anything depends on it ([`crate::delivery::enqueue`]). A mark is always
//! synced, because it says that a block may be in the table, and so is everything that the queue itself relies on.
//!
//! Limits: [`REQUESTS_MAX`]; the part `spool` of the budget covers the index and the gateway's data about each block. A failed call on the
//! volume ends the process, because nothing on the volume may be relied on after it.

mod body;
mod columns;
mod keeper;
mod left_block;
mod leftovers;
mod missing;
mod numbers;
mod parts_file;
mod written;

pub use body::{Record, Unreadable};
pub use left_block::{InWriting, LeftBlock, Takeable};
pub use leftovers::Leftovers;
pub use missing::Missing;
pub use numbers::{Numbers, Usage};
pub use parts_file::Note;
pub use written::Written;

use crate::{
    ground::async_sender::AsyncSender,
    volume::{
        block_table::Arrival,
        only_copy::{Finding, Logs},
    },
};
use body::Reads;
use bytes::Bytes;
use columns::ColumnFiles;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use keeper::Keeper;
use parts_file::PartsFile;
use sluice_clickhouse::{body::InsertBody, column::TableColumns};
use sluice_gateway_config::InitialOffset;
use sluice_kafka::Beginning;
use sluice_ranges::{OffsetRange, PartitionId, RefusedParts, Settings, Token};
use sluice_spool::{
    BlockHead, BlockId, Body, Directory, Fatal, OpenError, Options, Queue, ReadError, Recovered,
};
use std::{
    collections::BTreeSet,
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

/// Requests that wait for the thread. Chosen: more than the tries of the largest `insert.concurrency`, [`SPILLS_MAX`] and [`PREPARED_MAX`]
/// together, each with one request at a time. The tries of several shards may be more during a long sync: their tasks then wait for room.
const REQUESTS_MAX: usize = 256;

/// How long a partition that is about to start waits for the volume at a time. Chosen: as long as it waits for its leader; commits of other
/// partitions wait meanwhile.
const BEGIN_WAIT: Duration = Duration::from_secs(3);

/// Blocks on their way to the volume at the same time. They use memory until they have arrived; more of them would not arrive sooner.
pub const SPILLS_MAX: usize = 16;

/// Blocks that are prepared for a try at the same time. Chosen: one thread reads them one by one, and running tries wait for what is before
/// them, at most 32 MiB; after a restart, thousands of blocks may each have a task.
const PREPARED_MAX: usize = 8;

/// Why the queue cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory cannot be opened.
    #[error("cannot open the queue volume {path}: {source}")]
    Directory { path: String, source: std::io::Error },
    /// What is in it cannot be used.
    #[error("cannot open the queue: {0}")]
    Open(#[source] OpenError),
    /// A thread cannot be started.
    #[error("cannot start a thread for the queue volume: {0}")]
    Thread(#[source] std::io::Error),
}

/// How a block on the volume has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It is in the table, or accounted for otherwise.
    Settled,
    /// Kafka has its messages, and the partition's owner reads them.
    Dropped,
    /// It cannot be read. Kafka has its messages, which are read again.
    Damaged,
    /// Its partition has not taken it over, and Kafka was not asked whether it still has its messages. The record stays, like one that an
    /// earlier run has left.
    Orphaned,
    /// This process ends, and the next run finds the record.
    Left,
}

impl Ended {
    /// For a block that another owner reads again if Kafka still has its messages. With `is_leaving`, the next run asks Kafka about it.
    pub fn given_up(is_leaving: bool) -> Self {
        if is_leaving { Self::Left } else { Self::Orphaned }
    }
}

/// What is appended to the volume.
pub struct Leaving {
    /// Its header for the queue.
    pub head: BlockHead,
    pub metadata: Bytes,
    /// Its frames.
    pub body: InsertBody,
}

/// Requests to the thread.
enum Request {
    /// Append a block, and tell the delivery task where it is.
    Spill { leaving: Leaving, arrival: Arrival },
    /// Record durably that a block may have been sent.
    Mark { id: BlockId, now_ms: u64, done: oneshot::Sender<()> },
    /// Record which of these blocks are only copies; answer with the earlier record of each.
    OnlyCopies { found: Vec<(BlockId, Option<Finding>)>, answer: oneshot::Sender<Vec<Option<u64>>> },
    /// Record which blocks of a partition are only copies, by what is known of its log. The partition is about to start, and takes some over.
    Judge { id: PartitionId, logs: Logs, taken_over: BTreeSet<BlockId>, done: Sender<()> },
    /// Return the location of a block's body.
    Open { id: BlockId, answer: oneshot::Sender<Result<(BlockHead, Body<File>), ReadError>> },
    /// Record the progress of a block that is sent in parts.
    Note { note: Note, done: oneshot::Sender<()> },
    /// Return the recorded progress of the block of this token and range.
    Noted { token: Token, range: OffsetRange, answer: oneshot::Sender<Written<RefusedParts>> },
    /// Record the columns of this number, before a block with them is appended.
    Columns { number: u64, columns: Arc<TableColumns> },
    /// Return the columns of this number.
    ColumnsOf { number: u64, answer: oneshot::Sender<Written<TableColumns>> },
    /// Handle the lists in [`Told`].
    Look,
    /// A read has failed: do not use the volume any more.
    Failed(Fatal),
    /// Sync everything and end.
    Close { done: Sender<()> },
}

/// Information for the thread that needs no answer: at most one entry of each kind for each block on the volume.
#[derive(Default)]
struct Told {
    /// Blocks that no other process has sent.
    sole: Vec<BlockId>,
    /// Blocks that may have been sent in parts, and have ended.
    unnoted: Vec<Token>,
    /// Blocks that have ended.
    ended: Vec<(BlockId, Ended)>,
}

/// State that the thread shares with its callers.
#[derive(Default)]
struct Shared {
    told: Mutex<Told>,
    numbers: Numbers,
    /// Blocks that wait to be appended.
    spills: AtomicU64,
    /// Whether the volume had no room for the last block.
    is_full: AtomicBool,
    /// Whether a block counts as on the volume only once its record is durable.
    syncs: bool,
    /// How often [`Spool::spill_everything`] was called, and up to which call nothing needs memory any more.
    asked: AtomicU64,
    kept_as_of: AtomicU64,
}

/// The handle of the thread.
#[derive(Clone)]
pub struct Spool {
    /// See [`PREPARED_MAX`].
    preparing: Arc<Semaphore>,
    /// For the I/O thread.
    requests: AsyncSender<Request>,
    /// The same for threads that may block.
    patient: Sender<Request>,
    reads: Reads,
    shared: Arc<Shared>,
    left: Leftovers,
}

impl Spool {
    /// Opens the queue on a claimed volume, and starts its threads. `failed` is called when the volume fails: the process must end then.
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
        // The volume's use is reported before this returns: no caller may see an empty volume by mistake.
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

    /// The blocks that an earlier run has left on the volume.
    pub fn left(&self) -> &Leftovers {
        &self.left
    }

    /// Its counters, and the use of the volume.
    pub fn numbers(&self) -> &Numbers {
        &self.shared.numbers
    }

    /// The use of the volume, as last reported.
    pub fn usage(&self) -> Usage {
        self.shared.numbers.usage()
    }

    /// From now on, all blocks are moved to the volume while it has room, even those that are being sent: the process shuts down. A further
    /// call makes [`Self::is_everything_kept`] refer to that call.
    pub fn spill_everything(&self) {
        self.shared.asked.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether nothing outside the volume was found since the last [`Self::spill_everything`].
    pub fn is_everything_kept(&self) -> bool {
        let asked = self.times_asked();
        asked > 0 && self.shared.kept_as_of.load(Ordering::Acquire) == asked
    }

    /// How often [`Self::spill_everything`] was called.
    pub fn times_asked(&self) -> u64 {
        self.shared.asked.load(Ordering::Acquire)
    }

    /// Records that nothing needs memory any more, as of this call of [`Self::spill_everything`].
    pub fn everything_is_kept(&self, times_asked: u64) {
        self.shared.kept_as_of.store(times_asked, Ordering::Release);
    }

    /// Whether all blocks are to be moved.
    pub fn spills_everything(&self) -> bool {
        self.times_asked() > 0
    }

    /// Whether the volume had room for the last block.
    pub fn has_room(&self) -> bool {
        !self.shared.is_full.load(Ordering::Relaxed)
    }

    /// Hands over a block. `false` if the request channel is full.
    pub fn spill(&self, leaving: Leaving, arrival: Arrival) -> bool {
        self.shared.spills.fetch_add(1, Ordering::Relaxed);
        let sent = self.requests.try_send(Request::Spill { leaving, arrival });
        // A failed volume ends the process, with everything on its way there.
        let is_full = matches!(sent, Err(TrySendError::Full(_)));
        if is_full {
            self.shared.spills.fetch_sub(1, Ordering::Relaxed);
        }
        !is_full
    }

    /// Records durably that a block may be in the table from now on.
    pub async fn mark_sent(&self, id: BlockId, now_ms: u64) {
        let (done, marked) = oneshot::channel();
        self.ask(Request::Mark { id, now_ms, done }).await;
        answered(marked).await;
    }

    /// Records that no other process has sent these blocks. The next sync makes it durable; after an earlier crash of the machine, the
    /// blocks count as doubtful.
    pub fn mark_sole(&self, ids: Vec<BlockId>) {
        if !ids.is_empty() {
            self.tell(|told| told.sole.extend(ids));
        }
    }

    /// Records durably which of these blocks are the only copies of their rows, unless that was recorded before. Returns, for each, the
    /// number of its rows that are recorded as being elsewhere too.
    pub async fn write_only_copies(&self, found: Vec<(BlockId, Option<Finding>)>) -> Vec<Option<u64>> {
        let (answer, written) = oneshot::channel();
        self.ask(Request::OnlyCopies { found, answer }).await;
        answered(written).await
    }

    /// For a partition that is about to start, with blocks for the columns of this number: finds and records the blocks that become only
    /// copies when it has started, as [`Self::judge`] does. The blocks that it takes over stay its ranges, although Kafka may not have their
    /// messages any more. `false` if that took too long. Blocks.
    pub fn judge_beginning(
        &self,
        id: &PartitionId,
        beginning: &Beginning,
        (settings, initial, columns): (&Settings, InitialOffset, u64),
    ) -> bool {
        let logs = Logs::of_beginning(initial, id, beginning);
        let is_judged = beginning.is_gapless() || {
            let committed = beginning.committed(initial);
            let former = beginning.former_cluster(settings);
            let takeable = Takeable { cluster: &beginning.cluster, former, columns };
            let taken_over = self
                .left
                .taken_over(id, takeable, |kept| committed.taken_over(settings, kept).unwrap_or_default());
            self.judge_others(id, (&logs, taken_over), BEGIN_WAIT)
        };
        self.left.begins(id, &logs);
        is_judged
    }

    /// Finds the blocks of a partition that are the only copies of their rows, among all blocks on the volume or on their way there, and
    /// records them durably. `false` if that takes longer than `patience`, or the volume has failed. Blocks.
    pub fn judge(&self, id: &PartitionId, logs: &Logs, patience: Duration) -> bool {
        self.judge_others(id, (logs, BTreeSet::new()), patience)
    }

    /// The same without the blocks that the partition takes over.
    fn judge_others(
        &self,
        id: &PartitionId,
        (logs, taken_over): (&Logs, BTreeSet<BlockId>),
        patience: Duration,
    ) -> bool {
        if self.usage().blocks == 0 && self.shared.spills.load(Ordering::Acquire) == 0 {
            return true;
        }
        let (done, judged) = bounded(1);
        let (id, logs) = (id.clone(), logs.clone());
        self.ask_patiently(Request::Judge { id, logs, taken_over, done }, &judged, patience)
    }

    /// A turn to prepare a block before its try. It ends when it is dropped.
    pub async fn prepares(&self) -> SemaphorePermit<'_> {
        self.preparing.acquire().await.expect("it is never closed")
    }

    /// Opens a block for reading.
    pub async fn open(&self, id: BlockId) -> Result<Record, Unreadable> {
        let (answer, opened) = oneshot::channel();
        self.ask(Request::Open { id, answer }).await;
        let (head, body) = answered(opened).await.map_err(|error| Unreadable(error.to_string()))?;
        Ok(self.reads.record(&head, body))
    }

    /// Records durably the progress of an only copy that is sent in parts. Waits while the volume has no room for it.
    pub async fn note(&self, note: Note) {
        let (done, noted) = oneshot::channel();
        self.ask(Request::Note { note, done }).await;
        answered(noted).await;
    }

    /// From now on, blocks are encoded for these columns, which have this number. No block with them goes to the volume before they are
    /// recorded there.
    pub async fn encodes_for(&self, number: u64, columns: &TableColumns) {
        self.ask(Request::Columns { number, columns: Arc::new(columns.clone()) }).await;
    }

    /// The recorded columns of this number.
    pub async fn columns(&self, number: u64) -> Written<TableColumns> {
        let (answer, read) = oneshot::channel();
        self.ask(Request::ColumnsOf { number, answer }).await;
        answered(read).await
    }

    /// The progress that an earlier run has recorded of the block of this token and range.
    pub async fn noted(&self, token: Token, range: OffsetRange) -> Written<RefusedParts> {
        let (answer, read) = oneshot::channel();
        self.ask(Request::Noted { token, range, answer }).await;
        answered(read).await
    }

    /// Records that a block has ended that may have recorded progress.
    pub fn unnote(&self, token: Token) {
        self.tell(|told| told.unnoted.push(token));
    }

    /// Records that a block has ended: its record is not needed any more.
    pub fn end(&self, id: BlockId, ended: Ended) {
        if ended == Ended::Left {
            return;
        }
        self.tell(|told| told.ended.push((id, ended)));
    }

    fn tell(&self, tell: impl FnOnce(&mut Told)) {
        tell(&mut self.shared.told.lock().unwrap_or_else(PoisonError::into_inner));
        if self.requests.try_send(Request::Look).is_err() {
            // If the channel is full, the thread looks soon; if it is closed, the process ends.
        }
    }

    /// Ends the thread after a sync; later requests are never answered. `false` if that takes longer than `patience`, or the volume has
    /// failed. Blocks.
    pub fn close(&self, patience: Duration) -> bool {
        let (done, closed) = bounded(1);
        self.ask_patiently(Request::Close { done }, &closed, patience)
    }

    async fn ask(&self, request: Request) {
        if self.requests.send(request).await.is_err() {
            // The thread has failed, and the process ends: callers wait for that.
        }
    }

    /// Sends a request and waits; whether it was done in time. Blocks.
    fn ask_patiently(&self, request: Request, done: &Receiver<()>, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        self.patient.send_deadline(request, deadline).is_ok() && done.recv_deadline(deadline).is_ok()
    }
}

/// The answer of the thread. Never returns once the volume has failed, because the process is ending.
pub(super) async fn answered<T>(answer: oneshot::Receiver<T>) -> T {
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
    use crate::volume::test_volume::{TestTable, Volume};
    use sluice_ranges::Content;

    #[test]
    fn a_thread_that_stands_still_holds_up_nobody_who_runs_on_the_io_thread() {
        let volume = Volume::new("stands_still");
        let (patient, taken_by_nobody) = bounded(1);
        let requests = AsyncSender::new(patient.clone());
        let spool = Spool { requests, patient, ..volume.open(64 << 20) };
        let mut test = TestTable::new(&spool);
        let frames = test.add(20);
        let id = PartitionId { topic: "spans".into(), partition: 3 };
        let token = Token::of("c", &id, OffsetRange { first: 20, next: 30 }, Content::default());
        for ordinal in 0..3 {
            let id = BlockId { segment: 1, ordinal };
            spool.mark_sole(vec![id]);
            spool.unnote(token);
            spool.end(id, Ended::Settled);
        }
        assert!(!test.spill(&frames), "there is no room for it");
        assert!(test.table.uses_memory() && test.table.coming_bytes()[0] == 0 && test.table.takes_blocks());
        assert_eq!(spool.shared.spills.load(Ordering::Relaxed), 0);
        let told = spool.shared.told.lock().unwrap();
        assert_eq!((told.sole.len(), told.unnoted.len(), told.ended.len()), (3, 3, 3));
        assert_eq!(taken_by_nobody.len(), 1);
    }
}
