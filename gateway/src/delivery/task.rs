//! The delivery task: sends sealed blocks to ClickHouse.
//!
//! Place in the flow: workers → channel of [`BLOCKS_WAITING_MAX`] → queued here → [`Order::Send`] from the poll thread → insert →
//! [`Report::Settled`] to the poll thread. Owner: one task on the I/O runtime. Each block that may be sent has its own task;
//! `sink.clickhouse.insert.concurrency` of them send at a time. The pool of chunks bounds the blocks that are held.
//!
//! When memory runs short, waiting blocks go to the queue volume ([`crate::volume::spill`]), so that reading continues while ClickHouse is
//! slow or away. This task alone changes the state of a block ([`crate::volume::block_table`]).
//!
//! A block is sent once its range may be sent, by a [`Shipment`].

use crate::{
    blocks::{block::Block, buffers::Pool},
    delivery::{
        block_queue::BlockQueue,
        breaker::Endpoints,
        enqueue::Enqueue,
        native::Native,
        originals::Originals,
        orphans::{self, Orphans},
        shipment::{End, IN_PARTS_MAX, Shard, Shipment},
    },
    ground::{
        account::RowAccount, async_sender::AsyncSender, metrics::Metrics, route::Route,
        shard_flags::ShardFlags,
    },
    guarantee::GuaranteeState,
    rows::carry::Carrying,
    table::{
        sink::{Sink, Targets},
        table_watch::TableWatch,
    },
    volume::{
        block_table::BlockTable,
        only_copy::{OnlyCopySender, Tables},
        ready_block::{BlockWithFrames, Ready},
        spill::Spill,
        spool::{Ended, Spool},
    },
};
use sluice_clickhouse::row_ends::RowShape;
use sluice_gateway_config::{Commit, Kafka, OnMissing, Reading};
use sluice_kafka::{Drain, Order, Report, dead_letter::DeadLetters};
use sluice_ranges::{Generation, OffsetRange, PartitionId};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
    time::MissedTickBehavior,
};

/// Sealed blocks in the channel from the workers. The pool of chunks is the real bound; this many small blocks may wait before the workers
/// do.
pub const BLOCKS_WAITING_MAX: usize = 256;

/// Orders in the channel to this task. The poll thread keeps what does not fit, at most one per range in flight.
pub const ORDERS_WAITING_MAX: usize = 1_024;

/// Blocks of one partition that are sent or wait for a retry, per concurrent insert. Chosen: while some are sent, the next ones are
/// ready. A partition whose blocks are all refused has only this many tasks, however many blocks are on the queue volume.
pub(crate) const SENDING_PER_INSERT: usize = 2;

/// How often free memory is checked. Chosen: a worker fills a block in 50 ms, so it fills an eighth of the smallest pool in twice that
/// time.
const SPILL_LOOK: Duration = Duration::from_millis(25);

/// How long blocks wait for a turn to be sent before ClickHouse counts as behind. Chosen: inserts of a second are normal.
const BEHIND_AFTER: Duration = Duration::from_secs(2);

/// Everything that delivery to one shard is created from.
pub struct Delivery {
    /// The statements and servers for inserts.
    pub targets: Targets,
    /// Checks the table after a refusal.
    pub watch: TableWatch,
    /// Looks up whether a block in doubt is stored.
    pub sink: Sink,
    /// What deduplication can be relied on.
    pub standing: Arc<GuaranteeState>,
    /// Concurrent inserts into this shard.
    pub concurrency: u32,
    /// Reports to the poll thread.
    pub reports: AsyncSender<Report>,
    /// Sends dead letters.
    pub dead_letters: DeadLetters,
    /// What to do with refused rows if Kafka refuses their dead letters.
    pub on_missing: OnMissing,
    /// Reads messages again.
    pub originals: Originals,
    /// What the config does with attributes, if anything: letters must not have more than rows.
    pub carrying: Option<Arc<Carrying>>,
    /// The format and maximum size of messages.
    pub reading: Reading,
    /// Kafka, which is asked about blocks of earlier runs; `None` with `source.otlp`, whose blocks are not spilled.
    pub kafka: Option<Kafka>,
    /// Transposes blocks into columns, if they are sent as columns.
    pub native: Option<Native>,
    /// How to find the rows in a block.
    pub shape: Arc<RowShape>,
    /// The process' metrics.
    pub metrics: Arc<Metrics>,
    /// The queue volume, if there is one.
    pub spool: Option<Spool>,
}

