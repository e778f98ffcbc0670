//! What a real broker says of its topics' configs.

use crate::broker::Topic;
use sluice_kafka::retention::{TopicLimits, read_limits};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn retention_and_compaction_are_read_from_the_topics_configs() {
    let topic = Topic::create("limits", 1).await;
    let hour = Some(Duration::from_hours(1));
    let plain = TopicLimits { age: hour, bytes: None, is_compacted: false };
    let sized = TopicLimits { age: None, bytes: Some(1 << 20), is_compacted: false };
    let compacted = TopicLimits { is_compacted: true, ..TopicLimits::default() };
    let both = TopicLimits { age: hour, bytes: None, is_compacted: true };
    let (age, delete) = (("retention.ms", "3600000"), ("cleanup.policy", "delete"));
    for (suffix, settings, expected) in [
        ("plain", [age, delete], plain),
        ("sized", [("retention.ms", "-1"), ("retention.bytes", "1048576")], sized),
        ("compacted", [age, ("cleanup.policy", "compact")], compacted),
        ("both", [age, ("cleanup.policy", "compact,delete")], both),
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
