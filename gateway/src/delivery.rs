//! Sealed blocks into ClickHouse.
//!
//! Place in the flow: workers → channel of [`BLOCKS_WAITING_MAX`] → held here → [`Order::Send`] from the poll thread → insert →
//! [`Report::Settled`] to the poll thread. Owner: one task on the I/O runtime; each insert is a task of its own, at most
//! `sink.clickhouse.insert.concurrency` at a time. What is held is bounded by the pool of chunks.
//!
//! A block is sent once its range may be, and then tried until it is in: the same bytes, under the same token, which makes the
//! server drop what it has already. It is given up only when its generation is over: then its messages are another owner's.
//! How long to wait, and who must act, is in the error's class.

use crate::{
    block::Block,
    held::{Held, Tenure},
    metrics::Metrics,
    retry::{self, Pace},
    sink::Targets,
    table_watch::TableWatch,
};
use crossbeam_channel::Sender;
use sluice_clickhouse::{
    body::InsertBody,
    client::InsertClient,
    insert::{InsertError, InsertId},
    outcome::Class,
};
use sluice_kafka::{Order, Report};
use std::{
    hash::{BuildHasher as _, RandomState},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::sync::{Notify, Semaphore, mpsc};

/// Sealed blocks that wait for an insert. The pool of chunks is what really bounds them; this many small ones may wait
/// before the workers do.
pub const BLOCKS_WAITING_MAX: usize = 256;

/// Orders that wait for this task. The poll thread keeps what does not fit, at most one per range in flight.
pub const ORDERS_WAITING_MAX: usize = 1_024;

/// What delivery is made of.
pub struct Delivery {
    /// Where blocks go.
    pub targets: Targets,
    /// Who looks at the table after a refusal.
    pub watch: TableWatch,
    /// Inserts at the same time.
    pub concurrency: usize,
    /// Who is told that a block is in.
    pub reports: Sender<Report>,
    /// The process' metrics.
    pub metrics: Arc<Metrics>,
}

impl Delivery {
    /// Delivers until no worker can send any more, and what was released is in. Dropping the future gives up what is in
    /// flight; it is read again.
    pub async fn run(self, mut blocks: mpsc::Receiver<Block>, mut orders: mpsc::Receiver<Order>) {
        let permits = Arc::new(Semaphore::new(self.concurrency));
        let shared = Arc::new(Shared {
            targets: self.targets,
            watch: self.watch,
            client: InsertClient::new(),
            reports: self.reports,
            metrics: self.metrics,
            failing: AtomicBool::new(false),
            recovered: Notify::new(),
            jitter: RandomState::new(),
        });
        let mut held = Held::default();
        let mut inserts = tokio::task::JoinSet::new();
        loop {
            let (block, tenure) = loop {
                if let Some(next) = held.pop() {
                    break next;
                }
                tokio::select! {
                    Some(block) = blocks.recv() => shared.dropped(held.block(block)),
                    Some(order) = orders.recv() => {
                        // What a worker sent before the poll thread gave the order is in the channel.
                        while let Ok(block) = blocks.try_recv() {
                            shared.dropped(held.block(block));
                        }
                        shared.dropped(held.order(order));
                    }
                    else => {
                        while inserts.join_next().await.is_some() {}
                        return;
                    }
                }
            };
            let permit = permits.clone().acquire_owned().await.expect("the semaphore is never closed");
            let shared = shared.clone();
            while inserts.try_join_next().is_some() {}
            inserts.spawn(async move {
                shared.deliver(block, &tenure).await;
                drop(permit);
            });
        }
    }
}

/// What all inserts share.
struct Shared {
    targets: Targets,
    watch: TableWatch,
    client: InsertClient,
    reports: Sender<Report>,
    metrics: Arc<Metrics>,
    /// Whether the last insert failed: one line when it begins, one when it ends.
    failing: AtomicBool,
    /// Told when an insert succeeds after others failed.
    recovered: Notify,
    jitter: RandomState,
}

impl Shared {
    async fn deliver(&self, mut block: Block, tenure: &Tenure) {
        let token = block.token.to_string();
        let body = InsertBody::new(std::mem::take(&mut block.frames));
        let mut tries = 0;
        while !tenure.is_over() {
            let query_id = format!("{token}-{tries}");
            let id = InsertId { token: Some(&token), query_id: &query_id };
            match self.client.insert(self.targets.of_try(tries), &body, id).await {
                Ok(inserted) => return self.settle(block, inserted.elapsed),
                Err(error) => {
                    self.metrics.insert_failures.with_label_values(&[error.class.label()]).inc();
                    self.log_failure(&block, &error);
                    self.watch.refused(error.class).await;
                    tries = tries.saturating_add(1);
                    let wait = retry::wait(pace(error.class), tries, self.random((&token, tries)));
                    self.pause(error.class, wait, tenure).await;
                }
            }
        }
        tracing::debug!(partition = %block.id, "a block is given up: the partition has another owner");
        self.dropped(1);
    }

    /// Takes down that blocks were given up.
    fn dropped(&self, blocks: usize) {
        self.metrics.blocks_in_flight.sub(i64::try_from(blocks).unwrap_or(i64::MAX));
    }

    /// Waits before the next try. Where no server could be asked, an insert that succeeds ends the wait of all others, which need not
    /// find out for themselves; what a server refused waits as long as it must, whatever becomes of others.
    async fn pause(&self, class: Class, wait: Duration, tenure: &Tenure) {
        let soonest = wait.min(retry::WAIT_MIN);
        tokio::time::sleep(soonest).await;
        let rest = tokio::time::sleep(wait.saturating_sub(soonest));
        let recovered = async {
            match class {
                Class::Retry => self.recovered.notified().await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            () = rest => {}
            () = recovered => {}
            () = tenure.over() => {}
        }
    }

    /// A number from 0 to 1 that differs between processes, blocks and tries.
    fn random(&self, of: impl std::hash::Hash) -> f64 {
        let [_, _, _, _, a, b, c, d] = self.jitter.hash_one(of).to_le_bytes();
        f64::from(u32::from_le_bytes([a, b, c, d])) / f64::from(u32::MAX)
    }

    fn settle(&self, block: Block, elapsed: Duration) {
        if self.failing.swap(false, Ordering::Relaxed) {
            tracing::info!("inserts succeed again");
            self.recovered.notify_waiters();
            self.watch.accepted();
        }
        let metrics = &self.metrics;
        metrics.rows_inserted.inc_by(block.rows);
        metrics.blocks_inserted.inc();
        metrics.bytes_inserted.inc_by(block.bytes as u64);
        metrics.insert_seconds.observe(elapsed.as_secs_f64());
        metrics.blocks_in_flight.dec();
        if let Some(seconds) = freshness_seconds(block.span_end_nanos_max) {
            metrics.freshness_seconds.observe(seconds);
        }
        let Block { id, generation, range, .. } = block;
        if self.reports.send(Report::Settled { id, generation, range }).is_err() {
            // The poll thread has ended and commits nothing any more; the block is read again and dropped by its token.
        }
    }

    fn log_failure(&self, block: &Block, error: &InsertError) {
        let first = !self.failing.swap(true, Ordering::Relaxed);
        let (class, code) = (error.class.label(), error.code);
        if first {
            tracing::warn!(class, code, %error, partition = %block.id, "inserts fail; {}", advice(error.class));
        } else {
            tracing::debug!(class, code, %error, partition = %block.id, "an insert failed again");
        }
    }
}

fn pace(class: Class) -> Pace {
    match class {
        Class::Halt | Class::Poison | Class::Split | Class::RefreshSchema => Pace::Slow,
        Class::Done | Class::Retry | Class::BackPressure | Class::InDoubt => Pace::Quick,
    }
}

fn advice(class: Class) -> &'static str {
    match class {
        Class::Retry | Class::InDoubt | Class::Done => "they are tried again, nothing is lost",
        Class::BackPressure => "the server is overloaded; they are tried again more slowly, nothing is lost",
        Class::RefreshSchema => "the table may have changed; its columns are read again",
        Class::Poison => "the server refuses rows of this block; its partition waits for someone to act",
        Class::Split => "the server cannot take this block at once; its partition waits for someone to act",
        Class::Halt => "someone must act: look at the table and at the user's rights",
    }
}

/// Seconds since the end of the latest span; `None` without one, or when it ends in the future.
fn freshness_seconds(span_end_nanos_max: u64) -> Option<f64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let end = Duration::from_nanos(Some(span_end_nanos_max).filter(|nanos| *nanos > 0)?);
    Some(now.checked_sub(end)?.as_secs_f64())
}
