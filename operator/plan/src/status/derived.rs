//! What follows from a spec and the number of partitions, in numbers that a person can check: what stands in the status, and
//! what `sluice-operator plan` prints, with advice for the ClickHouse server beside it.
//!
//! Every number is the one that the objects are built from; nothing is worked out a second time.

use crate::{ground::quantity, planned::Plan};
use serde::Serialize;
use sluice_crds::Derived;
use sluice_gateway_config::{ByteSize, deduplication::window_blocks};

/// A server merges, reads and answers beside inserting: half of its cores for INSERT ... SELECT is what is left over. Chosen, as
/// in ClickHouse's guide to large inserts.
const CORES_PER_INSERT_THREAD: u32 = 2;

/// Each insert thread holds up to three blocks: the one being read, the one being squashed, the one being written
/// (ClickHouse's guide to large inserts: peak memory / (3 x insert threads)).
const BLOCKS_PER_INSERT_THREAD: u64 = 3;

/// What is derived for one pipeline.
pub fn derived(plan: &Plan) -> Derived {
    let config = plan.config().config();
    let active = config.reading().partitions_active_max;
    let of_gateway = plan.partitions().div_ceil(plan.replicas().max(1));
    Derived {
        partitions_per_gateway: if config.source.otlp.is_some() { active } else { of_gateway },
        partitions_active_per_gateway: active,
        workers: config.workers,
        memory: format!("{}Mi", plan.resources.memory.mib_ceil()),
        memory_for_blocks: whole_mib(blocks_bytes(plan)),
        queue: queue_bytes(plan).map(|bytes| whole_mib(ByteSize::bytes(bytes))),
        insert_concurrency: config.sizing().insert_concurrency,
        deduplication_window: deduplication_window(plan),
        advice: Some(server_advice(plan)),
    }
}

/// The sizes of a server, for advice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Server {
    pub memory_bytes: u64,
    pub cores: u32,
}

/// Settings for the server that takes the rows and, for instance, copies them onward.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Advice {
    /// The table's setting `non_replicated_deduplication_window` (`replicated_deduplication_window` where it is replicated):
    /// blocks whose tokens are remembered.
    pub deduplication_window: u64,
    /// The setting `max_insert_threads` for INSERT ... SELECT; without the server's size nothing can be said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_insert_threads: Option<u32>,
    /// The setting `min_insert_block_size_bytes` for INSERT ... SELECT, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_insert_block_size_bytes: Option<u64>,
}

/// Advice for a server of this size.
pub fn advice(plan: &Plan, server: Option<Server>) -> Advice {
    let threads = server.map(|server| (server.cores / CORES_PER_INSERT_THREAD).max(1));
    let bytes = server
        .zip(threads)
        .map(|(server, threads)| server.memory_bytes / (BLOCKS_PER_INSERT_THREAD * u64::from(threads)));
    Advice {
        deduplication_window: deduplication_window(plan),
        max_insert_threads: threads,
        min_insert_block_size_bytes: bytes,
    }
}

/// Bytes that blocks may take on a queue volume; `None` without one. The claim is asked for in the same bytes.
fn queue_bytes(plan: &Plan) -> Option<u64> {
    let volume = quantity::bytes(&plan.volume.as_ref()?.size)?;
    Some(plan.config().config().queue.bytes_max(volume))
}

/// What a server should be set to for this pipeline, whatever its size, and the rules of what follows from that; [`advice`] has the
/// numbers.
fn server_advice(plan: &Plan) -> String {
    let inserts = plan.config().config().sizing().insert_concurrency.saturating_mul(plan.replicas());
    format!(
        "the table should remember {} blocks (setting non_replicated_deduplication_window, or replicated_deduplication_window); the \
         servers should accept {inserts} concurrent inserts from these gateways, beside all other queries (max_concurrent_queries, \
         max_concurrent_insert_queries); for INSERT ... SELECT, max_insert_threads should be a server's cores / \
         {CORES_PER_INSERT_THREAD}, and min_insert_block_size_bytes its memory / ({BLOCKS_PER_INSERT_THREAD} x max_insert_threads)",
        deduplication_window(plan)
    )
}

/// The window of a table that is made: the contract's arithmetic.
fn deduplication_window(plan: &Plan) -> u64 {
    let interval = plan.config().config().sink.clickhouse.insert.max_interval;
    u64::from(window_blocks(plan.sent, interval))
}

fn blocks_bytes(plan: &Plan) -> ByteSize {
    let parts = plan.config().budget().parts();
    let blocks = parts.into_iter().find(|(name, _)| *name == "blocks");
    blocks.map_or(ByteSize::bytes(0), |(_, bytes)| bytes)
}

pub(super) fn whole_mib(bytes: ByteSize) -> String {
    format!("{}Mi", bytes.get() >> 20)
}
