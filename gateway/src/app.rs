//! Builds every part, starts the threads, and stops them in order.
//!
//! With `source.otlp`, the front of [`crate::source`] takes the place of Kafka.
//!
//! Threads: the main thread (this file; it waits), the poll thread, one per worker, and one for I/O (admin server, inserts). Order of the
//! shutdown: the poll thread revokes the partitions, workers seal complete ranges and release them, delivery inserts the blocks, the poll
//! thread commits and leaves the group. What is not inserted by the deadline is on the queue volume, or the next owner reads it again.

mod accepting;
mod consuming;
pub mod container;
mod leaving;
pub mod queue_volume;

use crate::{
    admin::{health::Status, pod_uid, server},
    blocks::{batch::BlockAge, block::Block, buffers::Pool},
    delivery::{
        deduplicated,
        native::Native,
        originals::Originals,
        retry::{self, Pace},
        task::{self, BLOCKS_WAITING_MAX, Delivery, ORDERS_WAITING_MAX, Stores},
    },
    ground::{account::RowAccount, async_sender::AsyncSender, clock::Clock, metrics::Metrics, route::Route},
    guarantee::{self, GuaranteeState},
    reading::{
        reader::Reader,
        worker::{self, Worker},
    },
    rows::carry::Carrying,
    source::front::Front,
    table::{
        parts_watch::PartsWatch,
        row_expiry::RowExpiry,
        sink::{self, Sink},
        table_watch::{TableChanged, TableWatch},
        ttl_watch::TtlWatch,
    },
    volume::spool::Spool,
};
use anyhow::Context as _;
use consuming::Consuming;
use crossbeam_channel::{Receiver, Sender, bounded};
use leaving::Running;
use sluice_clickhouse::{column::TableColumns, row_ends::RowShape, table::TableFit};
use sluice_gateway_config::{CheckedConfig, GatewayConfig, Kafka, PodIdentity, budget::row_buffers};
use sluice_kafka::{
    Consumer, ConsumerStats, Drain, Identity, Inbox, Limits, LogConsumer, OrderSink, Ownership, Report,
    Shortage, Stop, TopicMadeAnew, dead_letter::DeadLetters,
};
use sluice_ranges::{Destination, Rule, Version};
use std::{
    sync::{Arc, atomic::AtomicBool},
    thread,
    time::Duration,
};
use tokio::{
    runtime::Runtime,
    signal::unix::{SignalKind, signal},
    sync::mpsc::{self, error::TrySendError},
};

/// Assigned and revoked partitions that wait for a worker. More than the partitions of any topic that one pod can read.
const OWNERSHIP_MAX: usize = 4_096;

/// How long a rebalance waits for the blocks of a revoked partition. Long enough for an insert, shorter than the 45 s after which the
/// group would expel this member.
const REVOKE_WAIT: Duration = Duration::from_secs(10);

/// Events that wait for the main thread: one of each kind, and a second signal.
const EVENTS_MAX: usize = 6;

/// What the main thread waits for.
enum Event {
    /// SIGTERM or SIGINT.
    Signal,
    /// The poll thread has ended.
    Ended(Result<(), sluice_kafka::Error>),
    /// The table's columns are no longer those that rows are encoded for.
    TableChanged(TableChanged),
    /// A topic was deleted and created again.
    TopicMadeAnew(TopicMadeAnew),
    /// The queue volume has failed.
    VolumeFailed(sluice_spool::Fatal),
}

