//! A broker of one test's own, which its pods reach: the test may stop and kill it, and no other test notices.

use std::net::TcpListener;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use e2e_fixtures::pipeline::{Pipeline, Settings};
use e2e_fixtures::produce::{Compression, Producer, Topic};
use e2e_fixtures::spans::Run;
use e2e_stack::Kafka;
use e2e_stack::kafka::Node;
use e2e_stack::kubernetes::NODE_ADDRESS;
use e2e_stack::paths::{Paths, remove_folder};
use e2e_stack::process::Signal;
use e2e_stack::say;

use crate::environment::blocking;
use crate::scene::Scene;

/// The kernel chooses other ports for those who do not care. Nobody takes one of these while the broker is away.
const PORTS: std::ops::Range<u16> = 23_000..24_000;

/// The broker. It is killed when dropped.
pub struct OwnBroker {
    kafka: Kafka,
    folder: PathBuf,
}

impl OwnBroker {
    /// Starts it, and has the scene's topic, load and pipeline use it. The pipeline is not there yet.
    pub async fn start(scene: &mut Scene) -> Result<OwnBroker> {
        // Pods of no other cluster reach this machine.
        scene.environment.local_clickhouse_only()?;
        let folder = std::env::temp_dir().join(scene.namespace.name());
        let [host, pods, controller] = free_ports()?;
        let (host, pods) = (format!("127.0.0.1:{host}"), format!("{NODE_ADDRESS}:{pods}"));
        let node = Node {
            number: 1,
            host: host.clone(),
            pods_listen: pods.clone(),
            pods: pods.clone(),
            controllers: vec![format!("127.0.0.1:{controller}")],
        };
        let kafka = Kafka::beside(&Paths::from_environment()?, folder.clone(), node);
        let broker = OwnBroker { kafka, folder };
        broker.begin().await?;
        let settings = Settings { brokers: vec![pods], ..scene.pipeline.settings().clone() };
        scene.topic = Topic::create(&host, &settings.topic, scene.topic.partitions()).await?;
        scene.producer = Producer::new(&host, Compression::default(), Run::fresh())?;
        scene.pipeline = Pipeline::new(&scene.namespace, settings);
        Ok(broker)
    }

    /// Ends it with `signal`, starts it again and waits until it answers.
    pub async fn restart(&self, signal: Signal) -> Result<()> {
        let kafka = self.kafka.clone();
        blocking(move || kafka.stop(signal)).await?;
        self.begin().await
    }

    async fn begin(&self) -> Result<()> {
        let kafka = self.kafka.clone();
        blocking(move || {
            kafka.start()?;
            kafka.wait_ready()
        })
        .await
    }

    /// Ends it. What it wrote stays where this is not called.
    pub fn remove(self) -> Result<()> {
        let folder = self.folder.clone();
        drop(self);
        remove_folder(&folder)
    }
}

impl Drop for OwnBroker {
    fn drop(&mut self) {
        if let Err(failure) = self.kafka.stop(Signal::KILL) {
            say::error(&format!("a broker was left: {failure:#}"));
        }
    }
}

fn free_ports() -> Result<[u16; 3]> {
    // All held at once, so that no other test of this process finds the same ones.
    let held: Vec<TcpListener> =
        PORTS.filter_map(|port| TcpListener::bind(("0.0.0.0", port)).ok()).take(3).collect();
    let ports = held.iter().map(|held| Ok(held.local_addr().context("ask for a port")?.port()));
    let ports: Vec<u16> = ports.collect::<Result<_>>()?;
    ensure!(ports.len() == 3, "there are no three free ports in {PORTS:?}");
    Ok([ports[0], ports[1], ports[2]])
}
