//! Sealed blocks into ClickHouse.
//!
//! Place in the flow: workers → channel of [`BLOCKS_WAITING_MAX`] → held here → [`Order::Send`] from the poll thread → insert →
//! [`Report::Settled`] to the poll thread. Owner: one task on the I/O runtime; each block that may be sent is a task of its own, of which
//! `sink.clickhouse.insert.concurrency` send at a time. What is held or waits is bounded by the pool of chunks.
//!
//! When memory runs short, blocks that wait go to the queue volume ([`crate::volume::spill`]), so that reading goes on while the sink is
//! slow or away.
//!
//! A block is sent once its range may be; what happens to it then is a [`Shipment`].

use crate::{
    blocks::{batch::Behind, block::Block, buffers::Pool},
    delivery::{
        async_sender::AsyncSender,
        breaker::Endpoints,
        held::{Held, Stowed},
        native::Native,
        originals::Originals,
        route::Route,
        shipment::{End, IN_PARTS_MAX, Shard, Shipment},
    },
    signals::{account::RowAccount, guarantee::Standing, metrics::Metrics},
    table::{
        sink::{Sink, Targets},
        table_watch::TableWatch,
    },
    volume::{
        block_frames::BlockFrames,
        enqueue::Enqueue,
        only_copy::{Adopter, Tables},
        orphans::{self, Orphans},
        spill::Spill,
        spool::Spool,
    },
};
use sluice_clickhouse::row_ends::RowShape;
use sluice_gateway_config::{Commit, Kafka, OnMissing};
use sluice_kafka::{
    Drain, Generation, OffsetRange, Order, PartitionId, Report, dead_letter::DeadLetters, ranges::Release,
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
    time::MissedTickBehavior,
};

/// Sealed blocks that wait for an insert. The pool of chunks is what really bounds them; this many small ones may wait
/// before the workers do.
pub const BLOCKS_WAITING_MAX: usize = 256;

/// Orders that wait for this task. The poll thread keeps what does not fit, at most one per range in flight.
pub const ORDERS_WAITING_MAX: usize = 1_024;

/// Blocks of one partition that are sent or wait for a next try, for each insert at the same time. Chosen: while some are sent the
/// next ones are at hand; and a partition whose blocks are all refused has so many tasks, whatever is on the queue volume.
pub(crate) const SENDING_PER_INSERT: usize = 2;

/// How often it is looked whether memory runs short. Chosen: a worker fills a block in 50 ms, and so an eighth of the smallest pool in
/// twice that.
const SPILL_LOOK: Duration = Duration::from_millis(25);

/// How long blocks wait for a turn to be sent before the sink counts as behind. Chosen: inserts of a second are none of its faults.
const BEHIND_AFTER: Duration = Duration::from_secs(2);

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
    pub reports: AsyncSender<Report>,
    /// Where rows go that ClickHouse refuses.
    pub dead_letters: DeadLetters,
    /// What becomes of them when the dead-letter topic takes none.
    pub on_missing: OnMissing,
    /// Where their messages are read again.
    pub originals: Originals,
    /// How they are encoded, and how large they may be.
    pub kafka: Kafka,
    /// Turns blocks into columns, where they are to go so.
    pub native: Option<Native>,
    /// How a row is told from the next one in a block.
    pub shape: Arc<RowShape>,
    /// The process' metrics.
    pub metrics: Arc<Metrics>,
    /// The queue volume, if there is one.
    pub spool: Option<Spool>,
}

/// What delivery to all shards has in common.
pub struct Stores {
    /// The memory that blocks are in.
    pub pool: Arc<Pool>,
    /// The queue volume, if there is one.
    pub spool: Option<Spool>,
    /// Where rows are accounted for that an earlier run has walked.
    pub account: RowAccount,
    /// The process' metrics.
    pub metrics: Arc<Metrics>,
    /// Whether the group is to be left.
    pub drain: Drain,
    /// When offsets may be committed.
    pub commit: Commit,
    /// Where it is said of which shards blocks wait on the queue volume.
    pub behind: Behind,
}

