//! Builds the parts of the source, starts its threads and its server, and ends it.
//!
//! Owner: the main thread. Requests are accepted from the start on, also while ClickHouse is away: the logs keep them.
//!
//! Order of the end: [`crate::intake::ending`] stops the server; then the gate is closed, and no message is appended any more. The threads end once
//! their channels are dropped; the appender closes the logs.

use crate::{
    ground::metrics::Metrics,
    intake::{
        ending::{self, Ending, Serving},
        json,
        serving::{self, Terms, shown},
        tenants::{SharedTenants, TenantRates},
    },
    source::{
        acceptor::SourceAcceptor,
        appender::Appender,
        checking,
        gate::Gate,
        keeper::{Keeper, OnFatal},
        letters::LetterLog,
        numbers::SourceNumbers,
        opening::{self, OpenedVolume},
        unreadable::{ADVICE, Reader},
    },
};
use anyhow::Context as _;
use sluice_gateway_config::{ByteSize, CheckedConfig, OtlpSource};
use sluice_kafka::{Drain, dead_letter::DeadLetters};
use sluice_otlp_server::{ByteBudget, Server, ServerConfig};
use std::{
    future::ready,
    sync::{Arc, atomic::Ordering},
    thread::JoinHandle,
    time::Duration,
};
use tokio::{runtime::Runtime, sync::oneshot, task};

/// How the gateway says that it ends.
const GATEWAY: Ending = Ending {
    who: "the gateway",
    unanswered: "shutdown.deadline is over; clients send those requests again, and spans that are stored already are there twice",
};

/// The source while it runs.
pub struct Front {
    pub keeper: Arc<Keeper>,
    pub numbers: Arc<SourceNumbers>,
    pub dead_letters: DeadLetters,
    gate: Gate,
    serving: Option<Serving>,
    deadline: Duration,
    /// The thread that owns the logs.
    appender: JoinHandle<()>,
}

/// What a source is started with.
pub struct FrontDeps<'a> {
    pub checked: &'a CheckedConfig,
    pub otlp: &'a OtlpSource,
    pub metrics: Arc<Metrics>,
    pub drain: Drain,
    /// Bytes of the volume.
    pub volume_bytes: u64,
    pub on_fatal: OnFatal,
    /// Called once the logs are open, before the first request can come: whoever asks what is on the volume must not miss one.
    pub opened: &'a dyn Fn(&Arc<SourceNumbers>, &Arc<Keeper>),
}

