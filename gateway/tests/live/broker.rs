//! A topic of a test's own in a real Kafka.

use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, CommitMode, Consumer as _},
    producer::{BaseProducer, BaseRecord, Producer as _},
    types::RDKafkaErrorCode,
};
use sluice_gateway_config::{Kafka, parse};
use sluice_kafka::dead_letter::default_topic;
use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

const TIMEOUT: Duration = Duration::from_secs(30);
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// A topic, deleted at the end together with its dead letters.
pub struct Topic {
    pub name: String,
    /// How its messages are encoded, as a config says it.
    pub format: &'static str,
    brokers: String,
    admin: AdminClient<DefaultClientContext>,
}

impl Topic {
    pub async fn create(test: &str, partitions: i32) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let brokers = std::env::var("SLUICE_KAFKA").unwrap_or_else(|_| "127.0.0.1:29092".to_owned());
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("sluice-live-{test}-{}-{number}", std::process::id());
        let admin = ClientConfig::new().set("bootstrap.servers", &brokers).create().unwrap();
        let topic = Self { name, format: "OtlpProto", brokers, admin };
        topic.create_other(&topic.name, partitions, &[]).await;
        topic
    }

    pub async fn create_other(&self, name: &str, partitions: i32, settings: &[(&str, &str)]) {
        let mut new = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        for (name, value) in settings {
            new = new.set(name, value);
        }
        let made = self.admin.create_topics([&new], &options()).await.unwrap();
        for made in made {
            made.unwrap();
        }
        // The controller has made it; the broker that is asked next learns of it a moment later.
        let begun = Instant::now();
        while i32::try_from(self.partitions(name)) != Ok(partitions) {
            assert!(begun.elapsed() < TIMEOUT, "the broker does not know {name}");
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    pub async fn delete_other(&self, name: &str) {
        for deleted in self.admin.delete_topics(&[name], &options()).await.unwrap() {
            match deleted {
                Ok(_)
                | Err((_, RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic)) => {}
                Err((name, code)) => panic!("delete {name}: {code}"),
            }
        }
    }

    pub async fn delete(self) {
        self.delete_other(&self.letters()).await;
        self.delete_other(&self.name).await;
    }

    /// The name of its dead-letter topic.
    pub fn letters(&self) -> String {
        default_topic(&self.name)
    }

    /// Puts a message with this value into a partition.
    pub fn produce(&self, partition: i32, value: &[u8]) {
        let producer: BaseProducer =
            ClientConfig::new().set("bootstrap.servers", &self.brokers).create().unwrap();
        let record = BaseRecord::<(), [u8]>::to(&self.name).partition(partition).payload(value);
        producer.send(record).map_err(|(error, _)| error).unwrap();
        producer.flush(TIMEOUT).unwrap();
    }

    /// Commits an offset for the config's group, as another program would.
    pub fn commit(&self, partition: i32, offset: i64) {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", &self.brokers)
            .set("group.id", &self.name)
            .create()
            .unwrap();
        consumer.commit(&self.at(partition, offset), CommitMode::Sync).unwrap();
    }

    /// Has Kafka delete the messages in front of an offset.
    pub async fn delete_before(&self, partition: i32, offset: i64) {
        let deleted = self.admin.delete_records(&self.at(partition, offset), &options()).await.unwrap();
        assert!(deleted.elements().iter().all(|element| element.error().is_ok()), "{deleted:?}");
    }

    fn at(&self, partition: i32, offset: i64) -> TopicPartitionList {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&self.name, partition, Offset::Offset(offset)).unwrap();
        list
    }

    pub fn partitions(&self, name: &str) -> usize {
        let client: BaseConsumer =
            ClientConfig::new().set("bootstrap.servers", &self.brokers).create().unwrap();
        client.fetch_metadata(Some(name), TIMEOUT).unwrap().topics()[0].partitions().len()
    }

    /// A gateway's config, as YAML.
    pub fn config(&self) -> String {
        format!(
            "contractVersion: 1\n\
             pipeline: {{namespace: live, name: live}}\n\
             source: {{kafka: {{bootstrapServers: ['{0}'], topics: [{1}], consumerGroup: {1}, format: {2}}}}}\n\
             sink: {{clickhouse: {{endpoints: ['http://127.0.0.1:8123'], database: live, table: live}}}}\n\
             workers: 1\n\
             memory: {{limit: 192MiB}}\n",
            self.brokers, self.name, self.format
        )
    }

    pub fn kafka(&self) -> Kafka {
        parse::from_yaml(&self.config()).unwrap().source.kafka
    }
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(TIMEOUT)).operation_timeout(Some(TIMEOUT))
}
