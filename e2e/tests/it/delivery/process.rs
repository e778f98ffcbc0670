//! The gateway as a process of this machine, with its own topic and table: for tests of bytes, which need no Kubernetes.
//!
//! Limits: messages are produced one at a time; the process is killed at the end of the test.

use std::fs::File;
use std::sync::{Mutex, PoisonError};

use e2e_fixtures::gateway::{self, Listening, Orders};
use e2e_fixtures::letters::Letters;
use e2e_stack::programs;
use rdkafka::ClientConfig;
use rdkafka::producer::{FutureProducer, FutureRecord};
use sluice_gateway_config::UnfetchedCause;

use crate::environment::{self, Servers};
use crate::prelude::*;
use crate::turns::Turn;

/// Kafka's timestamp of every message, milliseconds: 2023-11-14 22:13:20 UTC.
pub const MESSAGE_MILLIS: i64 = 1_700_000_000_000;

/// How long a gateway may take to reach an expected state; on an idle machine it takes a few seconds.
const PATIENCE: Duration = Duration::from_mins(2);

/// Longest message, bytes.
const MESSAGE_BYTES_MAX: &str = "16777216";

/// Number of stages that this process has opened, so that each has its own names.
static OPENED: AtomicU32 = AtomicU32::new(0);

/// A topic and a server, and the names of what a test makes there.
pub struct Stage {
    pub topic: Topic,
    servers: Servers,
    program: PathBuf,
    folder: PathBuf,
    producer: FutureProducer,
    /// The databases and groups of the gateways, which are always removed.
    made: Mutex<Vec<(Database, String)>>,
}

/// Runs `body` on a new stage and removes everything; keeps the gateways' logs if it fails.
pub fn run(test: &str, partitions: i32, body: impl AsyncFnOnce(&Stage) -> Result<()>) -> Result<()> {
    block_on(async { run_on(Uses::Servers.turn().await?, test, None, partitions, body).await })
}

/// As [`run`], with another broker if one is given.
pub async fn run_on(
    turn: Turn,
    test: &str,
    broker: Option<&str>,
    partitions: i32,
    body: impl AsyncFnOnce(&Stage) -> Result<()>,
) -> Result<()> {
    let mut servers = environment::servers().await?;
    if let Some(broker) = broker {
        broker.clone_into(&mut servers.kafka);
    }
    let number = OPENED.fetch_add(1, Ordering::Relaxed);
    let name = format!("e2e-{}-{:x}-{number}", test.replace('_', "-"), std::process::id());
    let folder = files::temporary(&name)?;
    let producer = ClientConfig::new()
        .set("bootstrap.servers", &servers.kafka)
        .set("enable.idempotence", "true")
        .set("message.max.bytes", MESSAGE_BYTES_MAX)
        .create()
        .context("make a producer")?;
    // First, because what is made before a failure here is not removed.
    let program = program();
    let topic = Topic::create(&servers.kafka, &name, partitions).await?;
    let stage = Stage { topic, servers, program, folder, producer, made: Mutex::default() };
    let outcome = body(&stage).await;
    if let Err(error) = &outcome {
        turn.failed(&format!("{error:#}"));
        say::progress(test, &format!("what the gateways said is in {}", stage.folder.display()));
    }
    let removed = stage.remove(outcome.is_ok()).await;
    outcome.and(removed)
}

pub fn program() -> PathBuf {
    environment::program("SLUICE_GATEWAY_PROGRAM", programs::GATEWAY)
}

impl Stage {
    /// Removes everything; files only if `with_files`. Continues after a failure and returns the first.
    async fn remove(self, with_files: bool) -> Result<()> {
        let made = self.made.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut removed = Ok(());
        for (database, group) in made {
            removed = removed.and(database.delete().await);
            removed = removed.and(self.topic.delete_group(&group).await);
        }
        removed = removed.and(self.topic.delete_dead_letters().await);
        removed = removed.and(self.topic.delete().await);
        if with_files {
            removed = removed.and(fs::remove_dir_all(&self.folder).context("remove the gateways' files"));
        }
        removed.context("remove what the test made")
    }