impl Front {
    /// Opens the logs, and accepts requests from now on.
    ///
    /// # Errors
    /// If a file, a thread or an address cannot be used.
    pub fn start(deps: FrontDeps<'_>, io: &Runtime) -> anyhow::Result<Self> {
        let FrontDeps { checked, otlp, metrics, drain, volume_bytes, on_fatal, opened: tell } = deps;
        let config = checked.config();
        let opened = opening::open(config, otlp, volume_bytes)?;
        let OpenedVolume {
            volume_id,
            logs,
            writers,
            accepting,
            unreadable,
            unreadable_bytes,
            log_bytes_max,
            letters,
            is_damaged,
        } = opened;
        let numbers = Arc::new(SourceNumbers::new(ByteBudget::new(checked.budget().requests.get())));
        numbers.log_bytes_max.store(log_bytes_max, Ordering::Relaxed);
        numbers.is_damaged.store(is_damaged, Ordering::Relaxed);
        for log in unreadable {
            numbers.unreadable.add(log, Reader::Start);
        }
        let gate = Gate::new(drain);
        let keeper = Arc::new(Keeper::new(volume_id, logs, gate.clone(), numbers.clone(), on_fatal.clone()));
        let messages = keeper.messages_left();
        tracing::info!(
            logs = writers.len(),
            messages,
            bytes_max = log_bytes_max,
            "the logs on the queue volume are open"
        );
        let volume = config.queue.path.clone();
        let (counts, ends) = (numbers.clone(), on_fatal.clone());
        let letters = LetterLog::new(letters, otlp.dead_letter_bytes_max, &volume, (counts, ends));
        let dead_letters = DeadLetters::start_log(Box::new(letters))?;
        let appender = Appender {
            logs: writers,
            accepting,
            unreadable_bytes,
            keeper: keeper.clone(),
            metrics: metrics.clone(),
            numbers: numbers.clone(),
            volume: (volume.clone(), volume_bytes),
            on_fatal,
        };
        let (appends, appender) = appender.start().context("cannot start the thread of the logs")?;
        let bytes = |size: ByteSize| usize::try_from(size.get()).unwrap_or(usize::MAX);
        let message_bytes_max = bytes(otlp.limits.decompressed_bytes_max);
        let tenants = Arc::new(SharedTenants::new(TenantRates::of(otlp.tenants.as_ref())));
        let checks = checking::start(config.workers, message_bytes_max, &tenants, &appends);
        let checks = checks.context("cannot start a thread that checks requests")?;
        let acceptor = SourceAcceptor {
            checks,
            gate: gate.clone(),
            tenants,
            metrics,
            json_bytes_max: json::bytes_max(bytes(checked.budget().requests)),
            volume,
            timeout: SourceAcceptor::TIMEOUT,
        };
        let server_config = server_config(checked, otlp, &numbers)?;
        tell(&numbers, &keeper);
        let server =
            io.block_on(Server::bind(server_config, acceptor)).context("cannot start the OTLP server")?;
        numbers.is_accepting.store(true, Ordering::Relaxed);
        let (grpc, http) = (shown(server.grpc_address()), shown(server.http_address()));
        tracing::info!(%grpc, %http, "accepting OTLP requests");
        let (stop, stopped) = oneshot::channel::<()>();
        let under_way = io.spawn(server.serve(async { drop(stopped.await) }));
        let (deadline, serving) = (config.shutdown.deadline.to_std(), Some(Serving { stop, under_way }));
        Ok(Self { keeper, numbers, dead_letters, gate, serving, deadline, appender })
    }

    /// Begins to end: the server stops in order, on `io`, and then the gate is closed. Does nothing the second time.
    pub fn begin_to_end(&mut self, io: &Runtime) -> Option<task::JoinHandle<anyhow::Result<()>>> {
        let serving = self.serving.take()?;
        let (numbers, gate, deadline) = (self.numbers.clone(), self.gate.clone(), self.deadline);
        Some(io.spawn(async move {
            let ended = ending::end(&GATEWAY, &numbers.is_ending, (serving, deadline), ready(())).await;
            gate.close();
            ended
        }))
    }

    /// Waits until the logs are closed. The server must have ended.
    pub fn close(self) -> anyhow::Result<()> {
        let messages = self.keeper.messages_kept();
        if messages > 0 {
            tracing::info!(messages, "requests stay on the queue volume: the next start continues with them");
        }
        let logs = self.numbers.unreadable.numbers();
        if !logs.is_empty() {
            tracing::warn!(?logs, "logs on the queue volume cannot be read, and stay there: {ADVICE}");
        }
        if self.appender.join().is_err() {
            anyhow::bail!("the thread of the logs has panicked");
        }
        Ok(())
    }
}

fn server_config(
    checked: &CheckedConfig,
    otlp: &OtlpSource,
    numbers: &SourceNumbers,
) -> anyhow::Result<ServerConfig> {
    let terms = Terms {
        listen: &otlp.listen,
        addresses: checked.otlp().unwrap_or_default(),
        tenant_header: otlp.tenants.as_ref().map(|tenants| tenants.header.as_str()),
        request_bytes_max: otlp.limits.request_bytes_max,
        decompressed_bytes_max: otlp.limits.decompressed_bytes_max,
        connection_age_max: otlp.limits.connection_age_max,
        workers: checked.config().workers,
        deadline: checked.config().shutdown.deadline,
    };
    serving::server_config(terms, numbers.permits.clone(), numbers.counters.clone())
}
