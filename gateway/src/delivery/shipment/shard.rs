//! What all shipments to one shard share: its servers, the permits to send to them, and what is known of how they are.
//!
//! Owner: delivery makes one for each shard; every shipment has a reference. Limits: [`Delivery::concurrency`] permits, and
//! [`IN_PARTS_MAX`] blocks in parts for all shards of a process.

use crate::{
    blocks::{block::Block, buffers::Pool},
    delivery::{
        bisect::Quota,
        breaker::{Answer, Endpoints, Pass, Wait},
        clock::Clock,
        held::Stowed,
        query_ids::QueryIds,
        shipment::halts::Halts,
        task::Delivery,
        tries::Replica,
    },
    table::sink::Sink,
    volume::spool::Spool,
};
use sluice_clickhouse::client::InsertClient;
use std::{
    hash::RandomState,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Blocks of a process that are sent in parts at the same time. Chosen: each takes the memory that the budget has for parts.
pub const IN_PARTS_MAX: usize = 1;

/// One shard, as all shipments to it share it.
pub struct Shard {
    pub(super) delivery: Delivery,
    /// Its place in the config.
    pub(super) place: usize,
    pub(super) client: InsertClient,
    /// Of its INSERTs.
    pub(super) query_ids: QueryIds,
    permits: Arc<Semaphore>,
    endpoints: Mutex<Endpoints>,
    /// Told when a pass comes back.
    returned: Notify,
    /// Whether the last insert failed: one line when it begins, one when it ends.
    pub(super) failing: AtomicBool,
    /// Whether any block was ever refused for what is in it: one line when it begins.
    pub(super) refusing: AtomicBool,
    /// Who must act on blocks that wait for someone.
    pub(super) halts: Halts,
    /// Told when an insert succeeds after others failed.
    pub(super) recovered: Notify,
    /// One for each block of the process that may be in parts.
    pub(super) in_parts: Arc<Semaphore>,
    /// Where the frames of a block on the queue volume find room while it is in parts.
    pub(super) pool: Arc<Pool>,
    /// Rows that may be dead-lettered.
    pub(super) quota: Mutex<Quota>,
    pub(super) jitter: RandomState,
    pub(super) clock: Clock,
}

impl Shard {
    /// For these servers, of the shard with this place in the config; `in_parts` are the turns of blocks that go in parts,
    /// [`IN_PARTS_MAX`] for all shards.
    pub fn new(
        (place, delivery): (usize, Delivery),
        endpoints: Endpoints,
        in_parts: Arc<Semaphore>,
        pool: Arc<Pool>,
    ) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(delivery.concurrency.max(1) as usize)),
            client: delivery.targets.client(),
            query_ids: QueryIds::of(&delivery.kafka.consumer_group, delivery.sink.names(), place),
            delivery,
            place,
            endpoints: Mutex::new(endpoints),
            returned: Notify::new(),
            failing: AtomicBool::new(false),
            refusing: AtomicBool::new(false),
            halts: Halts::default(),
            recovered: Notify::new(),
            in_parts,
            pool,
            quota: Mutex::default(),
            jitter: RandomState::new(),
            clock: Clock::start(),
        }
    }

    /// Takes down that blocks are given up: another owner reads their messages.
    pub fn abandon(&self, blocks: Vec<Stowed>, is_leaving: bool) {
        for stowed in blocks {
            tracing::debug!(partition = %stowed.block.id, "a block is given up: the partition has another owner");
            self.delivery.metrics.blocks_in_flight.dec();
            stowed.abandon(self.spool(), is_leaving);
        }
    }

    /// A block has come that no worker has sealed.
    pub fn count_in(&self) {
        self.delivery.metrics.blocks_in_flight.inc();
    }

    /// Whether the last insert failed.
    pub fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }

    /// Whether its table was seen not to fit the rows that are encoded now.
    pub fn is_unfit(&self) -> bool {
        self.delivery.watch.is_unfit()
    }

    /// Its place in the config.
    pub fn place(&self) -> usize {
        self.place
    }

    /// Where its table is looked at.
    pub fn sink(&self) -> &Sink {
        &self.delivery.sink
    }

    pub(super) fn spool(&self) -> Option<&Spool> {
        self.delivery.spool.as_ref()
    }

    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.clock.now().as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn give_up(&self, endpoint: usize, pass: Pass) {
        self.endpoints().give_up(endpoint, pass);
        self.returned.notify_waiters();
    }

    /// Takes down that a block comes here which an owner before may have sent elsewhere: to a shard that is no more, to other servers in
    /// this one's place, or into another table.
    pub fn count_moved(&self, block: &Block) {
        self.delivery.metrics.guarantee.possible_duplicate_rows.inc_by(block.rows);
        self.delivery.standing.moved(self.place, self.clock.now());
        tracing::warn!(
            partition = %block.id,
            rows = block.rows,
            servers = self.delivery.sink.servers_named(),
            table = self.delivery.sink.table_name(),
            "a block may have been sent to other servers or into another table before, and is sent to these: its rows may be doubled"
        );
    }

    fn endpoints(&self) -> MutexGuard<'_, Endpoints> {
        // Numbers, whole whatever the task that held them died of.
        self.endpoints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A server, and the right to send to it. Who has a permit already does not wait behind others for one.
    pub(super) async fn pass(
        &self,
        last: Option<(usize, Replica)>,
        mut kept: Option<OwnedSemaphorePermit>,
    ) -> (usize, Pass, OwnedSemaphorePermit) {
        loop {
            let permit = match kept.take() {
                Some(permit) => permit,
                None => self.permits.clone().acquire_owned().await.expect("the semaphore is never closed"),
            };
            // Registered before it is asked for: a pass that comes back in between is not missed.
            let returned = self.returned.notified();
            let chosen = self.endpoints().choose(last, self.clock.now());
            match chosen {
                Ok((endpoint, pass)) => return (endpoint, pass, permit),
                Err(Wait::Returned) => {
                    drop(permit);
                    returned.await;
                }
                Err(Wait::Until(until)) => {
                    drop(permit);
                    let wait = until.saturating_sub(self.clock.now());
                    tokio::select! {
                        () = tokio::time::sleep(wait) => {}
                        () = returned => {}
                    }
                }
            }
        }
    }

    pub(super) fn give_back(&self, endpoint: usize, pass: Pass, answer: Answer, random: f64) {
        self.endpoints().give_back(endpoint, pass, answer, (self.clock.now(), random));
        self.returned.notify_waiters();
    }
}
