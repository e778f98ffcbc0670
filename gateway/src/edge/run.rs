//! Builds the parts of an edge, starts its threads, and stops them at a signal.
//!
//! Threads: the main thread (this file; it waits), `io` (server, admin, small requests into messages, Kafka's acknowledgements, answers),
//! `split-N` (other requests into messages), `upkeep` and `topic` (the producer). Order of the shutdown: [`ending`].

use crate::{
    admin::server::listen,
    edge::{
        acceptor::Edge,
        metrics::EdgeMetrics,
        serving,
        splitting::{Splitting, SplittingDeps},
        status::{self, Status},
    },
    intake::{
        ending::{self, ANSWER_TIMEOUT, Ending, MESSAGE_TIMEOUT, Serving},
        json,
        serving::shown,
        tenants::{SharedTenants, TenantRates},
    },
};
use anyhow::Context as _;
use sluice_gateway_config::{ByteSize, CheckedEdgeConfig, EdgeConfig, edge_budget::EdgeBudget};
use sluice_kafka::producer::{Producer, ProducerLimits, StartError};
use sluice_otlp_server::{ByteBudget, Counters};
use std::sync::{Arc, atomic::AtomicBool};
use tokio::{
    runtime::Runtime,
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};

/// How the edge says that it ends.
const EDGE: Ending = Ending {
    who: "the edge",
    unanswered: "shutdown.deadline is over; clients send those requests again, and spans that Kafka has are there twice",
};

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
    let (permits, counters) = (ByteBudget::new(budget.requests.get()), Arc::<Counters>::default());
    let admin = io
        .block_on(listen(checked.admin()))
        .with_context(|| format!("cannot listen on {} for metrics and probes", checked.admin()))?;
    let (of_permits, of_tenants) = (permits.clone(), edge.clone());
    let status = Arc::new(Status {
        metrics,
        producer: edge.producer.clone(),
        request_bytes: Box::new(move || of_permits.used_bytes()),
        counters: counters.clone(),
        tenants: Box::new(move || of_tenants.tenants.count()),
        is_ending: AtomicBool::new(false),
    });
    let listen = admin.local_addr().context("the address of the admin server")?;
    io.spawn(status::serve(admin, status.clone()));
    let server = io.block_on(serving::bind(checked, edge.clone(), permits, counters))?;
    let (grpc, http) = (shown(server.grpc_address()), shown(server.http_address()));
    let pipeline = format!("{}/{}", config.pipeline.namespace, config.pipeline.name);
    tracing::info!(%pipeline, %listen, %grpc, %http, "the edge starts");

    let (stop, stopped) = oneshot::channel::<()>();
    let under_way = io.spawn(server.serve(async { drop(stopped.await) }));
    io.block_on(signals.next());
    let (serving, deadline) = (Serving { stop, under_way }, config.shutdown.deadline.to_std());
    let ended = io.block_on(async {
        tokio::select! {
            ended = ending::end(&EDGE, &status.is_ending, (serving, deadline), edge.producer.flushed()) => ended,
            () = signals.next() => Err(anyhow::anyhow!(
                "stopped by a second signal before every request had its answer; clients send those again"
            )),
        }
    });
    // Answers to the kubelet are the only tasks left.
    io.shutdown_background();
    ended
}

/// Whether the config, or a file that it names, is why the edge did not start: a certificate, tokens, a password for Kafka.
pub fn is_of_config(error: &anyhow::Error) -> bool {
    let of_server = error.downcast_ref::<sluice_otlp_server::Error>();
    let of_producer = error.downcast_ref::<StartError>();
    of_server.is_some_and(sluice_otlp_server::Error::is_of_config)
        || of_producer
            .is_some_and(|error| !matches!(error, StartError::Thread { .. } | StartError::Signal(_)))
}

/// Threads of `io`. Chosen: reading, splitting and answering take less time than Kafka's threads and the large requests of as many workers.
/// With fewer threads, tasks change between them less often, and each change wakes a thread. One thread alone wakes no other.
fn io_threads(workers: u32) -> usize {
    (workers as usize).div_ceil(2).max(1)
}

fn runtime(config: &EdgeConfig) -> anyhow::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(io_threads(config.workers))
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
        timeout: MESSAGE_TIMEOUT,
    };
    let (kafka, topic) = (config.kafka.connection(), &config.kafka.topic);
    let producer = Producer::start(&kafka, topic, &client_id(config), limits, io.handle())?;
    let deps = SplittingDeps {
        producer: producer.clone(),
        target_bytes: bytes(config.kafka.message_bytes_target),
        request_bytes_max: bytes(config.limits.decompressed_bytes_max),
        io: io.handle().clone(),
    };
    let splitting =
        Splitting::start(config.workers as usize, &deps).context("cannot start a thread that splits")?;
    Ok(Edge {
        producer,
        splitting,
        tenants: SharedTenants::new(TenantRates::of(config.tenants.as_ref())),
        metrics: metrics.clone(),
        timeout: ANSWER_TIMEOUT,
        json_bytes_max: json::bytes_max(bytes(budget.requests)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_an_io_thread_for_two_workers_and_never_none() {
        assert_eq!([0, 1, 2, 3, 4, 64].map(io_threads), [1, 1, 1, 2, 2, 32]);
    }
}
