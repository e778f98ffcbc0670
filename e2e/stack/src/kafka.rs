//! One Kafka broker in `KRaft` mode from the jars of Maven Central, as a process of this machine. Programs here reach it on loopback, pods
//! by name. Each has its own listener, because a broker tells clients where to connect. Other brokers can run beside it, with their own
//! folder and addresses ([`Kafka::beside`]).
//!
//! Other processes than the one that started it can stop and start it again: they find it by its pid file.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;

use crate::kubernetes::NODE_ADDRESS;
use crate::maven;
use crate::part::{Part, connect};
use crate::paths::{Paths, content_hash, create_folder, fill_once, put, render, sources};
use crate::process::{Daemon, Job, Signal, command, output};

/// Version in `e2e/stack/kafka/pom.xml`.
pub const VERSION: &str = "4.3.1";

/// The broker's address for programs of this machine.
pub const HOST_ADDRESS: &str = "127.0.0.1:29092";

/// The broker's address for pods.
pub const PODS_ADDRESS: &str = "kafka.sluice-stack.svc.cluster.local:9092";

const CONTROLLER_ADDRESS: &str = "127.0.0.1:29093";

/// 22 characters of base64, as the format requires. It never changes, because there is one cluster per state folder.
const CLUSTER_ID: &str = "c2x1aWNlLXN0YWNrLTAwMQ";

/// Up to 512 MiB of heap hold 128 MiB record batches; 234 MB are resident when idle. A broker runs for minutes only, so the second compiler
/// would take more CPU time than it saves.
const JAVA: [&str; 4] = ["-Xms256m", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"];

/// Longest time to its first answer. On a busy machine it took 3.5 s; after a kill, the broker also reads the end of its log again.
const START_PATIENCE: Duration = Duration::from_mins(1);

/// Longest clean stop, in which the broker writes its log to disk.
const STOP_PATIENCE: Duration = Duration::from_secs(30);

const POM: &str = include_str!("../kafka/pom.xml");
const PROPERTIES: &str = include_str!("../kafka/server.properties");
const LOGGING: &str = include_str!("../kafka/log4j2.yaml");

/// Where a broker listens, and what it advertises.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its node id, from 1 on.
    pub number: u32,
    /// `host:port` for programs of this machine, and for other brokers.
    pub host: String,
    /// `host:port` of the listener for pods.
    pub pods_listen: String,
    /// `host:port` that the broker advertises to clients of this listener.
    pub pods: String,
    /// `host:port` of the controllers of all brokers, by number, including its own.
    pub controllers: Vec<String>,
}

impl Node {
    fn of_stack() -> Node {
        Node {
            number: 1,
            host: HOST_ADDRESS.to_owned(),
            pods_listen: format!("{NODE_ADDRESS}:9092"),
            pods: PODS_ADDRESS.to_owned(),
            controllers: vec![CONTROLLER_ADDRESS.to_owned()],
        }
    }

    fn voters(&self) -> String {
        let numbered = self.controllers.iter().zip(1..);
        numbered.map(|(address, number)| format!("{number}@{address}")).collect::<Vec<_>>().join(",")
    }

    fn controller(&self) -> &str {
        let own = usize::try_from(self.number - 1).ok().and_then(|index| self.controllers.get(index));
        own.expect("a broker's own controller is among those of all brokers")
    }
}

/// A local broker, running or not.
#[derive(Clone, Debug)]
pub struct Kafka {
    state: PathBuf,
    libraries: PathBuf,
    node: Node,
}

pub fn is_built(paths: &Paths) -> bool {
    libraries(paths).is_dir()
}

/// Fetches the jars, unless the cache has them.
pub fn build(paths: &Paths) -> anyhow::Result<()> {
    fill_once(&libraries(paths), |partial| {
        let mut maven = maven::jars(&sources().join("kafka/pom.xml"), partial);
        maven.arg("-DincludeScope=runtime");
        let doing = format!("fetch Kafka {VERSION}");
        Job { part: "kafka", doing: &doing, log: paths.build_log("kafka") }.run(&mut maven)
    })
}

/// The class path of the jars, for a broker of one's own.
pub fn jars(paths: &Paths) -> PathBuf {
    libraries(paths).join("*")
}

/// The folder of the jars, named by version and by the contents of the pom.
fn libraries(paths: &Paths) -> PathBuf {
    paths.cache.join("kafka").join(format!("{VERSION}-{}", content_hash([POM.as_bytes()])))
}

impl Kafka {
    pub fn new(paths: &Paths) -> Self {
        Self { state: paths.kafka(), libraries: libraries(paths), node: Node::of_stack() }
    }

    /// Another broker. It uses the jars that [`build`] put into the cache; everything else is below the folder `state`.
    pub fn beside(paths: &Paths, state: PathBuf, node: Node) -> Self {
        Self { state, libraries: libraries(paths), node }
    }

    pub fn local() -> anyhow::Result<Self> {
        Ok(Self::new(&Paths::from_environment()?))
    }

    /// Starts it unless it runs; does not wait until it answers. Blocks for a second if its data folder is new.
    pub fn start(&self) -> anyhow::Result<()> {
        self.configure()?;
        self.daemon().start(&self.broker()).map(drop)
    }