/// Runs the gateway until SIGTERM, or until the consumer fails permanently. It cuts ranges by `version` of the size rule; the program knows
/// only one.
pub fn run(checked: &CheckedConfig, version: Version) -> anyhow::Result<()> {
    let config = checked.config();
    let io = runtime(config)?;
    let (events_out, events) = bounded(EVENTS_MAX);
    // Must come before any wait: the kernel drops signals without a handler for the first process of a container.
    watch_signals(&io, events_out.clone())?;
    let volume = queue_volume::claim(config, &events)?;
    let shards = sink::shards(&config.sink.clickhouse)?;
    let metrics = Arc::new(Metrics::new(checked.budget()));
    let active = config.reading().partitions_active_max as usize;
    let pool = Pool::new(checked.budget().blocks.get(), active, config.workers as usize);
    let pool = Arc::new(pool.shared_by(shards.len()));
    let status = Arc::new(Status::new(metrics.clone(), pool.clone(), volume));
    let listeners = io.block_on(server::bind(checked.listen(), checked.control()))?;
    let listen = listeners.listen();
    let name = identity(config).instance_id;
    let namespace = name.is_some().then(|| config.pipeline.namespace.clone());
    let pod = PodIdentity { namespace, name, uid: pod_uid::own() };
    io.spawn(server::serve(listeners, metrics.clone(), status.clone(), pod));
    tracing::info!(pipeline = %pipeline(config), %listen, "the gateway starts");

    // Requests are kept from now on, also while ClickHouse is away.
    let accepting = accepting::start(checked, &metrics, (&io, &status), events_out.clone())?;
    let Some(TableFit { columns, .. }) = wait_for_table(&io, &shards, &events, &status)? else {
        tracing::info!("stopped while waiting for the table");
        return accepting.map_or(Ok(()), |accepting| accepting.end(&io));
    };
    status.table_fits();
    let account = status.account();
    let spool = match accepting {
        // The logs keep what ClickHouse does not take.
        Some(_) => None,
        None => queue_volume::open(config, &status, events_out.clone())?,
    };
    let age_max = BlockAge::of(&config.sink.clickhouse.insert)
        .for_shards(shards.len())
        .committing(config.delivery.commit);
    let age_max = age_max.draining_with(status.drain_asked());
    status.closes_by(age_max.clone());
    let metrics = &metrics;
    let rule = Rule { version, ..Rule::of(&config.sink.clickhouse.insert) };
    let parts = Gateway {
        config,
        front: accepting.as_ref().map(|accepting| &accepting.front),
        rule,
        columns,
        expiry: Arc::default(),
        metrics,
        account,
        pool: &pool,
        io: &io,
        age_max,
        spool,
    };
    let mut running = parts.start(shards, &status, events_out)?;
    running.accepting = accepting;
    running.wait(&events, io)
}

fn pipeline(config: &GatewayConfig) -> String {
    format!("{}/{}", config.pipeline.namespace, config.pipeline.name)
}

fn runtime(config: &GatewayConfig) -> anyhow::Result<Runtime> {
    // Only sockets and timers run here; the CPU work is on the worker threads. Clients have TLS and decompression.
    let threads = if config.source.otlp.is_some() { config.workers as usize } else { 1 };
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("io")
        .enable_all()
        .build()
        .context("cannot start the I/O runtime")
}

/// Sends an event for every signal: the second one means something else than the first.
fn watch_signals(io: &Runtime, events: Sender<Event>) -> anyhow::Result<()> {
    let _guard = io.enter();
    let mut terminate = signal(SignalKind::terminate()).context("cannot watch SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot watch SIGINT")?;
    io.spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            // The channel is full of events that are not read yet; one more signal would add nothing.
            if events.try_send(Event::Signal).is_err_and(|refused| refused.is_disconnected()) {
                // The process is ending.
                return;
            }
        }
    });
    Ok(())
}

