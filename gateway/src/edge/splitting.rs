//! The worker threads: a request becomes messages, and these go to the producer.
//!
//! Each thread owns a [`Splitter`] and a buffer for one message. A request waits in a queue of [`JOBS_MAX`] until a thread takes it; it
//! holds its permit meanwhile. A thread that finds no room in the producer's queue waits for it until the request's deadline: then Kafka is
//! the limit, and other requests would wait as well.

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, bounded};
use sluice_gateway_config::edge_budget::INDEX_BYTES_MAX;
use sluice_kafka::producer::{Outgoing, Producer, RequestReceipt, SizeLimits, partition_of, request};
use sluice_otlp::{Split, SplitError, SplitLimits, Splitter};
use sluice_otlp_json::JsonRewriter;
use sluice_otlp_server::{BytePermit, Encoding, Request};
use std::{cell::Cell, thread};
use tokio::{
    runtime::Handle,
    sync::oneshot,
    time::{Instant, timeout_at},
};

/// Requests that wait for a thread. Chosen: more than are under way at a time where requests are small. Above it the acceptor answers that the
/// client should come again.
pub const JOBS_MAX: usize = 1_024;

/// All messages of a request have at most this many times the bytes of the largest request. Chosen: requests with a few kilobytes of resource
/// and many traces become five times as large; a resource of megabytes in front of thousands of traces would become terabytes.
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

/// What each thread needs.
#[derive(Clone)]
pub struct SplittingDeps {
    pub producer: Producer,
    /// Bytes up to which spans share a message.
    pub target_bytes: usize,
    /// Bytes of the largest request, decompressed.
    pub request_bytes_max: usize,
    pub io: Handle,
}

/// Starts the threads. They end once the sender is dropped.
///
/// # Errors
/// If a thread cannot be started.
pub fn start(workers: usize, deps: &SplittingDeps) -> std::io::Result<Sender<Job>> {
    let (jobs, jobs_in) = bounded(JOBS_MAX);
    for number in 0..workers {
        let (deps, jobs_in) = (deps.clone(), jobs_in.clone());
        let run = move || Worker { deps, splitter: Splitter::default(), message: Vec::new() }.run(&jobs_in);
        thread::Builder::new().name(format!("split-{number}")).spawn(run)?;
    }
    Ok(jobs)
}

struct Worker {
    deps: SplittingDeps,
    splitter: Splitter,
    message: Vec<u8>,
}

impl Worker {
    fn run(mut self, jobs: &Receiver<Job>) {
        while let Ok(job) = jobs.recv() {
            if job.answer.is_closed() {
                // The client has gone, or the acceptor has answered that it should come again.
                continue;
            }
            let Job { request, terms, answer } = job;
            let worked = self.work(request, terms);
            if answer.send(worked).is_err() {
                // The client has gone.
            }
        }
    }

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
        let Self { deps, splitter, message } = self;
        let sizes = deps.producer.size_limits();
        let limits = split_limits(deps, sizes);
        // Spans of a trace usually follow each other.
        let last = Cell::new(None);
        let partition_of_trace = |trace_id: &[u8; 16]| match last.get() {
            Some((last_id, partition)) if last_id == *trace_id => partition,
            _ => {
                let partition = partition_of(&key(trace_id), terms.partitions);
                last.set(Some((*trace_id, partition)));
                partition
            }
        };
        let split = splitter.split(request_bytes, &limits, partition_of_trace)?;
        let too_large = split.too_large();
        let receipt = send(deps, &split, message, terms.deadline);
        // One that was unusually large is not kept.
        message.shrink_to(limits.target_bytes);
        Ok(Sent {
            receipt,
            permit,
            spans: split.spans(),
            spans_too_large: too_large.spans,
            largest_bytes: too_large.largest_bytes,
            single_bytes_max: sizes.single_bytes_max,
            messages: split.messages().len() as u64,
            made_bytes: split.messages().iter().map(|message| message.bytes as u64).sum(),
        })
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

/// Sends every message of a request, or what there is room for until the deadline.
fn send(deps: &SplittingDeps, split: &Split<'_>, bytes: &mut Vec<u8>, deadline: Instant) -> RequestReceipt {
    let (reply, receipt) = request();
    for message in split.messages() {
        let room = deps.producer.room(KEY_BYTES, message.bytes);
        let Ok(room) = deps.io.block_on(async { timeout_at(deadline, room).await }) else {
            reply.fail(deps.producer.no_room());
            break;
        };
        split.write(message, bytes);
        let outgoing = Outgoing {
            partition: message.partition,
            key: &key(&message.trace_id),
            value: bytes,
            is_single: message.spans() == 1,
        };
        deps.producer.send(&outgoing, room, &reply);
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
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_trace_id_in_hex() {
        let id = [0, 1, 0x0f, 0xf0, 0xff, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xab];
        assert_eq!(&key(&id), b"00010ff0ff05060708090a0b0c0d0eab");
    }
}
