//! The program as a process between a real Kafka and a real `ClickHouse`: its exit codes, how soon it finds added partitions, and what
//! continues while one of two servers is away.

use crate::{
    broker::{MESSAGE_BYTES_MAX, Topic},
    front::Front,
    messages::{attribute, message, span, string},
    server::Database,
};
use rustix::process::{Pid, Signal, kill_process};
use sluice_gateway::exit_codes::EXIT_UNAVAILABLE;
use sluice_gateway_config::{
    ByteSize, Duration as Limit, GatewayConfig, LogFormat, QueueMode, SESSION_SECONDS, Schema, parse,
};
use std::{
    fs::{self, File},
    os::unix::process::ExitStatusExt as _,
    path::PathBuf,
    process::{Child, Command},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::sleep,
};

/// How long a gateway may take to do what is waited for; it takes seconds on an idle machine.
const PATIENCE: Duration = Duration::from_mins(2);
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// Rows of each message.
const ROWS: u32 = 2;

/// How soon partitions are found that are added to a topic (DELIVERY.md).
const FOUND_WITHIN: Duration = Duration::from_secs(10);
/// How long the group may take to give them to its member. Chosen: it takes under a second, and the machine may be busy.
const GIVEN_WITHIN: Duration = Duration::from_secs(4);

/// An address where no server listens.
const AWAY: &str = "http://127.0.0.1:1";

const PARTITIONS_OWNED: &str = "sluice_gateway_partitions_owned";
const SPANS_READ: &str = "sluice_gateway_spans_total";

/// A topic, and a table in a server.
pub struct Scene {
    pub topic: Topic,
    pub database: Database,
    folder: PathBuf,
    /// Number of gateways that were started. Each has files of its own.
    started: AtomicU32,
}

impl Scene {
    async fn open(test: &str, partitions: i32) -> Self {
        Self::of(Topic::create(test, partitions).await, test).await
    }

    pub async fn of(topic: Topic, test: &str) -> Self {
        let database = Database::new(test).await;
        database.with_table().await;
        let folder = std::env::temp_dir().join(&topic.name);
        fs::create_dir_all(&folder).unwrap();
        Self { topic, database, folder, started: AtomicU32::new(0) }
    }

    pub async fn close(self) {
        fs::remove_dir_all(&self.folder).unwrap();
        self.topic.delete().await;
        self.database.drop().await;
    }

    /// Starts a gateway with this config, as the pod of this name.
    pub fn start(&self, pod: &str, change: impl FnOnce(&mut GatewayConfig)) -> Gateway {
        let mut config = parse::from_yaml(&self.topic.config()).unwrap();
        config.sink.clickhouse = self.database.config(Schema::default());
        config.queue.mode = QueueMode::Disabled;
        // On any port, which its log names.
        "127.0.0.1:0".clone_into(&mut config.admin.listen);
        config.log.format = LogFormat::Text;
        change(&mut config);
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let named = |ending: &str| self.folder.join(format!("{number}.{ending}"));
        let (file, log) = (named("yaml"), named("log"));
        fs::write(&file, serde_json::to_string(&config).unwrap()).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_sluice-gateway"))
            .args(["run", "--config"])
            .arg(file)
            .env("POD_NAME", pod)
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Gateway { child, log }
    }

    /// Puts this many messages into a partition.
    fn produce(&self, partition: i32, messages: usize) {
        let message = message(vec![span(vec![])]);
        (0..messages).for_each(|_| self.topic.produce(partition, &message));
    }

    /// Waits until the group has committed offsets like these, and gives them by partition.
    pub async fn wait_until_committed(&self, is_so: impl Fn(&[Option<i64>]) -> bool) -> Vec<Option<i64>> {
        let begun = Instant::now();
        loop {
            let committed = self.topic.committed();
            if is_so(&committed) {
                return committed;
            }
            assert!(begun.elapsed() < PATIENCE, "{committed:?} is committed, and no more");
            sleep(ASK_AGAIN).await;
        }
    }
}

/// The program; killed when the test is over.
pub struct Gateway {
    child: Child,
    log: PathBuf,
}

