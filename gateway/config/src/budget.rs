//! How a fixed memory limit is divided, before anything is allocated.
//!
//! | part | bytes | why |
//! | --- | --- | --- |
//! | base | [`BASE_BYTES`] | program, thread stacks, runtime, Kafka metadata, metrics, tenants |
//! | spool | [`SPOOL_BYTES`] + concurrency × [`SPOOL_PIECES`] × [`SPOOL_PIECE_BYTES`] | the index of blocks on the queue volume, and their bytes on the way to an insert |
//! | kafka | (active partitions + 2 × workers) × record batch + an answer | librdkafka decompresses whole batches: [`kafka_bytes`] |
//! | rows | row buffers × [`ROW_BUFFER_BYTES`] | each open block holds rows that are not compressed yet: [`row_buffers`] |
//! | workers | workers × [`WORKER_BYTES`] | one row that is larger than a row buffer, and its pieces, while they grow |
//! | | + workers × record batch × [`JSON_BYTES_PER_MESSAGE_BYTE`] | only with `format: OtlpJson`: the message being rewritten |
//! | letters | [`LETTERS_BYTES`] | dead letters under way |
//! | parts | [`PARTS_BYTES`] | the rows of a refused block, while it is sent in parts |
//! | http | concurrency × [`INSERT_BYTES`] | socket and response buffers of running inserts |
//! | native | [`NATIVE_TURN_BYTES`] + concurrency × [`NATIVE_FRAMES_BYTES`] | only with `format: Native`: a block that is being converted to columns, and converted ones |
//! | server | [`SERVER_BYTES`] | only with `source.otlp`: connections of OTLP clients, and their headers |
//! | requests | the largest request, and five eighths of the rest | only with `source.otlp`: bodies of requests, from the first byte to the answer |
//! | blocks | the rest | compressed blocks, open and in flight, in chunks of a fixed pool |
//! | slack | limit ÷ [`SLACK_DIVISOR`] | the allocator's overhead |
//! | | and an eighth of the rest | only with `source.otlp`: what the allocator keeps of bodies that were freed |
//!
//! With `source.otlp`, `kafka` is the messages that workers hold, and nothing is spilled: `spool` is the index of each log and of the dead letters, and
//! pieces of messages that are packed and unpacked ([`spool_bytes`]). The active partitions are the logs of the config.
//!
//! The pool must have room for a block of [`BLOCK_BYTES_MAX`]: if workers find no chunk for a message, they take turns, and each waits
//! for room for the largest block, so that it can finish its message. An empty pool is back-pressure, never a deadlock. The pool has room
//! for one more block for each worker beyond the first, less [`PARTS_BYTES`]. So workers normally do not wait for each other.
//!
//! Operator and gateway both call [`Budget::divide`]; a limit that is too small is refused with the smallest sufficient one.

use crate::edge_budget::SERVER_BYTES;
use crate::gateway_config::{Format, InsertFormat};
use crate::units::ByteSize;

/// Program, thread stacks, runtime, Kafka metadata, metrics. Chosen: the resident set of a gateway with two workers and little load,
/// including its Kafka client and inserts, was 21.4 MiB; the rest is for per-partition data.
pub const BASE_BYTES: u64 = 40 << 20;

/// The index of blocks on the queue volume; reserved even without a volume, so that the same limit works for both. Chosen: 8,192 blocks
/// of about 550 bytes each, including the volume's own index; the gateway asserts this.
pub const SPOOL_BYTES: u64 = 4_480 << 10;

/// The index of a log. Chosen: 4,096 segments of about 200 bytes, and 96 KiB of the open one.
const LOG_INDEX_BYTES: u64 = 1 << 20;

/// A thread's memory to pack messages for a log: a block, and the encoder's table. To unpack them, it has a block. The gateway asserts this maximum.
pub const PACKING_BYTES: u64 = 276 << 10;

/// A piece of a body that is read from the queue volume while it is sent. Chosen: large enough that a disk reads ahead at its full speed.
pub const SPOOL_PIECE_BYTES: u64 = 128 << 10;

