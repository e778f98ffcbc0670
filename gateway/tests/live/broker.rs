//! A topic in a real Kafka for a single test.

use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication},
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

/// The largest batch that is produced, for topics that take such.
pub const MESSAGE_BYTES_MAX: &str = "8388608";

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
        Self::create_with(test, partitions, &[]).await
    }

    /// The same with these settings.
    pub async fn create_with(test: &str, partitions: i32, settings: &[(&str, &str)]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let brokers = std::env::var("SLUICE_KAFKA").unwrap_or_else(|_| "127.0.0.1:29092".to_owned());
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("sluice-live-{test}-{}-{number}", std::process::id());
        let admin = ClientConfig::new().set("bootstrap.servers", &brokers).create().unwrap();
        let topic = Self { name, format: "OtlpProto", brokers, admin };
        topic.create_other(&topic.name, partitions, settings).await;
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
        self.await_partitions(name, partitions).await;
    }

    /// Waits until a broker that is asked knows this many partitions of a topic. The controller answers before the brokers have applied a
    /// change: until then they deny a topic that was made, and accept and then drop messages for one that was deleted.
    async fn await_partitions(&self, name: &str, partitions: i32) {
        let begun = Instant::now();
        while i32::try_from(self.partitions(name)) != Ok(partitions) {
            assert!(
                begun.elapsed() < TIMEOUT,
                "the broker does not know of {partitions} partitions of {name}"
            );
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

    /// Deletes the topic of its dead letters, until no broker takes a letter for it.
    pub async fn delete_letters(&self) {
        self.delete_other(&self.letters()).await;
        self.await_partitions(&self.letters(), 0).await;
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
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.brokers).set("message.max.bytes", MESSAGE_BYTES_MAX);
        let producer: BaseProducer = config.create().unwrap();
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

    /// The offsets that the config's group has committed, by partition.
    pub fn committed(&self) -> Vec<Option<i64>> {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", &self.brokers)
            .set("group.id", &self.name)
            .create()
            .unwrap();
        let mut list = TopicPartitionList::new();
        for partition in 0..i32::try_from(self.partitions(&self.name)).unwrap() {
            list.add_partition(&self.name, partition);
        }
        let committed = consumer.committed_offsets(list, TIMEOUT).unwrap();
        let offset = |offset| if let Offset::Offset(offset) = offset { Some(offset) } else { None };
        committed.elements().iter().map(|element| offset(element.offset())).collect()
    }

    /// Has this many partitions from now on.
    pub async fn grow(&self, partitions: usize) {
        let new = NewPartitions::new(&self.name, partitions);
        for grown in self.admin.create_partitions([&new], &options()).await.unwrap() {
            grown.unwrap();
        }
    }

    /// Is deleted, and made again under its name.
    pub async fn make_again(&self, partitions: i32) {
        self.delete_other(&self.name).await;
        self.await_partitions(&self.name, 0).await;
        self.create_other(&self.name, partitions, &[]).await;
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
        parse::from_yaml(&self.config()).unwrap().source.kafka.unwrap()
    }
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(TIMEOUT)).operation_timeout(Some(TIMEOUT))
}
