//! The environment of one round: its own topic, table and group, a load, and gateways that are restarted when they end, as in Kubernetes.
//!
//! Job: what all courses need: start, wait for an observed state, settle and count. Place in the flow: a course calls it; it calls the
//! servers. Owner: the round. Limits: every wait has a deadline; the error of a missed deadline has the last state.

mod account;
mod ends;
mod load;
mod shards;
mod table;
mod waits;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::foreign_commit::{self, ForeignCommit};
use super::gateway::{Gateway, Orders};
use super::kafka_wire::Commit;
use super::report::{Ends, Round};
use super::second_shard::SecondShard;
use super::servers::Servers;
use super::small_volume::SmallVolume;
pub use account::IMBALANCE;
use e2e_fixtures::gateway;
use e2e_fixtures::letters::Letters;
use e2e_fixtures::oracle::{Database, Oracle};
use e2e_fixtures::pipeline::{TABLE, merged};
use e2e_fixtures::produce::{Compression, Producer, Sent, Topic};
use e2e_fixtures::spans::Run;
use e2e_stack::process::{Port, Signal, interrupt};
use load::Feeding;
pub use load::{INSERTS_BEFORE, SPANS_AFTER};

/// Partitions of a topic: a gateway has several, and three gateways have different numbers of them.
pub const PARTITIONS: i32 = 8;

/// Rows that close a block: five times the load of a partition in the interval that also closes it. So blocks of a backlog close by size,
/// and those of live spans by time.
const ROWS_MAX: u32 = 1_000;

const INTERVAL: &str = "300ms";

/// Longest time for one insert, for gateway and server: several times the longest time on a busy machine.
const INSERT_TIMEOUT: &str = "10s";

/// The example program: the gateway with the previous version's size rule.
pub const FORMER: &str = "former_rule";

/// How long a gateway may take to reach an expected state; on an idle machine it takes seconds.
pub const PATIENCE: Duration = Duration::from_mins(2);

/// How long a gateway may take to leave: more than the 50 s that it gives its blocks in flight.
const LEAVE_PATIENCE: Duration = Duration::from_secs(70);

/// Shortest time between two starts of the same gateway, so that a crash loop does not use up the machine.
const START_AGAIN: Duration = Duration::from_secs(1);

/// Servers and a program: what all rounds share.
pub struct Stage {
    /// Brokers, ClickHouse and their fronts.
    pub servers: Servers,
    pub program: PathBuf,
    /// A folder for configs and logs.
    pub folder: PathBuf,
    /// How long ClickHouse is unreachable in the long outage.
    pub outage: Duration,
}

impl Stage {
    /// The gateway with the previous version's size rule. cargo puts it among the examples beside the program.
    pub fn former_program(&self) -> Result<PathBuf> {
        let former = self.program.with_file_name("examples").join(FORMER);
        ensure!(
            former.is_file(),
            "{} is missing: cargo build -p sluice-gateway --example {FORMER}",
            former.display()
        );
        Ok(former)
    }
}

/// The counts that a course expects, and its measurements.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// Spans that are lost without the gateway's fault.
    pub lost: u64,
    /// Rows that must be there twice.
    pub doubled: u64,
    /// Messages that are never committed, because their partition has stopped.
    pub messages_left: i64,
    /// Expected exits of gateways, after which they are restarted.
    pub ends: Ends,
    /// Seconds from the end of the fault, or from the kill, to the first insert after it.
    pub recovery_s: Option<f64>,
    pub measures: Vec<(&'static str, f64)>,
}

/// The environment of one round.
pub struct Scene<'a> {
    /// The shared servers and settings.
    pub stage: &'a Stage,
    pub topic: Topic,
    pub producer: Producer,
    pub database: Database,
    /// Number of the round, from 0 on.
    pub round: u32,
    counted: &'static str,
    second_shard: Option<SecondShard>,
    group: String,
    config: PathBuf,
    /// The port on which gateways with `source.otlp` accept requests, one after another; `None` with `source.kafka`.
    otlp: Option<Port>,
    load: Option<Feeding>,
    sent: Sent,
    members: Vec<Member>,
    /// Exit codes of gateways that no scenario ended, and that were restarted.
    ends: Vec<i32>,
    /// A mounted file system for a gateway's queue volume; unmounted after the gateways have ended.
    small_volume: Option<SmallVolume>,
}

/// A gateway that is restarted when it ends.
struct Member {
    gateway: Gateway,
    started: Instant,
    is_retired: bool,
}

impl Member {
    fn start(orders: Orders) -> Result<Member> {
        Ok(Member { gateway: Gateway::start(orders)?, started: Instant::now(), is_retired: false })
    }
}

