//! Sealed blocks into ClickHouse.
//!
//! Place in the flow: workers → channel of [`BLOCKS_WAITING_MAX`] → held here → [`Order::Send`] from the poll thread → insert →
//! [`Report::Settled`] to the poll thread. Owner: one task on the I/O runtime; each block that may be sent is a task of its own, of which
//! `sink.clickhouse.insert.concurrency` send at a time. What is held or waits is bounded by the pool of chunks.
//!
//! A block is sent once its range may be; what happens to it then is a [`Shipment`].

use crate::{
    block::Block,
    breaker::Endpoints,
    guarantee::Standing,
    held::{Held, Ready},
    metrics::Metrics,
    route::Route,
    shipment::{Dock, IN_PARTS_MAX, Shipment},
    sink::{Sink, Targets},
    table_watch::TableWatch,
};
use crossbeam_channel::Sender;
use sluice_clickhouse::row_ends::RowShape;
use sluice_gateway_config::{Kafka, OnMissing};
use sluice_kafka::{Order, Report, dead_letter::DeadLetters, ranges::Release};
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc};

/// Sealed blocks that wait for an insert. The pool of chunks is what really bounds them; this many small ones may wait
/// before the workers do.
pub const BLOCKS_WAITING_MAX: usize = 256;

/// Orders that wait for this task. The poll thread keeps what does not fit, at most one per range in flight.
pub const ORDERS_WAITING_MAX: usize = 1_024;

/// What delivery to one shard is made of.
pub struct Delivery {
    /// Where blocks go.
    pub targets: Targets,
    /// Who looks at the table after a refusal.
    pub watch: TableWatch,
    /// Who is asked what became of a block in doubt.
    pub sink: Sink,
    /// What may be relied on.
    pub standing: Arc<Standing>,
    /// Inserts at the same time, to this shard.
    pub concurrency: u32,
    /// Who is told that a block is in.
    pub reports: Sender<Report>,
    /// Where rows go that ClickHouse refuses.
    pub dead_letters: DeadLetters,
    /// What becomes of them when the dead-letter topic takes none.
    pub on_missing: OnMissing,
    /// Where their messages are read again.
    pub kafka: Kafka,
    /// How a row is told from the next one in a block.
    pub shape: Arc<RowShape>,
    /// The process' metrics.
    pub metrics: Arc<Metrics>,
}

/// Delivers to these shards until no worker can send any more, and what was released is in. Each shard has inserts, retries and
/// health of its own: one that is away stops nothing but its own blocks. Dropping the future gives up what is in flight; it is read
/// again.
pub async fn run(
    shards: Vec<Delivery>,
    mut blocks: mpsc::Receiver<Block>,
    mut orders: mpsc::Receiver<Order>,
) {
    let docks = Docks::new(shards);
    let mut held = Held::default();
    let mut shipments = tokio::task::JoinSet::new();
    loop {
        while let Some(Ready { block, release, tenure }) = held.pop() {
            while shipments.try_join_next().is_some() {}
            let dock = docks.of(&block, &release);
            shipments.spawn(Shipment::new(dock, block, release, tenure).run());
        }
        tokio::select! {
            Some(block) = blocks.recv() => docks.abandon(held.block(block)),
            Some(order) = orders.recv() => {
                // What a worker sent before the poll thread gave the order is in the channel.
                while let Ok(block) = blocks.try_recv() {
                    docks.abandon(held.block(block));
                }
                docks.abandon(held.order(order));
            }
            else => break,
        }
    }
    while shipments.join_next().await.is_some() {}
}

/// A dock for each shard, in the order of the config.
struct Docks {
    docks: Vec<Arc<Dock>>,
    route: Route,
}

impl Docks {
    fn new(shards: Vec<Delivery>) -> Self {
        let in_parts = Arc::new(Semaphore::new(IN_PARTS_MAX));
        let dock = |delivery: Delivery| {
            let endpoints = Endpoints::new(delivery.targets.len(), delivery.concurrency);
            Arc::new(Dock::new(delivery, endpoints, in_parts.clone()))
        };
        let docks: Vec<_> = shards.into_iter().map(dock).collect();
        Self { route: Route::new(docks.len()), docks }
    }

    /// Where a block goes: where its range has always gone, if that shard is still there.
    fn of(&self, block: &Block, release: &Release) -> Arc<Dock> {
        let then = Route::of_epoch(release.routing_epoch);
        let place = then.shard_of(&block.id);
        if let Some(dock) = self.docks.get(place) {
            return dock.clone();
        }
        let dock = &self.docks[self.route.shard_of(&block.id)];
        if release.is_inherited {
            dock.count_moved(block, then.shards());
        }
        dock.clone()
    }

    fn abandon(&self, blocks: Vec<Block>) {
        // Any of them: what is given up goes nowhere.
        self.docks[0].abandon(blocks);
    }
}