impl Gateway {
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until it has ended, and gives its code.
    pub async fn ends(&mut self) -> i32 {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status
                    .code()
                    .unwrap_or_else(|| panic!("signal {:?}: {}", status.signal(), self.said()));
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end: {}", self.said());
            sleep(ASK_AGAIN).await;
        }
    }

    /// What it has written.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Where it listens, as its log says; none before it does.
    fn listens(&self) -> Option<String> {
        let said = self.said();
        let line = said.lines().find(|line| line.contains("the gateway starts"))?;
        let (_, rest) = line.split_once(" listen=")?;
        Some(rest.split_whitespace().next()?.to_owned())
    }

    /// Waits until a metric is this much, and gives how long that took.
    pub async fn wait_metric(&mut self, name: &str, wanted: f64) -> Duration {
        let begun = Instant::now();
        loop {
            let found = self.metric(name).await;
            if found.is_some_and(|found| (found - wanted).abs() < 0.5) {
                return begun.elapsed();
            }
            assert!(begun.elapsed() < PATIENCE, "{name} is {found:?}, and not {wanted}: {}", self.said());
            assert!(self.child.try_wait().unwrap().is_none(), "it has ended: {}", self.said());
            sleep(ASK_AGAIN).await;
        }
    }

    /// The answer to a request; none while it accepts no connection.
    async fn ask(&self, request: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.listens()?).await.ok()?;
        stream.write_all(format!("{request} HTTP/1.0\r\n\r\n").as_bytes()).await.ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.ok()?;
        Some(text)
    }

    /// The sum of a metric over its labels; none while the gateway does not answer.
    pub async fn metric(&self, name: &str) -> Option<f64> {
        let text = self.ask("GET /metrics").await?;
        let of_name = text
            .lines()
            .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{'])));
        let values: Vec<f64> = of_name.filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
        (!values.is_empty()).then(|| values.iter().sum())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) && self.child.kill().is_ok() {
            self.child.wait().ok();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_told_to_end_ends_with_0_and_has_committed_what_is_in() {
    let scene = Scene::open("told_to_end", 1).await;
    let mut gateway = scene.start("gateway-0", |_| {});
    scene.produce(0, 3);
    gateway.wait_metric(SPANS_READ, spans(3)).await;
    // What is read by now is in no block that is sent yet: those close by their age.
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.ends().await, 0, "{}", gateway.said());
    assert_eq!((scene.topic.committed(), scene.database.count().await), (vec![Some(3)], rows(3)));
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_ends_while_it_drains_leaves_its_partitions_to_others_before_its_session_is_over() {
    let scene = Scene::open("ends_in_drain", 2).await;
    let server = Front::without_summary(scene.database.authority()).await;
    let mut leaving = scene.start("gateway-1", |config| {
        config.sink.clickhouse.endpoints = vec![server.url.clone()];
        config.shutdown.deadline = Limit::secs(1);
    });
    leaving.wait_metric(PARTITIONS_OWNED, 2.0).await;
    // So what it reads is not in when it ends.
    drop(server);
    scene.produce(0, 3);
    leaving.wait_metric(SPANS_READ, spans(3)).await;
    let answer = leaving.ask("POST /drain").await.unwrap();
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    leaving.signal(Signal::TERM);
    assert_eq!(leaving.ends().await, 1, "what it has read is not in: {}", leaving.said());
    let mut staying = scene.start("gateway-0", |_| {});
    // After the session of the one that has ended, it would have them in any case.
    let given = staying.wait_metric(PARTITIONS_OWNED, 2.0).await;
    assert!(given < Duration::from_secs(u64::from(SESSION_SECONDS) / 2), "{given:?}: {}", leaving.said());
    scene.wait_until_committed(|offsets| offsets[0] == Some(3)).await;
    assert_eq!(scene.database.count().await, rows(3));
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_whose_name_another_process_takes_ends_with_1_and_says_so() {
    let scene = Scene::open("duplicate", 1).await;
    let mut first = scene.start("gateway-0", |_| {});
    first.wait_metric(PARTITIONS_OWNED, 1.0).await;
    let mut second = scene.start("gateway-0", |_| {});
    assert_eq!(first.ends().await, 1, "{}", first.said());
    let said = first.said();
    let last = said.lines().last().unwrap_or_default();
    assert!(last.contains("Static consumer fenced by other consumer with same group.instance.id"), "{said}");
    second.wait_metric(PARTITIONS_OWNED, 1.0).await;
    second.signal(Signal::TERM);
    assert_eq!(second.ends().await, 0, "{}", second.said());
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_whose_topic_is_made_anew_ends_with_69_and_begins_the_new_log_when_it_is_started_again() {
    let scene = Scene::open("made_anew", 1).await;
    let mut gateway = scene.start("gateway-0", |_| {});
    scene.produce(0, 1);
    scene.wait_until_committed(|offsets| offsets == [Some(1)]).await;
    // It stands still meanwhile, and finds a log that has the offset which it reads next.
    gateway.signal(Signal::STOP);
    scene.topic.make_again(1).await;
    scene.produce(0, 3);
    gateway.signal(Signal::CONT);
    assert_eq!(gateway.ends().await, i32::from(EXIT_UNAVAILABLE), "{}", gateway.said());
    let before = scene.database.count().await;
    let mut again = scene.start("gateway-0", |_| {});
    again.wait_metric(SPANS_READ, spans(3)).await;
    again.signal(Signal::TERM);
    assert_eq!(again.ends().await, 0, "{}", again.said());
    assert_eq!((scene.topic.committed(), scene.database.count().await), (vec![Some(3)], before + rows(3)));
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_that_are_added_are_found_within_ten_seconds() {
    let scene = Scene::open("added", 1).await;
    let mut gateway = scene.start("gateway-0", |_| {});
    gateway.wait_metric(PARTITIONS_OWNED, 1.0).await;
    // The first time it may look at once. The second time it has just looked, and looks again as late as it ever does.
    for partitions in 2..4_u8 {
        scene.topic.grow(partitions.into()).await;
        let found = gateway.wait_metric(PARTITIONS_OWNED, partitions.into()).await;
        assert!(found < FOUND_WITHIN + GIVEN_WITHIN, "{partitions} partitions are read after {found:?}");
    }
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_is_away_is_passed_over_for_the_next_one() {
    let scene = Scene::open("endpoint_away", 1).await;
    let mut gateway = scene.start("gateway-0", |config| {
        config.sink.clickhouse.endpoints.insert(0, AWAY.to_owned());
    });
    scene.produce(0, 3);
    scene.wait_until_committed(|offsets| offsets == [Some(3)]).await;
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.ends().await, 0, "{}", gateway.said());
    assert_eq!(scene.database.count().await, rows(3));
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_is_away_stops_its_own_partitions_and_no_others() {
    let scene = Scene::open("shard_away", 2).await;
    let mut gateway = scene.start("gateway-0", |config| {
        let sink = &mut config.sink.clickhouse;
        sink.shards = vec![std::mem::take(&mut sink.endpoints), vec![AWAY.to_owned()]];
        config.shutdown.deadline = Limit::secs(1);
    });
    let mut served = Vec::new();
    for messages in [3, 6] {
        (0..2).for_each(|partition| scene.produce(partition, 3));
        let committed = scene.wait_until_committed(|offsets| offsets.contains(&Some(messages))).await;
        // A plan for it may be committed: its offset is that of the first message.
        let waits = committed.iter().any(|offset| offset.unwrap_or(0) == 0);
        assert!(waits, "the other partition waits for its shard: {committed:?}");
        served.push(committed.iter().position(|offset| *offset == Some(messages)));
    }
    assert_eq!(served[0], served[1], "a partition belongs to one shard");
    assert_eq!(scene.database.count().await, rows(6));
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.ends().await, 1, "what it has read for the other shard is not in: {}", gateway.said());
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_larger_batch_limit_lets_be_read_is_inserted_though_a_batch_behind_it_is_larger_still() {
    let test = "larger_limit";
    let topic = Topic::create_with(test, 1, &[("max.message.bytes", MESSAGE_BYTES_MAX)]).await;
    let scene = Scene::of(topic, test).await;
    for kib in [0, 1_500, 0, 3_000, 0] {
        let value = "v".repeat(kib << 10);
        scene.topic.produce(0, &message(vec![span(vec![attribute("text", string(&value))])]));
    }
    for (batch_mib, memory_mib, inserted) in [(1, 192, 1), (2, 256, 3), (4, 320, 5)] {
        let mut gateway = scene.start("gateway-0", |config| {
            config.source.kafka.as_mut().unwrap().record_batch_bytes_max = ByteSize::mib(batch_mib);
            config.memory.limit = ByteSize::mib(memory_mib);
        });
        scene.wait_until_committed(|offsets| offsets == [Some(inserted)]).await;
        if inserted < 5 {
            gateway.wait_metric("sluice_gateway_partitions_stopped", 1.0).await;
        }
        gateway.signal(Signal::TERM);
        assert_eq!(gateway.ends().await, 0, "{}", gateway.said());
    }
    assert_eq!(scene.database.count().await, rows(5));
    scene.close().await;
}

/// Rows of this many messages.
fn rows(messages: u32) -> u64 {
    u64::from(messages * ROWS)
}

/// The same, as a metric gives them.
fn spans(messages: u32) -> f64 {
    f64::from(messages * ROWS)
}
