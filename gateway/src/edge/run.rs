//! Builds the parts of an edge, starts its threads, and stops them in order.
//!
//! Threads: the main thread (this file; it waits), `io` (server, admin, answers), `split-N` (requests into messages), `produce` and `topic`
//! (the producer). Order of the shutdown: not ready, no new connections, the requests under way are answered, the producer has nothing
//! left. What has no answer by `shutdown.deadline` is the client's to send again.

use crate::{
    admin::server::listen,
    edge::{
        acceptor::Edge,
        metrics::EdgeMetrics,
        serving,
        splitting::{self, SplittingDeps},
        status::{self, Status},
        tenants::{TenantRates, Tenants},
    },
};
use anyhow::Context as _;
use sluice_gateway_config::{ByteSize, CheckedEdgeConfig, EdgeConfig, edge_budget::EdgeBudget};
use sluice_kafka::producer::{Producer, ProducerLimits};
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    runtime::Runtime,
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, timeout_at},
};

/// How long a message waits for its acknowledgement. Chosen: less than the 10 s after which clients of OpenTelemetry give up a request.
const PRODUCE_TIMEOUT: Duration = Duration::from_secs(8);

/// Tenants whose limits are kept. Chosen: about 2 MiB with long names.
const TENANTS_MAX: usize = 4_096;

/// Runs the edge until SIGTERM.
///
/// # Errors
/// If a part cannot be started, at a second signal, and if requests have no answer at the deadline.
pub fn run(checked: &CheckedEdgeConfig, budget: &EdgeBudget) -> anyhow::Result<()> {
    let config = checked.config();
    let io = runtime(config)?;
    // Must come before any wait: the kernel drops signals without a handler for the first process of a container.
    let mut signals = io.block_on(async { Signals::watch() })?;
    let metrics = EdgeMetrics::new(&budget.parts());
    let edge = Arc::new(build(config, budget, &metrics, &io)?);
    let permits = serving::permits(budget);
    let admin = io
        .block_on(listen(checked.admin()))
        .with_context(|| format!("cannot listen on {} for metrics and probes", checked.admin()))?;
    let (of_permits, of_tenants) = (permits.clone(), edge.clone());
    let status = Arc::new(Status {
        metrics,
        producer: edge.producer.clone(),
        request_bytes: Box::new(move || serving::used_bytes(&of_permits)),
        tenants: Box::new(move || of_tenants.tenants.lock().unwrap_or_else(PoisonError::into_inner).len()),
        is_ending: AtomicBool::new(false),
    });
    let listen = admin.local_addr().context("the address of the admin server")?;
    io.spawn(status::serve(admin, status.clone()));
    let server = io.block_on(serving::start(checked, edge.clone(), permits))?;
    let pipeline = format!("{}/{}", config.pipeline.namespace, config.pipeline.name);
    tracing::info!(pipeline, %listen, grpc = ?server.grpc(), http = ?server.http(), "the edge starts");

    io.block_on(signals.next());
    tracing::info!("stopping: answering the requests under way");
    status.is_ending.store(true, Ordering::Relaxed);
    let deadline = Instant::now() + config.shutdown.deadline.to_std();
    let ended = io.block_on(async {
        tokio::select! {
            ended = end(server, &edge.producer, deadline) => ended,
            () = signals.next() => Err(anyhow::anyhow!(
                "stopped by a second signal before every request had its answer; clients send those again"
            )),
        }
    });
    // Answers to the kubelet are the only tasks left.
    io.shutdown_background();
    ended
}

/// Answers what is under way, and waits for the producer.
async fn end(server: serving::Server, producer: &Producer, deadline: Instant) -> anyhow::Result<()> {
    let answered = async {
        server.end().await;
        // Messages of clients that have gone.
        producer.flushed().await;
    };
    timeout_at(deadline, answered).await.context(
        "requests had no answer at shutdown.deadline; clients send them again, and spans that Kafka has are there twice",
    )
}

fn runtime(config: &EdgeConfig) -> anyhow::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(config.workers as usize)
        .thread_name("io")
        .enable_all()
        .build()
        .context("cannot start the I/O runtime")
}

fn build(
    config: &EdgeConfig,
    budget: &EdgeBudget,
    metrics: &Arc<EdgeMetrics>,
    io: &Runtime,
) -> anyhow::Result<Edge> {
    let bytes = |size: ByteSize| usize::try_from(size.get()).unwrap_or(usize::MAX);
    let limits = ProducerLimits {
        queue_bytes: bytes(budget.queue()),
        batch_bytes_max: bytes(config.kafka.record_batch_bytes_max),
        timeout: PRODUCE_TIMEOUT,
    };
    let producer =
        Producer::start(&config.kafka.connection(), &config.kafka.topic, &client_id(config), limits)?;
    let deps = SplittingDeps {
        producer: producer.clone(),
        target_bytes: bytes(config.kafka.message_bytes_target),
        request_bytes_max: bytes(config.limits.decompressed_bytes_max),
        io: io.handle().clone(),
    };
    let jobs =
        splitting::start(config.workers as usize, &deps).context("cannot start a thread that splits")?;
    let rates = config.tenants.as_ref().map_or_else(TenantRates::default, |tenants| TenantRates {
        spans: tenants.spans_per_second,
        bytes: tenants.bytes_per_second.map(ByteSize::get),
    });
    Ok(Edge {
        producer,
        jobs,
        tenants: Mutex::new(Tenants::new(rates, TENANTS_MAX)),
        metrics: metrics.clone(),
        timeout: PRODUCE_TIMEOUT,
    })
}

/// What brokers log and report: the pod, or the pipeline.
fn client_id(config: &EdgeConfig) -> String {
    let pod = std::env::var("POD_NAME").ok().filter(|name| !name.is_empty());
    format!("sluice-edge-{}", pod.unwrap_or_else(|| config.pipeline.name.clone()))
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn watch() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("cannot watch SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("cannot watch SIGINT")?,
        })
    }

    /// The next one, which may have come before.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
