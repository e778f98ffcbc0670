//! A request becomes messages, and these go to the producer.
//!
//! Each thread has a [`Splitter`]. While the thread does not need it, tasks of `io` use it. A small request is split by the task that has
//! read it, so that no other thread wakes for it. All others wait in a queue of [`JOBS_MAX`] until a thread takes them, and hold their
//! permits meanwhile. A message is written into memory of its own, once it has room in the producer's queue, which counts that memory.
//!
//! A thread that finds no room in the producer's queue waits for it until the request's deadline: then Kafka is the limit, and other
//! requests would wait as well. A task waits for nothing, and its work is bounded ([`AT_ONCE_BYTES_MAX`]). It leaves a request to the
//! threads, before it has sent anything of it, if that becomes large, or if there is no free splitter or no room.

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use sluice_gateway_config::edge_budget::INDEX_BYTES_MAX;
use sluice_kafka::producer::{Outgoing, Producer, RequestReceipt, Room, SizeLimits, partition_of, request};
use sluice_otlp::{Split, SplitError, SplitLimits, SplitMessage, Splitter};
use sluice_otlp_json::JsonRewriter;
use sluice_otlp_server::{BytePermit, Encoding, Request};
use std::{
    cell::Cell,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};
use tokio::{
    runtime::Handle,
    sync::oneshot,
    time::{Instant, timeout_at},
};

/// Requests that wait for a thread. Chosen: more than are under way at a time where requests are small. Above it the acceptor answers that
/// the client should come again.
pub const JOBS_MAX: usize = 1_024;

/// Bytes of a request up to which the task that has read it splits it. Other requests of the same io thread wait meanwhile. Chosen: 92 KB
/// take some 0.1 ms. With the next two limits, a request that was made to be slow takes some 2 ms by estimate.
const AT_ONCE_BYTES_MAX: usize = 256 << 10;

/// Bytes of all messages that a task makes of a request. Chosen: a large resource in front of many traces becomes more.
const AT_ONCE_MADE_BYTES_MAX: usize = 2 * AT_ONCE_BYTES_MAX;

/// Messages that a task makes of a request. Chosen: each takes some microseconds beside its bytes.
const AT_ONCE_MESSAGES_MAX: usize = 64;

/// All messages of a request have at most this many times the bytes of the largest request. Chosen: requests with a few kilobytes of
/// resource and many traces become five times as large; a resource of megabytes in front of thousands of traces would become terabytes.
pub const MADE_PER_REQUEST: usize = 8;

/// Bytes of a key: a trace id in hex, as the Collector's Kafka exporter writes it.
pub const KEY_BYTES: usize = 32;

/// A request on its way to a thread.
#[derive(Debug)]
pub struct Job {
    pub request: Request,
    pub terms: Terms,
    pub answer: oneshot::Sender<Result<Sent, Refused>>,
}

/// How a request's messages are sent.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// How many partitions the topic has.
    pub partitions: u32,
    /// When the acceptor answers that the client should come again.
    pub deadline: Instant,
}

/// A request whose messages are all under way to Kafka.
#[derive(Debug)]
pub struct Sent {
    pub receipt: RequestReceipt,
    /// The permit of the body, to be held until the answer.
    pub permit: BytePermit,
    /// Spans of the request.
    pub spans: u64,
    /// Spans that no message can hold, and the bytes of the largest with its resource and scope.
    pub spans_too_large: u64,
    pub largest_bytes: usize,
    /// The limit that they exceed.
    pub single_bytes_max: usize,
    pub messages: u64,
    /// Bytes of the messages.
    pub made_bytes: u64,
}

/// Why a request is refused. Nothing of it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// It cannot be read.
    Malformed(String),
    /// It is too large to be split.
    TooLarge(String),
}

impl From<SplitError> for Refused {
    fn from(error: SplitError) -> Self {
        let text = error.to_string();
        match error {
            SplitError::Malformed(_) => Self::Malformed(text),
            SplitError::TooManySpans { .. } | SplitError::TooManyBytes { .. } => Self::TooLarge(text),
        }
    }
}

/// What each worker needs.
#[derive(Clone)]
pub struct SplittingDeps {
    pub producer: Producer,
    /// Bytes up to which spans share a message.
    pub target_bytes: usize,
    /// Bytes of the largest request, decompressed.
    pub request_bytes_max: usize,
    pub io: Handle,
}

/// The threads with their queue, and what they split with. The threads end once this is dropped.
pub struct Splitting {
    jobs: Sender<Job>,
    seats: Vec<Arc<Seat>>,
}

