//! One case from its start to its end.
//!
//! ```text
//! ClickHouse, database, topic made -> process started -> spans at the rate -> all committed -> SIGTERM -> merges quiet -> logs -> queries
//! ```

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::account::{Account, DATABASE, Stored};
use super::case::{Case, Program};
use super::quiet::until_quiet;
use super::report::{Bill, Measured, Outcome};
use super::servers::{Broker, CaseServer};
use crate::collector;
use crate::schema_bench::Table;
use crate::throughput::witness::{Usage, Watched};
use crate::waiting::until_committed;
use e2e_fixtures::gateway::{self, Orders};
use e2e_fixtures::produce::{Compression, Feed, Load, Producer, Topic};
use e2e_fixtures::spans::{Encoding, Run};
use e2e_stack::paths::create_folder;
use e2e_stack::process::interrupt;
use e2e_stack::say;

/// Time between two checks of the load.
const LOOK: Duration = Duration::from_millis(500);

/// Time between two progress lines.
const SAID: Duration = Duration::from_mins(1);

/// A case whose lag does not change for this long has failed. Chosen: longer than a rebalance (45 s) and than any block stays open (60 s).
const STALL: Duration = Duration::from_mins(3);

/// The load of each case, and how long to wait.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub spans: u64,
    pub spans_per_second: u64,
    pub partitions: i32,
    /// Time without a merge after which merges are quiet.
    pub quiet: Duration,
    /// Longest wait for that.
    pub quiet_max: Duration,
    /// Runs of each query.
    pub times: u32,
}

pub struct Course {
    pub gateway: PathBuf,
    /// The Collector's program, if it is measured.
    pub collector: Option<PathBuf>,
    /// A folder for configs, logs and data.
    pub folder: PathBuf,
    pub broker: Broker,
    /// The run of the spans: the same for all cases, so that all insert the same.
    pub run: Run,
    pub plan: Plan,
}

/// A case, with what is made for it.
struct Scene<'a> {
    case: &'a Case,
    server: &'a CaseServer,
    topic: &'a Topic,
    folder: &'a Path,
}

/// What a program used until all spans were committed.
struct Inserted {
    usage: Usage,
    time: Duration,
}

impl Course {
    /// Runs a case with a server and a topic of its own, which are removed.
    pub async fn run(&self, case: &Case) -> Result<Outcome> {
        let name = case.name();
        let folder = create_folder(self.folder.join(&name))?;
        say::progress(&name, &case.describe());
        let server = CaseServer::start(&folder.join("clickhouse")).await?;
        let topic = format!("sluice-bill-{name}");
        let topic = Topic::create(&self.broker.address(), &topic, self.plan.partitions).await?;
        let scene = Scene { case, server: &server, topic: &topic, folder: &folder };
        let outcome = self.measure(&scene).await;
        // What was measured stays valid, and the command removes the broker with all topics.
        if let Err(error) = topic.delete().await {
            say::error(&format!("cannot remove the topic {}: {error:#}", topic.name()));
        }
        outcome
    }

    async fn measure(&self, scene: &Scene<'_>) -> Result<Outcome> {
        let Scene { case, server, .. } = *scene;
        let (name, plan) = (case.name(), self.plan);
        let config = self.write_config(scene)?;
        let (command, statements) = self.program(case, &config)?;
        let table = Table::create(&server.client, DATABASE, &statements).await?;
        let before = server.reading()?;
        let inserted = self.insert(scene, &command).await?;
        let seconds = inserted.time.as_secs_f64();
        say::progress(&name, &format!("all committed after {seconds:.0} s; waiting for merges"));
        let ended = until_quiet(&name, (&table, server), (plan.quiet, plan.quiet_max)).await?;
        let account = Account::read(&server.client, &table, ended.read_at_us).await?;
        say::progress(&name, "queries");
        let questions = table.ask(&case.variant(), case.questions(), plan.times).await?;
        // Behind the queries, whose time must not depend on what it has read.
        let mut failures = Stored::count(&table).await?.failures(plan.spans);
        if inserted.usage.exit_code != 0 {
            failures.push(format!("the program exited with code {}", inserted.usage.exit_code));
        }
        if !ended.is_quiet {
            let most = plan.quiet_max;
            failures.push(format!("merges were not quiet within {most:?}: the bill is too low"));
        }
        if account.insert_cpu_us == 0 {
            failures.push("the server's log has no INSERT with CPU time".to_owned());
        }
        let bill = Bill::new(&Measured {
            spans: plan.spans,
            time: inserted.time,
            program: inserted.usage,
            server_cpu_us: ended.reading.cpu_us.saturating_sub(before.cpu_us + account.look_cpu_us),
            server_peak_bytes: ended.reading.peak_bytes,
            account,
            questions,
        });
        Ok(Outcome { case: name, bill: Some(bill), failures })
    }

    fn write_config(&self, Scene { case, server, topic, folder }: &Scene<'_>) -> Result<PathBuf> {
        let (broker, sink, topic) = (self.broker.address(), server.url(), topic.name());
        let orders = Orders { broker: &broker, topic, group: topic, sink: &sink, database: DATABASE };
        let file = folder.join("program.yaml");
        gateway::write_config(&case.config(&orders, self.plan.partitions), &file)?;
        Ok(file)
    }

    /// The command of a case's program, and the statements that make its table. The Collector makes its own.
    fn program(&self, case: &Case, config: &Path) -> Result<(Command, Vec<String>)> {
        Ok(match case.program {
            Program::Gateway(_) => {
                let statements = gateway::table_statements(&self.gateway, config)?;
                (gateway::command(&self.gateway, config), statements)
            }
            Program::Collector(_) => {
                let program = self.collector.as_deref().context("there is no Collector to measure")?;
                (collector::command(program, config), Vec::new())
            }
        })
    }

    /// Runs the program while spans are produced at the rate, until its group has committed all of them.
    async fn insert(&self, scene: &Scene<'_>, command: &Command) -> Result<Inserted> {
        let Scene { case, server, topic, folder } = *scene;
        let (name, plan) = (case.name(), self.plan);
        let producer = Producer::new(&self.broker.address(), Compression::Zstd, self.run)?;
        let feed = Feed {
            topic: topic.name().to_owned(),
            partitions: plan.partitions,
            shape: case.shape,
            encoding: Encoding::OtlpProto,
            spans_per_second: Some(plan.spans_per_second),
        };
        let mut process = Watched::start(command, folder)?;
        let load = Load::start_numbers(&producer, feed, 0..plan.spans);
        let (began, mut said) = (Instant::now(), Instant::now());
        while !load.is_finished() {
            interrupt::check()?;
            process.check()?;
            server.reading()?;
            if said.elapsed() >= SAID {
                said = Instant::now();
                say::progress(&name, &format!("{} of {} spans are in Kafka", load.acked(), plan.spans));
            }
            tokio::time::sleep(LOOK).await;
        }
        let sent = load.stop().await?;
        let (acked, failure) = (sent.acked.count(), sent.failure.as_deref().unwrap_or("no failure"));
        ensure!(acked == plan.spans, "the broker took {acked} of {} spans: {failure}", plan.spans);
        // The group has the topic's name.
        let check = || process.check().and_then(|()| server.reading().map(drop));
        until_committed(topic, topic.name(), STALL, check).await?;
        let time = began.elapsed();
        Ok(Inserted { usage: process.end().await?, time })
    }
}