/// Maximum pieces per insert: the connection's buffer (400 KiB) with the piece that exceeds it, and one read ahead.
pub const SPOOL_PIECES: u64 = 6;

/// Rows that are not compressed yet: a frame of 256 KiB, a quarter of it for the row that crosses its end, and the same once more for the
/// compressed frame. The gateway asserts that its buffers are not larger.
pub const ROW_BUFFER_BYTES: u64 = 640 << 10;

/// Maximum size of an encoded row. A larger span makes its message rejected. 4 MiB is four times Kafka's default maximum message, and the
/// default maximum of gRPC, and so of a Collector.
pub const ROW_BYTES_MAX: u64 = 4 << 20;

/// A worker's memory for a row, in halves of the row's size. Two halves are the row. Two are data that is copied into the row and then
/// freed: what the spans of a scope share, events' columns, a set in typed groups, JSON text. One half is for the moment when one of these
/// grows and moves. The gateway's tests measure it with rows made for that.
pub const ROW_HALVES: u64 = 5;

/// A worker's other memory: the paths of open objects, positions of attributes in groups, small reused buffers, recently seen resources,
/// a frame that is taken back. The gateway asserts this maximum.
pub const SCRATCH_BYTES: u64 = 7552 << 10;

/// Per worker: a row of the largest size and its scratch memory.
pub const WORKER_BYTES: u64 = ROW_HALVES * ROW_BYTES_MAX / 2 + SCRATCH_BYTES;

/// With `format: OtlpJson`, per worker and byte of the largest message in a record batch: the message in protobuf, and its longest string
/// with escapes. The gateway asserts that its rewriter needs no more.
pub const JSON_BYTES_PER_MESSAGE_BYTE: u64 = 2;

/// Maximum bytes of dead letters under way. Chosen: one of Kafka's default maximum size, 1 MiB, and some small ones.
pub const LETTER_QUEUE_BYTES: u64 = 1_152 << 10;

/// Memory for these: each exists twice for a moment, here and in librdkafka, and once more while it is compressed, which happens to one
/// at a time.
pub const LETTERS_BYTES: u64 = 2 * LETTER_QUEUE_BYTES;

/// A block that is sent in parts, besides its frames, which stay in place or are read back into free chunks. One block of a process is
/// sent in parts at a time. Chosen: the largest row with the frame in which it ends; the positions of 24,576 frames (the largest block at
/// LZ4's best compression); and the first and last frame of a part, because they are compressed again. The gateway asserts this maximum.
pub const PARTS_BYTES: u64 = 8 << 20;

/// Per running insert: socket buffers, request head and the bounded response.
pub const INSERT_BYTES: u64 = 1 << 20;

/// With `insert.format: Native`, a block that is being converted to columns; one at a time. Chosen: 16 MiB of columns, and the largest
/// row three times, with its frame. The gateway asserts this maximum.
pub const NATIVE_TURN_BYTES: u64 = 32 << 20;

/// With `insert.format: Native`, per running insert: the compressed columns of its block. The gateway asserts this maximum.
pub const NATIVE_FRAMES_BYTES: u64 = 8 << 20;

/// Maximum size of a compressed block. The size rule closes blocks far below it (16 MiB of messages make about 4 MiB). Only a single
/// incompressible message could exceed it; that message is rejected.
pub const BLOCK_BYTES_MAX: u64 = 24 << 20;

/// The allocator's share: one part in this many of the limit.
pub const SLACK_DIVISOR: u64 = 12;

/// Kafka answers up to this size are always accepted, whatever `recordBatchBytesMax` is: a batch that is too large stops only its own
/// partition if it can be received. A larger answer stops all partitions of its broker. Chosen: eight times Kafka's default maximum
/// message.
pub const ANSWER_BYTES_MIN: u64 = 8 << 20;

/// Default number of partitions that are read at the same time.
pub const PARTITIONS_ACTIVE_DEFAULT: u32 = 8;

