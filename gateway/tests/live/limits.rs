//! The topic configs that a real broker reports.

use crate::broker::Topic;
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
