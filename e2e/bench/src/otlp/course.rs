//! A run from its start to its end, with a topic or a table of its own.
//!
//! ```text
//! topic or table made -> process started and ready -> clients -> every span is stored -> SIGTERM -> usage -> spans counted
//! ```
//!
//! After an edge has ended, a gateway reads the spans in its topic into the null sink, which counts them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result, ensure};
use sluice_gateway_config::Layout;
use tokio::net::TcpStream;

use super::Role;
use super::entrant::{Entrant, Route, table_statements};
use super::load::{Answers, Load};
use super::report::RunReport;
use crate::memory::group::MemoryGroup;
use crate::throughput::witness::{Usage, Watched};
use crate::throughput::{Columns, Engine, NullSink, Sink, Stored, stack_server};
use crate::waiting::{LOOK, STALL, until_committed, until_none_is_left};
use e2e_fixtures::gateway::{self, Orders};
use e2e_fixtures::pipeline::TABLE;
use e2e_fixtures::produce::{self, Topic};
use e2e_fixtures::spans::Run;
use e2e_stack::clickhouse::HOST_URL;
use e2e_stack::kafka::HOST_ADDRESS;
use e2e_stack::paths::{create_folder, remove_folder};
use e2e_stack::say;

/// Partitions of a topic. Chosen: as many as of `cargo throughput`.
const PARTITIONS: i32 = 8;

/// The program to measure, and the folder for its files.
pub struct Course {
    role: Role,
    gateway: PathBuf,
    folder: PathBuf,
    clients: u64,
    runs: u32,
}

/// The topic or table, the load and the route of one run.
struct Place {
    folder: PathBuf,
    route: Route,
    load: Load,
}

/// The result of a process: what it did until every span was stored, and what it used until its end.
struct Raced {
    wall: Duration,
    answers: Answers,
    usage: Usage,
}

impl Course {
    pub fn lay(role: Role, gateway: &Path, clients: u64) -> Result<Course> {
        let folder = std::env::temp_dir().join(format!("sluice-otlp-{}", std::process::id()));
        let folder = create_folder(folder)?;
        Ok(Course { role, gateway: gateway.to_owned(), folder, clients, runs: 0 })
    }

