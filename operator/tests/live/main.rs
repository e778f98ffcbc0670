//! The offsets of a real Kafka, as scaling is decided from them.
//!
//! ```text
//! SLUICE_KAFKA=127.0.0.1:29092 cargo test -p sluice-operator --test live
//! ```
//!
//! Each test has a topic and groups of its own and deletes the topic.

#![allow(clippy::unwrap_used, reason = "tests may unwrap; the lint knows test functions, not their helpers")]

use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, CommitMode, Consumer},
    producer::{BaseProducer, BaseRecord, Producer},
};
use serde_json::json;
use sluice_operator::read::kafka::{
    cluster::Cluster,
    sample::{Sample, Sampler, Source},
    security::KafkaSecurity,
};
use sluice_plan::scale::PartitionSample;
use std::time::{Duration, Instant};

/// How long a broker may take to hear of new partitions from the controller.
const HEARD_WITHIN: Duration = Duration::from_secs(30);

/// Groups that read one topic.
const GROUPS: usize = 5;

fn client(group: &str) -> ClientConfig {
    let servers =
        std::env::var("SLUICE_KAFKA").expect("SLUICE_KAFKA says where Kafka is, as 127.0.0.1:29092");
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", servers).set("group.id", group);
    config
}

/// What the operator asks for: the group has the topic's name, or another one.
fn source(topic: &str, group: &str) -> Source {
    let servers = client(topic).get("bootstrap.servers").unwrap().to_owned();
    let kafka = json!({
        "bootstrapServers": [servers],
        "topics": [topic],
        "properties": {"socket.receive.buffer.bytes": "65536", "no.such.setting": "1"},
    });
    Source {
        cluster: Cluster::of(&serde_json::from_value(kafka).unwrap(), KafkaSecurity::default()),
        consumer_group: group.to_owned(),
        topics: vec![topic.to_owned()],
        from_earliest: true,
    }
}

/// What another operator would be told: it remembers no answer.
async fn asked(name: &str) -> Sample {
    Sampler::default().sample(&source(name, name)).await.unwrap()
}

fn commit(topic: &str, group: &str, at: &[(i32, i64)]) {
    let consumer: BaseConsumer = client(group).create().unwrap();
    consumer.commit(&offsets(topic, at), CommitMode::Sync).unwrap();
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
    commit(&name, &name, &[(0, 5)]);
    admin.delete_records(&offsets(&name, &[(0, 3)]), &options).await.unwrap();

    let found = asked(&name).await;
    let partition =
        |log_start, end, committed| Some(PartitionSample { log_start, end, committed, position: None });
    assert_eq!(found.partitions, [partition(3, 7, Some(5)), partition(0, 2, None)]);
    assert_eq!(found.lag_messages, Some(4));

    admin.create_partitions([&NewPartitions::new(&name, 3)], &options).await.unwrap()[0].as_ref().unwrap();
    // The controller has them at once; the broker that is asked hears of them a moment later.
    let mut found = asked(&name).await;
    let begun = Instant::now();
    while found.partitions.len() < 3 && begun.elapsed() < HEARD_WITHIN {
        found = asked(&name).await;
    }
    admin.delete_topics(&[&name], &options).await.unwrap()[0].as_ref().unwrap();
    assert_eq!(found.topics, [(name, 3)]);
    assert_eq!(found.partitions[2], partition(0, 0, None));
}

#[tokio::test]
async fn all_groups_are_asked_for_over_one_connection() {
    let name = format!("operator-live-groups-{}", std::process::id());
    let admin: AdminClient<DefaultClientContext> = client(&name).create().unwrap();
    let options = AdminOptions::new().operation_timeout(Some(Duration::from_secs(10)));
    let topic = NewTopic::new(&name, 1, TopicReplication::Fixed(1));
    admin.create_topics([&topic], &options).await.unwrap()[0].as_ref().unwrap();
    produce(&name, 0, GROUPS);

    let group = |number: usize| format!("{name}-{number}");
    for number in 1..GROUPS {
        commit(&name, &group(number), &[(0, i64::try_from(number).unwrap())]);
    }
    let sampler = Sampler::default();
    let mut found = Vec::new();
    for number in 0..GROUPS {
        found.push(sampler.sample(&source(&name, &group(number))).await.unwrap().lag_messages);
    }
    admin.delete_topics(&[&name], &options).await.unwrap()[0].as_ref().unwrap();
    // The first one has committed nothing: it begins at the oldest message.
    let expected: Vec<_> = (0..GROUPS).map(|number| u64::try_from(GROUPS - number).ok()).collect();
    assert_eq!(found, expected);
}