    /// Waits until it answers a metadata request.
    pub fn wait_ready(&self) -> anyhow::Result<()> {
        self.part().answers_within(START_PATIENCE)
    }

    /// Sends it `signal` and waits until it has ended (SIGKILL after 30 s). Its data stays.
    pub fn stop(&self, signal: Signal) -> anyhow::Result<()> {
        self.daemon().stop(signal, STOP_PATIENCE).map(drop)
    }

    pub fn runs(&self) -> bool {
        self.daemon().process().is_some()
    }

    /// Starts it, waits until it answers, and restarts it if it hangs.
    pub(super) fn ensure(&self) -> anyhow::Result<()> {
        self.configure()?;
        self.part().ensure(&self.broker(), START_PATIENCE)
    }

    pub(super) fn part(&self) -> Part {
        let address = self.node.host.clone();
        let asked = address.clone();
        Part { daemon: self.daemon(), address, probe: Box::new(move || answers(&asked)) }
    }

    fn daemon(&self) -> Daemon {
        Daemon::new(&self.state, "kafka")
    }

    fn configure(&self) -> anyhow::Result<()> {
        create_folder(&self.state)?;
        put(&self.properties(), &self.rendered_properties())?;
        put(&self.state.join("log4j2.yaml"), LOGGING)?;
        if self.state.join("data/meta.properties").exists() {
            return Ok(());
        }
        let mut format = self.java(&["-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]);
        format.args(["kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", CLUSTER_ID, "-c"]);
        output(format.arg(self.properties())).map(drop).context("format the broker's data folder")
    }

    fn rendered_properties(&self) -> String {
        let values = [
            ("STATE", &*self.state.to_string_lossy()),
            ("NODE", &*self.node.number.to_string()),
            ("VOTERS", &*self.node.voters()),
            ("CONTROLLER", self.node.controller()),
            ("HOST_ADDRESS", &*self.node.host),
            ("PODS_LISTEN", &*self.node.pods_listen),
            ("PODS_ADDRESS", &*self.node.pods),
            ("REPLICAS", &*self.node.controllers.len().to_string()),
        ];
        render(PROPERTIES, &values)
    }

    fn properties(&self) -> PathBuf {
        self.state.join("server.properties")
    }

    fn broker(&self) -> Command {
        let mut broker = self.java(&JAVA);
        broker.arg("kafka.Kafka").arg(self.properties());
        broker
    }

    fn java(&self, options: &[&str]) -> Command {
        let mut java = command("java");
        java.args(options)
            .arg(format!("-Dlog4j2.configurationFile={}", self.state.join("log4j2.yaml").display()));
        java.arg("-cp").arg(self.libraries.join("*"));
        java
    }
}

/// Asks the broker for its metadata.
///
/// Source: Kafka's protocol guide, Metadata request and response v1: a size, key 3, version 1, a correlation id, no client id, no topics;
/// the answer begins with a size, the correlation id and the number of brokers.
fn answers(address: &str) -> anyhow::Result<()> {
    const REQUEST: [u8; 18] = [0, 0, 0, 14, 0, 3, 0, 1, 0, 0, 0, 7, 0xff, 0xff, 0, 0, 0, 0];
    let doing = || format!("ask the broker at {address} for its metadata");
    let mut stream = connect(address).with_context(doing)?;
    stream.write_all(&REQUEST).with_context(doing)?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).with_context(doing)?;
    let [_, _, _, _, 0, 0, 0, 7, brokers @ ..] = answer else {
        anyhow::bail!("the broker at {address} answers another request: {answer:?}");
    };
    anyhow::ensure!(i32::from_be_bytes(brokers) > 0, "the broker knows no broker");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_properties_name_both_listeners_and_leave_no_place_unfilled() {
        let kafka = Kafka { state: "/s/kafka".into(), libraries: "/c".into(), node: Node::of_stack() };
        let text = kafka.rendered_properties();
        let line = |wanted: &str| assert!(text.lines().any(|line| line == wanted), "{wanted}\n{text}");
        line("listeners=HOST://127.0.0.1:29092,PODS://10.244.0.1:9092,CONTROLLER://127.0.0.1:29093");
        line("advertised.listeners=HOST://127.0.0.1:29092,PODS://kafka.sluice-stack.svc.cluster.local:9092");
        line("controller.quorum.voters=1@127.0.0.1:29093");
        line("log.dirs=/s/kafka/data");
        assert!(!text.replace("1@127", "").contains('@'), "{text}");
    }

    #[test]
    fn brokers_of_a_cluster_know_one_another() {
        let node = Node {
            number: 2,
            controllers: ["a:1", "b:2", "c:3"].map(str::to_owned).to_vec(),
            ..Node::of_stack()
        };
        assert_eq!((node.voters().as_str(), node.controller()), ("1@a:1,2@b:2,3@c:3", "b:2"));
    }

    #[test]
    fn the_pom_asks_for_the_stated_version() {
        assert!(POM.contains(&format!("<kafka.version>{VERSION}</kafka.version>")));
    }
}