/// Default maximum of a record batch: the broker's default limit for a message is 1 MiB.
pub const RECORD_BATCH_BYTES_DEFAULT: ByteSize = ByteSize::mib(1);

/// The largest `recordBatchBytesMax`. Chosen: four times that of the largest reference size.
pub const RECORD_BATCH_BYTES_MAX: ByteSize = ByteSize::mib(256);

/// Default size at which a block closes, in bytes of its messages: about 36,000 spans of 460 bytes.
pub const BATCH_BYTES_DEFAULT: ByteSize = ByteSize::mib(16);

/// The parameters of the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizing {
    /// The memory limit.
    pub limit: ByteSize,
    /// Number of worker threads.
    pub workers: u32,
    /// Partitions read at the same time.
    pub partitions_active_max: u32,
    /// The largest record batch, decompressed.
    pub record_batch_bytes_max: ByteSize,
    /// The encoding of messages.
    pub format: Format,
    /// Number of concurrent inserts.
    pub insert_concurrency: u32,
    pub insert_format: InsertFormat,
    /// The requests of `source.otlp`; `None` with `source.kafka`.
    pub requests: Option<RequestSizing>,
}

/// What requests of OTLP need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestSizing {
    /// The largest request, as received.
    pub received_bytes_max: ByteSize,
    /// The largest request, decompressed.
    pub decompressed_bytes_max: ByteSize,
}

impl RequestSizing {
    /// What the largest request needs: as received and decompressed.
    fn least(&self) -> u64 {
        self.received_bytes_max.get().saturating_add(self.decompressed_bytes_max.get())
    }
}

/// A divided limit. The parts add up to the limit exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// The whole limit.
    pub limit: ByteSize,
    /// Program, stacks, runtime.
    pub base: ByteSize,
    /// librdkafka's queues.
    pub kafka: ByteSize,
    /// Blocks on the queue volume.
    pub spool: ByteSize,
    /// Rows that are not compressed yet.
    pub rows: ByteSize,
    /// The workers' scratch memory.
    pub workers: ByteSize,
    /// Dead letters under way.
    pub letters: ByteSize,
    /// A block that is sent in parts.
    pub parts: ByteSize,
    /// Running inserts.
    pub http: ByteSize,
    /// Blocks converted to columns.
    pub native: ByteSize,
    /// Connections of OTLP clients.
    pub server: ByteSize,
    /// Bodies of OTLP requests.
    pub requests: ByteSize,
    /// The pool of compressed chunks.
    pub blocks: ByteSize,
    /// The allocator's share.
    pub slack: ByteSize,
}

/// The limit is too small.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{limit} is too small for these buffers; the smallest limit that would do is {smallest}")]
pub struct Shortfall {
    /// The given limit.
    pub limit: ByteSize,
    /// The smallest sufficient limit, in whole MiB.
    pub smallest: ByteSize,
}

impl Budget {
    /// Divides the limit, or returns the smallest sufficient one.
    pub fn divide(sizing: &Sizing) -> Result<Self, Shortfall> {
        let limit = sizing.limit.get();
        let fixed = Fixed::of(sizing);
        let slack = limit.div_ceil(SLACK_DIVISOR);
        match limit.checked_sub(fixed.sum().saturating_add(slack)) {
            Some(rest) if rest >= rest_min(sizing) => Ok(Self {
                limit: sizing.limit,
                base: ByteSize::bytes(BASE_BYTES),
                kafka: ByteSize::bytes(fixed.kafka),
                spool: ByteSize::bytes(fixed.spool),
                rows: ByteSize::bytes(fixed.rows),
                workers: ByteSize::bytes(fixed.workers),
                letters: ByteSize::bytes(LETTERS_BYTES),
                parts: ByteSize::bytes(PARTS_BYTES),
                http: ByteSize::bytes(fixed.http),
                native: ByteSize::bytes(fixed.native),
                server: ByteSize::bytes(fixed.server),
                requests: ByteSize::bytes(requests(sizing, rest)),
                blocks: ByteSize::bytes(rest - requests(sizing, rest) - freed_bodies(sizing, rest)),
                slack: ByteSize::bytes(slack + freed_bodies(sizing, rest)),
            }),
            _ => Err(Shortfall { limit: sizing.limit, smallest: smallest(sizing) }),
        }
    }

