//! Whether the topics that are read are still the ones that they were.
//!
//! A topic that is deleted and made again keeps its name, and librdkafka reads on in it at the offset of before: what lies in front of that
//! is never read once the new log is longer. So brokers are asked for the ids every [`IDENTIFY_INTERVAL`].
//!
//! Why the process ends then: each partition of the topic stands at an offset that means nothing, in librdkafka too. A start reads where
//! they begin, finds plans that were committed under another id, and begins at the beginning of the log. So that it finds them, all of
//! them are committed once more: the coordinator has forgotten those of partitions that rested when the topic went.
//!
//! Limits: what was read of the new topic until it was noticed is read again; its rows are doubled, and the next start says that they
//! may be ([`sluice_ranges::Fresh::TopicRecreated`]). What an owner that is gone has committed meanwhile is read with its id.

use super::{Assignment, Owned, PartitionId};
use crate::topic_descriptions::Descriptions;
use rdkafka::error::KafkaResult;
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

/// How often brokers are asked. Chosen: one small request of each gateway, against what is doubled until it is answered.
const IDENTIFY_INTERVAL: Duration = Duration::from_secs(5);

/// A topic was deleted and made again under its name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "topic {topic} was deleted and created again: the next start reads it from its beginning; rows read from it until now may be inserted twice"
)]
pub struct TopicMadeAnew {
    topic: Arc<str>,
}

impl Assignment {
    /// The topics to be asked about now; the attempt is taken down.
    pub(super) fn topics_due(&mut self) -> Option<Vec<Arc<str>>> {
        if self.owned.is_empty() || self.last_identified.elapsed() < IDENTIFY_INTERVAL {
            return None;
        }
        self.last_identified = Instant::now();
        let topics: BTreeSet<Arc<str>> = self.owned.keys().map(|id| id.topic.clone()).collect();
        Some(topics.into_iter().collect())
    }

    /// Brokers that do not answer, and a topic that is not there, say nothing: reading stands still by itself.
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

    /// The topic that was found to be another one, once.
    pub fn take_made_anew(&mut self) -> Option<TopicMadeAnew> {
        self.made_anew.take()
    }
}