/// Waits until the table exists and fits. Logs one line whenever the cause changes. `None` if a signal came first.
fn wait_for_table(
    io: &Runtime,
    shards: &[Sink],
    events: &Receiver<Event>,
    status: &Status,
) -> anyhow::Result<Option<TableFit>> {
    let mut last = String::new();
    for tries in 1.. {
        match io.block_on(sink::check_shards(shards)) {
            Ok(fit) => {
                let additional = fit.additional.join(", ");
                let optional = fit.columns.optional.names().join(", ");
                tracing::info!(
                    layout = %fit.columns,
                    optional_columns = optional,
                    additional_columns = additional,
                    "the table fits"
                );
                for note in &fit.notes {
                    tracing::warn!("{note}");
                }
                return Ok(Some(fit));
            }
            Err(error) => {
                let text = error.to_string();
                status.waits_for_table(&text, error.reason());
                if text != last {
                    tracing::warn!("not ready: {text}; checking again");
                    last = text;
                }
            }
        }
        match events.recv_timeout(retry::wait(Pace::Quick, tries, 1.0)) {
            Err(_) => {}
            Ok(Event::VolumeFailed(fatal)) => return Err(leaving::volume_failed(fatal)),
            Ok(_) => return Ok(None),
        }
    }
    Ok(None)
}

/// Everything that the threads are started with.
struct Gateway<'a> {
    config: &'a GatewayConfig,
    /// The source, if it is OTLP.
    front: Option<&'a Front>,
    rule: Rule,
    columns: TableColumns,
    expiry: Arc<RowExpiry>,
    metrics: &'a Arc<Metrics>,
    account: RowAccount,
    pool: &'a Arc<Pool>,
    io: &'a Runtime,
    age_max: BlockAge,
    spool: Option<Spool>,
}

/// The channels on which a worker receives.
struct Inlets {
    ownership: Receiver<Ownership>,
    wake: Receiver<()>,
    waker: Sender<()>,
    shortage: Shortage,
}

/// The channels to which a worker sends.
struct Outlets {
    blocks: mpsc::Sender<Block>,
    reports: Sender<Report>,
    dead_letters: DeadLetters,
    carrying: Option<Arc<Carrying>>,
}