    /// Where configs, logs and volumes are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn remove(self) -> Result<()> {
        remove_folder(&self.folder)
    }

    /// One run of this many spans, at a rate or at full speed.
    pub async fn run(
        &mut self,
        entrant: &Entrant,
        spans: u64,
        spans_per_second: Option<f64>,
    ) -> Result<RunReport> {
        let place = self.place(spans, spans_per_second)?;
        say::progress(entrant.name(), &format!("{spans} spans to {}", place.route.name));
        let (raced, stored) = match self.role {
            Role::Edge => self.to_topic(entrant, &place).await?,
            Role::Source => self.to_table(entrant, &place).await?,
        };
        let Raced { wall, answers, usage } = raced;
        let of = (entrant.name(), spans_per_second);
        let report = RunReport::new(of, (spans, wall), &answers, usage, stored);
        let figures =
            format!("{:.0} spans a second, {:.0} a CPU-second", report.spans_per_s, report.spans_per_cpu_s);
        say::progress(entrant.name(), &figures);
        // The volume has about 100 bytes a span; the next run needs that space.
        remove_folder(&place.route.volume)?;
        Ok(report)
    }

    fn place(&mut self, spans: u64, spans_per_second: Option<f64>) -> Result<Place> {
        let (number, run) = (self.runs, Run::fresh());
        self.runs += 1;
        let folder = self.folder.join(number.to_string());
        let route = Route::free(&format!("sluice_otlp_{:x}_{number}", run.id), &folder)?;
        create_folder(&route.volume)?;
        let load = Load { run, spans, clients: self.clients, spans_per_second };
        Ok(Place { folder, route, load })
    }

    async fn to_topic(&self, entrant: &Entrant, place: &Place) -> Result<(Raced, Stored)> {
        let topic = Topic::create(HOST_ADDRESS, &place.route.name, PARTITIONS).await?;
        let outcome = async {
            // An answer means that the spans are in the topic.
            let raced = self.race(entrant, place, async || Ok(place.load.spans)).await?;
            Ok::<_, Error>((raced, self.count_in(&topic, place).await?))
        };
        let outcome = outcome.await;
        let removed = topic.delete_group(&place.route.name).await.and(topic.delete().await);
        let outcome = outcome?;
        removed?;
        Ok(outcome)
    }

    async fn to_table(&self, entrant: &Entrant, place: &Place) -> Result<(Raced, Stored)> {
        let name = &place.route.name;
        let statements = table_statements(&self.gateway, &place.route, &place.folder)?;
        let sink = Sink::create(name, &statements, Engine::MergeTree).await?;
        let server = stack_server();
        let question = format!("SELECT count() FROM `{name}`.`{TABLE}`");
        let outcome = async {
            let raced = self.race(entrant, place, async || server.count(&question).await).await?;
            let sent = produce::Sent { acked: (0..place.load.spans).into(), ..produce::Sent::default() };
            let arrived = sink.arrived(place.load.run, &sent, Layout::Json).await?;
            let (lost, doubled) = arrived.lost.zip(arrived.doubled).context("the table was not counted")?;
            let foreign = arrived.rows.saturating_sub(place.load.spans.saturating_sub(lost) + doubled);
            Ok::<_, Error>((raced, Stored { rows: arrived.rows, lost, doubled, foreign }))
        };
        let outcome = outcome.await;
        sink.delete().await;
        outcome
    }

    /// Runs the process until every span is stored; `stored` returns how many are.
    async fn race(
        &self,
        entrant: &Entrant,
        place: &Place,
        stored: impl AsyncFn() -> Result<u64>,
    ) -> Result<Raced> {
        let Place { folder, route, load } = place;
        let name = entrant.name();
        let command = entrant.command(self.role, route, folder)?;
        // The cgroup must exist longer than the process.
        let group = match entrant {
            Entrant::Gateway(_) => Some(MemoryGroup::create(self.role.limit_mib() << 20)?),
            Entrant::Collector(_) => None,
        };
        let command = match &group {
            Some(group) => group.inside(&command),
            None => command,
        };
        let mut process = Watched::start(&command, folder)?;
        until_ready(entrant, route, &mut process).await.with_context(|| format!("start {name}"))?;
        let began = Instant::now();
        let answers = load.send(&route.grpc.to_string()).await.with_context(|| format!("send to {name}"))?;
        let left = async || {
            process.check().with_context(|| format!("run {name}"))?;
            anyhow::Ok(load.spans.saturating_sub(stored().await?))
        };
        let stalled = |left: u64| {
            format!("{} of {} spans are stored, and no more in {STALL:?}", load.spans - left, load.spans)
        };
        until_none_is_left(STALL, left, stalled).await?;
        let wall = began.elapsed();
        let usage = process.end().await.with_context(|| format!("stop {name}"))?;
        Ok(Raced { wall, answers, usage })
    }

    async fn count_in(&self, topic: &Topic, place: &Place) -> Result<Stored> {
        let folder = create_folder(place.folder.join("count"))?;
        let file = folder.join("gateway.yaml");
        let name = &place.route.name;
        let orders =
            Orders { broker: HOST_ADDRESS, topic: name, group: name, sink: HOST_URL, database: name };
        gateway::write_config(&orders.config(), &file)?;
        let statements = gateway::table_statements(&self.gateway, &file)?;
        let sink = NullSink::start(Columns::of_table(&statements)?)?;
        let url = sink.url();
        gateway::write_config(&Orders { sink: &url, ..orders }.config(), &file)?;
        let mut process = Watched::start(&gateway::command(&self.gateway, &file), &folder)?;
        let read = until_committed(topic, name, STALL, || process.check()).await;
        read.context("count the spans of the topic")?;
        process.end().await?;
        Ok(sink.count(place.load.run, place.load.spans)?.stored)
    }
}

/// Waits until the process is ready. A gateway reports it; an edge then knows its topic. A Collector accepts connections.
async fn until_ready(entrant: &Entrant, route: &Route, process: &mut Watched) -> Result<()> {
    let began = Instant::now();
    loop {
        process.check()?;
        let is_ready = match entrant {
            Entrant::Gateway(_) => process.listening().is_ready().await,
            Entrant::Collector(_) => TcpStream::connect(route.grpc).await.is_ok(),
        };
        if is_ready {
            return Ok(());
        }
        ensure!(began.elapsed() < STALL, "it is not ready after {STALL:?}");
        tokio::time::sleep(LOOK).await;
    }
}