/// What the deliveries of all shards share.
pub struct Stores {
    /// The memory of blocks.
    pub pool: Arc<Pool>,
    /// The queue volume, if there is one.
    pub spool: Option<Spool>,
    /// Counts rows that an earlier run has read.
    pub account: RowAccount,
    /// The process' metrics.
    pub metrics: Arc<Metrics>,
    /// Whether the group is to be left.
    pub drain: Drain,
    /// When offsets may be committed.
    pub commit: Commit,
    /// Records which shards have blocks on the queue volume.
    pub behind: ShardFlags,
}

/// Delivers to these shards until no worker can send any more and every released block is stored. Each shard has its own inserts, retries
/// and health: a shard that is away stops only its own blocks. Dropping the future drops what is in flight; it is read again.
pub async fn run(
    deliveries: Vec<Delivery>,
    stores: Stores,
    mut blocks: mpsc::Receiver<Block>,
    mut orders: mpsc::Receiver<Order>,
) {
    let mut holding = Holding::new(deliveries, stores);
    let mut look = tokio::time::interval(SPILL_LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut gone, mut may_send) = (false, true);
    while !gone || !holding.is_empty() {
        if std::mem::replace(&mut may_send, true) {
            holding.send();
        }
        tokio::select! {
            Some(block) = blocks.recv() => holding.block(block),
            Some(order) = orders.recv() => {
                // Blocks that a worker sent before the poll thread's order are in the channel.
                while let Ok(block) = blocks.try_recv() {
                    holding.block(block);
                }
                holding.order(order);
            }
            Some(event) = holding.table.events_in.recv() => {
                holding.table.take(event);
                // It makes no block ready and frees no turn, and a block has several of them.
                may_send = false;
            }
            Some(done) = holding.shipments.join_next() => {
                holding.queue.done(&done.expect("a panic ends the process").id);
            }
            _ = look.tick() => {
                let times_asked = holding.spool.as_ref().map(Spool::times_asked);
                let has_all = blocks.is_empty();
                holding.look();
                if has_all {
                    holding.tell_kept(times_asked);
                }
                gone = blocks.is_closed() && blocks.is_empty() && orders.is_closed() && orders.is_empty();
            }
        }
    }
    // A block that ended while its record was being written: the record must go.
    while let Ok(event) = holding.table.events_in.try_recv() {
        holding.table.take(event);
    }
}

/// The state of the delivery task.
struct Holding {
    shards: Shards,
    /// The state of each block, in the queue or being sent.
    table: BlockTable,
    queue: BlockQueue,
    spill: Option<Spill>,
    orphans: Option<Orphans>,
    /// Set with `delivery.commit: AfterEnqueue`.
    enqueue: Option<Enqueue>,
    shipments: JoinSet<End>,
    /// The number of the columns that blocks are encoded for.
    columns: u64,
    spool: Option<Spool>,
    account: RowAccount,
    /// Since when blocks that may be sent have waited.
    behind_since: Option<Instant>,
    /// Which shards have blocks on the queue volume.
    behind: ShardFlags,
    metrics: Arc<Metrics>,
}

