//! Detects topics that were deleted and created again.
//!
//! Such a topic keeps its name, and librdkafka continues at the old offset. Once the new log is longer, the messages before that offset
//! are never read. So the brokers are asked for the topic ids every [`IDENTIFY_INTERVAL`].
//!
//! Why the process then ends: each partition of the topic is at a meaningless offset, in librdkafka too. The next start reads the start
//! offsets, finds plans that were committed under another id, and begins at the start of the log. For this, all plans are committed once
//! more: the coordinator deleted those of idle partitions with the topic.
//!
//! Limits: messages of the new topic that were read before the change was noticed are read again. Their rows are inserted twice, and the
//! next start logs that they may be ([`sluice_ranges::Fresh::TopicRecreated`]). Offsets that an earlier owner has committed meanwhile are
//! read with its topic id.

use super::{Assignment, Owned, PartitionId};
use crate::questions::topic_descriptions::Descriptions;
use rdkafka::error::KafkaResult;
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

/// How often brokers are asked. Chosen: one small request per gateway, weighed against the rows that are inserted twice until the answer.
const IDENTIFY_INTERVAL: Duration = Duration::from_secs(5);

/// A topic was deleted and created again under its name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "topic {topic} was deleted and created again: the next start reads it from its beginning; rows read from it until now may be inserted twice"
)]
pub struct TopicMadeAnew {
    topic: Arc<str>,
}

impl Assignment {
    /// The topics to ask about now; records the attempt.
    pub(super) fn topics_due(&mut self) -> Option<Vec<Arc<str>>> {
        if self.owned.is_empty() || self.last_identified.elapsed() < IDENTIFY_INTERVAL {
            return None;
        }
        self.last_identified = Instant::now();
        let topics: BTreeSet<Arc<str>> = self.owned.keys().map(|id| id.topic.clone()).collect();
        Some(topics.into_iter().collect())
    }

    /// Brokers that do not answer, and a topic that does not exist, prove nothing: reading stops anyway.
    pub(super) fn take_identified(&mut self, identified: KafkaResult<Descriptions>) {
        let Ok(identified) = identified else { return };
        let now = |topic: &Arc<str>| identified.get(topic)?.as_ref().ok()?.id;
        let is_another = |(id, owned): &(&PartitionId, &mut Owned)| {
            let then = owned.ranges.topic_id();
            then.zip(now(&id.topic)).is_some_and(|(then, now)| then != now)
        };
        for (id, owned) in self.owned.iter_mut().filter(is_another) {
            owned.ranges.recommit_plan();
            self.made_anew.get_or_insert_with(|| TopicMadeAnew { topic: id.topic.clone() });
        }
    }

    /// The topic that was found to have another id, once.
    pub fn take_made_anew(&mut self) -> Option<TopicMadeAnew> {
        self.made_anew.take()
    }
}
