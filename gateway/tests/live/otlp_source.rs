//! A gateway with `source.otlp` as a process in front of a real `ClickHouse`: every span that was answered with success is in the table once, also when
//! the process is killed at any time, while the server is away, and after a drain.

use crate::{
    messages::{attribute, message, span, string},
    server::Database,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use rustix::process::{Pid, Signal, kill_process};
use sluice_gateway_config::{GatewayConfig, LogFormat, Schema, parse};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command},
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

/// An address where no server listens.
const AWAY: &str = "http://127.0.0.1:1";

/// A table, and a volume.
pub struct Scene {
    pub database: Database,
    folder: PathBuf,
}

/// The program; killed when the test is over.
pub struct Gateway {
    child: Child,
    log: PathBuf,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) && self.child.kill().is_ok() {
            self.child.wait().ok();
        }
    }
}

impl Scene {
    pub async fn open(test: &str) -> Self {
        let database = Database::new(test).await;
        database.with_table().await;
        let folder = std::env::temp_dir().join(&database.name);
        fs::create_dir_all(folder.join("queue")).unwrap();
        Self { database, folder }
    }

    pub async fn close(self) {
        fs::remove_dir_all(&self.folder).unwrap();
        self.database.drop().await;
    }

    pub fn start(&self, change: impl FnOnce(&mut GatewayConfig)) -> Gateway {
        let text = format!(
            "{{contractVersion: 1, pipeline: {{namespace: live, name: live}}, workers: 2, memory: {{limit: 256MiB}}, \
             source: {{otlp: {{listen: {{grpc: '127.0.0.1:0', http: '127.0.0.1:0'}}}}}}, queue: {{path: {}}}, \
             sink: {{clickhouse: {{endpoints: ['http://h:8123'], database: d, table: t}}}}, \
             admin: {{listen: '127.0.0.1:0'}}}}",
            self.folder.join("queue").display()
        );
        let mut config = parse::from_yaml(&text).unwrap();
        config.sink.clickhouse = self.database.config(Schema::default());
        config.log.format = LogFormat::Text;
        change(&mut config);
        let number = fs::read_dir(&self.folder).unwrap().count();
        let named = |ending: &str| self.folder.join(format!("{number}.{ending}"));
        let (file, log) = (named("yaml"), named("log"));
        fs::write(&file, serde_json::to_string(&config).unwrap()).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_sluice-gateway"))
            .args(["run", "--config"])
            .arg(file)
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Gateway { child, log }
    }

    pub async fn wait_for_rows(&self, rows: u64) {
        let begun = Instant::now();
        loop {
            let found = self.database.count().await;
            if found >= rows {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{found} rows of {rows}");
            sleep(ASK_AGAIN).await;
        }
    }
}

impl Gateway {
    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    fn address(&self, words: &str, name: &str) -> Option<String> {
        let said = self.said();
        let line = said.lines().find(|line| line.contains(words))?;
        let (_, rest) = line.split_once(&format!(" {name}="))?;
        Some(rest.split_whitespace().next()?.to_owned())
    }

    async fn http(&self) -> String {
        self.listens("http").await
    }

