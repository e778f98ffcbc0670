//! State that all shipments to one shard share: its servers, the permits to send to them, and their health.
//!
//! Owner: delivery creates one for each shard; every shipment has a reference. Limits: [`Delivery::concurrency`] permits, and
//! [`IN_PARTS_MAX`] blocks in parts for all shards of a process.

use crate::{
    blocks::{block::Block, buffers::Pool},
    delivery::{
        bisect::Quota,
        breaker::{Answer, Endpoints, Pass, Wait},
        query_ids::QueryIds,
        shipment::halts::Cause,
        task::Delivery,
        tries::Replica,
    },
    ground::clock::Clock,
    table::sink::Sink,
    volume::spool::Spool,
};
use sluice_clickhouse::client::InsertClient;
use sluice_kafka::Throttle;
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

pub struct Shard {
    pub(super) delivery: Delivery,
    /// Its position in the config.
    pub(super) place: usize,
    pub(super) client: InsertClient,
    /// The query ids of its INSERTs.
    pub(super) query_ids: QueryIds,
    permits: Arc<Semaphore>,
    endpoints: Mutex<Endpoints>,
    /// Notified when a pass is returned.
    returned: Notify,
    /// Whether the last insert failed. The log has one line when this starts and one when it ends.
    pub(super) failing: AtomicBool,
    /// Whether any block was refused because of its rows. The log has one line when this starts.
    pub(super) refusing: AtomicBool,
    /// The causes for which blocks wait until someone acts.
    pub(super) halts: Mutex<Throttle<Cause>>,
    /// Notified when an insert succeeds after others failed.
    pub(super) recovered: Notify,
    /// A permit for each block of the process that may be sent in parts.
    pub(super) in_parts: Arc<Semaphore>,
    /// The pool that lends room for the frames of a block on the queue volume while it is sent in parts.
    pub(super) pool: Arc<Pool>,
    /// Limits the rows that are dead-lettered.
    pub(super) quota: Mutex<Quota>,
    pub(super) jitter: RandomState,
    pub(super) clock: Clock,
}

impl Shard {
    /// For these servers; `place` is the shard's position in the config, and `in_parts` has the [`IN_PARTS_MAX`] turns of all shards for
    /// blocks in parts.
    pub fn new(
        (place, delivery): (usize, Delivery),
        endpoints: Endpoints,
        in_parts: Arc<Semaphore>,
        pool: Arc<Pool>,
    ) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(delivery.concurrency.max(1) as usize)),
            client: delivery.targets.client(),
            query_ids: QueryIds::of(&delivery.reading.group, delivery.sink.names(), place),
            delivery,
            place,
            endpoints: Mutex::new(endpoints),
            returned: Notify::new(),
            failing: AtomicBool::new(false),
            refusing: AtomicBool::new(false),
            halts: Mutex::default(),
            recovered: Notify::new(),
            in_parts,
            pool,
            quota: Mutex::default(),
            jitter: RandomState::new(),
            clock: Clock::start(),
        }
    }

    /// Counts a block that is dropped because another owner reads its messages.
    pub fn abandon(&self, block: Block) {
        tracing::debug!(partition = %block.id, "a block is dropped: its partition has another owner");
        self.delivery.metrics.blocks_in_flight.dec();
        block.account.abandon();
    }

    /// Counts a block that no worker of this process has sealed.
    pub fn count_in(&self) {
        self.delivery.metrics.blocks_in_flight.inc();
    }

    /// Whether the last insert failed.
    pub fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }

    /// Whether its table was seen not to fit new rows.
    pub fn is_unfit(&self) -> bool {
        self.delivery.watch.is_unfit()
    }

    /// Its position in the config.
    pub fn place(&self) -> usize {
        self.place
    }

    /// The sink that describes its table.
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

    /// Reports a block that an earlier owner may have sent elsewhere: to a shard that was removed, to other servers in this shard's place, or
    /// into another table.
    pub fn say_moved(&self, block: &Block) {
        self.delivery.standing.moved(self.place, self.clock.now());
        tracing::warn!(
            partition = %block.id,
            rows = block.rows,
            servers = self.delivery.sink.servers_named(),
            table = self.delivery.sink.table_name(),
            "an earlier owner may have sent a block to other servers or into another table; it is sent to these now: its rows may be duplicated"
        );
    }

    fn endpoints(&self) -> MutexGuard<'_, Endpoints> {
        // Poisoning is harmless: the breakers are plain numbers.
        self.endpoints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A server, and the right to send to it. A shipment that already has a permit does not wait for another.
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
            // Registered before asking, so that a pass returned in between is not missed.
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