impl Holding {
    fn new(deliveries: Vec<Delivery>, stores: Stores) -> Self {
        let Stores { pool, spool, account, metrics, drain, commit, behind } = stores;
        let first = deliveries.first().expect("the config names a shard");
        let columns = first.targets.columns();
        let sending_max = SENDING_PER_INSERT * first.concurrency.max(1) as usize;
        let kafka = first.kafka.clone();
        let enqueues = commit == Commit::AfterEnqueue;
        let (pool_of, shards_of) = (pool.clone(), deliveries.len());
        let spill = spool.clone().map(|spool| Spill::new(pool_of, spool, shards_of, enqueues));
        let on_volume = spool.clone().filter(|_| enqueues);
        let enqueue = on_volume.map(|spool| Enqueue::new(spool, first.reports.clone()));
        let table = BlockTable::new(spool.clone(), shards_of);
        let (queue, shipments) = (BlockQueue::new(sending_max), JoinSet::new());
        let (shards, behind_since) = (Shards::new(deliveries, &pool), None);
        let orphans = spool.clone().zip(kafka).map(|(spool, kafka)| {
            let (account, metrics, route) = (account.clone(), metrics.clone(), shards.route());
            let tables = Tables { columns, shards: shards.sinks() };
            let sender = OnlyCopySender { spool, account, metrics, route, tables };
            Orphans::new(sender, kafka, orphans::Policy { drain, enqueues, sending_max })
        });
        Self {
            shards,
            table,
            queue,
            spill,
            orphans,
            enqueue,
            shipments,
            columns,
            spool,
            account,
            behind_since,
            behind,
            metrics,
        }
    }

    /// Whether nothing is being sent, and nothing may be.
    fn is_empty(&self) -> bool {
        self.shipments.is_empty() && !self.queue.has_ready()
    }

    fn block(&mut self, mut block: Block) {
        block.spool_metadata.is_enqueued = self.enqueue.is_some();
        let (shard, now) = (self.shards.route.shard_of(&block.id), Instant::now());
        let sealed = self.table.add(block, self.columns, shard, now);
        if let Some(spill) = &mut self.spill {
            spill.look(&mut self.table, |shard| self.shards.is_failing(shard), now);
        }
        self.wait_for_release(sealed);
    }

    fn wait_for_release(&mut self, sealed: BlockWithFrames) {
        let dropped = self.queue.block(sealed, &mut self.table);
        self.abandon(dropped, false);
    }

    /// Gives up blocks: another owner reads their messages if Kafka still has them. Their records stay until Kafka was asked about that;
    /// with `is_leaving`, the next run asks.
    fn abandon(&mut self, blocks: Vec<BlockWithFrames>, is_leaving: bool) {
        for BlockWithFrames { block, frames } in blocks {
            self.table.end(frames.number(), Ended::given_up(is_leaving));
            // Any shard will do: dropped blocks are sent nowhere.
            self.shards.shards[0].abandon(block);
        }
    }

    fn order(&mut self, order: Order) {
        let order = match order {
            Order::TakeOver { id, generation, ranges } => return self.take_over(&id, generation, &ranges),
            order => order,
        };
        if let Some(enqueue) = &mut self.enqueue {
            enqueue.order(&order);
        }
        let is_leaving = matches!(order, Order::Forget { is_leaving: true, .. });
        if let (Order::Forget { id, generation, .. }, Some(spool)) = (&order, &self.spool) {
            spool.left().give_back(id, *generation);
        }
        let dropped = self.queue.order(order, &mut self.table);
        self.abandon(dropped, is_leaving);
    }

    /// Takes over blocks of an earlier run, as if this one had sealed them.
    fn take_over(&mut self, id: &PartitionId, generation: Generation, ranges: &[OffsetRange]) {
        let Some(spool) = &self.spool else { return };
        for (block, record) in spool.left().take(id, (generation, ranges), &self.account, spool) {
            self.shards.count_in();
            let sealed = self.table.take_over(block, record);
            self.wait_for_release(sealed);
        }
    }

    fn send(&mut self) {
        while let Some(mut ready) = self.queue.pop() {
            let frames = &mut ready.sealed.frames;
            frames.found(self.table.record(frames.number()));
            let shard = self.shards.of(&mut ready);
            self.shipments.spawn(Shipment::new(shard, ready).run());
        }
    }