impl<'a> Scene<'a> {
    /// Makes topic, table and config; `change` is merged over the config. If that has `source.otlp`, the topic stays empty.
    pub async fn open(stage: &'a Stage, name: &str, round: u32, change: &Value) -> Result<Scene<'a>> {
        let servers = &stage.servers;
        let run = Run::fresh();
        let unique = format!("{name}-{round}-{:x}", run.id);
        let topic =
            Topic::create_replicated(&servers.kafka(), &unique, PARTITIONS, servers.brokers()).await?;
        let database = Database::create(&servers.server, &unique.replace('-', "_")).await?;
        let producer = Producer::new(&servers.kafka(), Compression::default(), run)?;
        let group = format!("{unique}-group");
        let config = stage.folder.join(format!("{unique}.yaml"));
        let accepts = change["source"]["otlp"].is_object();
        let scene = Scene {
            stage,
            topic,
            producer,
            database,
            round,
            counted: TABLE,
            second_shard: None,
            group,
            config,
            otlp: accepts.then(Port::hold).transpose()?,
            load: None,
            sent: Sent::default(),
            members: Vec::new(),
            ends: Vec::new(),
            small_volume: None,
        };
        let config = scene.write_config(&scene.config, change)?;
        for statement in gateway::table_statements(&stage.program, &config)? {
            servers.server.execute(&statement).await?;
        }
        Ok(scene)
    }

    fn write_config(&self, file: &Path, change: &Value) -> Result<PathBuf> {
        let servers = &self.stage.servers;
        let orders = gateway::Orders {
            broker: "",
            topic: self.topic.name(),
            group: &self.group,
            sink: &servers.sink.url(),
            database: self.database.name(),
        };
        let usual = json!({
            "source": {"kafka": {"bootstrapServers": servers.kafka_fronts()}},
            "sink": {"clickhouse": {"insert": {
                "maxRows": ROWS_MAX, "maxInterval": INTERVAL, "timeout": INSERT_TIMEOUT,
            }}},
        });
        gateway::write_config(&merged(&merged(&orders.config(), &usual), change), file)?;
        Ok(file.to_owned())
    }

    pub fn oracle(&self) -> Oracle {
        self.database.oracle(self.counted, self.producer.run())
    }

    /// Changes the config of gateways that are started from now on.
    pub fn reconfigure(&self, change: &Value) -> Result<()> {
        copy_config(&self.config, &self.config, change)
    }

    /// Changes the config of a gateway from its next start on.
    pub fn reconfigure_gateway(&self, number: usize, change: &Value) -> Result<()> {
        let config = &self.members[number].gateway.orders().config;
        copy_config(config, config, change)
    }

    /// Starts a gateway and keeps it running; with a member name it is a static member. Returns its number.
    pub fn start_gateway(&mut self, member: Option<&str>) -> Result<usize> {
        self.start_gateway_with(member, Vec::new())
    }

    /// As [`Self::start_gateway`], with more environment variables.
    pub fn start_gateway_with(
        &mut self,
        member: Option<&str>,
        environment: Vec<(String, PathBuf)>,
    ) -> Result<usize> {
        let orders = self.orders(member, environment)?;
        self.begin(orders)
    }

    /// Starts another program as a dynamic member and keeps it running. Returns its number.
    pub fn start_program(&mut self, program: PathBuf) -> Result<usize> {
        let orders = self.orders(None, Vec::new())?;
        self.begin(Orders { program, ..orders })
    }

    fn begin(&mut self, orders: Orders) -> Result<usize> {
        self.members.push(Member::start(orders)?);
        Ok(self.members.len() - 1)
    }

    /// The orders for the next gateway; writes its config.
    fn orders(&self, member: Option<&str>, environment: Vec<(String, PathBuf)>) -> Result<Orders> {
        let number = self.members.len();
        let config = self.config.with_extension(format!("{number}.yaml"));
        let (admin, queue) = (Arc::new(Port::hold()?), self.volume(number));
        std::fs::create_dir_all(&queue).with_context(|| format!("create {}", queue.display()))?;
        let mut own = json!({"admin": {"listen": admin.address()}, "queue": {"path": queue}});
        if let Some(port) = &self.otlp {
            own["source"] = json!({"otlp": {"listen": {"http": port.address()}}});
        }
        copy_config(&self.config, &config, &own)?;
        Ok(Orders {
            program: self.stage.program.clone(),
            log: config.with_extension("log"),
            config,
            member: member.map(str::to_owned),
            admin,
            environment,
        })
    }

    /// The folder of the queue volume of gateway `number`; the gateway need not have started.
    pub fn volume(&self, number: usize) -> PathBuf {
        self.config.with_extension(format!("{number}.queue"))
    }

    /// Mounts a file system of this many KiB on that folder, until the round ends.
    pub fn mount_volume(&mut self, number: usize, kib: u32) -> Result<()> {
        self.small_volume = Some(SmallVolume::mount(&self.volume(number), kib)?);
        Ok(())
    }

    pub fn gateway(&mut self, number: usize) -> &mut Gateway {
        &mut self.members[number].gateway
    }

    /// Kills a gateway, and restarts it as the same member.
    pub async fn restart(&mut self, number: usize) -> Result<()> {
        self.gateway(number).kill().await?;
        let member = self.gateway(number).orders().member.clone();
        self.start_again(number, member.as_deref())
    }

    /// Restarts a killed gateway, as the same member or as another.
    pub fn start_again(&mut self, number: usize, member: Option<&str>) -> Result<()> {
        let found = &mut self.members[number];
        let member = member.map(str::to_owned);
        let orders = Orders { member, ..found.gateway.orders().clone() };
        *found = Member::start(orders)?;
        Ok(())
    }

    /// The letters of its dead-letter topic, read with the config of a gateway.
    pub async fn letters(&mut self) -> Result<Letters> {
        let config = self.gateway(0).orders().config.clone();
        Letters::of(&self.topic, &self.stage.program, &config).await
    }

    /// Marks an ended gateway as retired: it is not restarted, and the end of the round does not check it.
    pub fn retire(&mut self, number: usize) -> Result<()> {
        let member = &mut self.members[number];
        ensure!(member.gateway.ended()?.is_some(), "gateway {number} has not ended");
        member.is_retired = true;
        Ok(())
    }

    pub async fn committed_messages(&self) -> Result<i64> {
        let all: i64 = self.topic.watermarks().await?.iter().map(|marks| marks.high).sum();
        Ok(all - self.topic.lag(&self.group).await?.messages)
    }

    /// Offsets that the group has committed, by partition.
    pub async fn committed(&self) -> Result<BTreeMap<i32, i64>> {
        Ok(self.topic.committed(&self.group).await?.into_iter().collect())
    }

    /// The commits of the group, by partition, with their plans.
    pub async fn plans(&self) -> Result<Vec<Commit>> {
        let topic = self.topic.name();
        let committed = self.topic.committed_with_metadata(&self.group).await?.into_iter();
        let commit =
            |(partition, offset, metadata)| Commit { topic: topic.to_owned(), partition, offset, metadata };
        Ok(committed.map(commit).collect())
    }

    /// Commits offsets for the group, as a client outside the group. The group must have no member.
    pub async fn commit_as_other(&self, commits: &[ForeignCommit]) -> Result<()> {
        let broker = self.stage.servers.kafka();
        foreign_commit::commit(&broker, &self.group, self.topic.name(), commits).await
    }

    /// Ends the load, waits until everything is inserted and accounted for, ends the gateways and counts.
    pub async fn settle(&mut self, expected: &Expected) -> Result<Round> {
        let began = Instant::now();
        let sent = self.stop_load().await?.clone();
        let mut failures = Vec::new();
        // What is not inserted by the deadline counts as lost, which is clearer than an error.
        if self.otlp.is_none() {
            failures.extend(self.wait_committed(expected.messages_left).await.err());
        }
        if expected.messages_left == 0 {
            failures.extend(self.wait_volumes_empty().await.err());
        }
        // Also if something is missing: the account then shows whether it was read.
        failures.extend(self.wait_at_rest().await.err());
        interrupt::check()?;
        let logs = self.logs();
        failures.extend(self.leave_all().await.err());
        failures.extend(ends::panics(&logs).err());
        let count = self.oracle().count(&sent).await?;
        let acked = sent.acked.count();
        let mut round = Round {
            spans: acked,
            lost: acked - count.unique_acked,
            lost_expected: expected.lost,
            doubled: count.rows - count.unique,
            doubled_expected: expected.doubled,
            recovery_s: expected.recovery_s,
            measures: expected.measures.clone(),
            ends: self.ends.clone(),
            ends_expected: expected.ends,
            settle_s: began.elapsed().as_secs_f64(),
            failures: failures.iter().map(|failure| format!("{failure:#}")).collect(),
        };
        if count.foreign > 0 {
            round.failures.push(format!("{} rows are of no span that was produced", count.foreign));
        }
        Ok(round)
    }

    /// Ends all gateways as Kubernetes does; each must exit with 0.
    async fn leave_all(&mut self) -> Result<()> {
        for member in self.members.iter_mut().filter(|member| !member.is_retired) {
            if member.gateway.ended()?.is_none() {
                member.gateway.signal(Signal::TERM)?;
            }
        }
        for mut member in std::mem::take(&mut self.members).into_iter().filter(|member| !member.is_retired) {
            let code = member.gateway.end_within(LEAVE_PATIENCE).await?;
            ensure!(code == 0, "a gateway ended with code {code}; see {}", member.gateway.log().display());
        }
        Ok(())
    }

    /// Ends what runs and removes topic, group and database.
    pub async fn close(mut self) -> Result<()> {
        self.members.clear();
        self.load = None;
        let removed = self.database.delete().await;
        let removed = match &self.otlp {
            // There is no group.
            Some(_) => removed,
            None => removed.and(self.topic.delete_group(&self.group).await),
        };
        let removed = removed.and(self.topic.delete_dead_letters().await);
        removed.and(self.topic.delete().await)
    }
}

/// Writes a config to another file, or to the same, with this change.
pub fn copy_config(from: &Path, to: &Path, change: &Value) -> Result<()> {
    let text = std::fs::read_to_string(from).context("read the config")?;
    let usual: Value = serde_json::from_str(&text).context("read the config as JSON")?;
    gateway::write_config(&merged(&usual, change), to)
}