impl Gateway<'_> {
    fn start(
        &self,
        shards: Vec<Sink>,
        status: &Arc<Status>,
        events: Sender<Event>,
    ) -> anyhow::Result<Running> {
        let workers = self.config.workers as usize;
        let mut inboxes = Vec::with_capacity(workers);
        let mut ends = Vec::with_capacity(workers);
        for _ in 0..workers {
            let (ownership, ownership_in) = bounded(OWNERSHIP_MAX);
            let (wake, wake_in) = bounded(1);
            let shortage = Shortage::default();
            inboxes.push(Inbox { ownership, wake: wake.clone(), shortage: shortage.clone() });
            ends.push(Inlets { ownership: ownership_in, waker: wake, wake: wake_in, shortage });
        }
        let limits = Limits {
            rule: self.rule,
            routing_epoch: Route::new(shards.len()).epoch(),
            revoke_wait: REVOKE_WAIT,
            leave_wait: self.config.shutdown.deadline.to_std(),
            sizing: self.config.sizing(),
        };
        let (orders, orders_in) = mpsc::channel(ORDERS_WAITING_MAX);
        let orders: OrderSink =
            Box::new(move |order| orders.try_send(order).map_err(TrySendError::into_inner));
        let dead_letters = self.dead_letters()?;
        let mut consumer = self.consuming(inboxes, orders, limits)?;
        status.consumes(consumer.stats());
        let (blocks, blocks_in) = mpsc::channel(BLOCKS_WAITING_MAX);
        let deliveries = self.deliveries(shards, &mut consumer, &dead_letters, &events)?;
        self.io.spawn(task::run(deliveries, self.stores(status.drain_asked()), blocks_in, orders_in));
        let carrying = Carrying::of(&self.config.attributes);
        let workers: Result<Vec<_>, _> = ends
            .into_iter()
            .enumerate()
            .map(|(number, end)| {
                let outlets = Outlets {
                    blocks: blocks.clone(),
                    reports: consumer.reports(),
                    dead_letters: dead_letters.clone(),
                    carrying: carrying.clone(),
                };
                self.start_worker(number, end, outlets)
            })
            .collect();
        let stop = Stop::default();
        let keeps = Arc::new(AtomicBool::new(false));
        if let Some(spool) = &self.spool {
            consumer.keeps_rest(spool, &keeps);
        }
        let (asked, drain): (Stop, Drain) = (stop.clone(), status.drain_asked());
        named("poll")
            .spawn(move || {
                let made_anew = |topic| {
                    if events.try_send(Event::TopicMadeAnew(topic)).is_err() {
                        // The process is ending already.
                    }
                };
                let result = consumer.run(&asked, &drain, made_anew);
                #[expect(clippy::disallowed_methods, reason = "on the poll thread, which has ended its work")]
                let sent = events.send(Event::Ended(result));
                if sent.is_err() {
                    // The receiver has gone: the process is ending.
                }
            })
            .context("cannot start the poll thread")?;
        let (status, leave_wait, spool) = (status.clone(), limits.leave_wait, self.spool.clone());
        Ok(Running { status, stop, leave_wait, keeps, spool, accepting: None, workers: workers? })
    }

    /// The config's Kafka; checked configs without `source.otlp` have one.
    fn kafka(&self) -> anyhow::Result<&Kafka> {
        self.config.source.kafka.as_ref().context("source has neither kafka nor otlp")
    }

    fn dead_letters(&self) -> anyhow::Result<DeadLetters> {
        if let Some(front) = self.front {
            return Ok(front.dead_letters.clone());
        }
        let topic = self.config.delivery.dead_letter.topic.as_deref();
        Ok(DeadLetters::start(self.kafka()?, topic, &identity(self.config).client_id)?)
    }

    fn consuming(&self, inboxes: Vec<Inbox>, orders: OrderSink, limits: Limits) -> anyhow::Result<Consuming> {
        Ok(if let Some(front) = self.front {
            let consumer = LogConsumer::new(front.keeper.clone(), inboxes, orders, limits)?;
            front.keeper.counts_in(consumer.stats());
            Consuming::Logs(Box::new(consumer))
        } else {
            let consumer = Consumer::new(self.kafka()?, &identity(self.config), inboxes, orders, limits)?;
            Consuming::Kafka(Box::new(consumer))
        })
    }

    fn originals(&self) -> anyhow::Result<Originals> {
        let started = match self.front {
            Some(front) => Originals::of_logs(front.keeper.clone()),
            None => Originals::start(self.kafka()?),
        };
        started.context("cannot start the thread that reads messages again")
    }

    /// One [`Delivery`] for each shard.
    fn deliveries(
        &self,
        shards: Vec<Sink>,
        consumer: &mut Consuming,
        dead_letters: &DeadLetters,
        events: &Sender<Event>,
    ) -> anyhow::Result<Vec<Delivery>> {
        let standing = self.standing(shards.clone(), consumer.stats());
        let (route, destinations) = (Route::new(shards.len()), shards.iter().map(Sink::destination));
        let destinations: Vec<Destination> = destinations.collect();
        consumer.sends_to(move |id| destinations[route.shard_of(id)]);
        let shape = Arc::new(RowShape::of(&self.columns));
        let insert = &self.config.sink.clickhouse.insert;
        let native = Native::of(insert.format, &self.columns, self.metrics);
        let letters = &self.config.delivery.dead_letter;
        let originals = self.originals()?;
        let carrying = Carrying::of(&self.config.attributes);
        let deliveries: anyhow::Result<Vec<_>> = shards
            .into_iter()
            .map(|sink| {
                Ok(Delivery {
                    targets: sink.targets(&self.columns)?,
                    watch: self.watch(sink.clone(), events.clone()),
                    standing: standing.clone(),
                    sink,
                    concurrency: insert.concurrency,
                    native: native.clone(),
                    reports: AsyncSender::new(consumer.reports()),
                    dead_letters: dead_letters.clone(),
                    on_missing: letters.on_missing,
                    originals: originals.clone(),
                    carrying: carrying.clone(),
                    reading: self.config.reading(),
                    kafka: self.config.source.kafka.clone(),
                    shape: shape.clone(),
                    metrics: self.metrics.clone(),
                    spool: self.spool.clone(),
                })
            })
            .collect();
        let deliveries = deliveries?;
        if let Some((spool, delivery)) = self.spool.as_ref().zip(deliveries.first()) {
            let columns = delivery.targets.columns();
            self.io.block_on(spool.encodes_for(columns, &self.columns));
            consumer.takes_over(spool, columns, self.kafka()?.initial_offset);
        }
        Ok(deliveries)
    }

    /// What the deliveries of all shards share.
    fn stores(&self, drain: Drain) -> Stores {
        Stores {
            pool: self.pool.clone(),
            spool: self.spool.clone(),
            account: self.account.clone(),
            metrics: self.metrics.clone(),
            drain,
            commit: self.config.delivery.commit,
            behind: self.age_max.behind(),
        }
    }

    /// The delivery guarantee: asked for once before the first block is sent, then periodically.
    fn standing(&self, shards: Vec<Sink>, consumer: Arc<ConsumerStats>) -> Arc<GuaranteeState> {
        let standing = Arc::new(GuaranteeState::new(self.metrics.guarantee.clone(), shards.len(), []));
        let group = self.config.reading().group;
        let deduplicated = deduplicated::Watch::new(&shards, &group, self.metrics.clone());
        let ttls = TtlWatch::new(&shards);
        let parts = PartsWatch::new(&shards, self.age_max.merges(), self.metrics.clone());
        let watch = guarantee::Watch::new(shards, standing.clone(), consumer);
        let mut watch = watch.with_expiry(self.expiry.clone());
        let clock = Clock::start();
        self.io.block_on(watch.look(clock.now()));
        standing.tell(clock.now());
        self.io.spawn(watch.run(move || clock.now()));
        self.io.spawn(deduplicated.run());
        self.io.spawn(ttls.run());
        self.io.spawn(parts.run());
        standing
    }

    fn watch(&self, sink: Sink, events: Sender<Event>) -> TableWatch {
        TableWatch::new(sink, self.columns.clone(), self.metrics.clone(), move |changed| {
            if events.try_send(Event::TableChanged(changed)).is_err() {
                // The process is ending already.
            }
        })
    }

    fn start_worker(
        &self,
        number: usize,
        inlets: Inlets,
        outlets: Outlets,
    ) -> anyhow::Result<thread::JoinHandle<()>> {
        let reading = self.config.reading();
        let worker = Worker::new(worker::WorkerDeps {
            ownership: inlets.ownership,
            wake: inlets.wake,
            waker: inlets.waker,
            shortage: inlets.shortage,
            blocks: outlets.blocks,
            reports: outlets.reports,
            dead_letters: outlets.dead_letters,
            pool: self.pool.clone(),
            age_max: self.age_max.clone(),
            workers: self.config.workers as usize,
            route: Route::new(self.config.sink.clickhouse.shards().len()),
            reader: Reader::new(reading.format, reading.message_bytes_max),
            sizing: self.config.sizing(),
            on_missing: self.config.delivery.dead_letter.on_missing,
            columns: self.columns.clone(),
            carrying: outlets.carrying,
            expiry: self.expiry.clone(),
            row_buffers_max: row_buffers(reading.partitions_active_max, self.config.workers, number),
            account: self.account.clone(),
            metrics: self.metrics.clone(),
            seconds: self.metrics.worker(number),
        });
        named(&format!("worker-{number}")).spawn(move || worker.run()).context("cannot start a worker thread")
    }
}

fn named(name: &str) -> thread::Builder {
    thread::Builder::new().name(name.to_owned())
}

/// The pod's name is the group instance id, so a restarted pod is the same group member. The rack is the node's zone, if Kubernetes
/// provides it.
pub(crate) fn identity(config: &GatewayConfig) -> Identity {
    let named = |variable| std::env::var(variable).ok().filter(|name| !name.is_empty());
    let (pod, rack) = (named("POD_NAME"), named("NODE_ZONE"));
    let client_id = pod.clone().unwrap_or_else(|| config.pipeline.name.clone());
    Identity { client_id: format!("sluice-gateway-{client_id}"), instance_id: pod, rack }
}
