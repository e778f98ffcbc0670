//! The broker or brokers and the ClickHouse of a stage, and the fronts before them.
//!
//! Job: servers that can be killed without harm to other programs. The programs are the stack's installed ones; folder, ports and processes
//! are this stage's own. Place in the flow: under every scenario. Owner: the stage. They are stopped by their pid files when dropped, also
//! after Ctrl-C. Limits: 256 to 512 MiB of heap a broker.
//!
//! ```text
//! gateways -> KafkaFront -> broker's listener for pods      producer, oracle -> broker's listener for this machine
//! gateways -> SinkFront  -> ClickHouse                      oracle           -> ClickHouse
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};

use super::front::Way;
use super::gate::Gate;
use super::kafka_front::{self, KafkaFront};
use super::sink_front::SinkFront;
use e2e_fixtures::oracle::Server;
use e2e_stack::clickhouse::{self, ClickHouse, Listeners};
use e2e_stack::kafka::{self, Kafka, Node};
use e2e_stack::paths::{Paths, remove_folder};
use e2e_stack::process::{Port, Signal};
use e2e_stack::say;

/// A second address of the loopback interface, in place of the pods' bridge, which need not exist here.
pub(super) const SECOND_HOST: &str = "127.0.0.2";

pub struct Servers {
    folder: PathBuf,
    brokers: Vec<Broker>,
    clickhouse: ClickHouse,
    /// Reserved ports, also while the servers are down.
    _ports: Vec<Port>,
    kafka_gate: Arc<Gate<kafka_front::Passage, kafka_front::Verdict>>,
    pub sink: SinkFront,
    /// ClickHouse itself, without the front.
    pub server: Server,
}

struct Broker {
    kafka: Kafka,
    front: KafkaFront,
    host: String,
}

impl Servers {
    /// Starts so many brokers and a ClickHouse below `folder`, and waits until all of them answer.
    pub async fn start(folder: &Path, brokers: u32) -> Result<Servers> {
        let paths = Paths::from_environment()?;
        install(&paths).await?;
        let [http, native] = Port::hold_all()?;
        let address = http.address();
        let clickhouse = ClickHouse::beside(&paths, folder.join("clickhouse"), listeners(&http, &native));
        let kafka_gate = Arc::default();
        let mut ports = vec![http, native];
        let mut servers = Servers {
            folder: folder.to_owned(),
            brokers: lay_brokers(&paths, (folder, &mut ports), brokers, &kafka_gate).await?,
            clickhouse,
            _ports: ports,
            kafka_gate,
            sink: SinkFront::start(&address).await?,
            server: Server::new(&format!("http://{address}"), "default", ""),
        };
        say::progress(
            "servers",
            &format!("starting {brokers} brokers and a ClickHouse in {}", folder.display()),
        );
        servers.begin().await?;
        Ok(servers)
    }

    async fn begin(&mut self) -> Result<()> {
        // Starts all of them first: a cluster answers only when most of its controllers run.
        let numbers = 1..=u32::try_from(self.brokers.len())?;
        for number in numbers.clone() {
            self.on_broker(number, Kafka::start).await?;
        }
        self.start_clickhouse().await?;
        for number in numbers {
            self.on_broker(number, Kafka::wait_ready).await?;
        }
        Ok(())
    }

    /// `host:port` of all brokers, for the harness itself.
    pub fn kafka(&self) -> String {
        let hosts: Vec<&str> = self.brokers.iter().map(|broker| broker.host.as_str()).collect();
        hosts.join(",")
    }

    pub fn brokers(&self) -> i32 {
        i32::try_from(self.brokers.len()).unwrap_or(i32::MAX)
    }

    /// `host:port` of all brokers' fronts, for gateways.
    pub fn kafka_fronts(&self) -> Vec<String> {
        self.brokers.iter().map(|broker| broker.front.address()).collect()
    }

    pub fn kafka_gate(&self) -> &Gate<kafka_front::Passage, kafka_front::Verdict> {
        &self.kafka_gate
    }

    /// Sets the behaviour of all connections to brokers from now on.
    pub fn kafka_goes(&self, way: Way) {
        self.brokers.iter().for_each(|broker| broker.front.go(way));
    }