impl Splitting {
    /// Starts the threads.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start(workers: usize, deps: &SplittingDeps) -> std::io::Result<Self> {
        let (jobs, jobs_in) = bounded(JOBS_MAX);
        let mut seats = Vec::with_capacity(workers);
        for number in 0..workers {
            let worker = Worker { deps: deps.clone(), splitter: Splitter::default() };
            let seat = Arc::new(Seat { is_awaited: AtomicBool::new(false), worker: Mutex::new(worker) });
            seats.push(seat.clone());
            let jobs_in = jobs_in.clone();
            thread::Builder::new().name(format!("split-{number}")).spawn(move || run(&seat, &jobs_in))?;
        }
        Ok(Self { jobs, seats })
    }

    /// One without threads, which takes nothing.
    #[cfg(test)]
    pub fn without_threads() -> Self {
        Self { jobs: bounded(0).0, seats: Vec::new() }
    }

    /// Splits and sends a request on the caller's thread, without waiting.
    ///
    /// # Errors
    /// The request, if it is for the threads: it is large or in JSON, becomes large or many messages, or finds no free splitter, or no room
    /// in the producer's queue for all of it. Nothing of it was sent.
    pub fn at_once(&self, request: Request, terms: Terms) -> Result<Result<Sent, Refused>, Request> {
        if request.encoding != Encoding::Protobuf || request.body.len() > AT_ONCE_BYTES_MAX {
            return Err(request);
        }
        match self.seats.iter().find_map(|seat| seat.worker_now()) {
            Some(mut worker) => worker.at_once(request, terms),
            None => Err(request),
        }
    }

    /// Gives a request to the threads.
    ///
    /// # Errors
    /// If their queue is full, or they have ended.
    pub fn queue(&self, job: Job) -> Result<(), TrySendError<Job>> {
        self.jobs.try_send(job)
    }
}

/// A thread's worker. One more for each io thread would need the memory of its index again ([`INDEX_BYTES_MAX`]).
struct Seat {
    /// The thread waits for its worker. Tasks then leave it alone, so that a large request waits for one small request at most.
    is_awaited: AtomicBool,
    worker: Mutex<Worker>,
}