    /// `host:port` of the broker.
    pub fn kafka(&self) -> &str {
        &self.servers.kafka
    }

    /// Produces one message and returns its offset; `None` for a message without a value.
    pub async fn send(&self, partition: i32, value: Option<&[u8]>) -> Result<i64> {
        self.send_at(MESSAGE_MILLIS, partition, value).await
    }

    /// As [`Self::send`], with this timestamp; -1 for none.
    pub async fn send_at(&self, millis: i64, partition: i32, value: Option<&[u8]>) -> Result<i64> {
        let mut record = FutureRecord::<(), [u8]>::to(self.topic.name()).partition(partition);
        record.payload = value;
        record.timestamp = Some(millis);
        let sent = self.producer.send(record, Duration::from_secs(30)).await;
        let delivery = sent.map_err(|(error, _)| error).context("produce a message")?;
        Ok(delivery.offset)
    }

    /// The consumer group of the gateway called `name`.
    pub fn group(&self, name: &str) -> String {
        format!("{}-{name}", self.topic.name())
    }

    /// Starts a gateway in its own group and database, called `name`, with `change` merged over its config.
    pub async fn start(&self, name: &str, change: &Value) -> Result<Gateway> {
        let group = self.group(name);
        let database = Database::create(&self.servers.server, &group.replace('-', "_")).await?;
        let made = (database.clone(), group.clone());
        self.made.lock().unwrap_or_else(PoisonError::into_inner).push(made);
        let orders = Orders {
            broker: &self.servers.kafka,
            topic: self.topic.name(),
            group: &group,
            sink: &self.servers.clickhouse.url,
            database: database.name(),
        };
        let own = json!({
            "pipeline": {"name": name},
            "sink": {"clickhouse": {"credentials": self.servers.credentials(&self.folder)?}},
            "log": {"format": "Json"},
        });
        let file = self.folder.join(format!("{name}.yaml"));
        gateway::write_config(&merged(&merged(&orders.config(), &own), change), &file)?;
        self.make_table(&file, &database).await?;
        let log = self.folder.join(format!("{name}.log"));
        let out = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        let listening = Listening::of(&log);
        let too = out.try_clone().context("open the log twice")?;
        let mut command = gateway::command(&self.program, &file);
        let child =
            command.stdin(Stdio::null()).stdout(out).stderr(too).spawn().context("start the gateway")?;
        Ok(Gateway {
            child,
            listening,
            log,
            group,
            database,
            program: self.program.clone(),
            config: file,
            topic: self.topic.clone(),
            server: self.servers.server.clone(),
        })
    }

    async fn make_table(&self, config: &Path, database: &Database) -> Result<()> {
        for statement in gateway::table_statements(&self.program, config)? {
            ensure!(statement.contains(database.name()), "a statement is of another database: {statement}");
            self.servers.server.execute(&statement).await?;
        }
        Ok(())
    }
}

/// A gateway. Killed when dropped.
pub struct Gateway {
    child: Child,
    listening: Listening,
    log: PathBuf,
    group: String,
    database: Database,
    program: PathBuf,
    config: PathBuf,
    topic: Topic,
    server: Server,
}

/// The result of `sluice-gateway audit`.
pub struct Audited {
    pub code: Option<i32>,
    /// The report; null if there is none.
    pub report: Value,
}