    /// Name and size of every part, in the order of the table above: for output and metrics. What only the other source has is left out.
    pub fn parts(&self) -> Vec<(&'static str, ByteSize)> {
        let mut parts = vec![
            ("base", self.base),
            ("kafka", self.kafka),
            ("rows", self.rows),
            ("workers", self.workers),
            ("letters", self.letters),
            ("parts", self.parts),
            ("spool", self.spool),
            ("http", self.http),
            ("native", self.native),
            ("server", self.server),
            ("requests", self.requests),
            ("blocks", self.blocks),
            ("slack", self.slack),
        ];
        let is_kafka = self.server.get() == 0;
        parts.retain(|(part, _)| !(is_kafka && ["server", "requests"].contains(part)));
        parts
    }
}

/// Maximum memory of librdkafka and the workers for Kafka's messages.
///
/// * A batch for each active partition: its queue is filled when it is empty, with one batch of the largest size or with
///   smaller ones of the same total size. While the answer is being received, it uses that memory instead.
/// * A batch for each worker: librdkafka keeps a batch until its last message is done, and fills the queue meanwhile.
/// * A batch for each worker: a message for which the pool has no room is copied, and may be a whole batch.
/// * The answer that is being decompressed: half a batch, since traces compress to less than half, and at least [`ANSWER_BYTES_MIN`].
///
/// With `source.otlp`, each worker holds the message that it has polled and one that waits for letters, and one more is read for a dead letter,
/// and copied for it.
fn kafka_bytes(sizing: &Sizing) -> u64 {
    let batch = sizing.record_batch_bytes_max.get();
    if sizing.requests.is_some() {
        return (2 * u64::from(sizing.workers)).saturating_add(2).saturating_mul(batch);
    }
    let batches = u64::from(sizing.partitions_active_max).saturating_add(2 * u64::from(sizing.workers));
    batches.saturating_mul(batch).saturating_add((batch / 2).max(ANSWER_BYTES_MIN))
}

/// The row buffers of a worker, counted from 0: one for each active partition, evenly distributed; the first workers get the remainder.
/// Each worker has at least one, since partitions take turns.
pub fn row_buffers(partitions_active_max: u32, workers: u32, worker: usize) -> usize {
    let workers = workers.max(1);
    let (share, rest) = (partitions_active_max / workers, partitions_active_max % workers);
    (share as usize + usize::from(worker < rest as usize)).max(1)
}

/// The parts that do not depend on the limit.
struct Fixed {
    kafka: u64,
    spool: u64,
    rows: u64,
    workers: u64,
    http: u64,
    native: u64,
    server: u64,
}

impl Fixed {
    fn of(sizing: &Sizing) -> Self {
        let row_buffers = u64::from(sizing.partitions_active_max.max(sizing.workers));
        Self {
            kafka: kafka_bytes(sizing),
            spool: spool_bytes(sizing),
            rows: row_buffers.saturating_mul(ROW_BUFFER_BYTES),
            workers: u64::from(sizing.workers)
                .saturating_mul(WORKER_BYTES.saturating_add(json_bytes(sizing))),
            http: u64::from(sizing.insert_concurrency).saturating_mul(INSERT_BYTES),
            native: native_bytes(sizing),
            server: sizing.requests.map_or(0, |_| SERVER_BYTES),
        }
    }

    fn sum(&self) -> u64 {
        [self.kafka, self.spool, self.rows, self.workers, self.http, self.native, self.server]
            .into_iter()
            .fold(BASE_BYTES + LETTERS_BYTES + PARTS_BYTES, u64::saturating_add)
    }
}