    /// Kills a broker, by its number from 1 on.
    pub async fn kill_broker(&self, number: u32) -> Result<()> {
        self.on_broker(number, |kafka| kafka.stop(Signal::KILL)).await
    }

    /// Starts a broker that was killed, and waits until it answers.
    pub async fn start_broker(&self, number: u32) -> Result<()> {
        self.on_broker(number, Kafka::start).await?;
        self.on_broker(number, Kafka::wait_ready).await
    }

    async fn on_broker(&self, number: u32, act: fn(&Kafka) -> Result<()>) -> Result<()> {
        let index = usize::try_from(number)?.checked_sub(1);
        let broker = index.and_then(|index| self.brokers.get(index));
        let kafka = broker.with_context(|| format!("there is no broker {number}"))?.kafka.clone();
        blocking(move || act(&kafka)).await
    }

    pub async fn kill_clickhouse(&self) -> Result<()> {
        kill_server(&self.clickhouse).await
    }

    /// Starts ClickHouse and waits until it answers.
    pub async fn start_clickhouse(&self) -> Result<()> {
        start_server(self.clickhouse.clone()).await
    }

    /// As [`Self::start_clickhouse`], in another time zone than this machine's.
    pub async fn start_clickhouse_in(&self, zone: &str) -> Result<()> {
        start_server(self.clickhouse.clone().in_zone(zone)).await
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        let mut stopped: Vec<Result<()>> = Vec::new();
        stopped.extend(self.brokers.iter().map(|broker| broker.kafka.stop(Signal::KILL)));
        stopped.push(self.clickhouse.stop(Signal::KILL));
        if stopped.iter().all(Result::is_ok) {
            for broker in 1..=self.brokers.len() {
                stopped.push(remove_folder(&self.folder.join(format!("kafka-{broker}/data"))));
            }
            stopped.push(remove_folder(&self.folder.join("clickhouse/data")));
        }
        for failure in stopped.into_iter().filter_map(Result::err) {
            say::error(&format!("cannot remove all servers of the run: {failure:#}"));
        }
    }
}

/// Puts the servers' programs into the cache, unless they are there.
async fn install(paths: &Paths) -> Result<()> {
    let paths = paths.clone();
    blocking(move || {
        kafka::build(&paths)?;
        clickhouse::build(&paths)
    })
    .await
}

async fn lay_brokers(
    paths: &Paths,
    (folder, ports): (&Path, &mut Vec<Port>),
    count: u32,
    gate: &Arc<Gate<kafka_front::Passage, kafka_front::Verdict>>,
) -> Result<Vec<Broker>> {
    // Each broker has a port for its controller, one for this machine and one for pods.
    let of_each = (0..count).map(|_| Port::hold_all::<3>()).collect::<Result<Vec<_>>>()?;
    let controllers: Vec<String> = of_each.iter().map(|[controller, ..]| controller.address()).collect();
    let mut brokers = Vec::new();
    for (number, own) in (1..=count).zip(of_each) {
        let [_, host, pods] = &own;
        let front = KafkaFront::start(number, &pods.address(), gate).await?;
        let node = Node {
            number,
            host: host.address(),
            pods_listen: pods.address(),
            pods: front.address(),
            controllers: controllers.clone(),
        };
        ports.extend(own);
        let host = node.host.clone();
        let kafka = Kafka::beside(paths, folder.join(format!("kafka-{number}")), node);
        brokers.push(Broker { kafka, front, host });
    }
    Ok(brokers)
}

pub(super) fn listeners(http: &Port, native: &Port) -> Listeners {
    Listeners { pods_host: SECOND_HOST.to_owned(), http_port: http.number(), native_port: native.number() }
}

/// Starts a ClickHouse, and waits until it answers.
pub(super) async fn start_server(server: ClickHouse) -> Result<()> {
    blocking(move || {
        server.start()?;
        server.wait_ready()
    })
    .await
}

pub(super) async fn kill_server(server: &ClickHouse) -> Result<()> {
    let server = server.clone();
    blocking(move || server.stop(Signal::KILL)).await
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.context("the thread that handles a server ended")?
}
