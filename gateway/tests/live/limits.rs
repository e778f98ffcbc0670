//! The topic configs that a real broker reports, what follows from them, and batches above the limit.

use crate::{broker::Topic, server::Database};
use sluice_gateway::commands::{audit, check};
use sluice_gateway_config::{GatewayConfig, Schema, parse};
use sluice_kafka::retention::{TopicLimits, read_limits};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn retention_and_compaction_are_read_from_the_topics_configs() {
    let topic = Topic::create("limits", 1).await;
    let batch_bytes_max = Some(1_048_588);
    let batch = ("max.message.bytes", "1048588");
    let hour = Some(Duration::from_hours(1));
    let plain = TopicLimits { age: hour, batch_bytes_max, ..TopicLimits::default() };
    let sized = TopicLimits { bytes: Some(1 << 20), batch_bytes_max, ..TopicLimits::default() };
    let compacted = TopicLimits { is_compacted: true, batch_bytes_max, ..TopicLimits::default() };
    let both = TopicLimits { is_compacted: true, ..plain };
    let (age, delete) = (("retention.ms", "3600000"), ("cleanup.policy", "delete"));
    for (suffix, settings, expected) in [
        ("plain", [age, delete, batch], plain),
        ("sized", [("retention.ms", "-1"), ("retention.bytes", "1048576"), batch], sized),
        ("compacted", [age, ("cleanup.policy", "compact"), batch], compacted),
        ("both", [age, ("cleanup.policy", "compact,delete"), batch], both),
    ] {
        let name = format!("{}.{suffix}", topic.name);
        topic.create_other(&name, 1, &settings).await;
        let mut kafka = topic.kafka();
        kafka.topics = vec![name.clone()];
        let read = read_limits(&kafka, TIMEOUT).await;
        topic.delete_other(&name).await;
        assert_eq!(read.unwrap(), [(name.as_str().into(), expected)]);
    }
    topic.delete().await;
}

/// The config of the topic, with a table of its own.
fn config(topic: &Topic, database: &Database) -> GatewayConfig {
    let mut config = parse::from_yaml(&topic.config()).unwrap();
    config.sink.clickhouse = database.config(Schema::default());
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn the_check_says_that_a_compacted_topic_is_stored_at_least_once() {
    let database = Database::new("check_compacted").await;
    database.with_table().await;
    let topic = Topic::create_with("compacted", 1, &[("cleanup.policy", "compact")]).await;
    let findings = check::check(&config(&topic, &database).check().unwrap()).await;
    let is_told = |line: &String| line.starts_with("delivery at_least_once:") && line.contains("compacted");
    assert!(findings.warnings.iter().any(is_told), "{findings}");
    assert!(!findings.to_string().contains("ok       delivery"), "{findings}");
    topic.delete().await;
    database.drop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_audit_goes_on_beside_a_batch_above_the_limit() {
    let database = Database::new("audit_oversized").await;
    database.with_table().await;
    let topic = Topic::create_with("oversized", 2, &[("max.message.bytes", "8388608")]).await;
    topic.produce(0, b"");
    topic.produce(0, &vec![b'v'; 3 << 20]);
    topic.produce(1, b"");
    let checked = config(&topic, &database).check().unwrap();
    let request = audit::Request { topic: None, partitions: Vec::new(), since: None, until: None, limit: 5 };
    let audited = tokio::task::spawn_blocking(move || audit::audit(&checked, &request, |_| ()));
    let report = audited.await.unwrap().unwrap();
    let [unread] = &report.unread[..] else { panic!("{report}") };
    assert_eq!((unread.partition, unread.first, unread.next), (0, 1, 2), "{report}");
    assert!(unread.reason.contains("recordBatchBytesMax: 4Mi with memory.limit: "), "{report}");
    assert_eq!(report.totals.messages, 2, "{report}");
    topic.delete().await;
    database.drop().await;
}
