//! The topics as this process first saw them, to recognize partitions that were added later.
//!
//! Why: `initialOffset: Latest` skips what was in the log before the pipeline existed. A partition that is added later, or a topic that
//! is created again, has no such messages. But the group finds it only after a while ([`METADATA_REFRESH`]), and `Latest` would skip the
//! messages of that time.
//!
//! Owner: the commit thread, which reads all topics when it starts, and again before it reads start offsets. Limits: a process that
//! starts between the change and the first commit takes the new partition for an old one. One entry per topic.

#[cfg(doc)]
use crate::ground::settings::METADATA_REFRESH;
use crate::questions::topic_descriptions::{Description, Descriptions};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use sluice_ranges::{PartitionId, TopicId};
use std::{collections::BTreeMap, sync::Arc};

/// The first description of each topic.
#[derive(Debug, Default)]
pub struct FirstSeen(BTreeMap<Arc<str>, Description>);

impl FirstSeen {
    /// Records the description of topics that were not seen yet. A topic that does not exist has no partitions.
    pub fn take(&mut self, described: &Descriptions) {
        for (topic, said) in described {
            let seen = match said {
                Ok(description) => *description,
                Err(KafkaError::AdminOp(RDKafkaErrorCode::UnknownTopicOrPartition)) => {
                    Description { id: None, partitions: 0 }
                }
                Err(_) => continue,
            };
            self.0.entry(topic.clone()).or_insert(seen);
        }
    }

    /// Whether a partition of the topic with this id did not exist when the topic was first seen.
    pub fn is_new(&self, id: &PartitionId, topic: TopicId) -> bool {
        self.0.get(&id.topic).is_some_and(|then| {
            let is_another_topic = then.id.zip(topic).is_some_and(|(then, now)| then != now);
            is_another_topic || usize::try_from(id.partition).is_ok_and(|number| number >= then.partitions)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdkafka::error::KafkaResult;

    fn seen(topics: &mut FirstSeen, topic: &str, said: KafkaResult<Description>) {
        topics.take(&[(topic.into(), said)].into());
    }

    fn is_new(topics: &FirstSeen, topic: &str, partition: i32, id: TopicId) -> bool {
        topics.is_new(&PartitionId { topic: topic.into(), partition }, id)
    }

    #[test]
    fn what_was_added_and_what_was_made_anew_is_new() {
        let mut topics = FirstSeen::default();
        let [first, again] = [Some([1; 16]), Some([2; 16])];
        assert!(!is_new(&topics, "a", 9, first), "nothing is known");
        for partitions in [2, 4] {
            seen(&mut topics, "a", Ok(Description { id: first, partitions }));
        }
        assert!(!is_new(&topics, "a", 1, first) && is_new(&topics, "a", 2, first), "the third was added");
        assert!(!is_new(&topics, "b", 3, first), "another topic");
        assert!(is_new(&topics, "a", 0, again), "made anew");
        // Brokers before 2.8 report no id.
        assert!(!is_new(&topics, "a", 0, None) && is_new(&topics, "a", 2, None));
    }

    #[test]
    fn a_topic_that_was_not_there_is_new_and_one_of_which_nothing_was_said_is_not() {
        let mut topics = FirstSeen::default();
        seen(&mut topics, "a", Err(KafkaError::AdminOp(RDKafkaErrorCode::UnknownTopicOrPartition)));
        seen(&mut topics, "b", Err(KafkaError::AdminOp(RDKafkaErrorCode::OperationTimedOut)));
        for topic in ["a", "b"] {
            seen(&mut topics, topic, Ok(Description { id: Some([1; 16]), partitions: 1 }));
        }
        assert!(is_new(&topics, "a", 0, Some([1; 16])) && !is_new(&topics, "b", 0, Some([1; 16])));
    }
}
