//! The gateway as a process of this machine, with its own topic and table: for tests of bytes, which need no Kubernetes.
//!
//! Limits: messages are produced one at a time; the process is killed at the end of the test.

use std::fs::{self, File};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use e2e_fixtures::gateway::{self, Listening, Orders};
use e2e_fixtures::letters::Letters;
use e2e_fixtures::oracle::{Database, Oracle, Server};
use e2e_stack::programs::{self, Form};
use rdkafka::ClientConfig;
use rdkafka::producer::{FutureProducer, FutureRecord};

use crate::environment::{self, Servers};
use crate::prelude::*;
use crate::turns::Turn;

/// Kafka's timestamp of every message, milliseconds: 2023-11-14 22:13:20 UTC.
pub const MESSAGE_MILLIS: i64 = 1_700_000_000_000;

/// How long a gateway may take to reach an expected state; on an idle machine it takes a few seconds.
const PATIENCE: Duration = Duration::from_mins(2);

/// Longest message, bytes.
const MESSAGE_BYTES_MAX: &str = "16777216";

/// This variable names a gateway program to use instead of the one that is compiled from this checkout.
const PROGRAM: &str = "SLUICE_GATEWAY_PROGRAM";

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
pub async fn run(test: &str, partitions: i32, body: impl AsyncFnOnce(&Stage) -> Result<()>) -> Result<()> {
    run_on(Uses::Servers.turn().await?, test, None, partitions, body).await
}

/// As [`Stage::run`], with another broker if one is given.
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