impl Seat {
    /// The worker, for its thread.
    fn worker(&self) -> MutexGuard<'_, Worker> {
        self.is_awaited.store(true, Ordering::Relaxed);
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_awaited.store(false, Ordering::Relaxed);
        worker
    }

    /// The worker, for a task; `None` if its thread needs it, or another task uses it.
    fn worker_now(&self) -> Option<MutexGuard<'_, Worker>> {
        if self.is_awaited.load(Ordering::Relaxed) {
            return None;
        }
        match self.worker.try_lock() {
            Ok(worker) => Some(worker),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

fn run(seat: &Seat, jobs: &Receiver<Job>) {
    while let Ok(job) = jobs.recv() {
        if job.answer.is_closed() {
            // The client has gone, or the acceptor has answered that it should come again.
            continue;
        }
        let Job { request, terms, answer } = job;
        let worked = seat.worker().work(request, terms);
        if answer.send(worked).is_err() {
            // The client has gone.
        }
    }
}

/// A splitter, and what it needs. The next request overwrites everything in it, also after a panic.
struct Worker {
    deps: SplittingDeps,
    splitter: Splitter,
}

impl Worker {
    fn work(&mut self, request: Request, terms: Terms) -> Result<Sent, Refused> {
        let Request { body, encoding, permit, .. } = request;
        match encoding {
            Encoding::Protobuf => self.split_and_send(&body, permit, terms),
            Encoding::Json => self.rewrite(body, permit, terms),
        }
    }

    /// A request in JSON as protobuf. Its memory is that of the permit, which the acceptor has made larger.
    fn rewrite(&mut self, body: Bytes, permit: BytePermit, terms: Terms) -> Result<Sent, Refused> {
        // Its buffer is as large as the text, so it is not kept.
        let mut rewriter = JsonRewriter::new(body.len());
        let request =
            rewriter.rewrite(&body).map_err(|malformed| Refused::Malformed(malformed.to_string()))?;
        drop(body);
        self.split_and_send(request, permit, terms)
    }

    fn split_and_send(
        &mut self,
        request_bytes: &[u8],
        permit: BytePermit,
        terms: Terms,
    ) -> Result<Sent, Refused> {
        let Self { deps, splitter } = self;
        let sizes = deps.producer.size_limits();
        let split = split(&split_limits(deps, sizes), splitter, (request_bytes, terms.partitions))?;
        let receipt = send(deps, &split, |message| {
            let room = deps.producer.room(KEY_BYTES, message.bytes);
            deps.io.block_on(async { timeout_at(terms.deadline, room).await }).ok()
        });
        Ok(sent(&split, sizes, receipt, permit))
    }

    /// The same for a task, of a request in protobuf. Returns a request that is for the threads.
    fn at_once(&mut self, request: Request, terms: Terms) -> Result<Result<Sent, Refused>, Request> {
        let Self { deps, splitter } = self;
        let sizes = deps.producer.size_limits();
        let limits = SplitLimits { made_bytes_max: AT_ONCE_MADE_BYTES_MAX, ..split_limits(deps, sizes) };
        let split = match split(&limits, splitter, (&request.body, terms.partitions)) {
            Ok(split) => split,
            Err(SplitError::Malformed(malformed)) => {
                return Ok(Err(Refused::from(SplitError::Malformed(malformed))));
            }
            // The threads decide, whose limits are higher.
            Err(SplitError::TooManySpans { .. } | SplitError::TooManyBytes { .. }) => return Err(request),
        };
        if split.messages().len() > AT_ONCE_MESSAGES_MAX {
            return Err(request);
        }
        let values = split.messages().iter().map(|message| message.bytes);
        let Some(mut room) = deps.producer.room_now(KEY_BYTES, values) else { return Err(request) };
        let receipt = send(deps, &split, |message| room.part(KEY_BYTES, message.bytes));
        Ok(Ok(sent(&split, sizes, receipt, request.permit)))
    }
}

fn split<'s>(
    limits: &SplitLimits,
    splitter: &'s mut Splitter,
    (request_bytes, partitions): (&'s [u8], u32),
) -> Result<Split<'s>, SplitError> {
    // Spans of a trace usually follow each other.
    let last = Cell::new(None);
    let partition_of_trace = |trace_id: &[u8; 16]| match last.get() {
        Some((last_id, partition)) if last_id == *trace_id => partition,
        _ => {
            let partition = partition_of(&key(trace_id), partitions);
            last.set(Some((*trace_id, partition)));
            partition
        }
    };
    splitter.split(request_bytes, limits, partition_of_trace)
}

fn sent(split: &Split<'_>, sizes: SizeLimits, receipt: RequestReceipt, permit: BytePermit) -> Sent {
    let too_large = split.too_large();
    Sent {
        receipt,
        permit,
        spans: split.spans(),
        spans_too_large: too_large.spans,
        largest_bytes: too_large.largest_bytes,
        single_bytes_max: sizes.single_bytes_max,
        messages: split.messages().len() as u64,
        made_bytes: split.messages().iter().map(|message| message.bytes as u64).sum(),
    }
}

fn split_limits(deps: &SplittingDeps, sizes: SizeLimits) -> SplitLimits {
    SplitLimits {
        target_bytes: deps.target_bytes.min(sizes.shared_bytes_max),
        message_bytes_max: sizes.single_bytes_max,
        index_bytes_max: usize::try_from(INDEX_BYTES_MAX).unwrap_or(usize::MAX),
        made_bytes_max: deps.request_bytes_max.saturating_mul(MADE_PER_REQUEST),
    }
}

/// Sends every message of a request, or those before the first one for which `room_of` has no room.
fn send(
    deps: &SplittingDeps,
    split: &Split<'_>,
    mut room_of: impl FnMut(&SplitMessage) -> Option<Room>,
) -> RequestReceipt {
    let (reply, receipt) = request();
    for message in split.messages() {
        let Some(room) = room_of(message) else {
            reply.fail(deps.producer.no_room());
            break;
        };
        let mut value = Vec::with_capacity(message.bytes);
        split.write(message, &mut value);
        let outgoing = Outgoing {
            partition: message.partition,
            key: &key(&message.trace_id),
            value,
            is_single: message.spans() == 1,
        };
        deps.producer.send(outgoing, room, &reply);
    }
    receipt
}

/// The key of a trace.
pub fn key(trace_id: &[u8; 16]) -> [u8; KEY_BYTES] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut key = [0; KEY_BYTES];
    for (digits, byte) in key.as_chunks_mut::<2>().0.iter_mut().zip(trace_id) {
        *digits = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 0xf)]];
    }
    key
}

#[cfg(test)]
#[path = "splitting_tests.rs"]
mod tests;