/// A worker's memory to rewrite a message from JSON.
fn json_bytes(sizing: &Sizing) -> u64 {
    match sizing.format {
        Format::OtlpProto => 0,
        Format::OtlpJson => sizing.record_batch_bytes_max.get().saturating_mul(JSON_BYTES_PER_MESSAGE_BYTE),
    }
}

/// The memory for blocks as columns.
fn native_bytes(sizing: &Sizing) -> u64 {
    match sizing.insert_format {
        InsertFormat::RowBinary => 0,
        InsertFormat::Native => u64::from(sizing.insert_concurrency)
            .saturating_mul(NATIVE_FRAMES_BYTES)
            .saturating_add(NATIVE_TURN_BYTES),
    }
}

fn blocks_min(sizing: &Sizing) -> u64 {
    u64::from(sizing.workers).saturating_mul(BLOCK_BYTES_MAX).saturating_sub(PARTS_BYTES).max(BLOCK_BYTES_MAX)
}

/// The index of the queue volume, and what is on its way to it and back: with `source.kafka` the pieces of spilled blocks. With `source.otlp`,
/// each worker has a thread that packs requests, and unpacks messages itself; one more is unpacked for a dead letter. Each log of the config has
/// an index, and so have the dead letters. Logs that an earlier config has left take nothing from the budget: they get no more requests, and 31
/// full ones would need 31 MiB for an index that is gone once they are empty; the slack has room for some.
fn spool_bytes(sizing: &Sizing) -> u64 {
    if sizing.requests.is_some() {
        let threads = u64::from(sizing.workers).saturating_mul(2).saturating_add(1);
        let logs = u64::from(sizing.partitions_active_max).saturating_add(1);
        let index_bytes = logs.saturating_mul(LOG_INDEX_BYTES);
        return threads.saturating_mul(PACKING_BYTES).saturating_add(index_bytes).max(SPOOL_BYTES);
    }
    let pieces = u64::from(sizing.insert_concurrency).saturating_mul(SPOOL_PIECES * SPOOL_PIECE_BYTES);
    pieces.saturating_add(SPOOL_BYTES)
}

/// What blocks and requests need together.
fn rest_min(sizing: &Sizing) -> u64 {
    blocks_min(sizing).saturating_add(sizing.requests.map_or(0, |requests| requests.least()))
}

/// The requests' share of what the fixed parts leave. Chosen: 100 clients with 3.6 MB each are served by 1,000 MiB. Blocks have a quarter: what
/// waits for ClickHouse is in the logs, and blocks are only what inserts and workers hold.
fn requests(sizing: &Sizing, rest: u64) -> u64 {
    let spare = rest.saturating_sub(rest_min(sizing));
    sizing.requests.map_or(0, |requests| requests.least().saturating_add(spare / 8 * 5))
}

/// Memory of bodies that were freed. The allocator keeps freed memory for 10 s, and uses it again for a body that is not larger. Chosen: a
/// gateway with 1,000 MiB and 100 clients that send 3.6 MB had a resident set of 998 MiB without it.
fn freed_bodies(sizing: &Sizing, rest: u64) -> u64 {
    let spare = rest.saturating_sub(rest_min(sizing));
    sizing.requests.map_or(0, |_| spare / 8)
}

/// The smallest sufficient limit, in whole MiB.
pub fn smallest_limit(sizing: &Sizing) -> ByteSize {
    smallest(sizing)
}

/// The smallest sufficient limit in whole MiB. A limit L without the slack has `L − ⌈L/12⌉ = ⌊11·L/12⌋`, so the smallest L for which that
/// is enough is `⌈12·needed/11⌉`.
fn smallest(sizing: &Sizing) -> ByteSize {
    let needed = Fixed::of(sizing).sum().saturating_add(rest_min(sizing));
    let limit = (u128::from(needed) * u128::from(SLACK_DIVISOR)).div_ceil(u128::from(SLACK_DIVISOR - 1));
    let limit = ByteSize::bytes(u64::try_from(limit).unwrap_or(u64::MAX));
    ByteSize::mib(limit.mib_ceil())
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
