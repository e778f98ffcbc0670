//! One topic that all runs read, and a run from its start to its end.
//!
//! ```text
//! sink made -> process started -> group has committed the end of every partition -> SIGTERM -> usage -> rows counted
//! ```

mod spooled;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::entrant::{Entrant, Route, table_statements};
use super::report::{Arrived, RunReport};
use super::rows::Columns;
use super::server::{Engine, Sink};
use super::sink::{NullSink, Sent};
use super::tally::Stored;
use super::threads::{ThreadTime, Threads};
use super::witness::{Usage, Watched};
use crate::waiting::{LOOK, STALL, until_none_is_left};
use e2e_fixtures::cluster::metric_sum;
use e2e_fixtures::gateway::Listening;
use e2e_fixtures::produce::{self, Compression, Feed, Producer, Topic};
use e2e_fixtures::spans::{Encoding, Run, Shape};
use e2e_stack::kafka::HOST_ADDRESS;
use e2e_stack::paths::{create_folder, remove_folder};
use e2e_stack::process::interrupt;
use e2e_stack::say;

/// Time between two progress lines while the topic is filled.
const FILL_SAID: Duration = Duration::from_secs(5);

/// Where a run's rows go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// To the null sink of this package.
    NullSink,
    /// To the server, into a table of this engine.
    Server(Engine),
}

/// What a run waits for before SIGTERM.
#[derive(Clone, Copy, Debug)]
enum Goal {
    /// The group has committed the end of every partition.
    Committed,
    /// This many spans were read: nothing is committed while the sink refuses.
    Read(u64),
}

/// What a process used until it was done, and until its end.
struct Raced {
    wall: Duration,
    usage: Usage,
    threads: Vec<ThreadTime>,
    /// The metrics of a gateway with a queue volume when it was done.
    metrics: Option<String>,
    /// Whether its exit code is the expected one.
    ended_well: bool,
}

/// The folder, group, route and sink of one run.
struct Place {
    folder: PathBuf,
    route: Route,
    statements: Vec<String>,
    sink: Option<NullSink>,
}

/// A topic full of spans.
pub struct Course {
    gateway: PathBuf,
    folder: PathBuf,
    topic: Topic,
    run: Run,
    encoding: Encoding,
    sent: produce::Sent,
    groups: Vec<String>,
}

impl Course {
    /// Makes the topic and produces `spans` spans into it, with zstd.
    pub async fn lay(
        gateway: &Path,
        (shape, encoding): (Shape, Encoding),
        spans: u64,
        partitions: i32,
    ) -> Result<Course> {
        let run = Run::fresh();
        let name = format!("sluice-throughput-{:x}", run.id);
        let folder = create_folder(std::env::temp_dir().join(&name))?;
        let topic = Topic::create(HOST_ADDRESS, &name, partitions).await?;
        let gateway = gateway.to_owned();
        let mut course = Course {
            gateway,
            folder,
            topic,
            run,
            encoding,
            sent: produce::Sent::default(),
            groups: Vec::new(),
        };
        match course.fill(shape, spans).await {
            Ok(()) => Ok(course),
            Err(error) => {
                course.remove(true).await.ok();
                Err(error)
            }
        }
    }

    async fn fill(&mut self, shape: Shape, spans: u64) -> Result<()> {
        say::progress("topic", &format!("{spans} spans to {}", self.topic.name()));
        let producer = Producer::new(HOST_ADDRESS, Compression::Zstd, self.run)?;
        let (topic, partitions) = (self.topic.name().to_owned(), self.topic.partitions());
        let feed = Feed { topic, partitions, shape, encoding: self.encoding, spans_per_second: None };
        let load = produce::Load::start_numbers(&producer, feed, 0..spans);
        let mut said = Instant::now();
        while !load.is_finished() {
            interrupt::check()?;
            if said.elapsed() >= FILL_SAID {
                said = Instant::now();
                say::progress("topic", &format!("{} of {spans} spans", load.acked()));
            }
            tokio::time::sleep(LOOK).await;
        }
        self.sent = load.stop().await?;
        let (acked, failure) =
            (self.sent.acked.count(), self.sent.failure.as_deref().unwrap_or("no failure"));
        ensure!(acked == spans, "the broker took {acked} of {spans} spans: {failure}");
        let (messages, bytes) = (self.sent.messages, self.sent.bytes);
        say::progress("topic", &format!("{messages} messages, {} MiB before zstd", bytes >> 20));
        Ok(())
    }

    /// One run of an entrant over the whole topic.
    pub async fn run(&mut self, entrant: &Entrant, finish: Finish) -> Result<RunReport> {
        let mut place = self.place(entrant, finish, false)?;
        let spans = self.spans();
        let (raced, arrived) = match finish {
            Finish::NullSink => {
                let sink = Self::null_sink(&mut place)?;
                let raced = self.race(entrant, &place, Goal::Committed).await?;
                (raced, self.counted(&sink)?)
            }
            Finish::Server(engine) => {
                let sink = Sink::create(&place.route.database, &place.statements, engine).await?;
                let outcome = self.race_and_ask(entrant, &place, &sink).await;
                sink.delete().await;
                outcome?
            }
        };
        let mut report =
            RunReport::new(entrant.name(), spans, raced.wall.as_secs_f64(), raced.usage, arrived);
        report.threads = raced.threads;
        report.layout = entrant.told_layout();
        report.ended_well = raced.ended_well;
        if let Finish::Server(engine) = finish {
            report.engine = Some(engine.name());
        }
        Ok(report)
    }