/// The gateway's program: the one that the variable names, or that of this checkout, which `cargo verify` has compiled for its image.
pub fn program() -> PathBuf {
    std::env::var_os(PROGRAM).map_or_else(|| programs::GATEWAY.file(Form::Checked), PathBuf::from)
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

    /// Starts a gateway in its own group and database, called `name`, with `delivery` in its config.
    pub async fn start(&self, name: &str, delivery: &Value) -> Result<Gateway> {
        self.start_with(name, &json!({"delivery": delivery})).await
    }

    /// As [`Self::start`], with any change of its config.
    pub async fn start_with(&self, name: &str, change: &Value) -> Result<Gateway> {
        let group = format!("{}-{name}", self.topic.name());
        let database = Database::create(&self.servers.server, &group.replace('-', "_")).await?;
        let made = (database.clone(), group.clone());
        self.made.lock().unwrap_or_else(PoisonError::into_inner).push(made);
        let (user, password) = (self.folder.join("user"), self.folder.join("password"));
        fs::write(&user, &self.servers.clickhouse.user).context("write the user's name")?;
        fs::write(&password, &self.servers.clickhouse.password).context("write the password")?;
        let orders = Orders {
            broker: &self.servers.kafka,
            topic: self.topic.name(),
            group: &group,
            sink: &self.servers.clickhouse.url,
            database: database.name(),
        };
        let own = json!({
            "pipeline": {"name": name},
            "sink": {"clickhouse": {"credentials": {"usernameFile": user, "passwordFile": password}}},
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
        let asked = Asked {
            program: self.program.clone(),
            config: file,
            table: format!("`{}`.`{TABLE}`", database.name()),
        };
        Ok(Gateway {
            child,
            listening,
            log,
            group,
            database,
            asked,
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

/// A running gateway. Killed when dropped.
pub struct Gateway {
    child: Child,
    listening: Listening,
    log: PathBuf,
    group: String,
    database: Database,
    asked: Asked,
    topic: Topic,
    server: Server,
}

/// A gateway's program, config and table, whether it runs or not.
#[derive(Clone)]
pub struct Asked {
    program: PathBuf,
    config: PathBuf,
    table: String,
}

/// The result of `sluice-gateway audit`.
pub struct Audited {
    /// Its exit code.
    pub code: Option<i32>,
    /// The report; null if there is none.
    pub report: Value,
}

impl Asked {
    /// Runs `audit` with these arguments.
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
}

impl Gateway {
    /// Runs `audit` with these arguments on its topic and table.
    pub async fn audit(&self, arguments: &[&str]) -> Result<Audited> {
        self.asked.audit(arguments).await
    }

    /// The letters of its topic.
    pub async fn letters(&self) -> Result<Letters> {
        Letters::of(&self.topic, &self.asked.program, &self.asked.config).await
    }

    /// Runs a statement in which `{table}` is its table.
    pub async fn execute(&self, statement: &str) -> Result<()> {
        self.server.execute(&statement.replace("{table}", &self.asked.table)).await
    }

    /// Ends it; its group and its table stay.
    pub async fn end(self) -> Result<Asked> {
        let asked = self.asked.clone();
        self.stop().await?;
        Ok(asked)
    }

    /// Waits until it has committed all but this many messages.
    pub async fn wait_lag(&self, messages: i64) -> Result<()> {
        until(&format!("group {} with {messages} messages left", self.group), PATIENCE, async || {
            let lag = self.topic.lag(&self.group).await?;
            Ok(Seen::when(lag.messages == messages, || format!("{lag:?}")))
        })
        .await
        .with_context(|| format!("see {}", self.log.display()))
    }

    /// The oracle that counts the spans of `run` in its table.
    pub fn oracle(&self, run: Run) -> Oracle {
        self.database.oracle(TABLE, run)
    }

    /// The result of `SELECT {expressions} FROM` its table `{tail}`: one list of texts a row.
    pub async fn select(&self, expressions: &str, tail: &str) -> Result<Vec<Vec<Value>>> {
        let query = format!("SELECT {expressions} FROM `{}`.`{TABLE}` {tail}", self.database.name());
        let text = self.server.text(&query, "JSONCompactEachRow").await?;
        text.lines().map(|line| serde_json::from_str(line).context("understand the answer")).collect()
    }

    /// The value of a metric, by its name with labels as `/metrics` prints it; `None` if there is no such series.
    pub async fn metric(&self, name: &str) -> Result<Option<f64>> {
        let text = self.listening.metrics_text().await.context("it does not tell its metrics")?;
        Ok(gateway::metric(&text, name))
    }

    /// Waits until a metric has this value.
    pub async fn wait_metric(&self, name: &str, value: f64) -> Result<()> {
        until(&format!("metric {name} = {value}"), PATIENCE, async || {
            let found = self.metric(name).await?;
            let there = found.is_some_and(|found| (found - value).abs() < f64::EPSILON);
            Ok(Seen::when(there, || format!("{found:?}")))
        })
        .await
        .with_context(|| format!("see {}", self.log.display()))
    }

    /// Waits until there is no series of this name.
    pub async fn wait_no_metric(&self, name: &str) -> Result<()> {
        until(&format!("no metric {name}"), PATIENCE, async || {
            let found = self.metric(name).await?;
            Ok(found.map_or(Seen::Done(()), |found| Seen::NotYet(found.to_string())))
        })
        .await
        .with_context(|| format!("see {}", self.log.display()))
    }

    /// The lines of its log, each an object.
    pub fn log_lines(&self) -> Result<Vec<Value>> {
        let text = fs::read_to_string(&self.log).context("read the gateway's log")?;
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    /// Ends it as Kubernetes does.
    pub async fn stop(mut self) -> Result<()> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).context("send SIGTERM")?;
        let ended = until("end of the gateway", PATIENCE, async || {
            let status = self.child.try_wait().context("look for the gateway")?;
            Ok(status.map_or(Seen::NotYet("it runs".to_owned()), Seen::Done))
        });
        let status = ended.await?;
        ensure!(status.success(), "the gateway ended with {status}; see {}", self.log.display());
        Ok(())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) && self.child.kill().is_ok() {
            self.child.wait().ok();
        }
    }
}