    fn look(&mut self) {
        if let Some(spill) = &mut self.spill {
            spill.look(&mut self.table, |shard| self.shards.is_failing(shard), Instant::now());
        }
        // Once committed, blocks that the table has no columns for could not be read and encoded again.
        if let Some(enqueue) = &mut self.enqueue {
            enqueue.look(&mut self.table, !self.shards.is_any_unfit());
        }
        if let Some(orphans) = &mut self.orphans {
            orphans.look(&self.shards);
        }
        self.look_at_sink();
    }

    /// During the shutdown, reports that no block is only in memory. `times_asked` counts the requests; every block that had arrived
    /// before them is covered.
    fn tell_kept(&mut self, times_asked: Option<u64>) {
        if let Some((spool, times)) = self.spool.as_ref().zip(times_asked)
            && times > 0
            && !self.table.uses_memory()
        {
            spool.everything_is_kept(times);
        }
    }

    /// Measures whether ClickHouse is behind. The workers cannot see it, because memory and volume let them read on.
    fn look_at_sink(&mut self) {
        let mut on_volume = vec![false; self.shards.shards.len()];
        let mut waits = false;
        for (id, waiting) in self.queue.waiting(&self.table) {
            waits |= waiting.for_turn || waiting.on_volume;
            on_volume[self.shards.route.shard_of(id)] |= waiting.on_volume;
        }
        for (shard, is_behind) in on_volume.into_iter().enumerate() {
            self.behind.say(shard, is_behind);
        }
        self.behind_since = waits.then(|| self.behind_since.unwrap_or_else(Instant::now));
        let is_behind = self.behind_since.is_some_and(|since| since.elapsed() >= BEHIND_AFTER);
        self.metrics.sink_behind.set(i64::from(is_behind));
    }
}

/// All shards, in the order of the config.
pub(crate) struct Shards {
    shards: Vec<Arc<Shard>>,
    route: Route,
}

impl Shards {
    pub fn new(deliveries: Vec<Delivery>, pool: &Arc<Pool>) -> Self {
        let in_parts = Arc::new(Semaphore::new(IN_PARTS_MAX));
        let shard = |(place, delivery): (usize, Delivery)| {
            let endpoints = Endpoints::new(delivery.targets.len(), delivery.concurrency);
            Arc::new(Shard::new((place, delivery), endpoints, in_parts.clone(), pool.clone()))
        };
        let shards: Vec<_> = deliveries.into_iter().enumerate().map(shard).collect();
        Self { route: Route::new(shards.len()), shards }
    }

    /// The shard of a block: the one that its range has always gone to, if that still exists. An earlier owner may have sent the block to
    /// other servers than the shard has now, into another table, or under another token. Then its rows count as possible duplicates.
    pub fn of(&self, ready: &mut Ready) -> Arc<Shard> {
        let (block, release) = (&ready.sealed.block, &ready.release);
        let shard = &self.shards[self.route.place_of(release.routing_epoch, &block.id)];
        if self.route.may_be_elsewhere(release, &block.id, |then| shard.sink().is_at(then)) {
            shard.say_moved(block);
            ready.rows_elsewhere = block.rows;
        } else if block.spool_metadata.is_doubtful {
            ready.rows_elsewhere = block.rows;
        }
        shard.clone()
    }

    /// Counts a block that no worker of this process has sealed.
    pub fn count_in(&self) {
        self.shards[0].count_in();
    }

    /// The route of blocks that are sent for the first time.
    pub fn route(&self) -> Route {
        self.route
    }

    /// The sinks that describe the tables.
    pub fn sinks(&self) -> Vec<Sink> {
        self.shards.iter().map(|shard| shard.sink().clone()).collect()
    }

    /// Whether the table of any shard was seen not to fit new rows.
    fn is_any_unfit(&self) -> bool {
        self.shards.iter().any(|shard| shard.is_unfit())
    }

    /// Whether inserts into this shard fail.
    fn is_failing(&self, shard: usize) -> bool {
        self.shards[shard].is_failing()
    }
}