    fn spans(&self) -> u64 {
        self.sent.acked.count()
    }

    /// A new folder, group and route for a run.
    fn place(&mut self, entrant: &Entrant, finish: Finish, with_volume: bool) -> Result<Place> {
        let number = self.groups.len();
        let group = format!("{}-{number}", self.topic.name());
        self.groups.push(group.clone());
        let folder = create_folder(self.folder.join(number.to_string()))?;
        let route = Route {
            topic: self.topic.name().to_owned(),
            partitions: self.topic.partitions(),
            group,
            encoding: self.encoding,
            sink: e2e_stack::clickhouse::HOST_URL.to_owned(),
            database: format!("sluice_throughput_{:x}_{number}", self.run.id),
            layout: entrant.layout(),
            engine: match finish {
                Finish::NullSink => Engine::Null.name(),
                Finish::Server(engine) => engine.name(),
            },
            volume: with_volume.then(|| create_folder(folder.join("queue"))).transpose()?,
        };
        let statements = table_statements(&self.gateway, &route, &folder)?;
        Ok(Place { folder, route, statements, sink: None })
    }

    /// The null sink of a run; started if it does not run yet.
    fn null_sink(place: &mut Place) -> Result<NullSink> {
        if let Some(sink) = place.sink.take() {
            return Ok(sink);
        }
        let sink = NullSink::start(Columns::of_table(&place.statements)?)?;
        place.route.sink = sink.url();
        Ok(sink)
    }

    async fn race_and_ask(&self, entrant: &Entrant, place: &Place, sink: &Sink) -> Result<(Raced, Arrived)> {
        let raced = self.race(entrant, place, Goal::Committed).await?;
        Ok((raced, sink.arrived(self.run, &self.sent, place.route.layout).await?))
    }

    /// Runs the process until it is done; returns how long that took and what it used.
    async fn race(&self, entrant: &Entrant, place: &Place, goal: Goal) -> Result<Raced> {
        let (name, Place { folder, route, .. }) = (entrant.name(), place);
        say::progress(name, &format!("reads {} into {}", route.topic, route.sink));
        let command = entrant.command(route, folder)?;
        let mut process = Watched::start(&command, folder)?;
        let mut threads = Threads::default();
        let left = async || {
            process.check().with_context(|| format!("run {name}"))?;
            let left = self.left(route, goal, process.listening()).await?;
            threads.look(process.id());
            anyhow::Ok(left)
        };
        let stalled = |left: u64| {
            format!("{name} is {left} behind and did not move for {STALL:?}; see {}", folder.display())
        };
        until_none_is_left(STALL, left, stalled).await?;
        let wall = process.elapsed();
        let metrics = match &route.volume {
            Some(_) => process.listening().metrics_text().await,
            None => None,
        };
        let usage = process.end().await.with_context(|| format!("stop {name}"))?;
        // If the sink refuses, the gateway exits with 1, because some rows are not inserted.
        let ended_well = matches!(goal, Goal::Read(_)) || entrant.ends_well(usage.exit_code);
        if !ended_well {
            say::error(&format!("{name} had committed everything, but exited with code {}", usage.exit_code));
        }
        Ok(Raced { wall, usage, threads: threads.by_name(), metrics, ended_well })
    }

    /// Messages or spans that are left for a run.
    async fn left(&self, route: &Route, goal: Goal, listening: &Listening) -> Result<u64> {
        match goal {
            Goal::Committed => Ok(self.topic.lag(&route.group).await?.messages.unsigned_abs()),
            Goal::Read(spans) => {
                // A process that does not answer yet has read nothing.
                let text = listening.metrics_text().await.unwrap_or_default();
                let read = metric_sum(&text, "sluice_gateway_spans_total").map_or(0, spooled::whole);
                Ok(spans.saturating_sub(read))
            }
        }
    }

    fn counted(&self, sink: &NullSink) -> Result<Arrived> {
        let Sent { format, bytes, stored } = sink.count(self.run, self.sent.acked.count())?;
        let Stored { rows, lost, doubled, foreign } = stored;
        if foreign > 0 {
            say::error(&format!("{foreign} rows are of no span that was produced"));
        }
        let (lost, doubled, foreign) = (Some(lost), Some(doubled), Some(foreign));
        Ok(Arrived { format, rows, lost, doubled, foreign, bytes, server_cpu_us: None })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Removes topic and groups; files only if `with_files`. Continues after a failure and returns the first.
    pub async fn remove(self, with_files: bool) -> Result<()> {
        let mut removed = Ok(());
        for group in &self.groups {
            removed = removed.and(self.topic.delete_group(group).await);
        }
        removed = removed.and(self.topic.delete().await);
        if with_files {
            removed = removed.and(remove_folder(&self.folder));
        }
        removed
    }
}