    /// Waits until it accepts requests, and gives the address for `grpc` or `http`.
    pub async fn listens(&self, name: &str) -> String {
        let begun = Instant::now();
        loop {
            if let Some(address) = self.address("accepting OTLP requests", name) {
                return address;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not start: {}", self.said());
            sleep(ASK_AGAIN).await;
        }
    }

    /// The status of the answer to a request; `None` without an answer.
    async fn asked(&self, address: &str, head: &str, body: &[u8]) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(address).await.ok()?;
        let head =
            format!("{head}\r\nHost: g\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(&[head.as_bytes(), body].concat()).await.ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.ok()?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        Some((answer.split(' ').nth(1)?.parse().ok()?, answer))
    }

    async fn export(&self, body: &[u8]) -> Option<u16> {
        let head = "POST /v1/traces HTTP/1.1\r\nContent-Type: application/x-protobuf";
        self.asked(&self.http().await, head, body).await.map(|(status, _)| status)
    }

    async fn admin(&self, head: &str) -> String {
        let address = self.address("the gateway starts", "listen").unwrap();
        self.asked(&address, &format!("{head} HTTP/1.1"), b"").await.unwrap().1
    }

    /// Sends SIGTERM, and waits until it has ended well.
    pub async fn ends(&mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end: {}", self.said());
            sleep(ASK_AGAIN).await;
        };
        assert_eq!(status.code(), Some(0), "{}", self.said());
    }
}

/// Rows of each request: [`message`] has a span besides.
const ROWS: u64 = 2;

/// A request with a span that has this number.
fn numbered(number: u64) -> Vec<u8> {
    message(vec![span(vec![attribute("number", string(&number.to_string()))])])
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_answered_is_in_the_table_once_though_the_gateway_is_killed() {
    let scene = Scene::open("otlp_killed").await;
    let (mut sent, mut answered) = (0, Vec::new());
    for run in 0..6 {
        let mut gateway = scene.start(|_| {});
        let begun = Instant::now();
        // Kills come at times from before the first insert to after some.
        while begun.elapsed() < Duration::from_millis(400 + 700 * run) {
            sent += 1;
            if gateway.export(&numbered(sent)).await == Some(200) {
                answered.push(sent);
            }
        }
        gateway.child.kill().unwrap();
        gateway.child.wait().unwrap();
    }
    assert!(answered.len() > 100, "{} of {sent} are answered", answered.len());
    let mut gateway = scene.start(|_| {});
    gateway.http().await;
    scene.wait_for_rows(ROWS * answered.len() as u64).await;
    gateway.ends().await;
    let table = &scene.database.name;
    let number = "toUInt64(SpanAttributes.number::String)";
    let numbered_rows = format!("FROM {table}.otel_traces WHERE SpanAttributes.number::String != ''");
    let doubled = format!("SELECT toString(count() - uniqExact({number})) {numbered_rows}");
    assert_eq!(scene.database.answer(&doubled).await, "0", "{}", gateway.said());
    let all = format!(
        "SELECT toString(countIf(has([{}], {number}))) {numbered_rows}",
        answered.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
    );
    assert_eq!(scene.database.answer(&all).await, answered.len().to_string(), "{}", gateway.said());
    drop(gateway);
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_taken_while_clickhouse_is_away_and_come_in_when_it_is_back() {
    let scene = Scene::open("otlp_away").await;
    let gateway = scene.start(|config| config.sink.clickhouse.endpoints = vec![AWAY.to_owned()]);
    for number in 0..50 {
        assert_eq!(gateway.export(&numbered(number)).await, Some(200), "{}", gateway.said());
    }
    drop(gateway);
    let mut gateway = scene.start(|_| {});
    scene.wait_for_rows(50 * ROWS).await;
    let drained = gateway.admin("POST /drain").await;
    assert!(drained.starts_with("HTTP/1.1 200"), "{drained}");
    assert_eq!(gateway.export(&numbered(99)).await, Some(503));
    let begun = Instant::now();
    loop {
        let left = gateway.admin("GET /drainz").await;
        if left.contains("\"blocks\":0") && left.contains("\"uncommitted\":0") {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{left}");
        sleep(ASK_AGAIN).await;
    }
    gateway.admin("POST /resume").await;
    assert_eq!(gateway.export(&numbered(100)).await, Some(200), "{}", gateway.said());
    scene.wait_for_rows(51 * ROWS).await;
    gateway.ends().await;
    assert_eq!(scene.database.count().await, 51 * ROWS);
    drop(gateway);
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_inserts_what_is_in_the_logs() {
    let scene = Scene::open("otlp_term").await;
    let mut gateway = scene.start(|config| {
        // Blocks would stay open for longer than the test.
        config.sink.clickhouse.insert.max_interval = sluice_gateway_config::Duration::secs(60);
    });
    for number in 0..20 {
        assert_eq!(gateway.export(&numbered(number)).await, Some(200), "{}", gateway.said());
    }
    gateway.ends().await;
    assert_eq!(scene.database.count().await, 20 * ROWS, "{}", gateway.said());
    drop(gateway);
    scene.close().await;
}

/// The letters of a gateway's volume, as the command lists them.
fn letters(config: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_sluice-gateway"))
        .args(["dead-letter", "list", "--json", "--config"])
        .arg(config)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_clickhouse_refuses_become_letters_on_the_volume() {
    let scene = Scene::open("otlp_refused").await;
    let table = format!("{}.otel_traces", scene.database.name);
    let rule = format!("ALTER TABLE {table} ADD CONSTRAINT no_bad CHECK SpanName != 'bad'");
    scene.database.execute(&rule).await;
    let mut gateway = scene.start(|_| {});
    for number in 0..10 {
        assert_eq!(gateway.export(&numbered(number)).await, Some(200), "{}", gateway.said());
    }
    let bad = message(vec![Span { name: "bad".to_owned(), ..span(vec![]) }]);
    assert_eq!(gateway.export(&bad).await, Some(200), "{}", gateway.said());
    // The other span of the bad request comes in, too.
    scene.wait_for_rows(10 * ROWS + 1).await;
    let begun = Instant::now();
    let lettered = "sluice_gateway_dead_letters_total{reason=\"row_refused\"} 1";
    while !gateway.admin("GET /metrics").await.contains(lettered) {
        assert!(begun.elapsed() < PATIENCE, "{}", gateway.said());
        sleep(ASK_AGAIN).await;
    }
    let listed = letters(&gateway.log.with_extension("yaml"));
    assert_eq!(listed.lines().count(), 1, "{listed}");
    assert!(listed.contains("row_refused") && listed.contains("\"otlp\""), "{listed}");
    assert_eq!(scene.database.count().await, 10 * ROWS + 1);
    gateway.ends().await;
    drop(gateway);
    scene.close().await;
}
