//! SDKs of OpenTelemetry and a Collector in front of the edge, and of a gateway with `source.otlp`, with a real Kafka and a real `ClickHouse` behind
//! them: every field of every span that they send is read back and compared. And what they do while the edge tells them to come again.
//!
//! The clients are in e2e/stack/clients; its README says what they send. They are fetched and compiled by `cargo verify --group clients`, or by
//! hand:
//!
//! ```text
//! export $(cargo run -p e2e-verify -- clients)
//! cargo test -p sluice-gateway --test live otlp_clients:: -- --ignored
//! ```

mod away;
mod collector;
mod rows;
mod spans;
mod target;

use crate::{
    broker::Topic,
    edge::{Edge, Found, messages},
};
use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command, ExitStatus},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use target::{ROLES, Target};
use tokio::time::sleep;

/// Where the programs are.
const FOLDER_VARIABLE: &str = "SLUICE_OTLP_CLIENTS";

/// Spans of a client: four requests.
const SPANS: i64 = 200;

const PARTITIONS: u32 = 6;

/// How long a client may take with its retries. Chosen: twice what four requests take that are each sent again after 10 s.
const TIMEOUT_SECONDS: &str = "80";
const PATIENCE: Duration = Duration::from_mins(3);
const ASK_AGAIN: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    Python,
    Go,
    JavaScript,
    Java,
}

impl Language {
    /// The name of its program, and behind `orders-` that of its service.
    fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Go => "go",
            Self::JavaScript => "javascript",
            Self::Java => "java",
        }
    }

    /// How its SDK can send: protocol and compression. Each compression occurs.
    fn ways(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::JavaScript => &[("grpc", "gzip"), ("http/protobuf", "none"), ("http/json", "gzip")],
            Self::Python => &[("grpc", "gzip"), ("http/protobuf", "none")],
            Self::Go | Self::Java => &[("grpc", "none"), ("http/protobuf", "gzip")],
        }
    }
}

/// What a client sends in one run.
#[derive(Clone, Debug)]
struct Sent {
    language: Language,
    protocol: &'static str,
    compression: &'static str,
    /// Whether it is received in JSON, if only once of several times.
    has_json: bool,
    /// The first half of its trace ids, in hex.
    run: String,
    start_nanos: u64,
}

impl Sent {
    fn new(language: Language, (protocol, compression): (&'static str, &'static str)) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let run = format!("{:08x}{:08x}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let has_json = protocol == "http/json";
        Self {
            language,
            protocol,
            compression,
            has_json,
            run,
            start_nanos: start.as_nanos().try_into().unwrap(),
        }
    }

    /// Starts the client, which sends to an edge.
    fn to(&self, edge: &Edge) -> Program {
        self.to_endpoint(&edge.address(self.port()).unwrap())
    }

    /// The name of the port that it sends to.
    fn port(&self) -> &'static str {
        if self.protocol == "grpc" { "grpc" } else { "http" }
    }

    fn to_endpoint(&self, endpoint: &str) -> Program {
        let settings: [(&str, &str); 7] = [
            ("ENDPOINT", endpoint),
            ("PROTOCOL", self.protocol),
            ("COMPRESSION", self.compression),
            ("RUN", &self.run),
            ("SPANS", &SPANS.to_string()),
            ("START_NANOS", &self.start_nanos.to_string()),
            ("TIMEOUT_SECONDS", TIMEOUT_SECONDS),
        ];
        Program::start(self.language.name(), &self.run, |command| {
            command.envs(settings);
        })
    }
}

/// A program of the folder; killed when the test is over.
struct Program {
    child: Child,
    log: PathBuf,
}

impl Program {
    /// Starts the program of this name; `run` tells its log from others.
    fn start(name: &str, run: &str, change: impl FnOnce(&mut Command)) -> Self {
        let folder = std::env::var(FOLDER_VARIABLE).unwrap_or_else(|_| {
            panic!("set {FOLDER_VARIABLE} to what `cargo run -p e2e-verify -- clients` prints")
        });
        let log = std::env::temp_dir().join(format!("sluice-live-client-{run}.log"));
        File::create(&log).unwrap();
        let appended = || File::options().append(true).open(&log).unwrap();
        let mut command = Command::new(PathBuf::from(folder).join(name));
        change(command.stdout(appended()).stderr(appended()));
        let child = command.spawn().unwrap_or_else(|error| panic!("start the client {name}: {error}"));
        Self { child, log }
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    async fn ends(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end: {}", self.said());
            sleep(ASK_AGAIN).await;
        }
    }

    async fn succeeds(&mut self) {
        let status = self.ends().await;
        assert!(status.success(), "{status}: {}", self.said());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) && self.child.kill().is_ok() {
            self.child.wait().ok();
        }
        fs::remove_file(&self.log).ok();
    }
}

/// Every message of a test's topic.
fn found(topic: &Topic) -> Vec<Found> {
    messages(topic, &topic.name, PARTITIONS)
}

/// What a client sends in each way it can is in the table, each span once; of an edge also in Kafka.
async fn everything_is_read_back(language: Language) {
    for role in ROLES {
        let target = Target::start(role, language.name()).await;
        let begun = Instant::now();
        let sent: Vec<_> = language.ways().iter().map(|way| Sent::new(language, *way)).collect();
        let mut clients = Vec::new();
        for sent in &sent {
            clients.push(sent.to_endpoint(&target.address(sent.port()).await));
        }
        for client in &mut clients {
            client.succeeds().await;
        }
        let took = begun.elapsed();
        target.read_back(language.name(), &sent, 1).await;
        eprintln!("{language:?} to {role:?}: clients {took:.1?}, read back after {:.1?}", begun.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "group clients"]
async fn everything_that_the_sdk_for_python_sends_is_read_back() {
    everything_is_read_back(Language::Python).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "group clients"]
async fn everything_that_the_sdk_for_go_sends_is_read_back() {
    everything_is_read_back(Language::Go).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "group clients"]
async fn everything_that_the_sdk_for_javascript_sends_is_read_back() {
    everything_is_read_back(Language::JavaScript).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "group clients"]
async fn everything_that_the_sdk_for_java_sends_is_read_back() {
    everything_is_read_back(Language::Java).await;
}
