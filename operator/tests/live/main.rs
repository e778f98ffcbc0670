//! The offsets of a real Kafka, as scaling is decided from them.
//!
//! ```text
//! SLUICE_KAFKA=127.0.0.1:29092 cargo test -p sluice-operator --test live
//! ```
//!
//! The test has a topic and a group of its own and deletes the topic.

#![allow(clippy::unwrap_used, reason = "tests may unwrap; the lint knows test functions, not their helpers")]

use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, CommitMode, Consumer},
    producer::{BaseProducer, BaseRecord, Producer},
};
use sluice_operator::{
    kafka::ClientKey,
    kafka_security::KafkaSecurity,
    sample::{Sample, Sampler, Source},
};
use sluice_plan::scale::PartitionSample;
use std::time::Duration;

fn client(group: &str) -> ClientConfig {
    let servers =
        std::env::var("SLUICE_KAFKA").expect("SLUICE_KAFKA says where Kafka is, as 127.0.0.1:29092");
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", servers).set("group.id", group);
    config
}

/// What another operator would be told: it remembers no answer.
async fn asked(name: &str) -> Sample {
    let servers = client(name).get("bootstrap.servers").unwrap().to_owned();
    let key = ClientKey {
        bootstrap_servers: servers,
        consumer_group: name.to_owned(),
        security: KafkaSecurity::default(),
    };
    let source = Source { client: key, topics: vec![name.to_owned()], from_earliest: true };
    Sampler::default().sample(&source).await.unwrap()
}

fn produce(topic: &str, partition: i32, count: usize) {
    let producer: BaseProducer = client(topic).create().unwrap();
    for _ in 0..count {
        producer.send(BaseRecord::<(), str>::to(topic).partition(partition).payload("x")).unwrap();
    }
    producer.flush(Duration::from_secs(10)).unwrap();
}

fn offsets(topic: &str, at: &[(i32, i64)]) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for (partition, offset) in at {
        list.add_partition_offset(topic, *partition, Offset::Offset(*offset)).unwrap();
    }
    list
}

#[tokio::test]
async fn end_committed_and_log_start_are_read_and_new_partitions_are_noticed() {
    let name = format!("operator-live-{}", std::process::id());
    let admin: AdminClient<DefaultClientContext> = client(&name).create().unwrap();
    let options = AdminOptions::new().operation_timeout(Some(Duration::from_secs(10)));
    let topic = NewTopic::new(&name, 2, TopicReplication::Fixed(1));
    admin.create_topics([&topic], &options).await.unwrap()[0].as_ref().unwrap();

    produce(&name, 0, 7);
    produce(&name, 1, 2);
    let consumer: BaseConsumer = client(&name).create().unwrap();
    consumer.commit(&offsets(&name, &[(0, 5)]), CommitMode::Sync).unwrap();
    admin.delete_records(&offsets(&name, &[(0, 3)]), &options).await.unwrap();

    let found = asked(&name).await;
    let partition =
        |log_start, end, committed| Some(PartitionSample { log_start, end, committed, position: None });
    assert_eq!(found.partitions, [partition(3, 7, Some(5)), partition(0, 2, None)]);
    assert_eq!(found.lag_messages, Some(4));

    admin.create_partitions([&NewPartitions::new(&name, 3)], &options).await.unwrap()[0].as_ref().unwrap();
    let found = asked(&name).await;
    admin.delete_topics(&[&name], &options).await.unwrap()[0].as_ref().unwrap();
    assert_eq!(found.topics, [(name, 3)]);
    assert_eq!(found.partitions[2], partition(0, 0, None));
}