impl Gateway {
    /// Runs `audit` with these arguments on its topic and table, also after its end.
    pub async fn audit(&self, arguments: &[&str]) -> Result<Audited> {
        let mut command = tokio::process::Command::new(&self.program);
        command.args(["audit", "--json", "--config"]).arg(&self.config).args(arguments);
        let output = command.kill_on_drop(true).output().await.context("run the audit")?;
        let said = String::from_utf8_lossy(&output.stdout);
        let report = match said.trim() {
            "" => Value::Null,
            text => serde_json::from_str(text).with_context(|| format!("understand {text}"))?,
        };
        if !output.status.success() {
            say::progress("audit", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(Audited { code: output.status.code(), report })
    }

    pub async fn letters(&self) -> Result<Letters> {
        Letters::of(&self.topic, &self.program, &self.config).await
    }

    /// Runs a statement in which `{table}` is its table.
    pub async fn execute(&self, statement: &str) -> Result<()> {
        self.server.execute(&statement.replace("{table}", &self.table())).await
    }

    fn table(&self) -> String {
        format!("`{}`.`{TABLE}`", self.database.name())
    }

    /// Waits until it has committed all but this many messages.
    pub async fn wait_lag(&self, messages: i64) -> Result<()> {
        self.wait(&format!("{messages} messages left"), async || {
            let lag = self.topic.lag(&self.group).await?;
            Ok(Seen::when(lag.messages == messages, || format!("{lag:?}")))
        })
        .await
    }

    async fn wait(&self, what: &str, look: impl AsyncFnMut() -> Result<Seen<()>>) -> Result<()> {
        let waited = until(&format!("group {} with {what}", self.group), PATIENCE, look).await;
        waited.with_context(|| format!("see {}", self.log.display()))
    }

    pub fn oracle(&self, run: Run) -> Oracle {
        self.database.oracle(TABLE, run)
    }

    /// The result of `SELECT {expressions} FROM` its table `{tail}`: one list of texts a row.
    pub async fn select(&self, expressions: &str, tail: &str) -> Result<Vec<Vec<Value>>> {
        let query = format!("SELECT {expressions} FROM {} {tail}", self.table());
        let text = self.server.text(&query, "JSONCompactEachRow").await?;
        text.lines().map(|line| serde_json::from_str(line).context("understand the answer")).collect()
    }

    /// The value of a metric, by its name with labels as `/metrics` prints it; `None` if there is no such series.
    pub async fn metric(&self, name: &str) -> Result<Option<f64>> {
        let text = self.listening.metrics_text().await.context("it does not tell its metrics")?;
        Ok(gateway::metric(&text, name))
    }

    /// Waits until a metric has this value, or until there is no series of this name.
    pub async fn wait_metric(&self, name: &str, value: Option<f64>) -> Result<()> {
        self.wait(&format!("metric {name} = {value:?}"), async || {
            let found = self.metric(name).await?;
            Ok(Seen::when(found == value, || format!("{found:?}")))
        })
        .await
    }

    /// Waits until its state names why messages are not fetched, and the topic; or that all are fetched.
    pub async fn wait_unfetched(&self, expected: Option<(UnfetchedCause, Option<&str>)>) -> Result<()> {
        self.wait(&format!("unfetched = {expected:?}"), async || {
            let Some(state) = self.listening.state().await? else {
                return Ok(Seen::NotYet("it does not answer".to_owned()));
            };
            let found = state.sample.unfetched;
            let said = found.as_ref().map(|found| (found.cause, found.topic.as_deref()));
            Ok(Seen::when(said == expected, || format!("{found:?}")))
        })
        .await
    }

    /// The lines of its log, each an object.
    pub fn log_lines(&self) -> Result<Vec<Value>> {
        let text = fs::read_to_string(&self.log).context("read the gateway's log")?;
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    /// As [`Self::end`], for a gateway that the test no longer asks.
    pub async fn stop(self) -> Result<()> {
        self.end().await.map(drop)
    }

    /// Ends it as Kubernetes does; its group and its table stay.
    pub async fn end(mut self) -> Result<Gateway> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).context("send SIGTERM")?;
        let ended = until("end of the gateway", PATIENCE, async || {
            let status = self.child.try_wait().context("look for the gateway")?;
            Ok(status.map_or(Seen::NotYet("it runs".to_owned()), Seen::Done))
        });
        let status = ended.await?;
        ensure!(status.success(), "the gateway ended with {status}; see {}", self.log.display());
        Ok(self)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) && self.child.kill().is_ok() {
            self.child.wait().ok();
        }
    }
}