/// Delivers to these shards until no worker can send any more, and what was released is in. Each shard has inserts, retries and
/// health of its own: one that is away stops nothing but its own blocks. Dropping the future gives up what is in flight; it is read
/// again.
pub async fn run(
    deliveries: Vec<Delivery>,
    stores: Stores,
    mut blocks: mpsc::Receiver<Block>,
    mut orders: mpsc::Receiver<Order>,
) {
    let mut holding = Holding::new(deliveries, stores);
    let mut look = tokio::time::interval(SPILL_LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut gone = false;
    while !gone || !holding.is_empty() {
        holding.send();
        tokio::select! {
            Some(block) = blocks.recv() => holding.block(block),
            Some(order) = orders.recv() => {
                // What a worker sent before the poll thread gave the order is in the channel.
                while let Ok(block) = blocks.try_recv() {
                    holding.block(block);
                }
                holding.order(order);
            }
            Some(done) = holding.shipments.join_next() => {
                holding.held.done(&done.expect("a panic ends the process").id);
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
}

/// What the delivery task holds.
struct Holding {
    shards: Shards,
    held: Held,
    spill: Option<Spill>,
    orphans: Option<Orphans>,
    /// With `delivery.commit: AfterEnqueue`.
    enqueue: Option<Enqueue>,
    shipments: JoinSet<End>,
    /// Of the columns that blocks are encoded for.
    columns: u64,
    spool: Option<Spool>,
    account: RowAccount,
    /// Since when blocks wait that may be sent.
    behind_since: Option<Instant>,
    /// Of which shards blocks wait on the queue volume.
    behind: Behind,
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
        let (held, shipments) = (Held::new(sending_max), JoinSet::new());
        let (shards, behind_since) = (Shards::new(deliveries, &pool), None);
        let orphans = spool.clone().map(|spool| {
            let (account, metrics, route) = (account.clone(), metrics.clone(), shards.route());
            let tables = Tables { columns, shards: shards.sinks() };
            let adopter = Adopter { spool, account, metrics, route, tables };
            Orphans::new(adopter, kafka, orphans::Policy { drain, enqueues, sending_max })
        });
        Self {
            shards,
            held,
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
        self.shipments.is_empty() && !self.held.has_ready()
    }

    fn block(&mut self, mut block: Block) {
        block.passport.is_enqueued = self.enqueue.is_some();
        let frames = BlockFrames::of(&mut block, self.columns);
        if let Some(spill) = &mut self.spill {
            let now = Instant::now();
            spill.add(&frames, self.shards.route.shard_of(&block.id), now);
            spill.look(|shard| self.shards.is_failing(shard), now);
        }
        self.shards.abandon(self.held.block(Stowed { block, frames }), false);
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
        self.shards.abandon(self.held.order(order), is_leaving);
    }

    /// Blocks of an earlier run go on as if this one had made them.
    fn take_over(&mut self, id: &PartitionId, generation: Generation, ranges: &[OffsetRange]) {
        let Some(spool) = &self.spool else { return };
        for stowed in spool.left().take(id, (generation, ranges), &self.account, spool) {
            self.shards.count_in();
            self.shards.abandon(self.held.block(stowed), false);
        }
    }

    fn send(&mut self) {
        while let Some(ready) = self.held.pop() {
            if let Some(enqueue) = &mut self.enqueue {
                enqueue.add(&ready);
            }
            let shard = self.shards.of(&ready.stowed.block, &ready.release);
            self.shipments.spawn(Shipment::new(shard, ready).run());
        }
    }

    fn look(&mut self) {
        if let Some(spill) = &mut self.spill {
            spill.look(|shard| self.shards.is_failing(shard), Instant::now());
        }
        // Committed, blocks that the table has no columns for could not be read and encoded again.
        if let Some(enqueue) = &mut self.enqueue {
            enqueue.look(&mut self.held, !self.shards.is_any_unfit());
        }
        if let Some(orphans) = &mut self.orphans {
            orphans.look(&self.shards);
        }
        self.look_at_sink();
    }

    /// Where the process leaves, whoever waits for it knows when nothing is left that only memory has. Everything that had come when
    /// that was asked for so often is here.
    fn tell_kept(&mut self, times_asked: Option<u64>) {
        if let (Some(spool), Some(spill), Some(times)) = (&self.spool, &mut self.spill, times_asked)
            && times > 0
            && spill.is_everything_kept()
        {
            spool.everything_is_kept(times);
        }
    }

    /// Memory and volume hide a slow sink from the workers, who read on: it is told here.
    fn look_at_sink(&mut self) {
        let mut on_volume = vec![false; self.shards.shards.len()];
        let mut waits = false;
        for (id, waiting) in self.held.waiting() {
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

    /// Where a block goes: where its range has always gone, if that shard is still there. Counts one that an owner before may have sent to
    /// other servers than the shard has now, or into another table.
    pub fn of(&self, block: &Block, release: &Release) -> Arc<Shard> {
        let shard = &self.shards[self.route.place_of(release.routing_epoch, &block.id)];
        if self.route.may_be_elsewhere(release, &block.id, |then| shard.sink().is_at(then)) {
            shard.count_moved(block);
        }
        shard.clone()
    }

    /// A block has come that no worker has sealed.
    pub fn count_in(&self) {
        self.shards[0].count_in();
    }

    /// Where blocks go that are sent for the first time.
    pub fn route(&self) -> Route {
        self.route
    }

    /// Where their tables are looked at.
    pub fn sinks(&self) -> Vec<Sink> {
        self.shards.iter().map(|shard| shard.sink().clone()).collect()
    }

    /// Whether the table of any was seen not to fit the rows that are encoded now.
    fn is_any_unfit(&self) -> bool {
        self.shards.iter().any(|shard| shard.is_unfit())
    }

    /// Whether inserts into one of them fail.
    fn is_failing(&self, shard: usize) -> bool {
        self.shards[shard].is_failing()
    }

    fn abandon(&self, blocks: Vec<Stowed>, is_leaving: bool) {
        // Any of them: what is given up goes nowhere.
        self.shards[0].abandon(blocks, is_leaving);
    }
}
