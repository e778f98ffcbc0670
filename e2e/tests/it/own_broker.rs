//! A broker for one test, which its pods can reach. The test may stop and kill it without an effect on other tests.

use e2e_stack::Kafka;
use e2e_stack::kafka::Node;
use e2e_stack::paths::remove_folder;
use e2e_stack::process::Signal;

use crate::prelude::*;

/// The broker. It is killed when dropped.
pub struct OwnBroker {
    kafka: Kafka,
    folder: PathBuf,
    /// Reserved ports, also while the broker is down.
    _ports: [Port; 3],
}

impl OwnBroker {
    /// Starts it, and makes the scene's topic, load and pipeline use it. The pipeline must not exist yet.
    pub async fn start(scene: &mut Scene) -> Result<OwnBroker> {
        // Pods of another cluster cannot reach this machine.
        scene.environment.local_clickhouse_only()?;
        let folder = std::env::temp_dir().join(scene.namespace.name());
        let ports = Port::hold_all()?;
        let [host, pods, controller] = &ports;
        let (host, pods) = (host.address(), format!("{NODE_ADDRESS}:{}", pods.number()));
        let node = Node {
            number: 1,
            host: host.clone(),
            pods_listen: pods.clone(),
            pods: pods.clone(),
            controllers: vec![controller.address()],
        };
        let kafka = Kafka::beside(&Paths::from_environment()?, folder.clone(), node);
        let broker = OwnBroker { kafka, folder, _ports: ports };
        broker.begin().await?;
        let settings = Settings { brokers: vec![pods], ..scene.pipeline.settings().clone() };
        scene.topic = Topic::create(&host, &settings.topic, scene.topic.partitions()).await?;
        scene.producer = Producer::new(&host, Compression::default(), Run::fresh())?;
        scene.pipeline = Pipeline::new(&scene.namespace, settings);
        Ok(broker)
    }

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

    /// Ends it and removes its data. Without this call, its data stays.
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
